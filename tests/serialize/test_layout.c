/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>

#include <tensormsg/map.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tmsg_map_t *map_of(const tmsg_tensor_t *tensors, size_t count)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    for (size_t i = 0; i < count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%zu", i);
        cr_assert_eq(tmsg_map_add(map, name, &tensors[i], NULL), TMSG_OK, "%s",
                     tmsg_error_message());
    }
    return map;
}

Test(layout, aligns_to_the_element_between_16_and_64)
{
    static const struct {
        tmsg_dtype_t dtype;
        uint64_t alignment;
    } rows[] = {
        {{TMSG_DTYPE_UINT, 1, 1}, 16},      {{TMSG_DTYPE_INT, 8, 1}, 16},
        {{TMSG_DTYPE_FLOAT, 64, 1}, 16},    {{TMSG_DTYPE_COMPLEX, 128, 1}, 16},
        {{TMSG_DTYPE_COMPLEX, 128, 2}, 32}, {{TMSG_DTYPE_FLOAT, 32, 3}, 16},
        {{TMSG_DTYPE_FLOAT, 32, 4}, 16},    {{TMSG_DTYPE_FLOAT, 32, 5}, 32},
        {{TMSG_DTYPE_FLOAT, 32, 8}, 32},    {{TMSG_DTYPE_FLOAT, 32, 9}, 64},
        {{TMSG_DTYPE_FLOAT, 64, 8}, 64},    {{TMSG_DTYPE_FLOAT, 64, 9}, 64},
        {{TMSG_DTYPE_UINT, 1, 129}, 32},    {{TMSG_DTYPE_INT, 64, 65535}, 64},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t alignment = tmsg_layout_alignment(rows[i].dtype);

        cr_expect_eq(alignment, rows[i].alignment, "row %zu: %lu, not %lu", i,
                     alignment, rows[i].alignment);
    }
}

Test(layout, begins_at_the_next_multiple)
{
    static const struct {
        uint64_t offset;
        uint16_t lanes; /* of float32 */
        uint64_t bytes;
        uint64_t begin;
    } rows[] = {
        {0, 1, 4, 0},    {1, 1, 4, 16},  {16, 1, 4, 16},  {17, 1, 4, 32},
        {17, 1, 0, 17},  {17, 8, 4, 32}, {33, 8, 32, 64}, {65, 16, 64, 128},
        {65, 16, 0, 65}, {0, 16, 64, 0},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT, 32, rows[i].lanes};
        uint64_t begin = tmsg_layout_next(rows[i].offset, dtype, rows[i].bytes);

        cr_expect_eq(begin, rows[i].begin, "row %zu: %lu, not %lu", i, begin,
                     rows[i].begin);
    }
}

/* The figure of docs/wire/wire-format.md. */
Test(layout, adds_up_tensors_and_gaps)
{
    static const int64_t shape[] = {3, 2, 0, 1};
    uint8_t data[256];
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    const tmsg_tensor_t tensors[] = {
        {data, cpu, {TMSG_DTYPE_UINT, 8, 1}, 1, &shape[0], NULL},
        {data, cpu, {TMSG_DTYPE_FLOAT, 64, 1}, 1, &shape[1], NULL},
        {data, cpu, {TMSG_DTYPE_UINT, 8, 1}, 1, &shape[2], NULL},
        {data, cpu, {TMSG_DTYPE_FLOAT, 32, 16}, 1, &shape[3], NULL},
    };
    static const uint64_t ends[] = {0, 3, 32, 32, 128};
    tmsg_limits_t limits;

    limits = tmsg_limits_usual();
    for (size_t i = 0; i < COUNT(ends); i++) {
        tmsg_map_t *map = map_of(tensors, i);
        uint64_t bytes = 1;

        cr_expect_eq(tmsg_layout_bytes(map, &limits, &bytes), TMSG_OK);
        cr_expect_eq(bytes, ends[i], "%zu tensors: %lu, not %lu", i, bytes,
                     ends[i]);
        tmsg_map_destroy(map);
    }
}

