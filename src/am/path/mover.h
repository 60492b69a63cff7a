/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/mover.h - what moves the bytes of a lane: one table of functions
 * each.
 *
 * A mover is one file in this folder, which defines tmsg_mover_<name>, and one
 * line of TMSG_MOVERS. What goes through it (the parts of messages, each behind
 * a header) is lane_io.c's, and when it has a turn is lane.c's. */
#ifndef TMSG_AM_PATH_MOVER_H
#define TMSG_AM_PATH_MOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The movers. Where several could move the parts of an endpoint, the first
 * does. */
#define TMSG_MOVERS(MOVER)                                                     \
    MOVER(tcp)  /* a second TCP connection: lane_tcp.c */                      \
    MOVER(ring) /* rings of shared memory: lane_ring.c */

/* What write() gives where some of the memory cannot be read. */
#define TMSG_MOVER_UNREADABLE SIZE_MAX

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_lane tmsg_lane_t;

/* lane.c and lane_io.c call these, with the worker's lock held; outside UCX,
 * but for may_send(), make(), look() and ahead(). Functions that may be NULL
 * say what that stands for. A mover allocates its lanes itself, with a
 * tmsg_lane_t as their first member. One that wraps another forwards all of
 * them. */
typedef struct tmsg_mover {
    const char *ready;   /* what describe() says of a lane that moves parts, */
    const char *unready; /* and of one that is still being made */
    size_t turn_bytes;   /* of a turn, while small messages pass, too */

    /* Outside UCX: what carries an open endpoint without a lane is known, so
     * that a lane may be prepared. Called once a connection; if that lane fails
     * later, no other mover is asked. NULL: nothing is prepared. */
    void (*begin)(tmsg_endpoint_t *endpoint);
    /* Whether a large message may be meant for a lane of this mover, which
     * make() then makes, if there is none. Inside UCX, too. */
    bool (*may_send)(const tmsg_endpoint_t *endpoint);
    bool (*make)(tmsg_endpoint_t *endpoint);

    /* Whether a lane that stands takes parts, and brings the peer's. */
    bool (*sends)(const tmsg_lane_t *lane);
    bool (*receives)(const tmsg_lane_t *lane);

    /* So many of `most` bytes are best written by the next call; `first`: of a
     * turn. 0: the turn ends. NULL: all of them. */
    size_t (*trim)(tmsg_lane_t *lane, size_t most, bool first);
    /* The number of bytes that were moved; 0: none can be, for now or for
     * ever. Memory that was counted belongs to the application again: a mover
     * that may send it again copies it first. A lane that has ended is lost:
     * tmsg_lane_lose(). */
    size_t (*write)(tmsg_lane_t *lane, struct iovec *from, size_t count);
    /* With count 0 up to `most` bytes are thrown away. */
    size_t (*read)(tmsg_lane_t *lane, struct iovec *into, size_t count,
                   uint64_t most);
    /* So many bytes are wanted by the next reads. NULL: that is no matter. */
    void (*expect)(tmsg_lane_t *lane, uint64_t bytes);

    /* Bytes were moved, of which the peer is to hear. NULL: it does anyway. */
    void (*moved)(tmsg_lane_t *lane);
    /* This side sleeps next: whether it is woken for all that the lane waits
     * for; false: there is something to be done. */
    bool (*await)(tmsg_lane_t *lane);
    /* From time to time. Stirs a lane whose wake-up was lost. NULL: none can
     * be. */
    void (*look)(tmsg_lane_t *lane);

    /* The TCP socket whose unacknowledged bytes tell that the peer is silent.
     * NULL: there is none, and the mover itself calls tmsg_lane_lose(). */
    int (*socket)(const tmsg_lane_t *lane);
    /* So many bytes may be on their way to a receiver when it asks for the next
     * message: what a network has under way while it does, and a little; 0: not
     * known. */
    uint64_t (*ahead)(const tmsg_lane_t *lane);
    /* Whether nobody else wrote to its memory. NULL: nobody can. */
    bool (*is_intact)(const tmsg_lane_t *lane);

    /* Nothing is moved any more; more than once. Then what it has is freed, the
     * lane with it. */
    void (*shut)(tmsg_lane_t *lane);
    void (*free)(tmsg_lane_t *lane);
} tmsg_mover_t;

#define TMSG_MOVER_DECLARE(name) extern const tmsg_mover_t tmsg_mover_##name;

TMSG_MOVERS(TMSG_MOVER_DECLARE)

#endif
