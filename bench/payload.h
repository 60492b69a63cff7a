/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/payload.h - the tensors' bytes, and whether they arrived. */
#ifndef TMSG_BENCH_PAYLOAD_H
#define TMSG_BENCH_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t tensors;
    size_t bytes;   /* of each */
    size_t total;   /* of all */
    uint8_t **data; /* each on its own, or pieces of `whole` */
    uint8_t *whole; /* NULL: each on its own */
} bench_payload_t;

/* Allocates the tensors, in one piece or each on its own. */
void bench_payload_create(size_t tensors, size_t bytes, bool in_one_piece,
                          bench_payload_t *payload);
void bench_payload_free(bench_payload_t *payload);

/* Fills all tensors with bytes that depend on `seed`, tensor and place. */
void bench_payload_fill(bench_payload_t *payload, uint64_t seed);

/* Dies if tensor `index` is not what arrived. */
void bench_payload_check(const bench_payload_t *payload, size_t index,
                         const void *arrived);

/* Memory that starts on a cache line, touched. */
void *bench_memory(size_t bytes);

#endif