Test(layout, refuses_beyond_the_message_limit)
{
    static const int64_t shape[] = {100, INT64_MAX / 8};
    uint8_t data[1];
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};
    const tmsg_tensor_t small = {data, cpu, u8, 1, &shape[0], NULL};
    const tmsg_tensor_t huge = {data, cpu, u8, 1, &shape[1], NULL};
    const tmsg_tensor_t smalls[] = {small, small};
    tmsg_tensor_t huges[20];
    tmsg_limits_t limits;
    tmsg_map_t *map = map_of(smalls, 2);
    uint64_t bytes = 77;

    limits = tmsg_limits_usual();
    limits.message_bytes = 212; /* 100, 12 of gap, 100 */
    cr_expect_eq(tmsg_layout_bytes(map, &limits, &bytes), TMSG_OK);
    cr_expect_eq(bytes, 212);
    for (limits.message_bytes = 211; limits.message_bytes > 99;
         limits.message_bytes -= 37) {
        bytes = 77;
        cr_expect_eq(tmsg_layout_bytes(map, &limits, &bytes),
                     TMSG_ERR_LIMIT_EXCEEDED);
        cr_expect_eq(bytes, 77, "the output was touched");
        cr_expect(strstr(tmsg_error_message(), "tensor 1 't1'") != NULL, "%s",
                  tmsg_error_message());
    }
    tmsg_map_destroy(map);

    for (size_t i = 0; i < COUNT(huges); i++) {
        huges[i] = huge;
    }
    map = map_of(huges, COUNT(huges)); /* their sum goes round 2^64 */
    limits.message_bytes = UINT64_MAX;
    cr_expect_eq(tmsg_layout_bytes(map, &limits, &bytes),
                 TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_map_destroy(map);
}

/* What was measured once is known, and gives each tensor the place that it has
 * where nothing is. */
Test(layout, of_maps_that_share_it_is_measured_once)
{
    static const int64_t shape[] = {3, 0, 5, 70, 1};
    static float data[100];
    tmsg_tensor_t tensors[COUNT(shape)];
    tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map, *layout, *shares;
    uint64_t bytes, again = 0;

    for (size_t i = 0; i < COUNT(shape); i++) {
        tensors[i] = (tmsg_tensor_t){
            .data = shape[i] > 0 ? data : NULL,
            .device = {TMSG_DEVICE_CPU, 0},
            .dtype = {TMSG_DTYPE_FLOAT, 32, 1},
            .ndim = 1,
            .shape = &shape[i],
        };
    }
    map = map_of(tensors, COUNT(shape));
    cr_assert_eq(tmsg_layout_bytes(map, &limits, &bytes), TMSG_OK);
    cr_assert_eq(tmsg_map_copy_layout(map, &layout), TMSG_OK);
    cr_assert_eq(tmsg_map_create(&shares), TMSG_OK);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(tmsg_map_share(shares, layout), TMSG_OK);
        limits.message_bytes = bytes - 1;
        cr_expect_eq(tmsg_layout_bytes(shares, &limits, &again),
                     TMSG_ERR_LIMIT_EXCEEDED);
        limits.message_bytes = bytes;
        cr_assert_eq(tmsg_layout_bytes(shares, &limits, &again), TMSG_OK);
        cr_expect_eq(again, bytes);
        if (round == 1) { /* one by one, for it has one */
            tmsg_map_place(shares, 0, data);
            tmsg_map_place(shares, 0, NULL);
        }
        tmsg_payload_place(shares, data);
        for (size_t i = 0; i < COUNT(shape); i++) {
            static const ptrdiff_t begins[] = {0, 12, 16, 48, 336};

            cr_expect_eq((uint8_t *)tmsg_map_entries(shares)[i].tensor.data -
                             (uint8_t *)data,
                         begins[i], "%zu", i);
        }
        tmsg_map_clear(shares);
    }
    tmsg_map_destroy(shares);
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
}
