/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/payload.h - the bytes of a map's tensors, and whether they arrived. */
#ifndef TMSG_BENCH_PAYLOAD_H
#define TMSG_BENCH_PAYLOAD_H

#include "tools/measure/workload.h"

typedef struct {
    const workload_map_t *map;
    uint8_t **data; /* of its tensors: each on its own, or pieces of `whole` */
    uint8_t *whole; /* NULL: each on its own */
} bench_payload_t;

/* Allocates the tensors of a map, in one piece or each on its own. */
void bench_payload_create(const workload_map_t *map, bool in_one_piece,
                          bench_payload_t *payload);
void bench_payload_free(bench_payload_t *payload);

/* Fills all tensors with bytes that depend on `seed`, tensor and place. */
void bench_payload_fill(bench_payload_t *payload, uint64_t seed);

/* A map of these tensors, whose data it borrows, with the metadata. */
tmsg_map_t *bench_payload_map(const bench_payload_t *payload);

/* Dies if tensor `index` has not this name, dtype and shape. */
void bench_payload_is(const bench_payload_t *payload, size_t index,
                      const char *name, size_t name_bytes, tmsg_dtype_t dtype,
                      int ndim, const int64_t *shape);

/* Dies if the bytes of tensor `index` are not what arrived. */
void bench_payload_check(const bench_payload_t *payload, size_t index,
                         const void *arrived);

/* Reads a word of each line of what arrived. Where nobody does, bytes that are
 * used where they lie never leave the cache of who sent them. */
void bench_payload_look(const void *arrived, size_t bytes);

/* Memory that starts on a cache line, touched. */
void *bench_memory(size_t bytes);

#endif
