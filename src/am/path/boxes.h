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

/* In progress, where the worker owes it: wakes the peers that nap on a box to
 * which UCX may have sent since what it had kept back. */
void tmsg_boxes_moved(tmsg_worker_t *worker);

/* The peer tells of its box, or answers that. */
void tmsg_boxes_offered(tmsg_endpoint_t *endpoint, const uint8_t *offer);
void tmsg_boxes_answered(tmsg_endpoint_t *endpoint, bool taken);

/* The next message in the peer's box, if one is there and nothing of UCX's is
 * missing before it. It stays there until it is taken. */
bool tmsg_boxes_next(tmsg_endpoint_t *endpoint, tmsg_boxed_t *boxed);
void tmsg_boxes_take(tmsg_endpoint_t *endpoint);

/* Whether that is for the endpoint, which ends if it is not. */
bool tmsg_boxes_check(tmsg_endpoint_t *endpoint, const tmsg_boxed_t *boxed);

/* Messages were taken: on which core the peer runs. */
void tmsg_boxes_note_core(const tmsg_endpoint_t *endpoint);

/* In progress: boxes do not sleep any more. */
void tmsg_boxes_wake(tmsg_worker_t *worker);

/* Of a node of worker->boxes. */
tmsg_endpoint_t *tmsg_boxes_endpoint(tmsg_node_t *node);

/* Inside UCX, which brings an active message. The endpoint that it is for,
 * whose box comes first; NULL: there is none here. Then it is counted, for the
 * peer's next message in the box says how many came before it. */
tmsg_endpoint_t *tmsg_boxes_receiver(tmsg_ucx_t *ucx, const void *header,
                                     size_t bytes);
void tmsg_boxes_count(tmsg_endpoint_t *endpoint);

/* Before the worker sleeps: it is woken for what comes. False: something is
 * there. */
bool tmsg_boxes_arm(tmsg_worker_t *worker);

/* Whether nobody else wrote to either box, see box.h. */
bool tmsg_boxes_are_intact(const tmsg_endpoint_t *endpoint);

/* The connection is over. */
void tmsg_boxes_end(tmsg_endpoint_t *endpoint);

/* Whether UCX has nothing of the endpoints that have boxes: nobody wakes a nap
 * for that. */
bool tmsg_boxes_are_quiet(const tmsg_worker_t *worker);

#endif
