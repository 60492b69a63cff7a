/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of schemas share. */
#ifndef TEST_SCHEMA_TOOLS_H
#define TEST_SCHEMA_TOOLS_H

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "support/golden_listing.h"
#include "support/schema_pair.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PLENTY (1u << 20)

static uint8_t somewhere[1]; /* data that nobody looks at */

static inline tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static inline void add(tmsg_map_t *map, const char *name, int32_t ndim,
                       const int64_t *shape, const int64_t *strides)
{
    const tmsg_tensor_t tensor = {
        somewhere, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, ndim, shape,
        strides};

    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK, "%s",
                 tmsg_error_message());
}

/* "points" of rows x 3, and "pose". */
static inline tmsg_map_t *points(int64_t rows)
{
    const int64_t cloud[] = {rows, 3}, pose[] = {4, 4};
    tmsg_map_t *map = new_map();

    add(map, "points", 2, cloud, NULL);
    add(map, "pose", 2, pose, NULL);
    return map;
}

/* One tensor whose name is the layout. */
static inline tmsg_map_t *named(unsigned number)
{
    const int64_t shape[] = {2};
    tmsg_map_t *map = new_map();
    char name[16];

    snprintf(name, sizeof(name), "n%u", number);
    add(map, name, 1, shape, NULL);
    return map;
}

/* `count` scalars' worth of extents: tensors of 4 dimensions each. */
static inline tmsg_map_t *wide(unsigned tensors, int64_t extent,
                               unsigned differing)
{
    tmsg_map_t *map = new_map();

    for (unsigned i = 0; i < tensors; i++) {
        int64_t shape[] = {2, 2, 2, 2};
        char name[16];

        for (unsigned axis = 0; axis < 4; axis++) {
            if (4 * i + axis < differing) {
                shape[axis] = extent;
            }
        }
        snprintf(name, sizeof(name), "w%u", i);
        add(map, name, 4, shape, NULL);
    }
    return map;
}

static inline tmsg_map_t *strided(int64_t rows, int64_t stride)
{
    const int64_t shape[] = {rows, 3}, strides[] = {1, stride};
    tmsg_map_t *map = new_map();

    add(map, "s", 2, shape, strides);
    return map;
}

/* Sends and lets all of it happen; destroys the map. */
static inline tmsg_schema_form_t send(schema_pair_t *pair, tmsg_map_t *map)
{
    tmsg_schema_form_t form = schema_pair_send(pair, map);

    schema_pair_settle(pair);
    tmsg_map_destroy(map);
    return form;
}

static inline tmsg_status_t decode(const char *hex, tmsg_map_t *map,
                                   tmsg_body_extra_t *extra, uint8_t **body_p)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    size_t bytes;

    *body_p = golden_unhex(hex, &bytes);
    return tmsg_body_decode(*body_p, bytes, &limits, map, extra);
}

#endif
