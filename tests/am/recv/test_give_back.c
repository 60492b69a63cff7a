/* SPDX-License-Identifier: BSD-3-Clause */
/* The tensors of a message are given back one by one: their pages are free, the
 * others stay as they are. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { LARGE = 4 << 20, LARGE_ONES = 4, SMALL = 1000, SMALL_ONES = 100 };
enum { PAGE = 4096, TENSORS = LARGE_ONES + SMALL_ONES };

static size_t bytes_of(size_t index)
{
    return index < LARGE_ONES ? LARGE : SMALL;
}

static tmsg_map_t *make(void)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < TENSORS; i++) {
        const int64_t shape[] = {(int64_t)bytes_of(i)};
        void *data = malloc(bytes_of(i));
        const tmsg_tensor_t tensor = {
            data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = free,
                                              .release_arg = data};
        char name[16];

        sample_fill(i + 1, data, bytes_of(i));
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static uint8_t *data_of(const tmsg_map_t *map, size_t index)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, index, NULL, &tensor));
    return tensor.data;
}

static void check(const tmsg_map_t *map, size_t index)
{
    must_eq(sample_compare(index + 1, data_of(map, index), bytes_of(index)),
            bytes_of(index));
}

/* How many whole pages of a tensor are in memory. */
static size_t pages_of(const tmsg_map_t *map, size_t index)
{
    static unsigned char pages[LARGE / PAGE];
    uintptr_t at = (uintptr_t)data_of(map, index);
    uintptr_t begin = (at + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    size_t count = (at + bytes_of(index) - begin) / PAGE, there = 0;

    must_eq(mincore((void *)begin, count * PAGE, pages), 0);
    for (size_t i = 0; i < count; i++) {
        there += pages[i] & 1;
    }
    return there;
}

static uint64_t held(const pair_t *pair)
{
    static const char key[] = "\"held_bytes\":";
    char *json;
    uint64_t bytes;

    must(tmsg_worker_describe(pair->a.worker, &json));
    must_true(strstr(json, key) != NULL);
    bytes = strtoull(strstr(json, key) + strlen(key), NULL, 10);
    tmsg_string_free(json);
    return bytes;
}

static void give_back_some(pair_t *pair, tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    uint64_t before = held(pair), after;

    must_true(before >= (uint64_t)LARGE * LARGE_ONES);
    must_true(pages_of(map, 1) >= LARGE / PAGE - 1);
    for (size_t i = 0; i < LARGE_ONES; i++) {
        if (i != 2) {
            must(tmsg_message_give_back(message, i));
            must(tmsg_message_give_back(message, i)); /* nothing more happens */
            must_eq(pages_of(map, i), 0);
        }
    }
    must_be(tmsg_message_give_back(message, TENSORS), TMSG_ERR_NOT_FOUND);
    must_true(pages_of(map, 2) >= LARGE / PAGE - 1);
    after = held(pair);
    must_true(before - after >=
              (uint64_t)(LARGE_ONES - 1) * (LARGE - 2 * PAGE));
    check(map, 2);

    /* Of small ones a page is free with the last that has some of it. */
    for (size_t i = 0; i < SMALL_ONES; i++) {
        size_t index = LARGE_ONES + i * 37 % SMALL_ONES;

        check(map, index);
        must(tmsg_message_give_back(message, index));
    }
    check(map, 2);
    must_true(after - held(pair) >= SMALL * SMALL_ONES - 2 * PAGE);
}

static void run(link_t link)
{
    tmsg_message_t *message;
    tmsg_request_t *sent;
    uint64_t none;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    none = held(&pair);
    for (int i = 0; i < 2; i++) { /* the second time in the same block */
        tmsg_map_t *map = make();

        must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
        tmsg_map_destroy(map);
        message = pair_take(&pair, &pair.a);
        must(pair_wait(&pair, sent));
        tmsg_request_destroy(sent);
        for (size_t j = 0; j < TENSORS; j++) {
            check(tmsg_message_map(message), j);
        }
        give_back_some(&pair, message);
        tmsg_message_destroy(message);
        must_eq(held(&pair), none);
    }
    pair_close(&pair);
}

Test(give_back, one_by_one_tcp) { run(LINK_TCP); }
Test(give_back, one_by_one_shm) { run(LINK_SHM); }

/* Rows of one page of 4-byte elements, and how a view steps through them. */
enum { ROWS = 1024, COLUMNS = 1024, VIEWS = 5 };

typedef struct {
    int64_t strides[2], shape[2], first; /* in elements */
} look_t;

static const look_t looks[] = {
    {{COLUMNS, 1}, {ROWS, COLUMNS}, 0},
    {{-COLUMNS, 1}, {ROWS, COLUMNS}, (ROWS - 1) * COLUMNS}, /* x[::-1] */
    {{COLUMNS, 1}, {ROWS, COLUMNS}, 0},
    {{COLUMNS, 2}, {ROWS, COLUMNS / 2}, 0}, /* x[:, ::2] */
    {{COLUMNS, 1}, {ROWS, COLUMNS}, 0},
};

static uint32_t number_of(size_t view, int64_t at)
{
    return (uint32_t)((int64_t)view * ROWS * COLUMNS + at);
}

static tmsg_map_t *make_views(void)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < VIEWS; i++) {
        uint32_t *data = malloc(ROWS * COLUMNS * sizeof(*data));
        const tmsg_tensor_t tensor = {
            data + looks[i].first,    {TMSG_DEVICE_CPU, 0},
            {TMSG_DTYPE_UINT, 32, 1}, 2,
            looks[i].shape,           looks[i].strides};
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = free,
                                              .release_arg = data};
        char name[16];

        for (int64_t at = 0; at < ROWS * COLUMNS; at++) {
            data[at] = number_of(i, at);
        }
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static void check_view(const tmsg_map_t *map, size_t index)
{
    const look_t *look = &looks[index];
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, index, NULL, &tensor));
    must_eq(tensor.shape[1], look->shape[1]);
    must_true(look->strides[0] > 0 || tensor.strides[0] < 0);
    for (int64_t i = 0; i < look->shape[0]; i++) {
        for (int64_t j = 0; j < look->shape[1]; j++) {
            int64_t stride = tensor.strides == NULL ? 1 : tensor.strides[1];
            int64_t row = tensor.strides == NULL ? COLUMNS : tensor.strides[0];
            uint32_t got =
                ((const uint32_t *)tensor.data)[i * row + j * stride];

            must_eq(got, number_of(index, look->first + i * look->strides[0] +
                                              j * look->strides[1]));
        }
    }
}

