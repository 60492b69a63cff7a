/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/map.h"
#include "core/map_struct.h"
#include "support/failing_alloc.h"

static float data[64];
static const int64_t shape_2_3[] = {2, 3}, fortran[] = {1, 2};
static const tmsg_tensor_t small = {
    data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 2, shape_2_3, NULL};
static const tmsg_tensor_t strided = {
    data,   {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 2, shape_2_3,
    fortran};

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map = NULL;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static void add_numbered(tmsg_map_t *map, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        char name[24];

        snprintf(name, sizeof(name), "t%zu", i);
        cr_assert_eq(
            tmsg_map_add(map, name, i % 2 == 0 ? &small : &strided, NULL),
            TMSG_OK);
    }
}

static tmsg_map_t *layout_of(size_t tensors)
{
    tmsg_map_t *map = new_map(), *layout = NULL;

    add_numbered(map, 0, tensors);
    cr_assert_eq(tmsg_map_copy_layout(map, &layout), TMSG_OK);
    tmsg_map_destroy(map);
    return layout;
}

static void expect_numbered(const tmsg_map_t *map, size_t tensors)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    cr_assert_eq(tmsg_map_size(map), tensors);
    for (size_t i = 0; i < tensors; i++) {
        tmsg_tensor_t found;
        char name[24];

        snprintf(name, sizeof(name), "t%zu", i);
        cr_expect_str_eq(entries[i].name, name);
        cr_assert_eq(tmsg_map_find(map, name, &found), TMSG_OK);
        cr_expect_eq(found.shape, entries[i].tensor.shape);
        cr_expect_eq(found.shape[1], 3);
        cr_expect_eq(found.strides != NULL, i % 2 == 1);
        cr_expect_eq(entries[i].bytes, 24);
    }
    cr_expect_eq(tmsg_map_find(map, "absent", NULL), TMSG_ERR_NOT_FOUND);
}

/* What there may be beside the names and shapes, or in their place. */
static void with_nothing(tmsg_map_t *map) { (void)map; }

static void with_metadata(tmsg_map_t *map) { tmsg_map_set_i64(map, "k", 1); }

static void with_gaps(tmsg_map_t *map)
{
    add_numbered(map, 4, 6);
    cr_assert_eq(tmsg_map_remove(map, "t5"), TMSG_OK);
    cr_assert_eq(tmsg_map_remove(map, "t4"), TMSG_OK);
}

static void with_foreign_strides(tmsg_map_t *map)
{
    tmsg_map_entry_t entry = tmsg_map_entries(map)[1];

    entry.tensor.strides = fortran;
    tmsg_map_replace(map, 1, &entry);
}

static void with_a_span(tmsg_map_t *map)
{
    cr_assert_eq(tmsg_map_append_span(map, "span", 4, &strided), TMSG_OK);
}

static void with_much(tmsg_map_t *map)
{
    for (int i = 0; i < 1000; i++) { /* in several places */
        char name[24];

        snprintf(name, sizeof(name), "more%d", i);
        cr_assert_eq(tmsg_map_add(map, name, &small, NULL), TMSG_OK);
    }
}

Test(layout, a_copy_has_all_memory_for_itself)
{
    static void (*const kinds[])(tmsg_map_t * map) = {
        with_nothing,         with_metadata, with_gaps,
        with_foreign_strides, with_a_span,   with_much};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        tmsg_map_t *map = new_map(), *copy;
        const tmsg_map_entry_t *from, *to;
        char name[8];

        add_numbered(map, 0, 4);
        kinds[i](map);
        cr_assert_eq(tmsg_map_copy_layout(map, &copy), TMSG_OK);
        cr_assert_eq(tmsg_map_size(copy), tmsg_map_size(map));
        from = tmsg_map_entries(map);
        to = tmsg_map_entries(copy);
        for (size_t j = 0; j < tmsg_map_size(map); j++) {
            cr_expect_neq(from[j].name, to[j].name, "%zu: name %zu", i, j);
            cr_expect_str_eq(from[j].name, to[j].name);
            cr_expect_neq(from[j].tensor.shape, to[j].tensor.shape);
            cr_expect(from[j].tensor.strides == NULL ||
                          from[j].tensor.strides == tmsg_map_span_strides ||
                          from[j].tensor.strides != to[j].tensor.strides,
                      "%zu: strides %zu", i, j);
        }
        cr_expect(tmsg_map_has_layout(copy, map), "%zu", i);
        tmsg_map_destroy(map);
        for (size_t j = 0; j < 4; j++) { /* a sanitizer sees what is gone */
            snprintf(name, sizeof(name), "t%zu", j);
            cr_expect_str_eq(to[j].name, name);
            cr_expect_eq(to[j].tensor.shape[1], 3);
            cr_expect(j % 2 == 0 || to[j].tensor.strides[1] == 2);
        }
        tmsg_map_destroy(copy);
    }
}

