/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors with gaps are packed a part at a time, on every way that a message
 * can go, and arrive with every element where it belongs. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/failing_alloc.h"
#include "support/peers.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NDIM 4

/* Describes a tensor: element `first` of its memory is its first. */
typedef struct {
    const char *name;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t first;
    int32_t ndim;
    int64_t shape[NDIM], strides[NDIM];
} strided_t;

/* In the order of the message: some have less than the 50000 bytes from which
 * tensors travel in fragments, and so go in slices, with gaps between them. */
static const strided_t rows[] = {
    {"odd columns", TMSG_DTYPE_FLOAT, 32, 1, 0, 2, {101, 199}, {307, 1}},
    {"byte", TMSG_DTYPE_UINT, 8, 1, 5, 2, {1, 1}, {9, 9}},
    {"every third", TMSG_DTYPE_UINT, 8, 1, 2, 2, {311, 97}, {300, 3}},
    {"backwards", TMSG_DTYPE_INT, 16, 1, 99999, 2, {99, 301}, {-1000, -3}},
    {"dense", TMSG_DTYPE_FLOAT, 64, 1, 3, 2, {33, 55}, {55, 1}},
    {"turned", TMSG_DTYPE_FLOAT, 32, 1, 7, 2, {150, 170}, {1, 151}},
    {"turned, small", TMSG_DTYPE_INT, 16, 1, 7, 3, {9, 15, 17}, {1, 10, 200}},
    {"broadcast", TMSG_DTYPE_FLOAT, 64, 1, 4, 3, {8, 99, 77}, {0, 156, 2}},
    {"broadcast, small", TMSG_DTYPE_INT, 8, 1, 0, 3, {9, 0, 7}, {0, 15, 2}},
    {"broadcast rows", TMSG_DTYPE_INT, 8, 1, 1, 3, {9, 3, 7}, {0, 15, 2}},
    {"lanes", TMSG_DTYPE_FLOAT, 32, 3, 1, 2, {71, 31}, {40, 1}},
    {"pairs of int4", TMSG_DTYPE_INT, 4, 2, 1, 2, {333, 222}, {444, 2}},
    {"wide elements",
     TMSG_DTYPE_COMPLEX,
     128,
     1,
     9,
     3,
     {7, 8, 90},
     {900, 91, 1}},
    {"five bytes", TMSG_DTYPE_UINT, 8, 5, 0, 2, {123, 45}, {-0, 2}},
    {"windows", TMSG_DTYPE_INT, 64, 1, 0, 2, {300, 40}, {1, 1}},
    {"deep", TMSG_DTYPE_UINT, 32, 1, 50, 4, {5, 6, 7, 80}, {30000, -8, 600, 7}},
};

#define ROWS COUNT(rows)

static int64_t element_bytes(const strided_t *row)
{
    return row->bits * row->lanes / 8;
}

/* Returns the bytes of memory from its begin to the last element. */
static size_t memory_bytes(const strided_t *row)
{
    int64_t last = row->first;

    for (int32_t i = 0; i < row->ndim; i++) {
        last += row->shape[i] > 0 && row->strides[i] > 0
                    ? (row->shape[i] - 1) * row->strides[i]
                    : 0;
    }
    return (size_t)((last + 1) * element_bytes(row));
}

/* Returns what byte `at` of a tensor's memory is. */
static uint8_t byte_at(size_t row, int64_t at)
{
    return (uint8_t)(((uint64_t)at * 2654435761u + row * 97) >> 13);
}

static tmsg_map_t *strided_map(const char *prefix)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < ROWS; i++) {
        const strided_t *row = &rows[i];
        size_t bytes = memory_bytes(row);
        uint8_t *data = malloc(bytes);
        const tmsg_tensor_t tensor = {
            .data = data + row->first * element_bytes(row),
            .device = {TMSG_DEVICE_CPU, 0},
            .dtype = {row->code, row->bits, row->lanes},
            .ndim = row->ndim,
            .shape = row->shape,
            .strides = row->strides};
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = free,
                                              .release_arg = data};
        char name[3000];

        for (size_t at = 0; at < bytes; at++) {
            data[at] = byte_at(i, (int64_t)at);
        }
        snprintf(name, sizeof(name), "%s%s", row->name, prefix);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

/* Compares the elements one by one, in the order of their indices. */
static void check_row(size_t number, const tmsg_tensor_t *tensor)
{
    const strided_t *row = &rows[number];
    int64_t index[NDIM] = {0}, bytes = element_bytes(row), count = 1;
    int64_t steps[NDIM], step = 1;

    must_eq(tensor->ndim, row->ndim);
    for (int32_t i = row->ndim - 1; i >= 0; i--) {
        must_eq(tensor->shape[i], row->shape[i]);
        steps[i] = tensor->strides == NULL ? step : tensor->strides[i];
        step *= row->shape[i];
        count *= row->shape[i];
    }
    for (; count > 0; count--) {
        int64_t from = row->first, at = 0;

        for (int32_t i = 0; i < row->ndim; i++) {
            from += index[i] * row->strides[i];
            at += index[i] * steps[i];
        }
        for (int64_t i = 0; i < bytes; i++) {
            must_eq(((const uint8_t *)tensor->data)[at * bytes + i],
                    byte_at(number, from * bytes + i));
        }
        for (int32_t i = row->ndim - 1; i >= 0; i--) {
            if (++index[i] < row->shape[i]) {
                break;
            }
            index[i] = 0;
        }
    }
}

