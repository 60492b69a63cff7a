/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tensors travel as parts, and where all of them are placed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/split.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Tensors of so many bytes each, by names "0", "1", ... */
static tmsg_map_t *map_of(const int64_t *bytes, size_t count)
{
    static uint8_t data[1 << 20];
    tmsg_map_t *map = NULL;

    cr_assert(eq(int, tmsg_map_create(&map), TMSG_OK));
    for (size_t i = 0; i < count; i++) {
        char name[32];
        const tmsg_tensor_t tensor = {.data = data,
                                      .device = {TMSG_DEVICE_CPU, 0},
                                      .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                      .ndim = 1,
                                      .shape = (int64_t *)&bytes[i]};

        snprintf(name, sizeof(name), "%zu", i);
        cr_assert(eq(int, tmsg_map_add(map, name, &tensor, NULL), TMSG_OK));
    }
    return map;
}

static const int64_t sizes[] = {5, 70000, 0, 4096, 17, 100, 65536};

Test(split, a_tensor_is_a_part_by_size_or_by_name)
{
    static const uint8_t others[] = {0x14}; /* 2, which is empty, and 4 */
    const tmsg_split_t by_size = {4096, 65536, NULL, 0, 0, 0};
    const tmsg_split_t by_both = {65536, 65536, others, 1, 0, 0};
    const tmsg_split_t none = {0, 0, NULL, 0, 0, 0};
    static const bool wanted[][COUNT(sizes)] = {
        {0, 1, 0, 1, 0, 0, 1},
        {0, 1, 0, 0, 1, 0, 1},
    };

    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint64_t bytes = (uint64_t)sizes[i];

        cr_expect(eq(int, tmsg_split_has(&by_size, i, bytes), wanted[0][i]),
                  "%zu", i);
        cr_expect(eq(int, tmsg_split_has(&by_both, i, bytes), wanted[1][i]),
                  "%zu", i);
        cr_expect(not(tmsg_split_has(&none, i, bytes)), "%zu", i);
    }
    cr_expect(eq(u64, tmsg_split_parts(&by_size, 0, 1), 1));
    cr_expect(eq(u64, tmsg_split_parts(&by_size, 0, 65536), 1));
    cr_expect(eq(u64, tmsg_split_parts(&by_size, 0, 65537), 2));
}

/* Those that are named may have a length of their own. */
Test(split, a_tensor_that_is_named_may_have_longer_parts)
{
    static const uint8_t others[] = {0x02};
    const tmsg_split_t split = {65536, 4096, others, 1, 0, 65536};

    cr_expect(eq(u64, tmsg_split_chunk(&split, 0), 4096));
    cr_expect(eq(u64, tmsg_split_chunk(&split, 1), 65536));
    cr_expect(eq(u64, tmsg_split_chunk(&split, 9), 4096));
    cr_expect(eq(u64, tmsg_split_parts(&split, 0, 70000), 18));
    cr_expect(eq(u64, tmsg_split_parts(&split, 1, 70000), 2));
}

static tmsg_status_t carried(const tmsg_split_t *split, tmsg_split_t *split_p)
{
    static uint8_t body[4096];
    const tmsg_limits_t limits = tmsg_limits_usual();
    const tmsg_body_extra_t sent = {.split = *split};
    tmsg_body_extra_t got = {.split = {0}};
    tmsg_map_t *map = map_of(sizes, COUNT(sizes)), *arrived;
    tmsg_status_t status;
    size_t bytes;

    cr_assert(eq(int, tmsg_map_create(&arrived), TMSG_OK));
    cr_assert(eq(int, tmsg_body_encode(map, &sent, body, sizeof(body), &bytes),
                 TMSG_OK));
    status = tmsg_body_decode(body, bytes, &limits, arrived, &got);
    *split_p = got.split;
    tmsg_map_destroy(map);
    tmsg_map_destroy(arrived);
    return status;
}

Test(split, such_a_length_is_carried_with_slices_and_without)
{
    static const uint8_t others[] = {0x02};
    static const struct {
        uint64_t slice, others_chunk;
        tmsg_status_t status;
    } rows[] = {{0, 0, TMSG_OK},
                {8192, 0, TMSG_OK},
                {0, 1 << 28, TMSG_OK},
                {8192, 1 << 28, TMSG_OK},
                {4095, 0, TMSG_ERR_MALFORMED},
                {4095, 1 << 28, TMSG_ERR_MALFORMED},
                {8192, 4095, TMSG_ERR_MALFORMED}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_split_t split = {65536, 4096,          others,
                                    1,     rows[i].slice, rows[i].others_chunk};
        tmsg_split_t got;

        cr_expect(eq(int, carried(&split, &got), rows[i].status), "row %zu", i);
        if (rows[i].status == TMSG_OK) {
            cr_expect(eq(u64, got.slice, rows[i].slice), "row %zu", i);
            cr_expect(eq(u64, got.others_chunk, rows[i].others_chunk),
                      "row %zu", i);
            cr_expect(eq(uint, got.others[0], 2), "row %zu", i);
        }
    }
}

