/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/spares.h - records that are kept for whoever needs one next.
 *
 * They are given back by any thread and taken by one at a time, without a
 * lock: what comes back is pushed to a list that the taker empties as a whole.
 * What the taker itself gives back costs it no atomic operation.
 */
#ifndef TMSG_MEMORY_SPARES_H
#define TMSG_MEMORY_SPARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Embedded in such a record. */
typedef struct tmsg_spare {
    struct tmsg_spare *next;
    size_t bytes; /* of the record and all that it keeps */
} tmsg_spare_t;

typedef struct {
    tmsg_spare_t *_Atomic given;
    tmsg_spare_t *taken;
    atomic_size_t given_bytes;
    size_t taken_bytes;
    size_t most;
    void (*free)(tmsg_spare_t *spare);
} tmsg_spares_t;

/* Keeps records of about `most` bytes in either list, which free() ends. */
void tmsg_spares_init(tmsg_spares_t *spares, size_t most,
                      void (*free)(tmsg_spare_t *spare));

/* By the taker: frees what is kept, and what is given back later at once. None
 * is taken any more. */
void tmsg_spares_close(tmsg_spares_t *spares);

/* From any thread. Frees what would be too much. */
void tmsg_spares_give(tmsg_spares_t *spares, tmsg_spare_t *spare);

/* The same by whoever may take now. */
void tmsg_spares_put_back(tmsg_spares_t *spares, tmsg_spare_t *spare);

/* One thread at a time: the one that came last, or NULL. */
tmsg_spare_t *tmsg_spares_take(tmsg_spares_t *spares);

#endif
