/* SPDX-License-Identifier: BSD-3-Clause */
/* Times the messages of --tune. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf.h"

#define UNDER_WAY 4 /* messages at a time; a batch has as many */
#define BATCHES 512
#define BATCHES_LEAST 2

void *perf_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        complain("%zu bytes to send: %s", bytes, strerror(errno));
        return NULL;
    }
    /* Untouched pages would all be the same page of zeros. */
    memset(memory, 1, bytes);
    return memory;
}

static bool add_uint8_tensors(tmsg_map_t *map, char *memory, size_t tensors,
                              uint64_t bytes_each)
{
    const int64_t shape[] = {(int64_t)bytes_each};
    tmsg_tensor_t tensor = {
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 1,
        .shape = shape,
    };

    for (size_t i = 0; i < tensors; i++) {
        char name[24];

        snprintf(name, sizeof(name), "t%zu", i);
        tensor.data = memory + i * bytes_each;
        if (tmsg_map_add(map, name, &tensor, NULL) != TMSG_OK) {
            return false;
        }
    }
    return true;
}

tmsg_map_t *perf_map(void *memory, size_t tensors, uint64_t bytes_each)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status == TMSG_OK &&
        add_uint8_tensors(map, memory, tensors, bytes_each)) {
        return map;
    }
    complain("%s", tmsg_error_message());
    tmsg_map_destroy(map);
    return NULL;
}

double perf_median(double *values, size_t count)
{
    figures_sort(values, count);
    return figures_median(values, count);
}

/* Waits for a send, and returns false after a complaint if it has failed. */
static bool finish_send(const perf_peer_t *peer, tmsg_request_t **request)
{
    int ms = peer->options->connection.timeout_ms;
    tmsg_status_t status;

    if (*request == NULL) {
        return true;
    }
    tmsg_request_wait(*request, ms);
    status = tmsg_request_test(*request);
    if (status == TMSG_IN_PROGRESS) {
        complain("%s: nothing came back for %g s (--timeout)", peer->url,
                 ms / 1e3);
    } else if (status != TMSG_OK) {
        complain("%s", tmsg_request_error(*request));
    }
    tmsg_request_destroy(*request);
    *request = NULL;
    return status == TMSG_OK;
}

/* Sends the next batch. Returns nanoseconds per message, or 0 after a
 * complaint. */
static double stream_batch(const perf_peer_t *peer, const tmsg_map_t *map,
                           const tmsg_send_params_t *params,
                           tmsg_request_t *under_way[UNDER_WAY])
{
    uint64_t start = now_ns();

    for (unsigned i = 0; i < UNDER_WAY; i++) {
        if (!finish_send(peer, &under_way[i])) {
            return 0;
        }
        if (tmsg_endpoint_send(peer->endpoint, map, params, &under_way[i]) !=
            TMSG_OK) {
            complain("%s", tmsg_error_message());
            return 0;
        }
    }
    return (double)(now_ns() - start + 1) / UNDER_WAY;
}

/* The first batch only fills the path, so it is not counted. The median ignores
 * batches in which another process had the processor. */
double perf_stream(const perf_peer_t *peer, const tmsg_map_t *map,
                   perf_way_t way, uint64_t block_ns)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_WAY,
        .flags = TMSG_SEND_ACKED,
        .way = way.way,
        .protocol = way.protocol,
    };
    tmsg_request_t *under_way[UNDER_WAY] = {NULL};
    uint64_t start = now_ns();
    double batches[BATCHES];
    size_t count = 0;
    bool ok = stream_batch(peer, map, &params, under_way) > 0;

    while (ok && count < BATCHES &&
           (count < BATCHES_LEAST || now_ns() - start < block_ns)) {
        batches[count] = stream_batch(peer, map, &params, under_way);
        ok = batches[count++] > 0;
    }
    for (unsigned i = 0; i < UNDER_WAY; i++) {
        if (ok) {
            ok = finish_send(peer, &under_way[i]);
        } else {
            tmsg_request_destroy(under_way[i]);
        }
    }
    return ok ? perf_median(batches, count) : 0;
}