/* Of tensors with strides the whole span is free, and no more than that. */
Test(give_back, tensors_with_strides)
{
    static const size_t orders[][VIEWS] = {
        {1, 3, 0, 2, 4}, {4, 2, 0, 3, 1}, {2, 1, 4, 3, 0}};
    const tmsg_send_params_t keep = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                     .flags = TMSG_SEND_KEEP_STRIDES};
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        tmsg_map_t *map = make_views();
        uint64_t before;

        must(tmsg_endpoint_send(pair.to_a, map, &keep, NULL));
        tmsg_map_destroy(map);
        message = pair_take(&pair, &pair.a);
        before = held(&pair);
        for (size_t given = 0; given < VIEWS; given++) {
            for (size_t left = given; left < VIEWS; left++) {
                check_view(tmsg_message_map(message), orders[i][left]);
            }
            must(tmsg_message_give_back(message, orders[i][given]));
        }
        must_true(before - held(&pair) >=
                  (uint64_t)VIEWS * ROWS * COLUMNS * sizeof(uint32_t) -
                      2 * PAGE);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

Test(give_back, not_while_the_map_is_sent)
{
    tmsg_message_t *message;
    tmsg_map_t *map = make();
    tmsg_request_t *sent;
    pair_t pair;

    must_be(tmsg_message_give_back(NULL, 0), TMSG_ERR_INVALID_PARAM);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
    tmsg_map_destroy(map);
    message = pair_take(&pair, &pair.a);
    must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                            tmsg_message_map(message), NULL, &sent));
    must_be(tmsg_message_give_back(message, 0), TMSG_ERR_BUSY);
    check(tmsg_message_map(message), 0);
    tmsg_message_destroy(pair_take(&pair, &pair.b));
    must(pair_wait(&pair, sent));
    tmsg_request_destroy(sent);
    must(tmsg_message_give_back(message, 0));
    tmsg_message_destroy(message);
    pair_close(&pair);
}