static void check_rows(const tmsg_map_t *map)
{
    must_eq(tmsg_map_size(map), ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(map, i, NULL, &tensor));
        check_row(i, &tensor);
    }
}

static void exchange(pair_t *pair, const char *prefix, uint32_t flags)
{
    tmsg_request_t *sent = send_map(pair->to_a, strided_map(prefix), flags);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    check_rows(tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

/* `thresholds` are of the link: they say what moves the parts. */
static void arrive(link_t link, const char *thresholds, bool by_bulk)
{
    static char prefix[2900]; /* makes names that spill the body */
    pair_t pair;

    memset(prefix, 'x', sizeof(prefix) - 1);
    setenv("TENSORMSG_THRESHOLDS", thresholds, 1);
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    if (by_bulk && link == LINK_TCP) {
        pair_await(&pair, endpoint_has_bulk, pair.to_a, "a bulk stream");
    }
    exchange(&pair, "", 0);
    exchange(&pair, "", TMSG_SEND_ACKED | TMSG_SEND_VERIFY);
    exchange(&pair, prefix, TMSG_SEND_VERIFY);
    must_true(pair.to_a->tx.fragments_handed >= 3);
    pair_close(&pair);
}

#define SMALL(link)                                                            \
#link ".fragment_bytes=50000," #link ".slice_bytes=10000," #link           \
          ".gather_bytes=0," #link ".gather_mean_bytes=1,"

Test(pack, arrive_by_ring)
{
    arrive(LINK_UNIX, SMALL(shm) "shm.chunk_bytes=5000,shm.bulk_bytes=1", true);
}

Test(pack, arrive_by_reading)
{
    arrive(LINK_SHM, SMALL(shm) "shm.chunk_bytes=5000,shm.bulk_bytes=never",
           false);
}

Test(pack, arrive_by_bulk)
{
    arrive(LINK_TCP, SMALL(tcp) "tcp.chunk_bytes=65536,tcp.bulk_bytes=1", true);
}

Test(pack, arrive_by_ucx_over_tcp)
{
    arrive(LINK_TCP, SMALL(tcp) "tcp.chunk_bytes=5000,tcp.bulk_bytes=never",
           false);
}

Test(pack, arrive_as_usual) { arrive(LINK_UNIX, "", true); }

/* Packs nothing but one fragment or slice after the other. */
static const int64_t shape[] = {300, 1000}, strides[] = {1001, 1};
static uint8_t memory[300 * 1001];

static tmsg_map_t *one_map(void)
{
    const tmsg_tensor_t tensor = {
        memory, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape,
        strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "one", &tensor, NULL));
    return map;
}

static bool has_ended(void *request)
{
    return tmsg_request_test(request) != TMSG_IN_PROGRESS;
}

/* Sends the map while the n-th allocation of the sender's fails; 0: none
 * does. Returns what came of it. */
static tmsg_status_t send_without_memory(pair_t *pair, unsigned long n)
{
    tmsg_request_t *sent = send_map(pair->to_a, one_map(), TMSG_SEND_ACKED);
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_IN_PROGRESS;

    while (status == TMSG_IN_PROGRESS) {
        failing_alloc_arm(n);
        tmsg_worker_progress(pair->b.worker);
        n = failing_alloc_disarm() ? 0 : n;
        tmsg_worker_progress(pair->a.worker);
        if (message == NULL) {
            (void)tmsg_worker_recv(pair->a.worker, 0, &message);
        }
        status = tmsg_request_test(sent);
    }
    must_eq(message != NULL, status == TMSG_OK);
    tmsg_message_destroy(message);
    pair_await(pair, has_ended, sent, "a send's end");
    tmsg_request_destroy(sent);
    return status;
}

/* A part for which there is no memory fails its message alone. */
static void lack_memory(link_t link, const char *thresholds)
{
    pair_t pair;

    setenv("TENSORMSG_THRESHOLDS", thresholds, 1);
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    if (link == LINK_TCP) {
        pair_await(&pair, endpoint_has_bulk, pair.to_a, "a bulk stream");
    }
    must_be(send_without_memory(&pair, 1), TMSG_ERR_NO_MEMORY);
    must(send_without_memory(&pair, 0));
    exchange(&pair, "", TMSG_SEND_ACKED);
    pair_close(&pair);
}

Test(pack, lacks_memory_by_ring)
{
    lack_memory(LINK_UNIX, SMALL(shm) "shm.chunk_bytes=5000,shm.bulk_bytes=1");
}

Test(pack, lacks_memory_by_bulk)
{
    lack_memory(LINK_TCP, SMALL(tcp) "tcp.chunk_bytes=5000,tcp.bulk_bytes=1");
}
