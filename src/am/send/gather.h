/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/gather.h - small tensors in the memory of devices. A message for each
 * of them would cost more than its bytes do. So the library copies them to the
 * host at once, in one chunk, before the message is made, and they travel in it
 * as tensors of the host do. */
#ifndef TMSG_AM_SEND_GATHER_H
#define TMSG_AM_SEND_GATHER_H

#include "am/staging/copy.h"
#include "am/worker/staging.h"
#include "core/map.h"

typedef struct tmsg_send tmsg_send_t;
typedef struct tmsg_domain tmsg_domain_t;

/* The chunk has at most this many bytes. Small tensors that have no room there
 * travel in fragments. */
#define TMSG_GATHER_MOST (4ULL << 20)

/* Walks the tensors of a map in their order. The caller sets `small`: tensors
 * of so many bytes or more are not gathered. */
typedef struct {
    uint64_t small;
    const tmsg_domain_t *domain; /* that the chunk is pinned for */
    uint64_t at;                 /* where the tensor lies in the chunk */
    uint64_t end;                /* bytes of the chunk so far */
} tmsg_gather_walk_t;

/* Returns whether the next tensor is gathered; walk->at says where it is then.
 * Called for each tensor of a map in turn. */
bool tmsg_gather_next(tmsg_gather_walk_t *walk, const tmsg_map_entry_t *entry);

/* Describes the copy of a send's small tensors. All zero bits: not begun. */
typedef struct {
    tmsg_copy_t copy;
    tmsg_soon_t call; /* waits for the chunk */
    tmsg_send_t *send;
    const tmsg_map_t *map;
    tmsg_chunk_t *chunk;
    tmsg_gather_walk_t walk; /* to the next tensor */
    size_t next;
    tmsg_device_t device; /* the device that is copied from */
    const void *first;    /* its first byte that is copied */
    bool copying;
    bool done;
} tmsg_gather_t;

/* Copies the small tensors of a map. Returns IN_PROGRESS until they are there,
 * and sets *bytes_p then. The endpoint has a chore when another try is worth
 * it. Errors: NO_MEMORY, those of the driver. Lock held, also below. */
tmsg_status_t tmsg_gather(tmsg_gather_t *gather, tmsg_send_t *send,
                          const tmsg_map_t *map, uint64_t small,
                          const uint8_t **bytes_p);

/* Gives the chunk back. Waits for the copy that is under way. */
void tmsg_gather_end(tmsg_gather_t *gather);

#endif
