/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/stage_sum.h - checksums of tensors that lie in the memory of
 * devices. It is read back, a chunk at a time and on the library's own stream,
 * before a map is sent and after it has come. */
#ifndef TMSG_AM_STAGING_STAGE_SUM_H
#define TMSG_AM_STAGING_STAGE_SUM_H

#include "am/staging/stage.h"
#include "am/worker/staging.h"
#include "core/map.h"
#include "serialize/checksum.h"

/* The first byte of a map that was not looked at yet. */
typedef struct {
    size_t tensor;
    uint64_t offset;
} tmsg_sum_place_t;

typedef struct tmsg_sums {
    tmsg_worker_t *worker;
    tmsg_chunks_t *chunks;
    const tmsg_map_t *map; /* whose entries have their memory */
    const tmsg_checksum_t *checksum;
    /* Outside UCX, lock held: the value of a tensor; */
    void (*found)(struct tmsg_sums *sums, size_t index, uint64_t value);
    /* and, once and last: all are known, or tmsg_error_message() says why not.
     */
    void (*over)(struct tmsg_sums *sums, tmsg_status_t status);
    /* The rest is its own. */
    tmsg_copy_t copy;
    tmsg_soon_t call;
    tmsg_chunk_t *chunk;
    tmsg_sum_place_t copied, summed;
    tmsg_device_t device; /* that it is copied from, */
    const void *first;    /* and where that begins */
    void *state;          /* of a tensor that takes several chunks */
    bool copying;
    bool stopped;
} tmsg_sums_t;

/* Whether the CPU cannot read a tensor's memory, of which there is some. */
bool tmsg_sums_has(const tmsg_map_entry_t *entry);

/* Lock held, all that follow. With the first six set, the others zero. */
void tmsg_sums_begin(tmsg_sums_t *sums);

/* They are not wanted any more: over() is called soon, if it was not. */
void tmsg_sums_stop(tmsg_sums_t *sums);

/* The same, and nobody is told; the map may be gone. Waits for the copy that is
 * under way. */
void tmsg_sums_end(tmsg_sums_t *sums);

#endif
