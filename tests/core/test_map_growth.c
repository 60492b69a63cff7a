/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps whose tensors come and go, up to many, and where memory runs out. */
#include <malloc.h>
#include <stdlib.h>

#include "core/map.h"
#include "core/map_struct.h"
#include "support/failing_alloc.h"
#include "test_map_tools.h"

#define MANY 100000

Test(map, keeps_insertion_order_through_removals)
{
    tmsg_map_t *map = new_map();

    for (const char *name = "zebra\0mask\0a\0left\0b\0right\0"; *name;
         name += strlen(name) + 1) {
        cr_assert_eq(tmsg_map_add(map, name, &small, NULL), TMSG_OK);
    }
    cr_expect_eq(tmsg_map_remove(map, "a"), TMSG_OK);
    cr_expect_eq(tmsg_map_remove(map, "zebra"), TMSG_OK);
    cr_expect_eq(tmsg_map_remove(map, "right"), TMSG_OK);
    cr_expect_eq(tmsg_map_remove(map, "a"), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_add(map, "zebra", &small, NULL), TMSG_OK);
    cr_expect_str_eq(names_of(map), "mask left b zebra ", "'%s'",
                     names_of(map));
    tmsg_map_destroy(map);
}

/* Against an array that does the same, with names that come and go. */
Test(map, follows_random_changes)
{
    enum { NAMES = 200 };
    tmsg_map_t *map = new_map();
    unsigned short state[3] = {7, 8, 9};
    size_t order[NAMES], count = 0;
    bool in[NAMES] = {false};

    for (int step = 0; step < 20000; step++) {
        size_t pick = (size_t)nrand48(state) % NAMES;
        tmsg_tensor_t tensor = small;
        tmsg_status_t status;

        tensor.ndim = (int32_t)(pick % 3);
        tensor.strides = pick % 2 ? strides_1_2 : NULL;
        if (nrand48(state) % 2) {
            status = tmsg_map_add(map, numbered("tensor", pick), &tensor, NULL);
            cr_assert_eq(status, in[pick] ? TMSG_ERR_ALREADY_EXISTS : TMSG_OK,
                         "step %d: %s", step, tmsg_status_name(status));
            if (!in[pick]) {
                order[count++] = pick;
            }
            in[pick] = true;
        } else {
            status = tmsg_map_remove(map, numbered("tensor", pick));
            cr_assert_eq(status, in[pick] ? TMSG_OK : TMSG_ERR_NOT_FOUND,
                         "step %d: %s", step, tmsg_status_name(status));
            for (size_t i = 0; in[pick] && i < count; i++) {
                if (order[i] == pick) {
                    memmove(&order[i], &order[i + 1],
                            (--count - i) * sizeof(order[0]));
                    break;
                }
            }
            in[pick] = false;
        }
        cr_assert_eq(tmsg_map_size(map), count, "step %d: %zu, not %zu", step,
                     tmsg_map_size(map), count);
        for (size_t i = 0; step % 50 == 0 && i < count; i++) {
            const char *name = NULL;

            tmsg_map_at(map, i, &name, &tensor);
            cr_assert_str_eq(name, numbered("tensor", order[i]),
                             "step %d, %zu: '%s', not '%s'", step, i, name,
                             numbered("tensor", order[i]));
            cr_assert_eq(tensor.ndim, (int32_t)(order[i] % 3));
            cr_assert(tensor.ndim == 0 || tensor.shape[0] == 2);
            cr_assert(tensor.ndim == 0 || tensor.strides == NULL ||
                      tensor.strides[0] == 1);
        }
    }
    /* 200 names of 24 bytes with at most 32 of shape: removals leave no pile */
    cr_expect_lt(map->arena.used, 4 * NAMES * 56, "%zu bytes for %zu tensors",
                 map->arena.used, count);
    tmsg_map_destroy(map);
}