Test(stamp, stays_while_the_layout_stays)
{
    tmsg_map_t *map = new_map();
    uint64_t stamp;

    add_numbered(map, 0, 3);
    stamp = tmsg_map_stamp(map);
    cr_expect_neq(stamp, 0);
    tmsg_map_set_i64(map, "k", 1);
    tmsg_map_place(map, 1, data + 1);
    cr_expect_eq(tmsg_map_add(map, "t1", &small, NULL),
                 TMSG_ERR_ALREADY_EXISTS);
    cr_expect_eq(tmsg_map_remove(map, "absent"), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_stamp(map), stamp);
    tmsg_map_destroy(map);
}

Test(stamp, is_new_at_every_change_of_the_layout)
{
    const int64_t shape[] = {9, 9};
    tmsg_map_t *map = new_map(), *other = new_map();
    uint64_t stamps[8];

    stamps[0] = tmsg_map_stamp(map);
    stamps[1] = tmsg_map_stamp(other);
    add_numbered(map, 0, 3);
    stamps[2] = tmsg_map_stamp(map);
    tmsg_map_remove(map, "t2");
    stamps[3] = tmsg_map_stamp(map);
    tmsg_map_set_device(map, 0, (tmsg_device_t){TMSG_DEVICE_CUDA, 1});
    stamps[4] = tmsg_map_stamp(map);
    cr_expect_eq(tmsg_map_append(map, "a", 1, &small), TMSG_OK);
    stamps[5] = tmsg_map_stamp(map);
    cr_expect_eq(tmsg_map_reshape(map, 0, shape), TMSG_OK);
    stamps[6] = tmsg_map_stamp(map);
    tmsg_map_clear(map);
    stamps[7] = tmsg_map_stamp(map);
    for (size_t i = 0; i < 8; i++) {
        for (size_t j = 0; j < i; j++) {
            cr_expect_neq(stamps[i], stamps[j], "%zu and %zu", i, j);
        }
    }
    tmsg_map_destroy(map);
    tmsg_map_destroy(other);
}

Test(layout, copy_has_neither_data_nor_metadata)
{
    tmsg_map_t *map = new_map(), *copy = NULL;

    add_numbered(map, 0, 20);
    tmsg_map_set_i64(map, "k", 1);
    cr_assert_eq(tmsg_map_copy_layout(map, &copy), TMSG_OK);
    tmsg_map_destroy(map);
    expect_numbered(copy, 20);
    for (size_t i = 0; i < 20; i++) {
        cr_expect_null(tmsg_map_entries(copy)[i].tensor.data);
    }
    cr_expect_eq(tmsg_map_meta_size(copy), 0);
    tmsg_map_destroy(copy);
}

Test(layout, is_shared_by_maps_that_outlive_it)
{
    static const size_t sizes[] = {0, 1, 8, 9, 1000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tmsg_map_t *layout = layout_of(sizes[i]);
        tmsg_map_t *one = new_map(), *two = new_map();

        tmsg_map_set_i64(one, "k", 1);
        cr_assert_eq(tmsg_map_share(one, layout), TMSG_OK);
        cr_assert_eq(tmsg_map_share(two, layout), TMSG_OK);
        cr_expect_eq(tmsg_map_stamp(one), tmsg_map_stamp(two));
        tmsg_map_destroy(layout);
        expect_numbered(one, sizes[i]);
        tmsg_map_destroy(one);
        expect_numbered(two, sizes[i]);
        tmsg_map_destroy(two);
    }
}

Test(layout, of_a_map_that_shares_one_may_be_copied)
{
    tmsg_map_t *layout = layout_of(20), *map = new_map(), *copy = NULL;

    cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
    cr_assert_eq(tmsg_map_copy_layout(map, &copy), TMSG_OK);
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
    expect_numbered(copy, 20);
    tmsg_map_destroy(copy);
}

Test(layout, data_and_devices_are_each_map_s_own)
{
    tmsg_map_t *layout = layout_of(2), *one = new_map(), *two = new_map();

    cr_assert_eq(tmsg_map_share(one, layout), TMSG_OK);
    cr_assert_eq(tmsg_map_share(two, layout), TMSG_OK);
    tmsg_map_place(one, 0, data);
    tmsg_map_set_device(one, 1, (tmsg_device_t){TMSG_DEVICE_CUDA, 1});
    cr_expect_null(tmsg_map_entries(two)[0].tensor.data);
    cr_expect_eq(tmsg_map_entries(two)[1].tensor.device.type, TMSG_DEVICE_CPU);
    cr_expect_neq(tmsg_map_stamp(one), tmsg_map_stamp(two));
    tmsg_map_destroy(layout);
    tmsg_map_destroy(one);
    tmsg_map_destroy(two);
}

