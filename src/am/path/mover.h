/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/mover.h - a mover is a table of functions that move the bytes of a
 * bulk stream.
 *
 * A mover is one file in this folder, which defines tmsg_mover_<name>, and one
 * line of TMSG_MOVERS. bulk_io.c says what goes through it: the fragments of
 * messages, each behind a header. bulk.c says when it has a turn. */
#ifndef TMSG_AM_PATH_MOVER_H
#define TMSG_AM_PATH_MOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tensormsg/status.h>

/* Lists the movers. Where several could move the fragments of an endpoint, the
 * first one does. */
#define TMSG_MOVERS(MOVER)                                                     \
    MOVER(tcp)  /* a second TCP connection: bulk_tcp.c */                      \
    MOVER(ring) /* rings of shared memory: bulk_ring.c */

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_bulk tmsg_bulk_t;

/* bulk.c and bulk_io.c call these functions, with the worker's lock held;
 * outside UCX, but for may_send(), make(), look() and ahead(). A thread of a
 * crew may call write() and read() meanwhile (bulk_crew.h). The comment of a
 * function that may be NULL says what NULL stands for. A mover allocates its
 * bulk streams itself, with a tmsg_bulk_t as their first member. A mover that
 * wraps another forwards all functions. */
typedef struct tmsg_mover {
    /* what describe() says of a bulk stream that moves fragments */
    const char *ready;
    const char *unready; /* what describe() says of one that is being made */
    size_t turn_bytes;   /* of a turn, while small messages pass, too */

    /* Prepares a bulk stream for an open endpoint without one, when it is known
     * what carries the endpoint. Outside UCX. Called once a connection; if that
     * bulk stream fails later, no other mover is asked. NULL: nothing is
     * prepared. */
    void (*begin)(tmsg_endpoint_t *endpoint);
    /* may_send() returns whether a large message may be meant for a bulk stream
     * of this mover that is made for it by make(), which returns whether it
     * could be. Both may be called inside UCX. NULL, both of them: begin()
     * makes the bulk streams, and no message does. */
    bool (*may_send)(const tmsg_endpoint_t *endpoint);
    bool (*make)(tmsg_endpoint_t *endpoint);

    /* sends() returns whether a bulk stream that stands takes fragments,
     * receives() whether it brings the peer's. NULL: it does. */
    bool (*sends)(const tmsg_bulk_t *bulk);
    bool (*receives)(const tmsg_bulk_t *bulk);

    /* Returns how many of `most` bytes are best written by the next call; 0:
     * the turn ends. `first`: the call is the first of a turn. NULL: all of
     * them are. */
    size_t (*trim)(tmsg_bulk_t *bulk, size_t most, bool first);
    /* Returns the number of bytes that were written, or a negative errno:
     * EAGAIN if none can be for now, EFAULT if some of the memory cannot be
     * read. Memory that was counted belongs to the application again: a mover
     * that may send it again copies it first. */
    ssize_t (*write)(tmsg_bulk_t *bulk, struct iovec *from, size_t count);
    /* Returns the number of bytes that were read, or as write() does; 0: the
     * peer has closed the bulk stream. With count 0 up to `most` bytes are
     * thrown away. */
    ssize_t (*read)(tmsg_bulk_t *bulk, struct iovec *into, size_t count,
                    uint64_t most);
    /* Returns what another errno of theirs means, and sets the error message.
     */
    tmsg_status_t (*explain)(const tmsg_bulk_t *bulk, int error);
    /* Says how many bytes the next reads want. NULL: that is no matter. */
    void (*expect)(tmsg_bulk_t *bulk, uint64_t bytes);

    /* Called after a turn that moved bytes: lets the peer hear of it where it
     * does not anyway, or widens the bulk stream. NULL: nothing is to be
     * done. */
    void (*moved)(tmsg_bulk_t *bulk);
    /* Prepares the bulk stream for the sleep of this side. Returns whether this
     * side is woken for all that the bulk stream waits for; false: there is
     * something to be done. */
    bool (*await)(tmsg_bulk_t *bulk);
    /* Stirs a bulk stream whose wake-up was lost. Called from time to time.
     * NULL: no wake-up can be lost. */
    void (*look)(tmsg_bulk_t *bulk);

    /* Returns the TCP socket whose unacknowledged bytes tell that the peer is
     * silent. NULL: there is none, and the mover itself calls
     * tmsg_bulk_lose(). */
    int (*socket)(const tmsg_bulk_t *bulk);
    /* Returns how many bytes may be on their way to a receiver when it asks for
     * the next message: what a network has under way while it asks, and a
     * little more. 0: not known. */
    uint64_t (*ahead)(const tmsg_bulk_t *bulk);
    /* Returns whether nobody else wrote to the bulk stream's memory. NULL:
     * nobody can. */
    bool (*is_intact)(const tmsg_bulk_t *bulk);

    /* shut() moves nothing any more, and may be called more than once. free()
     * then frees what the mover has, the bulk stream with it. */
    void (*shut)(tmsg_bulk_t *bulk);
    void (*free)(tmsg_bulk_t *bulk);
} tmsg_mover_t;

#define TMSG_MOVER_DECLARE(name) extern const tmsg_mover_t tmsg_mover_##name;

TMSG_MOVERS(TMSG_MOVER_DECLARE)

#endif
