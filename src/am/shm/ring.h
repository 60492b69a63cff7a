/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/ring.h - a ring buffer in a segment, by which one process sends bytes
 * to another. Each side copies the bytes once, both at the same time, and what
 * travels stays in the cache.
 *
 * The sender makes the ring. Neither side believes what the other may write
 * there: each value is read once, and bounded. */
#ifndef TMSG_AM_SHM_RING_H
#define TMSG_AM_SHM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tensormsg/status.h>

#include "am/shm/segment.h"

/* The functions return this if what the other side wrote there cannot be. */
#define TMSG_RING_WRONG ((size_t)-1)

typedef struct tmsg_ring tmsg_ring_t;

/* Creates the sender's ring, which is empty. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_ring_create(tmsg_ring_t **ring_p);

/* Returns the memory that the receiver is told of, and finds the ring by. */
tmsg_segment_t *tmsg_ring_segment(tmsg_ring_t *ring);

/* Opens the receiver's ring, by the descriptor that it has in process `pid`.
 * Errors: NO_MEMORY, IO (it cannot be opened or is no such ring). */
tmsg_status_t tmsg_ring_open(const tmsg_segment_offer_t *offer,
                             tmsg_ring_t **ring_p);

/* Frees the ring of either side. NULL is allowed. */
void tmsg_ring_free(tmsg_ring_t *ring);

/* tmsg_ring_write() writes as many of the bytes as there is room for.
 * tmsg_ring_read() reads as many as have come. tmsg_ring_skip() throws away up
 * to `most`. All return how many bytes, or TMSG_RING_WRONG. */
size_t tmsg_ring_write(tmsg_ring_t *ring, const struct iovec *from,
                       size_t count);
size_t tmsg_ring_read(tmsg_ring_t *ring, const struct iovec *into,
                      size_t count);
size_t tmsg_ring_skip(tmsg_ring_t *ring, uint64_t most);

/* Asks the other side to tell when there is room again, or more has come.
 * Returns false if there is already. */
bool tmsg_ring_await(tmsg_ring_t *ring);

/* Returns whether the other side has asked to be told, once for each time it
 * asked. */
bool tmsg_ring_is_awaited(tmsg_ring_t *ring);

/* Returns whether what this side wrote last still stands there, and what the
 * other side wrote can be. */
bool tmsg_ring_is_intact(const tmsg_ring_t *ring);

/* Returns whether bytes can be moved now. */
bool tmsg_ring_is_movable(const tmsg_ring_t *ring);

#endif