/* With the layout, for all maps that are as it is, and for no others. */
Test(layout, what_was_measured_is_known_where_it_is_true)
{
    const int64_t shape[] = {5, 3};
    tmsg_map_t *layout = layout_of(3), *one = new_map(), *two = new_map();
    uint64_t bytes = 7, out = 7;

    tmsg_map_note_measured(one, 1, 1);
    cr_expect_not(tmsg_map_measured(one, &bytes, &out));
    cr_assert_eq(tmsg_map_share(one, layout), TMSG_OK);
    cr_assert_eq(tmsg_map_share(two, layout), TMSG_OK);
    cr_expect_not(tmsg_map_measured(one, &bytes, &out));
    cr_expect_eq(bytes, 7);
    tmsg_map_note_measured(one, 0, 0);
    cr_expect(tmsg_map_measured(two, &bytes, &out));
    cr_expect(bytes == 0 && out == 0);
    tmsg_map_note_measured(one, 24, 48);
    tmsg_map_place(two, 0, data);
    cr_expect(tmsg_map_measured(two, &bytes, &out));
    cr_expect(bytes == 24 && out == 48);
    cr_assert_eq(tmsg_map_reshape(two, 2, shape), TMSG_OK);
    cr_expect_not(tmsg_map_measured(two, &bytes, &out));
    tmsg_map_note_measured(two, 1, 1);
    cr_expect(tmsg_map_measured(one, &bytes, &out));
    cr_expect_eq(bytes, 24);
    tmsg_map_clear(one);
    cr_expect_not(tmsg_map_measured(one, &bytes, &out));
    tmsg_map_destroy(layout);
    tmsg_map_destroy(one);
    tmsg_map_destroy(two);
}

Test(layout, is_bare_until_a_tensor_has_its_place)
{
    tmsg_map_t *layout = layout_of(3), *map = new_map();
    tmsg_map_entry_t other;

    cr_expect_not(tmsg_map_is_bare(map));
    for (int how = 0; how < 4; how++) {
        cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
        cr_expect(tmsg_map_is_bare(map));
        other = tmsg_map_entries(map)[1];
        other.tensor.data = data;
        if (how == 0) {
            tmsg_map_place(map, 1, data);
        } else if (how == 1) {
            cr_assert_eq(tmsg_map_lend(map, 1, data, NULL), TMSG_OK);
        } else if (how == 2) {
            tmsg_map_replace(map, 1, &other);
        } else {
            (void)tmsg_map_placing(map);
        }
        cr_expect_not(tmsg_map_is_bare(map));
        tmsg_map_clear(map);
        cr_expect_not(tmsg_map_is_bare(map));
    }
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
}

/* As who receives it does, each tensor 24 bytes behind the last. */
static void place_all(tmsg_map_t *map, uint8_t *base)
{
    const tmsg_map_entry_t *from;
    tmsg_map_entry_t *entries = tmsg_map_placing_from(map, &from);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        entries[i] = from[i];
        entries[i].tensor.data = base + 24 * i;
    }
    tmsg_map_note_placed(map, base);
}

static void expect_placed(const tmsg_map_t *map, size_t tensors,
                          const uint8_t *base)
{
    expect_numbered(map, tensors);
    for (size_t i = 0; i < tensors; i++) {
        cr_expect_eq(tmsg_map_entries(map)[i].tensor.data, base + 24 * i);
    }
}

Test(layout, has_its_tensors_in_their_places_again)
{
    static uint8_t here[24 * 20], there[24 * 20];
    tmsg_map_t *layout = layout_of(20), *map = new_map();

    for (int turn = 0; turn < 6; turn++) {
        uint8_t *base = turn / 2 == 1 ? there : here;

        cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
        expect_numbered(map, 20);
        cr_expect_null(tmsg_map_entries(map)[7].tensor.data);
        cr_expect_eq(tmsg_map_liked(map, 24 * 20), turn == 0       ? NULL
                                                   : turn % 2 == 1 ? base
                                                   : base == here  ? there
                                                                   : here);
        cr_expect_null(tmsg_map_liked(map, 1 << 20));
        if (!tmsg_map_place_again(map, base)) {
            cr_expect_eq(turn, 0);
            place_all(map, base);
        }
        cr_expect_not(tmsg_map_is_bare(map));
        expect_placed(map, 20, base);
        tmsg_map_clear(map);
        cr_expect_eq(tmsg_map_size(map), 0);
    }
    tmsg_map_destroy(layout); /* which the map holds */
    tmsg_map_destroy(map);
}

