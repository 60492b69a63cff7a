/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/sum.h - checksums of tensors in device memory. The memory is read
 * back on the library's own stream, one chunk at a time, before a map is sent
 * and after it has come. */
#ifndef TMSG_AM_STAGING_SUM_H
#define TMSG_AM_STAGING_SUM_H

#include "am/staging/copy.h"
#include "am/worker/staging.h"
#include "core/map.h"
#include "serialize/checksum.h"

/* A place in a map names the next byte to look at. */
typedef struct {
    size_t tensor;
    uint64_t offset;
} tmsg_sum_place_t;

typedef struct tmsg_sums {
    tmsg_worker_t *worker;
    tmsg_chunks_t *chunks;
    const tmsg_map_t *map; /* the map whose tensors are read */
    const tmsg_checksum_t *checksum;
    /* Called outside UCX, lock held, with the checksum of each tensor. */
    void (*found)(struct tmsg_sums *sums, size_t index, uint64_t value);
    /* Called last, and once: all checksums are known, or tmsg_error_message()
     * says why not. */
    void (*over)(struct tmsg_sums *sums, tmsg_status_t status);
    /* The fields below are private to sum.c. */
    tmsg_copy_t copy;
    tmsg_soon_t call;
    tmsg_chunk_t *chunk;
    tmsg_sum_place_t copied, summed;
    tmsg_device_t device; /* the device that is copied from */
    const void *first; /* first byte of the device's memory that was copied */
    /* The unfinished checksum of a tensor that takes several chunks is kept
     * here. */
    void *state;
    bool copying;
    bool stopped;
} tmsg_sums_t;

/* Returns whether a tensor has bytes, and the CPU cannot read their memory. */
bool tmsg_sums_has(const tmsg_map_entry_t *entry);

/* Starts to read a map's checksums. The caller sets the first six fields, and
 * the others to zero. Lock held, for all functions below. */
void tmsg_sums_begin(tmsg_sums_t *sums);

/* Stops reading, because the checksums are not needed any more. over() is
 * called soon, if it was not called before. */
void tmsg_sums_stop(tmsg_sums_t *sums);

/* Stops reading without calling over(); the map may be gone already. Waits for
 * the copy that is under way. */
void tmsg_sums_end(tmsg_sums_t *sums);

#endif