Test(map, holds_100000_names)
{
    tmsg_map_t *map = new_map();
    tmsg_tensor_t tensor;
    const char *name;
    int calls = 0;

    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(add_counted(map, numbered("t", i), &small, &calls),
                     TMSG_OK, "%zu: %s", i, tmsg_error_message());
    }
    cr_expect_eq(tmsg_map_size(map), MANY);
    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(tmsg_map_find(map, numbered("t", i), &tensor), TMSG_OK);
        cr_assert_eq(tmsg_map_at(map, i, &name, &tensor), TMSG_OK);
        cr_assert_str_eq(name, numbered("t", i), "%zu: '%s'", i, name);
    }
    cr_expect_eq(tmsg_map_add(map, "t/99999", &small, NULL),
                 TMSG_ERR_ALREADY_EXISTS);
    cr_expect_eq(tmsg_map_find(map, "t/100000", NULL), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_remove(map, "t/50000"), TMSG_OK);
    cr_expect_eq(tmsg_map_at(map, 50000, &name, NULL), TMSG_OK);
    cr_expect_str_eq(name, "t/50001", "'%s'", name);
    cr_expect_eq(tmsg_map_find(map, "t/50000", NULL), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_find(map, "t/99999", NULL), TMSG_OK);
    tmsg_map_destroy(map);
    cr_expect_eq(calls, MANY, "%d", calls);
}

/* A frame: cleared, then as many tensors and keys as before. */
static tmsg_status_t fill_frame(tmsg_map_t *map, size_t tensors, size_t frame)
{
    tmsg_status_t status = tmsg_map_clear(map);

    for (size_t i = 0; i < tensors && status == TMSG_OK; i++) {
        status = tmsg_map_add(map, numbered(frame % 2 ? "odd" : "eve", i),
                              &small, NULL);
    }
    for (size_t i = 0; i < 20 && status == TMSG_OK; i++) {
        status = tmsg_map_set_string(map, numbered("key", i), "value");
    }
    return status;
}

Test(map, clear_keeps_the_memory)
{
    static const size_t sizes[] = {1, 8, 9, 64, 1000, MANY};
    tmsg_map_t *map = new_map();

    for (size_t i = 0; i < COUNT(sizes); i++) {
        cr_assert_eq(fill_frame(map, sizes[i], 0), TMSG_OK);
        for (size_t frame = 1; frame < 4; frame++) {
            bool allocated;
            tmsg_status_t status;

            failing_alloc_arm(1);
            status = fill_frame(map, sizes[i], frame);
            allocated = failing_alloc_disarm();
            cr_expect(!allocated, "%zu tensors, frame %zu allocated", sizes[i],
                      frame);
            cr_expect_eq(status, TMSG_OK, "%s", tmsg_error_message());
            cr_expect_eq(tmsg_map_size(map), sizes[i]);
            cr_expect_eq(tmsg_map_meta_size(map), 20);
        }
    }
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK);
    cr_expect_eq(tmsg_map_size(map), 0);
    cr_expect_eq(tmsg_map_meta_size(map), 0);
    cr_expect_eq(tmsg_map_find(map, "odd/1", NULL), TMSG_ERR_NOT_FOUND);
    tmsg_map_destroy(map);
}

Test(map, shed_keeps_none_of_it)
{
    tmsg_map_t *map = new_map(), *empty = new_map();
    int released = 0;

    for (size_t frame = 0; frame < 2; frame++) {
        cr_assert_eq(fill_frame(map, 1000, frame), TMSG_OK);
        tmsg_map_own(map, count_call, &released);
        tmsg_map_shed(map);
        cr_expect_eq(released, (int)frame + 1, "%d", released);
        cr_expect_eq(tmsg_map_size(map), 0);
        cr_expect_eq(tmsg_map_meta_size(map), 0);
        cr_expect_eq(tmsg_map_memory(map), tmsg_map_memory(empty));
    }
    tmsg_map_destroy(empty);
    tmsg_map_destroy(map);
}

Test(map, reserve_saves_later_growth)
{
    tmsg_map_t *map = new_map();
    size_t capacity;

    cr_expect_eq(tmsg_map_reserve(map, 0), TMSG_OK);
    cr_expect_eq(tmsg_map_reserve(map, 500), TMSG_OK);
    capacity = map->capacity;
    cr_expect_geq(capacity, 500, "%zu", capacity);
    cr_expect_eq(tmsg_map_reserve(map, 100), TMSG_OK);
    add_numbered(map, 500);
    cr_expect_eq(map->capacity, capacity, "%zu, not %zu", map->capacity,
                 capacity);
    cr_expect_eq(tmsg_map_reserve(map, SIZE_MAX / 2), TMSG_ERR_NO_MEMORY);
    cr_expect_eq(tmsg_map_size(map), 500);
    tmsg_map_destroy(map);
}

