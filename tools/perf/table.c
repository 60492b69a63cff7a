/* SPDX-License-Identifier: BSD-3-Clause */
/* Latency and bandwidth of a few maps, as the library sends them by itself. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "output.h"
#include "perf.h"

#define MEMORY_BYTES (16u << 20)
#define RUNS 5
#define RUNS_QUICK 1
#define BLOCK_NS 60000000ULL
#define BLOCK_QUICK_NS 3000000ULL

typedef struct {
    const char *name;
    size_t tensors;
    uint64_t bytes_each;
} shape_t;

static const shape_t shapes[] = {
    {"8x64B", 8, 64},
    {"1000x1KiB", 1000, 1024},
    {"64x256KiB", 64, 256 << 10},
    {"8x2MiB", 8, 2 << 20},
};

static bool measure(const perf_peer_t *peer, const tmsg_map_t *map, bool echo,
                    double *ns_p)
{
    const perf_way_t by_itself = {TMSG_WAY_AUTO, TMSG_PROTOCOL_AUTO};
    bool quick = peer->options->quick;
    uint64_t block_ns = quick ? BLOCK_QUICK_NS : BLOCK_NS;
    size_t runs = quick ? RUNS_QUICK : RUNS;
    double ns[RUNS];

    for (size_t i = 0; i <= runs; i++) { /* the first makes ready */
        double value = echo ? perf_round_trip(peer, map, block_ns)
                            : perf_stream(peer, map, by_itself, block_ns);

        if (value <= 0) {
            return false;
        }
        ns[i == 0 ? 0 : i - 1] = value;
    }
    *ns_p = perf_median(ns, runs);
    return true;
}

static bool add_row(const perf_peer_t *peer, cJSON *rows, const shape_t *shape,
                    double latency_ns, double each_ns)
{
    double bytes = (double)(shape->tensors * shape->bytes_each);
    cJSON *row;

    if (rows == NULL) {
        printf("  %-10s %10.2f %12.0f %10.3f\n", shape->name, latency_ns / 1e3,
               1e9 / each_ns, bytes / each_ns);
        return output_flush();
    }
    row = cJSON_CreateObject();
    cJSON_AddItemToArray(rows, row);
    return cJSON_AddStringToObject(row, "carrier", peer->carrier) != NULL &&
           cJSON_AddStringToObject(row, "transports", peer->transports) !=
               NULL &&
           cJSON_AddStringToObject(row, "map", shape->name) != NULL &&
           cJSON_AddNumberToObject(row, "tensors", (double)shape->tensors) !=
               NULL &&
           cJSON_AddNumberToObject(row, "bytes", bytes) != NULL &&
           cJSON_AddNumberToObject(row, "latency_us", latency_ns / 1e3) !=
               NULL &&
           cJSON_AddNumberToObject(row, "messages_per_s", 1e9 / each_ns) !=
               NULL &&
           cJSON_AddNumberToObject(row, "gb_per_s", bytes / each_ns) != NULL;
}

static bool measure_shape(const perf_peer_t *peer, void *memory,
                          const shape_t *shape, cJSON *rows)
{
    double latency_ns = 0, each_ns = 0;
    bool ok = true;

    for (int echo = 1; echo >= 0 && ok; echo--) {
        tmsg_map_t *map =
            perf_map(memory, shape->tensors, shape->bytes_each, echo);

        ok = map != NULL &&
             measure(peer, map, echo, echo ? &latency_ns : &each_ns);
        tmsg_map_destroy(map);
    }
    return ok && add_row(peer, rows, shape, latency_ns, each_ns);
}

bool perf_table(const perf_peer_t *peer, cJSON *rows)
{
    void *memory = perf_memory(MEMORY_BYTES);
    bool ok = memory != NULL;

    if (ok && rows == NULL) {
        printf("%s: ", peer->carrier);
        put_text(stdout, peer->transports);
        printf(" (");
        put_text(stdout, peer->why);
        printf(")\n  %-10s %10s %12s %10s\n", "map", "latency us", "messages/s",
               "GB/s");
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && ok; i++) {
        ok = measure_shape(peer, memory, &shapes[i], rows);
    }
    if (memory != NULL) {
        munmap(memory, MEMORY_BYTES);
    }
    return ok;
}
