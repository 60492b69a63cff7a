/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/box.h - places in memory that two processes share, for small messages
 * of one to the other: what is called a fast box elsewhere. A message is
 * written where its receiver looks for the next one, and neither makes a system
 * call or asks UCX.
 *
 * Its sender makes it. Neither believes what the other may write there: it is
 * looked at once, and bounded. */
#ifndef TMSG_AM_SHM_BOX_H
#define TMSG_AM_SHM_BOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/shm/shared.h"
#include "core/list.h"

#define TMSG_BOX_PLACES 64u

/* Header and payload, which begins at a multiple of 64. */
#define TMSG_BOX_HEADER_BYTES 496
#define TMSG_BOX_PAYLOAD_BYTES 2048

#define TMSG_BOX_NAPS 32u /* boxes that one receiver may nap on */

typedef struct tmsg_box tmsg_box_t;

/* A message that lies there, as its sender says. The header is a copy, which
 * the next look changes. */
typedef struct {
    uint32_t after; /* see boxes.h */
    uint32_t payload_bytes;
    const uint8_t *payload; /* which its sender may change yet */
    size_t header_bytes;
    const uint8_t *header;
} tmsg_boxed_t;

typedef enum {
    TMSG_BOX_EMPTY = 0,
    TMSG_BOX_FULL = 1,
    TMSG_BOX_WRONG = 2, /* what the other side wrote there cannot be */
} tmsg_box_state_t;

/* The sender's, empty. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_box_create(tmsg_box_t **box_p);

/* What its receiver is told of, and finds it by. */
tmsg_shared_t *tmsg_box_shared(tmsg_box_t *box);

/* The receiver's, by the descriptor of that process. Errors: NO_MEMORY, IO (it
 * cannot be opened or is no such box). */
tmsg_status_t tmsg_box_open(pid_t pid, int fd, const uint8_t *mark,
                            tmsg_box_t **box_p);

/* Either's; NULL is allowed. */
void tmsg_box_free(tmsg_box_t *box);

/* Whether the next message may be put there now: there is room, and the
 * receiver looks. */
bool tmsg_box_has_room(tmsg_box_t *box);

/* Begins the next message. Headers with the same `like`, which is not 0, are of
 * one length and the same but for bytes 8 to 23 and, where there are 56 or
 * more, 40 to 55: these alone are put, where the last one that was put whole is
 * such a one. Gives where the payload is to be written. */
uint8_t *tmsg_box_begin(tmsg_box_t *box, size_t header_bytes, uint64_t like);
void tmsg_box_write_header(tmsg_box_t *box, const uint8_t *header);

/* Both have been: it is the receiver's. Gives whether that one has begun to
 * sleep meanwhile, and is to be woken. */
bool tmsg_box_put(tmsg_box_t *box, size_t payload_bytes, uint32_t after);

/* The next message, which stays there until it is taken; *boxed_p is written if
 * FULL. */
tmsg_box_state_t tmsg_box_look(tmsg_box_t *box, tmsg_boxed_t *boxed_p);
void tmsg_box_take(tmsg_box_t *box);

/* Asks the sender to wake this side: for what is there already it will not, so
 * that is looked for next. And asks it no more. */
void tmsg_box_sleep(tmsg_box_t *box);
void tmsg_box_wake(tmsg_box_t *box);

/* A nap: for a moment the receiver sleeps on the box alone, whose sender wakes
 * it by a futex. That takes two system calls where to sleep takes a dozen, and
 * messages go on by the box. But nothing else wakes it.
 *
 * Whether the sender knows of naps; announces one, after which what is there
 * already is looked for; sleeps until a sender of one of these boxes ends it,
 * or until then (CLOCK_MONOTONIC): TIMED_OUT; and it is over. UNSUPPORTED: this
 * kernel cannot, or not on so many. */
typedef struct {
    _Atomic uint32_t *words[TMSG_BOX_NAPS];
    unsigned count;
} tmsg_nap_t;

bool tmsg_box_may_nap(const tmsg_box_t *box);
void tmsg_box_nap_begin(tmsg_box_t *box);
void tmsg_box_nap_word(tmsg_box_t *box, tmsg_nap_t *nap);
tmsg_status_t tmsg_box_nap(const tmsg_nap_t *nap, uint64_t until_ns);
void tmsg_box_nap_end(tmsg_box_t *box);

/* The sender has something for the receiver elsewhere: a nap is over. Another
 * thread of the receiver ends its nap. */
void tmsg_box_call(tmsg_box_t *box);
void tmsg_box_rouse(tmsg_box_t *box);

/* The core on which the sender put its latest messages, or -1: it does not
 * say. */
int tmsg_box_core(const tmsg_box_t *box);

/* Whether the memory holds what its owners wrote there, as far as a message
 * could be waited for in vain else. The sender's: the numbers of the latest
 * messages, and that none of them is to wait for more than `sent` active
 * messages. The receiver's: the number in the next place, and what it said it
 * took. */
bool tmsg_box_is_intact_out(const tmsg_box_t *box, uint32_t sent);
bool tmsg_box_is_intact_in(const tmsg_box_t *box);

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

/* That of a node of its worker's list. */
static inline tmsg_boxes_t *tmsg_boxes_at(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_boxes_t, node);
}

/* A peer that naps on our box, which it may do from the offer on, is woken: a
 * message went to it by UCX. */
static inline void tmsg_boxes_call(tmsg_boxes_t *boxes)
{
    tmsg_box_t *box = boxes->out != NULL ? boxes->out : boxes->offer;

    if (box != NULL) {
        tmsg_box_call(box);
    }
}

#endif
