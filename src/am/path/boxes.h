/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/boxes.h - small messages over shared memory, past UCX: a box for
 * those of this side, and the peer's. Each side makes its own when it has sent
 * a few, and the other finds it or does not; nothing waits for that. The rules
 * are docs/connection.md, "Boxes".
 *
 * A box is as good as UCX's queue because nothing overtakes: a message in it
 * says how many active messages of its connection went to UCX before it, and is
 * left alone until as many have come; and before one that comes is looked at,
 * all that was put into the box before is taken. */
#ifndef TMSG_AM_PATH_BOXES_H
#define TMSG_AM_PATH_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/shm/box.h"
#include "core/list.h"

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_ucx tmsg_ucx_t;
typedef struct tmsg_worker tmsg_worker_t;

/* Of an endpoint. */
typedef struct {
    tmsg_box_t *in;    /* NULL: none */
    tmsg_box_t *out;   /* that the peer has taken; NULL: none */
    tmsg_box_t *offer; /* that it was told of */
    uint32_t sent;     /* active messages of this connection */
    uint32_t came;     /* the same of the peer's */
    unsigned waited;   /* messages that would have gone by one */
    bool heard;        /* the peer has told of its own */
    bool owes;         /* UCX had some of what was sent yet to send */
    tmsg_node_t node;  /* worker's boxes, if there is one */
    char why[100];     /* none can be, if that is so; else empty */
} tmsg_boxes_t;

/* In words: "stands", of messages to the peer, or "offered", or "none" and
 * perhaps why. */
const char *tmsg_boxes_words(const tmsg_endpoint_t *endpoint);

/* Whether a message of such a length is one for a box. */
bool tmsg_boxes_are_for(const tmsg_endpoint_t *endpoint, size_t header_bytes,
                        size_t payload_bytes);

/* The box for one, if it may go by it now; else NULL. Has one made in the
 * end. */
tmsg_box_t *tmsg_boxes_choose(tmsg_endpoint_t *endpoint);

/* Such a message is put there; its receiver is woken if it sleeps. */
void tmsg_boxes_put(tmsg_endpoint_t *endpoint, size_t payload_bytes);

/* A message went to UCX, past the box: it counts, and a peer that naps on the
 * box, which it may do from the offer on, is woken for it. */
void tmsg_boxes_passed(tmsg_endpoint_t *endpoint);

/* The same for what UCX had kept back of such messages and may have sent since:
 * in progress, where the worker owes some. */
void tmsg_boxes_moved(tmsg_worker_t *worker);

/* The peer tells of its box, or answers that. */
void tmsg_boxes_offered(tmsg_endpoint_t *endpoint, const uint8_t *offer);
void tmsg_boxes_answered(tmsg_endpoint_t *endpoint, bool taken);

/* In progress: takes what has come. Gives how many. */
unsigned tmsg_boxes_poll(tmsg_worker_t *worker);

/* UCX brings an active message, which is counted: what was put into the box
 * before it comes first. Inside UCX. */
void tmsg_boxes_before(tmsg_ucx_t *ucx, const void *header, size_t bytes);

/* Before the worker sleeps: it is woken for what comes. False: something is
 * there. */
bool tmsg_boxes_arm(tmsg_worker_t *worker);

/* Before the worker naps, see box.h: what is there already is looked for once
 * this was called, by UCX too. False: one of the peers would not wake it, or
 * UCX has something to send to it, which needs progress. Then it naps on these
 * words; and after. Lock held. */
bool tmsg_boxes_nap_begin(tmsg_worker_t *worker);
void tmsg_boxes_nap_words(const tmsg_worker_t *worker, tmsg_nap_t *nap);
void tmsg_boxes_nap_end(tmsg_worker_t *worker);

/* Ends the nap of a thread of this worker. Lock held. */
void tmsg_boxes_rouse(tmsg_worker_t *worker);

/* Whether the peer whose message came last put it there on the core on which
 * this runs. From any thread. */
bool tmsg_boxes_share_core(const tmsg_worker_t *worker);

/* Whether nobody else wrote to either box, see box.h. */
bool tmsg_boxes_are_intact(const tmsg_endpoint_t *endpoint);

/* The connection is over. */
void tmsg_boxes_end(tmsg_endpoint_t *endpoint);

#endif
