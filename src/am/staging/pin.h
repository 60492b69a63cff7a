/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/pin.h - has chunks pinned, on a thread beside: a driver may wait
 * for the kernels that run before it pins memory. Until then a chunk is used as
 * it is. A worker has one chunk pinned at a time. */
#ifndef TMSG_AM_STAGING_PIN_H
#define TMSG_AM_STAGING_PIN_H

#include <stdbool.h>

#include "am/worker/staging.h"

typedef struct tmsg_worker tmsg_worker_t;

/* Lock held, for all functions. */

/* Begins to pin a spare chunk of `home`, unless it was tried before or another
 * one is being pinned. Returns whether it did; the chunk is then out of use. */
bool tmsg_pin_begin(tmsg_worker_t *worker, tmsg_chunks_t *home,
                    tmsg_chunk_t *chunk);

/* Gives a chunk back that was pinned, or could not be. */
void tmsg_pin_poll(tmsg_worker_t *worker);

/* Ends the pinning. The chunks are to be freed next. */
void tmsg_pin_close(tmsg_worker_t *worker);

/* Frees the memory of a chunk that is in no list, and unpins it before. */
void tmsg_chunk_free(tmsg_chunk_t *chunk);

#endif
