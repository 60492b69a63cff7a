/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/spares.h - keeps freed records for reuse.
 *
 * Any thread gives records back, and one thread at a time takes them. Neither
 * needs a lock: a giver pushes a record to a list, and the taker empties that
 * list as a whole. A record that the taker itself puts back costs no atomic
 * operation. */
#ifndef TMSG_MEMORY_SPARES_H
#define TMSG_MEMORY_SPARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Each record embeds this structure. */
typedef struct tmsg_spare {
    struct tmsg_spare *next;
    size_t bytes; /* size of the record and of all that it keeps */
} tmsg_spare_t;

typedef struct {
    tmsg_spare_t *_Atomic given;
    tmsg_spare_t *taken;
    atomic_size_t given_bytes;
    size_t taken_bytes;
    size_t most;
    void (*free)(tmsg_spare_t *spare);
} tmsg_spares_t;

/* Initializes the two lists. Each list keeps records of about `most` bytes;
 * free() releases a record. Builds with AddressSanitizer keep no record, so
 * that each use after the end is found. */
void tmsg_spares_init(tmsg_spares_t *spares, size_t most,
                      void (*free)(tmsg_spare_t *spare));

/* Frees all kept records. Records that are given back later are freed at once.
 * Only the taker calls this function, and takes no record afterwards. */
void tmsg_spares_close(tmsg_spares_t *spares);

/* Gives a record back, from any thread. Frees the record if the list would
 * exceed its limit. */
void tmsg_spares_give(tmsg_spares_t *spares, tmsg_spare_t *spare);

/* Gives a record back without atomic operations. Only the taker calls this
 * function. */
void tmsg_spares_put_back(tmsg_spares_t *spares, tmsg_spare_t *spare);

/* Takes a record, or returns NULL if none is kept. One thread at a time calls
 * this function. */
tmsg_spare_t *tmsg_spares_take(tmsg_spares_t *spares);

#endif