/* Whose entries others read stay where they are. */
Test(layout, is_settled_before_it_is_placed)
{
    static uint8_t here[24 * 3];
    tmsg_map_t *layout = layout_of(3), *map = new_map();
    const tmsg_map_entry_t *entries;

    cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
    cr_expect_eq(tmsg_map_entries(map), tmsg_map_entries(layout));
    tmsg_map_settle(map);
    entries = tmsg_map_entries(map);
    cr_expect_neq(entries, tmsg_map_entries(layout));
    expect_numbered(map, 3);
    cr_expect(tmsg_map_is_bare(map));
    cr_expect_not(tmsg_map_place_again(map, here));
    tmsg_map_settle(map);
    place_all(map, here);
    cr_expect_eq(tmsg_map_entries(map), entries);
    expect_placed(map, 3, here);
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
}

/* What the application, or a placer, does to one of the tensors. */
static void change(tmsg_map_t *map, int how)
{
    const int64_t shape[] = {5, 3};
    tmsg_map_entry_t other = tmsg_map_entries(map)[1];

    other.tensor.data = data;
    if (how == 0) {
        tmsg_map_place(map, 1, data);
    } else if (how == 1) {
        cr_assert_eq(tmsg_map_lend(map, 1, data, NULL), TMSG_OK);
    } else if (how == 2) {
        tmsg_map_replace(map, 1, &other);
    } else if (how == 3) {
        tmsg_map_set_device(map, 1, (tmsg_device_t){TMSG_DEVICE_CUDA, 1});
    } else if (how == 4) {
        cr_assert_eq(tmsg_map_reshape(map, 0, shape), TMSG_OK);
    } else {
        cr_assert_eq(tmsg_map_set_data(map, 1, data, NULL), TMSG_OK);
    }
}

/* Before it was placed, and after. */
Test(layout, what_is_changed_in_one_map_is_not_there_in_its_next)
{
    static uint8_t here[24 * 3];
    tmsg_map_t *layout = layout_of(3), *map = new_map();

    for (int how = 0; how < 12; how++) {
        cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
        if (how % 2 == 0) {
            change(map, how / 2);
            cr_expect_not(tmsg_map_place_again(map, here));
        } else {
            place_all(map, here);
            change(map, how / 2);
        }
        tmsg_map_clear(map);
        cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
        cr_expect_null(tmsg_map_liked(map, 1));
        cr_expect_not(tmsg_map_place_again(map, here));
        place_all(map, here);
        expect_placed(map, 3, here);
        tmsg_map_clear(map);
    }
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
}

