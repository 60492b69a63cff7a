/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/fastbox.h - fast boxes: places in a segment for small messages of one
 * process to another. The sender writes a message where its receiver looks for
 * the next one, and neither makes a system call or asks UCX.
 *
 * The sender makes the fast box. Neither side believes what the other may write
 * there: each value is read once, and bounded. */
#ifndef TMSG_AM_SHM_FASTBOX_H
#define TMSG_AM_SHM_FASTBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/shm/segment.h"
#include "core/list.h"

#define TMSG_FASTBOX_PLACES 64u

/* TMSG_FASTBOX_HEADER_BYTES and TMSG_FASTBOX_PAYLOAD_BYTES are the most bytes
 * of a header and of a payload in a fast box. The payload begins at a multiple
 * of 64. */
#define TMSG_FASTBOX_HEADER_BYTES 496
#define TMSG_FASTBOX_PAYLOAD_BYTES 2048

#define TMSG_FASTBOX_NAPS 32u /* fast boxes that one receiver may nap on */

typedef struct tmsg_fastbox tmsg_fastbox_t;

/* Describes a message that lies there, as its sender says. The header is a
 * copy, which the next look changes. */
typedef struct {
    uint32_t after; /* active messages before it; see fastboxes.h */
    uint32_t payload_bytes;
    const uint8_t *payload; /* its sender may still change it */
    size_t header_bytes;
    const uint8_t *header;
} tmsg_fastbox_message_t;

typedef enum {
    TMSG_FASTBOX_EMPTY = 0,
    TMSG_FASTBOX_FULL = 1,
    TMSG_FASTBOX_WRONG = 2, /* what the other side wrote there cannot be */
} tmsg_fastbox_state_t;

/* Creates the sender's fast box, which is empty. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_fastbox_create(tmsg_fastbox_t **fastbox_p);

/* Returns the memory of the fast box, which the receiver is told of. */
tmsg_segment_t *tmsg_fastbox_segment(tmsg_fastbox_t *fastbox);

/* Opens the receiver's fast box, as tmsg_segment_open(). Errors: NO_MEMORY, IO
 * (it cannot be opened or is no such fast box). */
tmsg_status_t tmsg_fastbox_open(const tmsg_segment_offer_t *offer,
                                tmsg_fastbox_t **fastbox_p);

/* Frees the fast box of either side. NULL is allowed. */
void tmsg_fastbox_free(tmsg_fastbox_t *fastbox);

/* Returns whether the next message may be put there now: there is room, and the
 * receiver does not sleep. */
bool tmsg_fastbox_has_room(tmsg_fastbox_t *fastbox);

/* tmsg_fastbox_begin() begins the next message, and returns where its payload
 * is to be written. tmsg_fastbox_write_header() writes its header. Headers with
 * the same `like`, which is not 0, are of one length. They differ only in bytes
 * 8 to 23 and, where there are 56 or more, 40 to 55. If the last header that
 * was put whole has this `like`, only these bytes are put. With `like` 0 the
 * header is put whole. */
uint8_t *tmsg_fastbox_begin(tmsg_fastbox_t *fastbox, size_t header_bytes,
                            uint64_t like);
void tmsg_fastbox_write_header(tmsg_fastbox_t *fastbox, const uint8_t *header);

/* Hands the message, whose header and payload are written, to the receiver.
 * Returns whether the receiver has begun to sleep meanwhile, and is to be
 * woken. */
bool tmsg_fastbox_put(tmsg_fastbox_t *fastbox, size_t payload_bytes,
                      uint32_t after);

/* tmsg_fastbox_look() looks for the next message, which stays there until
 * tmsg_fastbox_take(). It writes *fastboxed_p if the state is FULL. */
tmsg_fastbox_state_t tmsg_fastbox_look(tmsg_fastbox_t *fastbox,
                                       tmsg_fastbox_message_t *fastboxed_p);
void tmsg_fastbox_take(tmsg_fastbox_t *fastbox);

/* tmsg_fastbox_sleep() asks the sender to wake this side. The sender does not
 * do so for messages that are there already, so look for these next.
 * tmsg_fastbox_wake() ends that request. */
