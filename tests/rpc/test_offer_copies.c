/* SPDX-License-Identifier: BSD-3-Clause */
/* What an owner copies of what is fetched: boxes with gaps a part at a time,
 * and what is copied as a whole no more than 64 MiB for a connection, however
 * much is asked for at once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/offers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

enum {
    FETCHES = 8,
    BOXES = 8,
    HEIGHT = 1024,
    WIDTH = 4096,
    BOX = HEIGHT * WIDTH
};

static size_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long all, resident;

    must_true(file != NULL && fscanf(file, "%lu %lu", &all, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Returns a map of one tensor with a column more than a box has. */
static tmsg_map_t *wide_map(void)
{
    static const int64_t shape[] = {HEIGHT, WIDTH + 1};
    uint8_t *data = malloc((size_t)HEIGHT * (WIDTH + 1));
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = data};
    tmsg_map_t *map;

    for (int64_t i = 0; i < (int64_t)HEIGHT * (WIDTH + 1); i++) {
        data[i] = (uint8_t)(i * 31 >> 3);
    }
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "wide", &tensor, &params));
    return map;
}

static tmsg_call_t *start_boxes(pair_t *pair, const tmsg_offer_key_t *key)
{
    static const int64_t start_at[] = {0, 1}, count[] = {HEIGHT, WIDTH};
    static const char *const names[BOXES] = {"0", "1", "2", "3",
                                             "4", "5", "6", "7"};
    tmsg_slice_t slices[BOXES];
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES,
                                        .slices = slices,
                                        .slice_count = BOXES};

    for (unsigned i = 0; i < BOXES; i++) {
        slices[i] = (tmsg_slice_t){.name = "wide",
                                   .as = names[i],
                                   .ndim = 2,
                                   .start = start_at,
                                   .count = count};
    }
    return start(pair, key, &params);
}

static void check_boxes(const tmsg_map_t *map)
{
    must_eq(tmsg_map_size(map), BOXES);
    for (size_t i = 0; i < BOXES; i++) {
        tmsg_tensor_t tensor;
        const uint8_t *data;

        must(tmsg_map_at(map, i, NULL, &tensor));
        data = tensor.data;
        for (int64_t row = 0; row < HEIGHT; row += 41) {
            for (int64_t column = 0; column < WIDTH; column += 67) {
                int64_t from = row * (WIDTH + 1) + column + 1;

                must_eq(data[row * WIDTH + column], (uint8_t)(from * 31 >> 3));
            }
        }
    }
}

static bool all_are_under_way(void *arg)
{
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(((const heard_t *)arg)->offer, &stats);
    return stats.under_way + stats.fetches == FETCHES;
}

/* A sanitizer keeps much memory that was freed. */
static void must_take_less(size_t before, size_t bytes)
{
    must_true(is_slow() || resident_bytes() < before + bytes);
}

static bool none_is_under_way(void *arg)
{
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(((const heard_t *)arg)->offer, &stats);
    return stats.under_way == 0;
}

static void cancel(pair_t *pair, heard_t *heard, tmsg_call_t **calls, int count)
{
    for (int i = 0; i < count; i++) {
        tmsg_call_destroy(calls[i]);
    }
    pair_await(pair, none_is_under_way, heard, "the end of all fetches");
}

/* Another fetcher gets what it asks for. */
static void serve_another(pair_t *pair, const char *name)
{
    tmsg_endpoint_t *endpoint;
    side_t other, *sides[] = {&pair->a, &other};
    tmsg_call_t *call;

    side_open(&other, NULL);
    endpoint = side_dial(&other, &pair->a);
    must(tmsg_endpoint_fetch_name(endpoint, name, 0, NULL, &call));
    await(sides, 2, has_ended, call, "the fetch of another");
    must_be(tmsg_call_status(call), TMSG_OK);
    tmsg_call_destroy(call);
    side_close(&other);
}

/* A fetcher has room for one reply at a time. The owner holds no copy of those
 * that wait, or of more than a part of the one that moves. To a fetcher that
 * takes `whole` replies alone it holds copies of two. */
static void boxes_wait(link_t link, bool whole)
{
    const side_options_t narrow = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = (BOXES + 1) * (uint64_t)BOX}};
    tmsg_call_t *calls[FETCHES];
    heard_t wide, small;
    tmsg_offer_key_t key;
    size_t before;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, &narrow);
    offer(&pair, &wide, wide_map(), NULL);
    offer_named(&pair, &small, sample_bytes(1, 100000), "small", 0);
    key = key_of(&wide);
    if (whole) {
        pair.to_b->peer_hello.fragments = 0;
    }
    before = resident_bytes();
    for (int i = 0; i < FETCHES; i++) {
        calls[i] = start_boxes(&pair, &key);
    }
    pair_await(&pair, all_are_under_way, &wide, "fetches under way");
    pair_await(&pair, has_ended, calls[0], "the first reply");
    serve_another(&pair, "small");
    /* The fetcher has one reply. */
    must_take_less(before, (whole ? 4 : 2) * (size_t)BOXES * BOX);
    for (int i = 0; i < 3; i++) {
        finish(&pair, calls[i]);
        must_be(tmsg_call_status(calls[i]), TMSG_OK);
        check_boxes(tmsg_call_reply(calls[i]));
        tmsg_call_destroy(calls[i]);
    }
    cancel(&pair, &wide, calls + 3, FETCHES - 3);
    withdraw(&wide);
    withdraw(&small);
    pair_close(&pair);
}

