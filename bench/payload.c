/* SPDX-License-Identifier: BSD-3-Clause */
#include "payload.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tools/measure/contents.h"

#define LINE 64

void bench_payload_look(const void *arrived, size_t bytes)
{
    uint64_t sum = 0;

    for (size_t at = 0; at + sizeof(sum) <= bytes; at += LINE) {
        uint64_t word;

        memcpy(&word, (const uint8_t *)arrived + at, sizeof(word));
        sum += word;
    }
    __asm__ volatile("" : : "r"(sum));
}

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

void bench_payload_create(const workload_map_t *map, bool in_one_piece,
                          bench_payload_t *payload)
{
    uint8_t *piece = in_one_piece ? bench_memory(map->bytes) : NULL;

    payload->map = map;
    payload->whole = piece;
    payload->data = bench_memory(map->count * sizeof(*payload->data));
    for (size_t i = 0; i < map->count; i++) {
        size_t bytes = map->tensors[i].bytes;

        payload->data[i] = in_one_piece ? piece : bench_memory(bytes);
        piece += in_one_piece ? bytes : 0;
    }
}

void bench_payload_free(bench_payload_t *payload)
{
    for (size_t i = 0; payload->whole == NULL && i < payload->map->count; i++) {
        free(payload->data[i]);
    }
    free(payload->data);
    free(payload->whole);
}

void bench_payload_fill(bench_payload_t *payload, uint64_t seed)
{
    for (size_t i = 0; i < payload->map->count; i++) {
        contents_fill(payload->data[i], payload->map->tensors[i].bytes, seed,
                      i);
    }
}

tmsg_map_t *bench_payload_map(const bench_payload_t *payload)
{
    const workload_map_t *like = payload->map;
    tmsg_map_t *map;

    bench_must(tmsg_map_create(&map));
    for (size_t i = 0; i < like->count; i++) {
        bench_must(workload_add(&like->tensors[i],
                                (tmsg_device_t){TMSG_DEVICE_CPU, 0},
                                payload->data[i], map));
    }
    bench_must(workload_add_meta(like, map));
    return map;
}

void bench_payload_is(const bench_payload_t *payload, size_t index,
                      const char *name, size_t name_bytes, tmsg_dtype_t dtype,
                      int ndim, const int64_t *shape)
{
    const workload_tensor_t *wanted = &payload->map->tensors[index];

    if (strlen(wanted->name) != name_bytes ||
        memcmp(wanted->name, name, name_bytes) != 0) {
        bench_die("'%.*s' arrived in place of '%s'", (int)name_bytes, name,
                  wanted->name);
    }
    if (memcmp(&dtype, &wanted->dtype, sizeof(dtype)) != 0 ||
        ndim != wanted->ndim ||
        (ndim > 0 &&
         memcmp(shape, wanted->shape, (size_t)ndim * sizeof(*shape)) != 0)) {
        bench_die("%s arrived with another dtype or shape", wanted->name);
    }
}

void bench_payload_check(const bench_payload_t *payload, size_t index,
                         const void *arrived)
{
    const workload_tensor_t *tensor = &payload->map->tensors[index];
    const uint8_t *bytes = arrived;
    const uint8_t *wanted = payload->data[index];

    if (tensor->bytes > 0 && memcmp(bytes, wanted, tensor->bytes) == 0) {
        return;
    }
    for (size_t at = 0; at < tensor->bytes; at++) {
        if (bytes[at] != wanted[at]) {
            bench_die("%s: byte %zu is 0x%02x, not 0x%02x", tensor->name, at,
                      bytes[at], wanted[at]);
        }
    }
}