void tmsg_fastbox_sleep(tmsg_fastbox_t *fastbox);
void tmsg_fastbox_wake(tmsg_fastbox_t *fastbox);

/* In a nap the receiver sleeps for a moment on the fast box alone, and the
 * sender wakes it by a futex. A nap takes two system calls where a sleep takes
 * a dozen, and messages go on by the fast box. But nothing else ends a nap.
 *
 * tmsg_fastbox_may_nap() returns whether the sender knows of naps.
 * tmsg_fastbox_nap_begin() announces a nap; look for messages after it.
 * tmsg_fastbox_nap_word() adds the fast box to those that a nap waits for.
 * tmsg_fastbox_nap() sleeps until a sender of one of these fast boxes ends the
 * nap, or until `until_ns` (CLOCK_MONOTONIC), which is TIMED_OUT. It returns
 * UNSUPPORTED if this kernel cannot do that, or not on so many fast boxes.
 * tmsg_fastbox_nap_end() says that the nap is over. */
typedef struct {
    _Atomic uint32_t *words[TMSG_FASTBOX_NAPS];
    unsigned count;
} tmsg_nap_t;

bool tmsg_fastbox_may_nap(const tmsg_fastbox_t *fastbox);
void tmsg_fastbox_nap_begin(tmsg_fastbox_t *fastbox);
void tmsg_fastbox_nap_word(tmsg_fastbox_t *fastbox, tmsg_nap_t *nap);
tmsg_status_t tmsg_fastbox_nap(const tmsg_nap_t *nap, uint64_t until_ns);
void tmsg_fastbox_nap_end(tmsg_fastbox_t *fastbox);

/* tmsg_fastbox_call() ends the receiver's nap, because the sender has something
 * for it elsewhere. tmsg_fastbox_rouse() ends the nap of another thread of the
 * receiver. */
void tmsg_fastbox_call(tmsg_fastbox_t *fastbox);
void tmsg_fastbox_rouse(tmsg_fastbox_t *fastbox);

/* Returns the core on which the sender put its latest messages, or -1: it does
 * not say. */
int tmsg_fastbox_core(const tmsg_fastbox_t *fastbox);

/* The two functions return whether the memory holds what its owners wrote
 * there, as far as a message could be waited for in vain otherwise.
 * tmsg_fastbox_is_intact_out() checks, for the sender, the numbers of the
 * latest messages, and that none of them is to wait for more than `sent` active
 * messages. tmsg_fastbox_is_intact_in() checks, for the receiver, the number in
 * the next place, and what it said it took. */
bool tmsg_fastbox_is_intact_out(const tmsg_fastbox_t *fastbox, uint32_t sent);
bool tmsg_fastbox_is_intact_in(const tmsg_fastbox_t *fastbox);

/* Holds the fast boxes of an endpoint. */
typedef struct {
    tmsg_fastbox_t *in;    /* the peer's; NULL: none */
    tmsg_fastbox_t *out;   /* ours, which the peer has taken; NULL: none */
    tmsg_fastbox_t *offer; /* ours, which the peer was told of; NULL: none */
    uint32_t sent;         /* active messages of this connection */
    uint32_t came;         /* active messages of the peer */
    unsigned waited;       /* messages that would have gone by `out` */
    bool heard;            /* the peer has told of its own */
    bool unreported;       /* UCX may have kept back some of what was sent */
    tmsg_node_t node;      /* in worker's fast boxes, if `in` is there */
    char why[100];         /* why there can be no fast box; else empty */
} tmsg_fastboxes_t;

/* Returns the fast boxes of a node of their worker's list. */
static inline tmsg_fastboxes_t *tmsg_fastboxes_at(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_fastboxes_t, node);
}

/* Wakes a peer that naps on our fast box when a message went to it by UCX. The
 * peer may nap on the fast box from the offer on. */
static inline void tmsg_fastboxes_call(tmsg_fastboxes_t *fastboxes)
{
    tmsg_fastbox_t *fastbox =
        fastboxes->out != NULL ? fastboxes->out : fastboxes->offer;

    if (fastbox != NULL) {
        tmsg_fastbox_call(fastbox);
    }
}

#endif