Test(layout, of_another_map_is_not_taken_for_that_which_was_placed)
{
    static uint8_t here[24 * 3];
    tmsg_map_t *three = layout_of(3), *map = new_map(), *same, *named;
    char name[2000];

    cr_assert_eq(tmsg_map_share(map, three), TMSG_OK);
    place_all(map, here);
    tmsg_map_clear(map);
    cr_assert_eq(tmsg_map_copy_layout(three, &same), TMSG_OK);
    tmsg_map_destroy(three);
    cr_assert_eq(tmsg_map_share(map, same), TMSG_OK);
    cr_expect_not(tmsg_map_place_again(map, here));
    tmsg_map_clear(map);
    add_numbered(map, 0, 3); /* as any other map: over what was there */
    expect_numbered(map, 3);
    tmsg_map_clear(map);

    memset(name, 'n', sizeof(name) - 1); /* too much to be held for a map */
    name[sizeof(name) - 1] = '\0';
    cr_assert_eq(tmsg_map_add(map, name, &small, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_copy_layout(map, &named), TMSG_OK);
    for (int turn = 0; turn < 2; turn++) {
        tmsg_map_clear(map);
        cr_assert_eq(tmsg_map_share(map, named), TMSG_OK);
        cr_expect_not(tmsg_map_place_again(map, here));
        place_all(map, here);
        cr_expect_str_eq(tmsg_map_entries(map)[0].name, name);
    }
    tmsg_map_destroy(named);
    tmsg_map_destroy(same);
    tmsg_map_destroy(map);
}

Test(layout, is_known_to_be_of_the_host)
{
    const tmsg_device_t device = {TMSG_DEVICE_CUDA, 1};
    tmsg_map_t *layout = layout_of(3), *map = new_map(), *copy;

    cr_expect_not(tmsg_map_is_of_host(map));
    cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
    cr_expect(tmsg_map_is_of_host(map));
    tmsg_map_set_device(map, 2, device);
    cr_expect_not(tmsg_map_is_of_host(map));
    cr_assert_eq(tmsg_map_copy_layout(map, &copy), TMSG_OK);
    tmsg_map_clear(map);
    cr_assert_eq(tmsg_map_share(map, copy), TMSG_OK);
    cr_expect_not(tmsg_map_is_of_host(map));
    tmsg_map_destroy(copy);
    tmsg_map_destroy(layout);
    tmsg_map_destroy(map);
}

/* With and without an index of its own before. */
Test(layout, cleared_map_is_as_any_other)
{
    for (size_t before = 0; before <= 20; before += 20) {
        tmsg_map_t *layout = layout_of(30), *map = new_map();

        add_numbered(map, 0, before);
        tmsg_map_clear(map);
        cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
        tmsg_map_clear(map);
        tmsg_map_destroy(layout);
        cr_expect_eq(tmsg_map_size(map), 0);
        add_numbered(map, 0, 30);
        expect_numbered(map, 30);
        tmsg_map_destroy(map);
    }
}

Test(layout, metadata_may_come_and_go_in_a_map_that_shares)
{
    static const char text[8000] = {[0 ... 7998] = 'x'};
    tmsg_map_t *layout = layout_of(20), *map = new_map();

    cr_assert_eq(tmsg_map_share(map, layout), TMSG_OK);
    tmsg_map_destroy(layout);
    for (int i = 0; i < 9; i++) { /* enough that the map is packed */
        cr_assert_eq(tmsg_map_set_string(map, "k", text), TMSG_OK);
    }
    expect_numbered(map, 20);
    tmsg_map_destroy(map);
}

Test(reshape, is_of_one_map_alone)
{
    const int64_t shape[] = {5, 3};
    tmsg_map_t *layout = layout_of(3), *one = new_map(), *two = new_map();

    cr_assert_eq(tmsg_map_share(one, layout), TMSG_OK);
    cr_assert_eq(tmsg_map_share(two, layout), TMSG_OK);
    cr_expect_eq(tmsg_map_reshape(one, 2, shape), TMSG_OK);
    cr_expect_eq(tmsg_map_entries(one)[2].tensor.shape[0], 5);
    cr_expect_eq(tmsg_map_entries(one)[2].bytes, 60);
    expect_numbered(two, 3);
    tmsg_map_destroy(layout);
    tmsg_map_destroy(one);
    tmsg_map_destroy(two);
}

Test(reshape, to_what_cannot_be_changes_nothing)
{
    const int64_t negative[] = {2, -1}, vast[] = {1ll << 40, 1ll << 40};
    tmsg_map_t *map = new_map();
    uint64_t stamp;

    add_numbered(map, 0, 1);
    stamp = tmsg_map_stamp(map);
    cr_expect_eq(tmsg_map_reshape(map, 0, negative), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_reshape(map, 0, vast), TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect_eq(tmsg_map_stamp(map), stamp);
    expect_numbered(map, 1);
    tmsg_map_destroy(map);
}

/* The n-th allocation fails, for every n. */
Test(layout, leaves_nothing_behind_when_memory_runs_out)
{
    const int64_t shape[] = {5, 3};
    tmsg_map_t *from = new_map(), *layout = NULL;
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    add_numbered(from, 0, 20);
    for (unsigned long n = 1; status != TMSG_OK; n++) {
        failing_alloc_arm(n);
        status = tmsg_map_copy_layout(from, &layout);
        cr_expect_eq(status == TMSG_OK, !failing_alloc_disarm());
        cr_expect_eq(layout != NULL, status == TMSG_OK);
    }
    tmsg_map_destroy(from);
    status = TMSG_ERR_NO_MEMORY;
    for (unsigned long n = 1; status != TMSG_OK; n++) {
        tmsg_map_t *map = new_map();

        failing_alloc_arm(n);
        status = tmsg_map_share(map, layout);
        cr_expect_eq(tmsg_map_size(map), status == TMSG_OK ? 20 : 0);
        if (status == TMSG_OK) {
            status = tmsg_map_reshape(map, 0, shape);
            cr_expect_eq(tmsg_map_entries(map)[0].bytes,
                         status == TMSG_OK ? 60 : 24);
        }
        cr_expect_eq(status == TMSG_OK, !failing_alloc_disarm());
        tmsg_map_destroy(map);
    }
    tmsg_map_destroy(layout);
}