Test(split, parts_are_placed_behind_what_travels_in_the_message)
{
    const tmsg_split_t split = {4096, 65536, NULL, 0, 0, 0};
    static const uint64_t wanted[] = {0, 192, 0, 70208, 16, 48, 74304};
    tmsg_map_t *map = map_of(sizes, COUNT(sizes));
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t head = tmsg_split_head_bytes(&split, map);
    uint64_t bytes = tmsg_split_place(&split, map, NULL);
    uint8_t *block = aligned_alloc(64, (bytes + 63) / 64 * 64);

    cr_expect(eq(u64, head, 48 + 100)); /* 5, 17 and 100 */
    cr_expect(eq(u64, bytes, tmsg_split_place(&split, map, block)));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        uint64_t at = (uint64_t)((uint8_t *)entries[i].tensor.data - block);

        cr_expect(sizes[i] == 0 || at == wanted[i], "tensor %zu is at %lu", i,
                  at);
    }
    cr_expect(eq(u64, bytes, 74304 + 65536));
    free(block);
    tmsg_map_destroy(map);
}

Test(split, without_parts_it_is_the_usual_layout)
{
    const tmsg_split_t none = {0, 0, NULL, 0, 0, 0};
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map = map_of(sizes, COUNT(sizes));
    uint64_t bytes;

    cr_assert(eq(int, tmsg_layout_bytes(map, &limits, &bytes), TMSG_OK));
    cr_expect(eq(u64, tmsg_split_head_bytes(&none, map), bytes));
    cr_expect(eq(u64, tmsg_split_place(&none, map, NULL), bytes));
    tmsg_map_destroy(map);
}

/* What is left travels in the message, or all of it in slices. */
Test(split, what_is_left_may_be_sliced)
{
    static const struct {
        uint64_t slice, slices, head;
    } rows[] = {
        {0, 0, 148}, {4096, 1, 0}, {148, 1, 0}, {147, 2, 0}, {37, 4, 0}};
    tmsg_map_t *map = map_of(sizes, COUNT(sizes));

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_split_t split = {4096, 65536, NULL, 0, rows[i].slice, 0};
        uint64_t left = tmsg_split_left_bytes(&split, map);

        cr_expect(eq(u64, left, 148));
        cr_expect(eq(u64, tmsg_split_slices(&split, left), rows[i].slices));
        cr_expect(eq(u64, tmsg_split_slices(&split, 0), 0));
        cr_expect(eq(u64, tmsg_split_head_bytes(&split, map), rows[i].head));
    }
    tmsg_map_destroy(map);
}

/* The same, whether it was measured before or is counted. */
Test(split, all_is_left_where_no_tensor_can_be_parts)
{
    static const uint8_t others[] = {0x10};
    const tmsg_split_t slices = {INT64_MAX, 65536, NULL, 0, 65536, 0};
    const tmsg_split_t by_size = {INT64_MAX - 1, 65536, NULL, 0, 65536, 0};
    const tmsg_split_t by_name = {INT64_MAX, 65536, others, 1, 65536, 0};
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *layout = map_of(sizes, COUNT(sizes)), *map = NULL;
    uint64_t all, out;

    cr_assert(eq(int, tmsg_map_create(&map), TMSG_OK));
    cr_assert(eq(int, tmsg_map_share(map, layout), TMSG_OK));
    cr_expect(tmsg_split_has_none(&slices));
    cr_expect(not(tmsg_split_has_none(&by_size)));
    cr_expect(not(tmsg_split_has_none(&by_name)));
    all = tmsg_split_left_bytes(&slices, map);
    cr_expect(eq(u64, all, tmsg_split_left_bytes(&by_size, layout)));
    cr_assert(eq(int, tmsg_layout_bytes(map, &limits, &out), TMSG_OK));
    cr_expect(eq(u64, out, all));
    cr_expect(tmsg_map_measured(map, &out, &out));
    cr_expect(eq(u64, tmsg_split_left_bytes(&slices, map), all));
    cr_expect(eq(u64, tmsg_split_left_bytes(&by_name, map), all - 17 - 15));
    cr_expect(eq(int, tmsg_split_check(&slices, map), TMSG_OK));
    tmsg_map_destroy(map);
    tmsg_map_destroy(layout);
}
