/* SPDX-License-Identifier: BSD-3-Clause */
#include "payload.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LINE 64

void *bench_memory(size_t bytes)
{
    size_t rounded = (bytes + LINE - 1) / LINE * LINE;
    void *memory = aligned_alloc(LINE, rounded);

    if (memory == NULL) {
        bench_die("no memory for %zu bytes", bytes);
    }
    memset(memory, 0, rounded);
    return memory;
}

void bench_payload_create(size_t tensors, size_t bytes, bool in_one_piece,
                          bench_payload_t *payload)
{
    payload->tensors = tensors;
    payload->bytes = bytes;
    payload->total = tensors * bytes;
    payload->whole = in_one_piece ? bench_memory(payload->total) : NULL;
    payload->data = bench_memory(tensors * sizeof(*payload->data));
    for (size_t i = 0; i < tensors; i++) {
        payload->data[i] =
            in_one_piece ? payload->whole + i * bytes : bench_memory(bytes);
    }
}

void bench_payload_free(bench_payload_t *payload)
{
    for (size_t i = 0; payload->whole == NULL && i < payload->tensors; i++) {
        free(payload->data[i]);
    }
    free(payload->data);
    free(payload->whole);
}

void bench_payload_fill(bench_payload_t *payload, uint64_t seed)
{
    for (size_t i = 0; i < payload->tensors; i++) {
        uint64_t state = seed * 0x9e3779b97f4a7c15ULL + i;

        for (size_t at = 0; at < payload->bytes; at++) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            payload->data[i][at] = (uint8_t)(state >> 56);
        }
    }
}

void bench_payload_check(const bench_payload_t *payload, size_t index,
                         const void *arrived)
{
    const uint8_t *bytes = arrived;
    const uint8_t *wanted = payload->data[index];

    for (size_t at = 0; at < payload->bytes; at++) {
        if (bytes[at] != wanted[at]) {
            bench_die("tensor %zu of %zu: byte %zu is 0x%02x, not 0x%02x",
                      index, payload->tensors, at, bytes[at], wanted[at]);
        }
    }
}
