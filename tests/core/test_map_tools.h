/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the map share. */
#ifndef TEST_MAP_TOOLS_H
#define TEST_MAP_TOOLS_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tensormsg/map.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static float data[64];
static const int64_t shape_2_3[] = {2, 3}, strides_1_2[] = {1, 2};
static const tmsg_tensor_t small = {
    data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 2, shape_2_3, NULL};

static inline tmsg_map_t *new_map(void)
{
    tmsg_map_t *map = NULL;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static inline void count_call(void *arg) { ++*(int *)arg; }

/* A tensor whose release counts. */
static inline tmsg_status_t add_counted(tmsg_map_t *map, const char *name,
                                        const tmsg_tensor_t *tensor, int *calls)
{
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = count_call,
                                          .release_arg = calls};

    return tmsg_map_add(map, name, tensor, &params);
}

static inline const char *numbered(const char *stem, size_t number)
{
    static char name[64];

    snprintf(name, sizeof(name), "%s/%zu", stem, number);
    return name;
}

static inline void add_numbered(tmsg_map_t *map, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(tmsg_map_add(map, numbered("t", i), &small, NULL), TMSG_OK,
                     "%zu: %s", i, tmsg_error_message());
    }
}

/* The names in order, each followed by a blank. */
static inline const char *names_of(const tmsg_map_t *map)
{
    static char all[4096];

    all[0] = '\0';
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const char *name = NULL;

        cr_assert_eq(tmsg_map_at(map, i, &name, NULL), TMSG_OK);
        strcat(strcat(all, name), " ");
    }
    return all;
}

#endif
