/* SPDX-License-Identifier: BSD-3-Clause */
/* What a header costs, UCX aside. */
#include <stdio.h>
#include <stdlib.h>

#include <tensormsg/tensormsg.h>

#include "bench.h"
#include "core/limits.h"
#include "serialize/header.h"

#define BLOCKS 21
#define BODY_BYTES_MAX (64u * 1024u)

static void must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        bench_die("header: %s", tmsg_error_message());
    }
}

/* Names and shapes like those of a model's weights. */
static tmsg_map_t *make_map(size_t tensors)
{
    static uint8_t data[4 * 3 * 16 * 16];
    const int64_t shape[] = {3, 16, 16};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 3, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < tensors; i++) {
        char name[48];

        snprintf(name, sizeof(name), "layer%zu.conv.weight", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

/* As a send does it, in two passes, and as a receive does it. */
static void round_trip(const tmsg_map_t *map, const tmsg_limits_t *limits,
                       uint8_t *buffer)
{
    tmsg_preamble_t head = {.kind = 1};
    tmsg_preamble_t read;
    tmsg_map_t *copy;
    size_t bytes;

    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
    head.body_bytes = (uint32_t)bytes;
    must(tmsg_body_encode(map, NULL, buffer + TMSG_PREAMBLE_BYTES,
                          BODY_BYTES_MAX, &bytes));
    tmsg_preamble_encode(&head, buffer);
    must(tmsg_preamble_decode(buffer, TMSG_PREAMBLE_BYTES + bytes, &read));
    must(tmsg_map_create(&copy));
    must(tmsg_body_decode(buffer + read.bytes, read.body_bytes, limits, copy,
                          NULL));
    tmsg_map_destroy(copy);
}

double bench_header_first(size_t tensors, unsigned rounds)
{
    static uint8_t buffer[TMSG_PREAMBLE_BYTES + BODY_BYTES_MAX];
    tmsg_map_t *map = make_map(tensors);
    tmsg_limits_t limits;
    double values[BLOCKS];

    limits = tmsg_limits_usual();
    round_trip(map, &limits, buffer);
    for (unsigned block = 0; block < BLOCKS; block++) {
        double begin = bench_now();

        for (unsigned i = 0; i < rounds; i++) {
            round_trip(map, &limits, buffer);
        }
        values[block] = (bench_now() - begin) * 1e9 / rounds / (double)tensors;
    }
    tmsg_map_destroy(map);
    return bench_median(values, BLOCKS);
}