/* Twenty tensors, some removed, all added again when one failed. */
static void build(tmsg_map_t *map, int *calls, unsigned long n)
{
    for (size_t i = 0; i < 70; i++) {
        size_t size = tmsg_map_size(map);
        tmsg_status_t status =
            add_counted(map, numbered("t", i), &small, &calls[i]);

        if (status != TMSG_OK) {
            bool whole = failing_alloc_disarm();

            cr_expect(whole && status == TMSG_ERR_NO_MEMORY,
                      "allocation %lu, tensor %zu: %s", n, i,
                      tmsg_status_name(status));
            cr_expect_eq(tmsg_map_size(map), size,
                         "allocation %lu: %zu tensors", n, tmsg_map_size(map));
            cr_expect_eq(tmsg_map_find(map, numbered("t", i), NULL),
                         TMSG_ERR_NOT_FOUND, "allocation %lu: half added", n);
            cr_expect_eq(calls[i], 0, "allocation %lu: released", n);
            cr_expect(strncmp(tmsg_error_message(), "no tensor", 9) == 0);
            status = add_counted(map, numbered("t", i), &small, &calls[i]);
            cr_assert_eq(status, TMSG_OK, "allocation %lu: %s", n,
                         tmsg_error_message());
        }
    }
}

Test(map, survives_every_failed_allocation)
{
    bool more = true;

    for (unsigned long n = 1; more; n++) {
        int calls[70] = {0};
        tmsg_map_t *map = NULL;
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = tmsg_map_create(&map);
        if (status != TMSG_OK) {
            failing_alloc_disarm();
            cr_expect_eq(status, TMSG_ERR_NO_MEMORY);
            cr_expect(map == NULL);
            continue;
        }
        build(map, calls, n);
        for (size_t i = 0; i < 70; i++) {
            /* packing may fail and must not matter */
            cr_expect_eq(tmsg_map_find(map, numbered("t", i), NULL), TMSG_OK,
                         "allocation %lu, tensor %zu", n, i);
            cr_expect_eq(tmsg_map_remove(map, numbered("t", i)), TMSG_OK,
                         "allocation %lu, tensor %zu", n, i);
        }
        more = failing_alloc_left == 0; /* it has failed somewhere */
        failing_alloc_disarm();
        tmsg_map_destroy(map);
        for (size_t i = 0; i < 70; i++) {
            cr_expect_eq(calls[i], 1, "allocation %lu, tensor %zu: %d calls", n,
                         i, calls[i]);
        }
        cr_assert_lt(n, 1000);
    }
}

/* Within a factor of two of what malloc has given, if it says so: that of ASan
 * does not. Small blocks of before, which malloc counts as given when it keeps
 * them, must not matter. */
Test(map, knows_about_what_memory_it_takes)
{
    static const int64_t shape[] = {1, 2, 3};

    for (int count = 100; count <= 10000; count *= 10) {
        size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, taken;
        tmsg_map_t *map;
        uint64_t told;

        cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
        for (int i = 0; i < count; i++) {
            tmsg_tensor_t tensor = {(void *)(uintptr_t)shape,
                                    {TMSG_DEVICE_CPU, 0},
                                    {TMSG_DTYPE_UINT, 8, 1},
                                    3,
                                    shape,
                                    NULL};
            char name[32];

            snprintf(name, sizeof(name), "tensor or key %d", i);
            cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
            cr_assert_eq(tmsg_map_set_string(map, name, name), TMSG_OK);
        }
        taken = mallinfo2().uordblks + mallinfo2().hblkhd - before;
        told = tmsg_map_memory(map);
        cr_expect((told < 2 * taken && taken < 2 * told) || taken == 0,
                  "%d: says %lu, has %zu", count, told, taken);
        tmsg_map_destroy(map);
    }
}
