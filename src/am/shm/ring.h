/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/ring.h - a stretch of memory that two processes share, by which one
 * sends bytes to the other: each copies them once, both at the same time, and
 * what travels stays in the cache.
 *
 * Its sender makes it. Neither believes what the other may write there: it is
 * looked at once, and bounded. */
#ifndef TMSG_AM_SHM_RING_H
#define TMSG_AM_SHM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tensormsg/status.h>

#include "am/shm/shared.h"

/* What the other side wrote there cannot be. */
#define TMSG_RING_WRONG ((size_t)-1)

typedef struct tmsg_ring tmsg_ring_t;

/* The sender's, empty. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_ring_create(tmsg_ring_t **ring_p);

/* What its receiver is told of, and finds it by. */
tmsg_shared_t *tmsg_ring_shared(tmsg_ring_t *ring);

/* The receiver's, by the descriptor of that process. Errors: NO_MEMORY, IO (it
 * cannot be opened or is no such ring). */
tmsg_status_t tmsg_ring_open(pid_t pid, int fd, const uint8_t *mark,
                             tmsg_ring_t **ring_p);

/* Either's; NULL is allowed. */
void tmsg_ring_free(tmsg_ring_t *ring);

/* As many of the bytes as there is room for, or as have come. Gives how many,
 * or WRONG. */
size_t tmsg_ring_write(tmsg_ring_t *ring, const struct iovec *from,
                       size_t count);
size_t tmsg_ring_read(tmsg_ring_t *ring, const struct iovec *into,
                      size_t count);
size_t tmsg_ring_skip(tmsg_ring_t *ring, uint64_t most); /* at most */

/* Asks the other side for a word when there is room again, or more has come:
 * false if there is already. */
bool tmsg_ring_await(tmsg_ring_t *ring);

/* Whether the other side has asked for a word, once. */
bool tmsg_ring_is_awaited(tmsg_ring_t *ring);

/* Whether what this side wrote last still stands there, and what the other side
 * wrote can be. */
bool tmsg_ring_is_intact(const tmsg_ring_t *ring);

/* Whether bytes can be moved now. */
bool tmsg_ring_is_movable(const tmsg_ring_t *ring);

#endif
