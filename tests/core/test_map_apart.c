/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether tensors that are received into have memory of their own. */
#include <stdlib.h>

#include "core/map.h"
#include "support/failing_alloc.h"
#include "test_map_tools.h"

static uint8_t bytes[1000];

/* Of so many bytes of a device. */
static void add_bytes(tmsg_map_t *map, const char *name, tmsg_device_t device,
                      size_t begin, int64_t count)
{
    const tmsg_tensor_t tensor = {
        bytes + begin, device, {TMSG_DTYPE_UINT, 8, 1}, 1, &count, NULL};

    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
}

Test(map_apart, of_what_overlaps_two_are_named)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};
    static const tmsg_device_t other = {TMSG_DEVICE_CUDA, 1};
    static const tmsg_device_t pinned = {TMSG_DEVICE_CUDA_HOST, 0};
    static const tmsg_device_t managed = {TMSG_DEVICE_CUDA_MANAGED, 1};
    static const tmsg_device_t handle = {TMSG_DEVICE_VULKAN, 0};
    static const struct {
        const char *words; /* NULL: they do not */
        struct {
            tmsg_device_t device;
            size_t begin;
            int64_t count;
        } of[3];
    } rows[] = {
        {NULL, {{cpu, 0, 10}, {cpu, 10, 10}, {cpu, 20, 1}}},
        {NULL, {{cpu, 20, 1}, {cpu, 10, 10}, {cpu, 0, 10}}},
        {NULL, {{cpu, 50, 9}, {cpu, 0, 0}, {cpu, 40, 10}}},
        {"'t/0' and 't/1' overlap", {{cpu, 0, 10}, {cpu, 0, 10}, {cpu, 90, 1}}},
        {"'t/0' and 't/2' overlap", {{cpu, 0, 10}, {cpu, 50, 1}, {cpu, 9, 2}}},
        {"'t/1' and 't/2' overlap", {{cpu, 50, 1}, {cpu, 0, 10}, {cpu, 4, 1}}},
        {"'t/0' and 't/2' overlap", {{cpu, 9, 2}, {cpu, 90, 9}, {cpu, 0, 10}}},
        {NULL, {{cpu, 0, 10}, {cpu, 0, 0}, {cpu, 5, 0}}},
        {NULL, {{cpu, 0, 10}, {gpu, 0, 10}, {other, 0, 10}}},
        {"'t/0' and 't/2' overlap", {{gpu, 0, 10}, {cpu, 0, 9}, {gpu, 3, 1}}},
        {"'t/0' and 't/2' overlap", {{cpu, 0, 9}, {gpu, 3, 1}, {pinned, 8, 1}}},
        {"'t/1' and 't/2' overlap",
         {{gpu, 0, 9}, {managed, 3, 9}, {pinned, 8, 1}}},
        {NULL, {{handle, 0, 10}, {handle, 0, 10}, {cpu, 0, 10}}},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        tmsg_status_t status;

        for (size_t k = 0; k < COUNT(rows[i].of); k++) {
            add_bytes(map, numbered("t", k), rows[i].of[k].device,
                      rows[i].of[k].begin, rows[i].of[k].count);
        }
        status = tmsg_map_check_apart(map);
        cr_expect_eq(status,
                     rows[i].words == NULL ? TMSG_OK : TMSG_ERR_INVALID_PARAM,
                     "row %zu: %s", i, tmsg_status_name(status));
        cr_expect(rows[i].words == NULL ||
                      strstr(tmsg_error_message(), rows[i].words) != NULL,
                  "row %zu: %s", i, tmsg_error_message());
        tmsg_map_destroy(map);
    }
}

/* What was found is remembered until the map is another. */
Test(map_apart, is_asked_again_after_a_change)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    tmsg_map_t *map = new_map();

    add_bytes(map, "a", cpu, 100, 10);
    add_bytes(map, "b", cpu, 0, 10);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_OK);
    add_bytes(map, "c", cpu, 109, 10);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_ERR_INVALID_PARAM);
    cr_assert_eq(tmsg_map_remove(map, "a"), TMSG_OK);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_OK);
    tmsg_map_place(map, 0, bytes + 110);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_ERR_INVALID_PARAM);
    cr_assert_eq(tmsg_map_clear(map), TMSG_OK);
    add_bytes(map, "d", cpu, 0, 10);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_OK);
    tmsg_map_destroy(map);
}

Test(map_apart, agrees_with_every_pair)
{
    enum { MOST = 12 };
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    unsigned short state[3] = {4, 5, 6};
    size_t seen[2] = {0};

    for (int round = 0; round < 20000; round++) {
        size_t count = (size_t)nrand48(state) % MOST, begin[MOST], end[MOST];
        tmsg_map_t *map = new_map();
        bool apart = true;

        for (size_t i = 0; i < count; i++) {
            begin[i] = (size_t)nrand48(state) % 900;
            end[i] = begin[i] + (size_t)nrand48(state) % 60;
            add_bytes(map, numbered("t", i), cpu, begin[i],
                      (int64_t)(end[i] - begin[i]));
            for (size_t k = 0; k < i; k++) {
                apart = apart && (begin[i] == end[i] || begin[k] == end[k] ||
                                  end[i] <= begin[k] || end[k] <= begin[i]);
            }
        }
        seen[apart]++;
        cr_assert_eq(tmsg_map_check_apart(map),
                     apart ? TMSG_OK : TMSG_ERR_INVALID_PARAM, "round %d",
                     round);
        tmsg_map_destroy(map);
    }
    cr_expect(seen[0] > 1000 && seen[1] > 1000, "%zu, %zu", seen[0], seen[1]);
}

Test(map_apart, where_memory_runs_out)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    tmsg_map_t *map = new_map();

    add_bytes(map, "a", cpu, 10, 10);
    add_bytes(map, "b", cpu, 0, 10);
    failing_alloc_arm(1);
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_ERR_NO_MEMORY);
    cr_expect(failing_alloc_disarm());
    cr_expect_eq(tmsg_map_check_apart(map), TMSG_OK);
    tmsg_map_destroy(map);
}