Test(offer_copies, that_wait_take_no_memory_shm)
{
    boxes_wait(LINK_UNIX, false);
}

Test(offer_copies, that_wait_take_no_memory_tcp)
{
    boxes_wait(LINK_TCP, false);
}

Test(offer_copies, that_wait_take_no_memory_ucx)
{
    by_ucx_alone();
    boxes_wait(LINK_TCP, false);
}

Test(offer_copies, that_wait_take_little_memory_whole)
{
    boxes_wait(LINK_UNIX, true);
}

enum { PIECES = 1000, ROWS = 3, GATHERED = PIECES * ROWS * (WIDTH + 1) };

static tmsg_call_t *start_pieces(pair_t *pair, const tmsg_offer_key_t *key)
{
    static const int64_t start_at[] = {0}, count[] = {ROWS};
    static char names[PIECES][8];
    static tmsg_slice_t slices[PIECES];
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES,
                                        .slices = slices,
                                        .slice_count = PIECES};

    for (unsigned i = 0; i < PIECES; i++) {
        snprintf(names[i], sizeof(names[i]), "%u", i);
        slices[i] = (tmsg_slice_t){.name = "wide",
                                   .as = names[i],
                                   .ndim = 1,
                                   .start = start_at,
                                   .count = count};
    }
    return start(pair, key, &params);
}

static bool all_came(void *arg)
{
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(((const heard_t *)arg)->offer, &stats);
    return stats.under_way + stats.fetches == 2 * FETCHES;
}

/* Small boxes without gaps are gathered into one piece. */
Test(offer_copies, that_are_gathered_wait_for_each_other)
{
    enum { ASKED = 2 * FETCHES };
    const side_options_t narrow = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = 3 * (uint64_t)GATHERED / 2}};
    tmsg_call_t *calls[ASKED];
    tmsg_offer_key_t key;
    heard_t heard;
    size_t before;
    pair_t pair;

    by_ucx_alone();
    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, &narrow);
    offer(&pair, &heard, wide_map(), NULL);
    key = key_of(&heard);
    before = resident_bytes();
    for (int i = 0; i < ASKED; i++) {
        calls[i] = start_pieces(&pair, &key);
    }
    pair_await(&pair, has_ended, calls[0], "the first reply");
    pair_await(&pair, all_came, &heard, "fetches under way");
    must_take_less(before, ASKED / 2 * (size_t)GATHERED);
    for (int i = 0; i < 2; i++) {
        finish(&pair, calls[i]);
        must_be(tmsg_call_status(calls[i]), TMSG_OK);
        must_eq(tmsg_map_size(tmsg_call_reply(calls[i])), PIECES);
        tmsg_call_destroy(calls[i]);
    }
    cancel(&pair, &heard, calls + 2, ASKED - 2);
    withdraw(&heard);
    pair_close(&pair);
}

/* A box of many elements that are one in the owner's memory, too. */
Test(offer_copies, that_would_be_copied_at_once_are_refused_if_large)
{
    static const int64_t shape[] = {1 << 20, 100}, strides[] = {1, 0};
    static uint8_t bytes[1 << 20];
    const tmsg_tensor_t same = {
        bytes,  {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, shape,
        strides};
    tmsg_map_t *map = wide_map();
    heard_t heard;
    tmsg_offer_key_t key;
    tmsg_call_t *call;
    pair_t pair;

    must(tmsg_map_add(map, "same", &same, NULL));
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    offer(&pair, &heard, map, NULL);
    key = key_of(&heard);
    call = finish(&pair, start(&pair, &key, NULL));
    must_be(tmsg_call_status(call), TMSG_OK);
    tmsg_call_destroy(call);
    pair.to_b->peer_hello.features &= ~(uint32_t)TMSG_FEATURE_BROADCAST;
    pair.to_b->peer_hello.fragments = 0;
    fails(&pair, start(&pair, &key, NULL), TMSG_ERR_LIMIT_EXCEEDED,
          "copied at once");
    call = finish(&pair, start_boxes(&pair, &key));
    must_be(tmsg_call_status(call), TMSG_OK);
    check_boxes(tmsg_call_reply(call));
    tmsg_call_destroy(call);
    withdraw(&heard);
    pair_close(&pair);
}
