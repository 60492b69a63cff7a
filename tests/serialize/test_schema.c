/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/json.h>
#include <tensormsg/meta.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/schema_match.h"
#include "serialize/schema_struct.h"
#include "support/failing_alloc.h"
#include "support/golden.h"
#include "support/sample.h"
#include "support/schema_pair.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PLENTY (1u << 20)
#define PAUSE 256 /* messages without definitions after one was not kept */

static uint8_t somewhere[1]; /* data that nobody looks at */

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static void add(tmsg_map_t *map, const char *name, int32_t ndim,
                const int64_t *shape, const int64_t *strides)
{
    const tmsg_tensor_t tensor = {
        somewhere, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, ndim, shape,
        strides};

    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK, "%s",
                 tmsg_error_message());
}

/* "points" of rows x 3, and "pose". */
static tmsg_map_t *points(int64_t rows)
{
    const int64_t cloud[] = {rows, 3}, pose[] = {4, 4};
    tmsg_map_t *map = new_map();

    add(map, "points", 2, cloud, NULL);
    add(map, "pose", 2, pose, NULL);
    return map;
}

/* One tensor whose name is the layout. */
static tmsg_map_t *named(unsigned number)
{
    const int64_t shape[] = {2};
    tmsg_map_t *map = new_map();
    char name[16];

    snprintf(name, sizeof(name), "n%u", number);
    add(map, name, 1, shape, NULL);
    return map;
}

/* Sends and lets all of it happen; destroys the map. */
static tmsg_schema_form_t send(schema_pair_t *pair, tmsg_map_t *map)
{
    tmsg_schema_form_t form = schema_pair_send(pair, map);

    schema_pair_settle(pair);
    tmsg_map_destroy(map);
    return form;
}

static void expect_body(const schema_pair_t *pair, const char *hex)
{
    const schema_pair_message_t *last = &pair->messages[pair->count - 1];
    size_t bytes;
    uint8_t *wanted = golden_unhex(hex, &bytes);

    cr_expect(bytes == last->bytes && memcmp(wanted, last->body, bytes) == 0,
              "not %s", hex);
    free(wanted);
}

Test(schema, goes_in_full_until_it_is_known_to_be_kept)
{
    schema_pair_t pair;
    tmsg_map_t *map = points(5);

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_NONE);
    schema_pair_arrive(&pair, 0);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_NONE);
    schema_pair_turn(&pair);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_NONE);
    schema_pair_answer(&pair);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_REFERS);
    schema_pair_settle(&pair);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

Test(schema, is_written_as_the_document_says)
{
    schema_pair_t pair;
    tmsg_map_t *map = new_map(), *other = new_map();
    int64_t shape[] = {2, 3};

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    add(map, "x", 2, shape, NULL);
    schema_pair_send(&pair, map);
    expect_body(&pair, "82 03 92 00 00 01 91 95 a1 78 02 20 01 92 02 03");
    schema_pair_settle(&pair);
    schema_pair_send(&pair, map);
    expect_body(&pair, "81 ff 92 00 00");
    tmsg_map_set_bool(map, "k", true);
    schema_pair_send(&pair, map);
    expect_body(&pair, "82 ff 92 00 00 02 81 a1 6b c3");

    shape[1] = 300;
    add(other, "x", 2, shape, NULL);
    schema_pair_send(&pair, other);
    expect_body(&pair,
                "82 03 93 00 01 91 01 01 91 95 a1 78 02 20 01 92 02 cd 01 2c");
    schema_pair_settle(&pair);
    schema_pair_send(&pair, other);
    expect_body(&pair, "81 ff 93 00 01 91 cd 01 2c");
    schema_pair_settle(&pair);
    tmsg_map_destroy(map);
    tmsg_map_destroy(other);
    schema_pair_close(&pair);
}

Test(schema, reference_takes_40_bytes_of_header_at_most)
{
    schema_pair_t pair;

    schema_pair_open(&pair, TMSG_SCHEMA_SLOTS_MAX, PLENTY, PLENTY);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < TMSG_SCHEMA_SLOTS_MAX; i++) {
            cr_expect_eq(send(&pair, named(i)),
                         round == 0 ? TMSG_SCHEMA_DEFINES : TMSG_SCHEMA_REFERS);
        }
    }
    cr_expect_leq(TMSG_PREAMBLE_BYTES + pair.most_bytes, 40);
    schema_pair_close(&pair);
}

Test(schema, empty_map_is_none)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(send(&pair, new_map()), TMSG_SCHEMA_NONE);
    }
    schema_pair_close(&pair);
}

Test(schema, of_maps_made_anew_is_found)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    cr_expect_eq(send(&pair, points(5)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, points(5)), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

Test(schema, follows_a_map_that_changes)
{
    const int64_t shape[] = {7};
    schema_pair_t pair;
    tmsg_map_t *map = points(5);

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_DEFINES);
    schema_pair_settle(&pair);
    add(map, "more", 1, shape, NULL);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_DEFINES);
    schema_pair_settle(&pair);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_REFERS);
    tmsg_map_remove(map, "more");
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_REFERS);
    schema_pair_settle(&pair);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

Test(schema, takes_extents_that_vary)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 1, PLENTY, PLENTY);
    cr_expect_eq(send(&pair, points(5)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, points(6)), TMSG_SCHEMA_DEFINES);
    for (int64_t rows = 0; rows < 1000; rows += 7) {
        cr_expect_eq(send(&pair, points(rows)), TMSG_SCHEMA_REFERS);
    }
    cr_expect_eq(send(&pair, points(1ll << 40)), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

Test(schema, waits_for_its_answer_before_more_of_it_varies)
{
    schema_pair_t pair;
    tmsg_map_t *map = points(6);

    schema_pair_open(&pair, 1, PLENTY, PLENTY);
    schema_pair_send(&pair, map);
    tmsg_map_destroy(map);
    map = points(7);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_NONE);
    schema_pair_settle(&pair);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_DEFINES);
    schema_pair_settle(&pair);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

/* Whatever overtakes: the old generation is read until the turn of the new. */
Test(schema, reference_to_the_former_generation_may_come_after_the_new_one)
{
    schema_pair_t pair;
    tmsg_map_t *old = points(5), *other = points(6);

    schema_pair_open(&pair, 1, PLENTY, PLENTY);
    schema_pair_send(&pair, old);
    schema_pair_settle(&pair);
    cr_expect_eq(schema_pair_send(&pair, old), TMSG_SCHEMA_REFERS);
    cr_expect_eq(schema_pair_send(&pair, other), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(schema_pair_send(&pair, old), TMSG_SCHEMA_NONE);
    schema_pair_arrive(&pair, 1);
    schema_pair_arrive(&pair, 0);
    schema_pair_settle(&pair);
    cr_expect_eq(schema_pair_send(&pair, old), TMSG_SCHEMA_REFERS);
    schema_pair_settle(&pair);
    tmsg_map_destroy(old);
    tmsg_map_destroy(other);
    schema_pair_close(&pair);
}

/* `count` scalars' worth of extents: tensors of 4 dimensions each. */
static tmsg_map_t *wide(unsigned tensors, int64_t extent, unsigned differing)
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

Test(schema, has_at_most_256_extents_that_vary)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    send(&pair, wide(65, 2, 0));
    cr_expect_eq(send(&pair, wide(65, 3, 256)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, wide(65, 300, 256)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, wide(65, 4, 257)), TMSG_SCHEMA_DEFINES,
                 "not another layout");
    cr_expect_eq(send(&pair, wide(65, 5, 256)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, wide(65, 4, 257)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, wide(65, 5, 257)), TMSG_SCHEMA_NONE);
    schema_pair_close(&pair);
}

static tmsg_map_t *strided(int64_t rows, int64_t stride)
{
    const int64_t shape[] = {rows, 3}, strides[] = {1, stride};
    tmsg_map_t *map = new_map();

    add(map, "s", 2, shape, strides);
    return map;
}

Test(schema, extents_of_a_tensor_with_strides_do_not_vary)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 3, PLENTY, PLENTY);
    cr_expect_eq(send(&pair, strided(4, 4)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, strided(5, 5)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, strided(4, 4)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, strided(5, 5)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(pair.defined, 2);
    schema_pair_close(&pair);
}

/* Gaps are packed away, so that no strides are sent and the rows may vary. */
Test(schema, strides_that_are_not_sent_do_not_count)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 1, PLENTY, PLENTY);
    cr_expect_eq(send(&pair, strided(4, 9)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, strided(4, 8)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, strided(5, 8)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, strided(6, 9)), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

/* Two tensors of which the second differs in one thing. */
typedef struct {
    const char *name;
    tmsg_tensor_t tensor;
} other_t;

Test(schema, tells_layouts_apart)
{
    static const int64_t shape[] = {3, 3}, fortran[] = {1, 3};
    static const int64_t cube[] = {3, 3, 1}, empty[] = {0, 3};
    const other_t rows[] = {
        {"b", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
        {"c", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
        {"bb", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
        {"b", {somewhere, {2, 0}, {2, 32, 1}, 2, shape, NULL}},
        {"b", {somewhere, {2, 1}, {2, 32, 1}, 2, shape, NULL}},
        {"b", {somewhere, {1, 0}, {0, 32, 1}, 2, shape, NULL}},
        {"b", {somewhere, {1, 0}, {2, 64, 1}, 2, shape, NULL}},
        {"b", {somewhere, {1, 0}, {2, 32, 2}, 2, shape, NULL}},
        {"b", {somewhere, {1, 0}, {2, 32, 1}, 3, cube, NULL}},
        {"b", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, fortran}},
        {"b", {somewhere, {1, 0}, {1, 8, 1}, 2, empty, NULL}},
        {NULL, {0}},
    };
    schema_pair_t pair;

    schema_pair_open(&pair, COUNT(rows), PLENTY, PLENTY);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT(rows); i++) {
            tmsg_map_t *map = new_map();

            add(map, "a", 2, shape, NULL);
            if (rows[i].name != NULL) {
                cr_assert_eq(
                    tmsg_map_add(map, rows[i].name, &rows[i].tensor, NULL),
                    TMSG_OK);
            }
            cr_expect_eq(send(&pair, map),
                         round == 0 ? TMSG_SCHEMA_DEFINES : TMSG_SCHEMA_REFERS,
                         "row %zu", i);
        }
    }
    schema_pair_close(&pair);
}

/* Without the hash, which tells most of them apart before. */
Test(schema, matches_what_a_body_would_say)
{
    static const int64_t shape[] = {2, 3}, taller[] = {2, 4},
                         cube[] = {2, 3, 1};
    static const int64_t fortran[] = {1, 2}, gaps[] = {9, 1};
    static const struct {
        other_t other;
        tmsg_match_t match;
    } rows[] = {
        {{"b", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_SAME},
        {{"b", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, gaps}},
         TMSG_MATCH_SAME},
        {{"b", {somewhere, {1, 0}, {2, 32, 1}, 2, taller, NULL}},
         TMSG_MATCH_VARIES},
        {{"c", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"bb", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {2, 0}, {2, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 1}, {2, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 0}, {0, 32, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 0}, {2, 64, 1}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 0}, {2, 32, 2}, 2, shape, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 0}, {2, 32, 1}, 3, cube, NULL}},
         TMSG_MATCH_NONE},
        {{"b", {somewhere, {1, 0}, {2, 32, 1}, 2, shape, fortran}},
         TMSG_MATCH_NONE},
        {{NULL, {0}}, TMSG_MATCH_NONE},
    };
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES};
    uint64_t charged = 0;
    tmsg_map_t *map = new_map();
    tmsg_varying_t varying;
    tmsg_schema_t *schema;

    add(map, "a", 2, shape, fortran);
    add(map, "b", 2, shape, NULL);
    cr_assert_eq(tmsg_schema_create(map, &use, 1, &charged, &schema), TMSG_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const other_t *other = &rows[i].other;

        tmsg_map_clear(map);
        add(map, "a", 2, shape, fortran);
        if (other->name != NULL) {
            tmsg_map_add(map, other->name, &other->tensor, NULL);
        }
        cr_expect_eq(tmsg_schema_match(schema, map, &varying), rows[i].match,
                     "row %zu", i);
    }
    tmsg_map_clear(map);
    add(map, "a", 2, taller, fortran); /* strides alike, rows not */
    add(map, "b", 2, shape, NULL);
    cr_expect_eq(tmsg_schema_match(schema, map, &varying), TMSG_MATCH_NONE);
    tmsg_schema_destroy(schema);
    cr_expect_eq(charged, 0);
    tmsg_map_destroy(map);
}

Test(schema, is_not_made_of_what_does_not_fit)
{
    const uint8_t beyond = 9;
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES,
                                   .count = 1,
                                   .numbers = &beyond,
                                   .numbers_bytes = 1};
    tmsg_map_t *map = points(1);
    tmsg_schema_t *schema = NULL;
    uint64_t charged = 0;

    cr_expect_eq(tmsg_schema_create(map, &use, 1, &charged, &schema),
                 TMSG_ERR_MALFORMED);
    cr_expect_null(schema);
    cr_expect_eq(charged, 0);
    tmsg_map_destroy(map);
}

Test(schema, new_layouts_do_not_drive_out_one_in_use)
{
    schema_pair_t pair;
    size_t hits = 0;

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    send(&pair, named(0));
    for (unsigned i = 1; i < 500; i++) {
        send(&pair, named(i));
        hits += send(&pair, named(0)) == TMSG_SCHEMA_REFERS;
    }
    cr_expect_eq(hits, 499);
    cr_expect_eq(pair.defined, 2);
    schema_pair_close(&pair);
}

Test(schema, new_layouts_do_not_drive_out_each_other)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 4, PLENTY, PLENTY);
    for (unsigned i = 0; i < 500; i++) {
        send(&pair, named(i));
    }
    cr_expect_eq(pair.defined, 4);
    schema_pair_close(&pair);
}

Test(schema, layout_out_of_use_gives_way_to_one_that_comes_again)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    send(&pair, named(0));
    send(&pair, named(1));
    for (unsigned i = 0; i < 20; i++) {
        send(&pair, named(2));
        cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_REFERS);
    }
    cr_expect_eq(send(&pair, named(2)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(pair.defined, 3);
    schema_pair_close(&pair);
}

Test(schema, one_layout_too_many_leaves_the_others)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 16, PLENTY, PLENTY);
    for (unsigned i = 0; i < 17 * 20; i++) {
        send(&pair, named(i % 17));
    }
    cr_expect_geq(pair.referred, 16 * 19);
    schema_pair_close(&pair);
}

Test(schema, slot_outlives_its_generations)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 1, PLENTY, PLENTY);
    for (unsigned i = 0; i < 300; i++) {
        while (send(&pair, named(i)) != TMSG_SCHEMA_DEFINES) {
        }
        cr_expect_eq(send(&pair, named(i)), TMSG_SCHEMA_REFERS);
    }
    schema_pair_close(&pair);
}

/* More maps in turn than are known again at once. */
Test(schema, of_many_maps_in_turn_is_found)
{
    tmsg_map_t *maps[200];
    schema_pair_t pair;

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    for (size_t i = 0; i < COUNT(maps); i++) {
        maps[i] = points((int64_t)(i % 3));
    }
    for (unsigned i = 0; i < 5 * COUNT(maps); i++) {
        schema_pair_send(&pair, maps[i % COUNT(maps)]);
        schema_pair_settle(&pair);
    }
    cr_expect_eq(pair.referred, 5 * COUNT(maps) - 2);
    for (size_t i = 0; i < COUNT(maps); i++) {
        tmsg_map_destroy(maps[i]);
    }
    schema_pair_close(&pair);
}

Test(schema, keeps_to_the_budget_of_its_peer)
{
    enum { BODY_BYTES = 16 }; /* of a definition of named() */
    schema_pair_t pair;

    schema_pair_open(&pair, 8, 3 * BODY_BYTES + 1, 3 * BODY_BYTES + 1);
    for (unsigned i = 0; i < 100; i++) {
        send(&pair, named(i % 5));
    }
    cr_expect_eq(pair.defined, 3);
    cr_expect_eq(pair.tx.used, 3 * BODY_BYTES);
    for (unsigned i = 0; i < 80; i++) {
        send(&pair, named(6 + i % 2));
    }
    cr_expect_eq(pair.defined, 5, "the budget is not used again");
    schema_pair_close(&pair);
}

Test(schema, too_large_for_the_budget_is_not_defined)
{
    schema_pair_t pair;
    tmsg_map_t *map = points(1);

    schema_pair_open(&pair, 8, 20, 20);
    cr_expect_eq(send(&pair, points(1)), TMSG_SCHEMA_NONE);
    cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_DEFINES);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

Test(schema, cannot_grow_beyond_the_budget)
{
    schema_pair_t pair;
    size_t bytes;

    schema_pair_open(&pair, 8, PLENTY, PLENTY);
    send(&pair, points(1));
    bytes = pair.tx.used;
    schema_pair_close(&pair);
    schema_pair_open(&pair, 8, bytes + 1, bytes + 1);
    cr_expect_eq(send(&pair, points(1)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, points(2)), TMSG_SCHEMA_NONE);
    schema_pair_close(&pair);
}

Test(schema, that_is_not_kept_is_sent_in_full)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 4, PLENTY, 20);
    cr_expect_eq(send(&pair, points(1)), TMSG_SCHEMA_DEFINES);
    for (unsigned i = 0; i < PAUSE; i++) {
        cr_expect_eq(send(&pair, points(1)), TMSG_SCHEMA_NONE);
    }
    cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_DEFINES);
    cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

/* The one in use the longest ago is not given up while another is free. */
Test(schema, that_is_not_kept_drives_out_none)
{
    schema_pair_t pair;

    schema_pair_open(&pair, 2, PLENTY, 20);
    cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_DEFINES);
    for (unsigned i = 0; i < 2 * (PAUSE + 1); i++) {
        send(&pair, points(1));
    }
    cr_expect_eq(pair.defined, 3);
    cr_expect_eq(send(&pair, named(1)), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

Test(schema, that_was_not_sent_is_forgotten)
{
    tmsg_schema_budget_t budget = {.limit = PLENTY};
    tmsg_schema_table_t *table;
    tmsg_map_t *map = points(1);

    cr_assert_eq(tmsg_schema_table_create(1, &budget, &table), TMSG_OK);
    for (int i = 0; i < 3; i++) {
        tmsg_body_extra_t extra = {0};
        size_t needed;

        cr_expect_eq(tmsg_schema_table_choose(table, map, &extra, &needed),
                     TMSG_OK);
        cr_expect_eq(extra.schema.form, TMSG_SCHEMA_DEFINES);
        cr_expect_eq(extra.schema.generation, 0);
        cr_expect_eq(budget.used, 0);
    }
    tmsg_schema_table_destroy(table);
    tmsg_map_destroy(map);
}

Test(schema, without_a_table_there_is_none)
{
    tmsg_body_extra_t extra = {.schema.form = TMSG_SCHEMA_REFERS};
    tmsg_map_t *map = points(1);
    size_t needed, wanted;

    cr_expect_eq(tmsg_schema_table_choose(NULL, map, &extra, &needed), TMSG_OK);
    cr_expect_eq(extra.schema.form, TMSG_SCHEMA_NONE);
    cr_expect_eq(tmsg_body_encode(map, NULL, NULL, 0, &wanted), TMSG_OK);
    cr_expect_eq(needed, wanted);
    tmsg_schema_table_destroy(NULL);
    tmsg_map_destroy(map);
}

Test(schema, body_that_is_too_large_is_an_error)
{
    tmsg_schema_budget_t budget = {.limit = PLENTY};
    tmsg_meta_t vast = {.type = TMSG_META_TYPE_BYTES, .bytes = 1ull << 32};
    tmsg_map_t *map = points(1);
    tmsg_schema_table_t *table;
    tmsg_body_extra_t extra = {0};
    size_t needed = 7;

    cr_assert_eq(tmsg_schema_table_create(1, &budget, &table), TMSG_OK);
    vast.data = calloc(1, vast.bytes);
    if (vast.data == NULL || tmsg_map_set_meta(map, "v", &vast) != TMSG_OK) {
        cr_skip_test("4 GiB cannot be had");
    }
    cr_expect_eq(tmsg_schema_table_choose(table, map, &extra, &needed),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect_eq(needed, 7);
    free((void *)(uintptr_t)vast.data);
    tmsg_schema_table_destroy(table);
    tmsg_map_destroy(map);
}

static void expect_unasked(tmsg_schema_table_t *table, uint8_t slot,
                           uint8_t generation)
{
    char wanted[128];

    snprintf(wanted, sizeof(wanted),
             "schema: an answer to slot %u, generation %u, which was not asked",
             slot, generation);
    cr_expect_eq(tmsg_schema_table_answered(table, slot, generation, true),
                 TMSG_ERR_MALFORMED);
    cr_expect_str_eq(tmsg_error_message(), wanted);
}

Test(schema, answer_that_nobody_asked_for_is_malformed)
{
    schema_pair_t pair;
    tmsg_map_t *map = points(1);

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    expect_unasked(NULL, 0, 0);
    expect_unasked(pair.table, 0, UINT8_MAX);
    schema_pair_send(&pair, map);
    expect_unasked(pair.table, 2, 0);
    expect_unasked(pair.table, 1, 0);
    expect_unasked(pair.table, 0, 1);
    schema_pair_settle(&pair);
    expect_unasked(pair.table, 0, 0);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

/* A receiver, and what it is given. */
typedef struct {
    tmsg_schema_budget_t budget;
    tmsg_schema_store_t *store;
} receiver_t;

static tmsg_status_t decode(const char *hex, tmsg_map_t *map,
                            tmsg_body_extra_t *extra, uint8_t **body_p)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    size_t bytes;

    *body_p = golden_unhex(hex, &bytes);
    return tmsg_body_decode(*body_p, bytes, &limits, map, extra);
}

/* Slot 0, generation 3: "x" of [2, n] and "y" of [n, 4], n of each varies. */
static void define(receiver_t *receiver)
{
    tmsg_body_extra_t extra = {0};
    tmsg_map_t *map = new_map();
    tmsg_schema_t *schema;
    uint8_t *body;

    *receiver = (receiver_t){.budget.limit = PLENTY};
    cr_assert_eq(
        tmsg_schema_store_create(2, &receiver->budget, &receiver->store),
        TMSG_OK);
    cr_assert_eq(decode("82 01 92 95 a1 78 02 20 01 92 02 03"
                        "95 a1 79 02 20 01 92 05 04 03 93 00 03 92 01 02",
                        map, &extra, &body),
                 TMSG_OK, "%s", tmsg_error_message());
    schema =
        tmsg_schema_store_prepare(receiver->store, map, &extra.schema, 100);
    cr_assert_not_null(schema);
    cr_expect_eq(receiver->budget.pending, 100);
    cr_expect(tmsg_schema_store_take(receiver->store, 0, 3, schema));
    cr_expect_eq(receiver->budget.pending, 0);
    cr_expect_eq(receiver->budget.used, 100);
    tmsg_map_destroy(map);
    free(body);
}

static tmsg_status_t refer(receiver_t *receiver, const char *hex,
                           tmsg_map_t *map)
{
    const tmsg_schema_t *schema;
    tmsg_body_extra_t extra = {0};
    uint8_t *body;
    tmsg_status_t status = decode(hex, map, &extra, &body);

    cr_assert_eq(status, TMSG_OK, "%s", tmsg_error_message());
    status = tmsg_schema_store_find(receiver->store, &extra.schema, &schema);
    if (status == TMSG_OK) {
        status = tmsg_schema_fill(schema, &extra.schema, map);
    }
    free(body);
    return status;
}

Test(schema, reference_is_checked)
{
    static const struct {
        const char *hex;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {"82 ff 93 00 03 92 07 08 02 80", TMSG_OK, NULL},
        {"81 ff 94 00 03 92 07 08 c0", TMSG_OK, NULL},
        {"81 ff 93 00 03 92 cd 00 07 00", TMSG_OK, NULL},
        {"81 ff 92 01 03", TMSG_ERR_MALFORMED,
         "body: no schema is kept in slot 1, generation 3"},
        {"81 ff 92 02 03", TMSG_ERR_MALFORMED,
         "body: no schema is kept in slot 2, generation 3"},
        {"81 ff 92 00 02", TMSG_ERR_MALFORMED,
         "body: no schema is kept in slot 0, generation 2"},
        {"82 02 81 a1 6b 01 ff 92 00 03", TMSG_ERR_MALFORMED,
         "body: 0 extents for a schema with 2 that vary"},
        {"81 ff 93 00 03 93 01 02 03", TMSG_ERR_MALFORMED,
         "body: 3 extents for a schema with 2 that vary"},
        {"82 02 81 a1 6b 01 ff 93 00 03 92 01 ff", TMSG_ERR_MALFORMED,
         "tensor 1 'y': shape[0] is negative (-1)"},
        {"81 ff 93 00 03 92 d3 80 00 00 00 00 00 00 00 01", TMSG_ERR_MALFORMED,
         "tensor 0 'x': shape[1] is negative (-9223372036854775808)"},
        {"81 ff 93 00 03 92 cf 40 00 00 00 00 00 00 00 01",
         TMSG_ERR_LIMIT_EXCEEDED,
         "tensor 0 'x': shape product overflows 63 bits"},
    };
    receiver_t receiver;

    define(&receiver);
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();

        cr_expect_eq(refer(&receiver, rows[i].hex, map), rows[i].status,
                     "row %zu: %s", i, tmsg_error_message());
        if (rows[i].message != NULL) {
            cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        }
        cr_expect_eq(tmsg_map_size(map), rows[i].status == TMSG_OK ? 2 : 0);
        tmsg_map_destroy(map);
    }
    tmsg_schema_store_destroy(receiver.store);
    cr_expect_eq(receiver.budget.used, 0);
}

Test(schema, body_is_checked)
{
#define X "01 91 95 a1 78 02 20 01 92 02 03 "
#define FORTRAN "01 91 96 a1 78 02 20 01 92 02 03 81 01 92 01 02 "
#define OUT_OF_ORDER "varying extents are out of order"
    static const struct {
        const char *hex;
        const char *message; /* NULL: it is taken */
    } rows[] = {
        {"82 " X "03 92 00 00", NULL},
        {"82 " X "03 93 cc ff cc ff 92 00 01", NULL},
        {"82 " X "03 93 00 00 90", NULL},
        {"82 " X "03 94 00 00 91 01 c0", NULL},
        {"82 03 93 00 00 91 01 " X, NULL},
        {"82 " FORTRAN "03 92 00 00", NULL},
        {"82 " X "03 90",
         "definition of a schema: not a slot and a generation"},
        {"82 " X "03 91 00",
         "definition of a schema: not a slot and a generation"},
        {"81 ff 91 00", "reference of a schema: not a slot and a generation"},
        {"82 " X "03 00", "schema is not an array"},
        {"82 " X "03 92 a0 00", "schema is not an integer of 63 bits"},
        {"82 " X "03 92 00 a0", "schema is not an integer of 63 bits"},
        {"82 " X "03 92 ff 00",
         "definition of a schema: the slot is out of range"},
        {"82 " X "03 92 cd 01 00 00",
         "definition of a schema: the slot is out of range"},
        {"81 ff 92 00 cd 01 00",
         "reference of a schema: the generation is out of range"},
        {"81 ff 92 00 ff",
         "reference of a schema: the generation is out of range"},
        {"82 " X "03 93 00 00 00", "schema is not an array"},
        {"82 " X "03 93 00 00 91 a0", "schema is not an integer of 63 bits"},
        {"82 " X "03 93 00 00 92 01", "schema counts more elements than there "
                                      "are bytes"},
        {"82 " X "03 93 00 00 92 01 00",
         "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 92 01 01",
         "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 91 ff", "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 91 02",
         "definition of a schema: there are fewer extents than it says"},
        {"82 " FORTRAN "03 93 00 00 91 00",
         "definition of a schema: an extent of a tensor with strides varies"},
        {"82 " X "ff 92 00 00", "a reference to a schema beside tensors"},
        {"82 03 92 00 00 ff 92 00 00",
         "a reference to a schema beside a definition"},
        {"81 03 92 00 00", "definition of a schema without tensors"},
        {"82 ff 92 00 00 ff 92 00 00", "key -1 comes twice"},
        {"83 " X "03 92 00 00 03 92 00 00", "key 3 comes twice"},
        {"81 ff 93 00 00", "schema counts more elements than there are bytes"},
        {"81 ff 94 00 00 90 c1", "schema holds a byte that msgpack never uses"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();
        uint8_t *body;
        tmsg_status_t status = decode(rows[i].hex, map, &extra, &body);

        cr_expect_eq(status, rows[i].message ? TMSG_ERR_MALFORMED : TMSG_OK,
                     "row %zu: %s", i, tmsg_error_message());
        if (rows[i].message != NULL) {
            cr_expect_str_eq(tmsg_error_message() + strlen("body: "),
                             rows[i].message, "row %zu: %s", i,
                             tmsg_error_message());
        }
        tmsg_map_destroy(map);
        free(body);
    }
}

Test(schema, has_too_many_extents_from_257_on)
{
    uint8_t body[1024] = {0x81, 0xff, 0x93, 0, 0, 0xdc, 1, 0};
    const tmsg_limits_t limits = tmsg_limits_usual();

    for (size_t more = 0; more < 2; more++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();

        body[7] = (uint8_t)more;
        cr_expect_eq(
            tmsg_body_decode(body, 8 + 256 + more, &limits, map, &extra),
            more ? TMSG_ERR_MALFORMED : TMSG_OK);
        tmsg_map_destroy(map);
    }
    cr_expect_str_eq(tmsg_error_message(),
                     "body: reference of a schema: more than 256 extents");
}

Test(schema, means_nothing_to_a_reader_that_keeps_none)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map = new_map();
    size_t bytes;
    uint8_t *body = golden_unhex("82 " X "03 a5 77 72 6f 6e 67", &bytes);

    cr_expect_eq(tmsg_body_decode(body, bytes, &limits, map, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_size(map), 1);
    free(body);
    tmsg_map_clear(map);
    body = golden_unhex("81 ff 92 00 00", &bytes);
    cr_expect_eq(tmsg_body_decode(body, bytes, &limits, map, NULL),
                 TMSG_ERR_UNSUPPORTED);
    free(body);
    tmsg_map_destroy(map);
}

/* What broke behind a definition does not keep it from being answered. */
Test(schema, definition_is_known_of_a_body_that_is_refused)
{
    tmsg_body_extra_t extra = {0};
    tmsg_map_t *map = new_map();
    uint8_t *body;

    cr_expect_eq(decode("82 03 92 05 06 01 91 95 a0", map, &extra, &body),
                 TMSG_ERR_MALFORMED);
    cr_expect_eq(extra.schema.form, TMSG_SCHEMA_DEFINES);
    cr_expect_eq(extra.schema.slot, 5);
    cr_expect_eq(extra.schema.generation, 6);
    cr_expect_eq(tmsg_map_size(map), 0);
    tmsg_map_destroy(map);
    free(body);
}

/* An answer to it would be one that its sender does not wait for. */
Test(schema, definition_of_no_slot_is_none)
{
    static const char *const rows[] = {
        "82 03 90 01 90",       "82 03 91 05 01 90",
        "82 03 92 a0 00 01 90", "82 03 92 05",
        "82 03 92 05 a0 01 90", "82 03 92 cd 01 00 00 01 90",
        "82 03 92 05 ff 01",
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();
        uint8_t *body;

        cr_expect_eq(decode(rows[i], map, &extra, &body), TMSG_ERR_MALFORMED);
        cr_expect_eq(extra.schema.form, TMSG_SCHEMA_NONE, "row %zu", i);
        tmsg_map_destroy(map);
        free(body);
    }
}

Test(schema, store_keeps_what_fits)
{
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES};
    const tmsg_schema_use_t beyond = {.form = TMSG_SCHEMA_DEFINES, .slot = 2};
    tmsg_schema_budget_t budget = {.limit = 100};
    tmsg_map_t *map = points(1);
    tmsg_schema_store_t *store;
    const tmsg_schema_t *found;
    tmsg_schema_t *one, *two;

    cr_assert_eq(tmsg_schema_store_create(2, &budget, &store), TMSG_OK);
    cr_expect_null(tmsg_schema_store_prepare(store, map, &use, 101));
    cr_expect_null(tmsg_schema_store_prepare(store, map, &beyond, 1));
    cr_expect_null(tmsg_schema_store_prepare(NULL, map, &use, 1));
    one = tmsg_schema_store_prepare(store, map, &use, 60);
    cr_assert_not_null(one);
    cr_expect_null(tmsg_schema_store_prepare(store, map, &use, 41),
                   "what is pending does not count");
    two = tmsg_schema_store_prepare(store, map, &use, 40);
    cr_expect(tmsg_schema_store_take(store, 0, 0, one));
    cr_expect(tmsg_schema_store_take(store, 1, 0, two));
    cr_expect_eq(budget.used, 100);
    one = tmsg_schema_store_prepare(store, map, &use, 41);
    cr_expect_not(tmsg_schema_store_take(store, 1, 1, one));
    cr_expect_eq(budget.used, 60, "the slot is not empty");
    cr_expect_eq(
        tmsg_schema_store_find(store, &(tmsg_schema_use_t){.slot = 1}, &found),
        TMSG_ERR_MALFORMED);
    cr_expect_not(tmsg_schema_store_take(store, 0, 1, NULL));
    cr_expect_eq(budget.used, 0);
    one = tmsg_schema_store_prepare(store, map, &use, 1);
    cr_expect_not(tmsg_schema_store_take(store, 2, 0, one));
    one = tmsg_schema_store_prepare(store, map, &use, 1);
    cr_expect_not(tmsg_schema_store_take(NULL, 0, 0, one));
    cr_expect_eq(tmsg_schema_store_find(NULL, &use, &found),
                 TMSG_ERR_MALFORMED);
    cr_expect_eq(budget.pending, 0);
    tmsg_schema_store_destroy(store);
    tmsg_schema_store_destroy(NULL);
    tmsg_map_destroy(map);
}

/* A limit that was lowered meanwhile. */
Test(schema, store_over_its_limit_keeps_no_more)
{
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES};
    receiver_t receiver;
    tmsg_map_t *map = points(1);

    define(&receiver);
    receiver.budget.limit = 10;
    cr_expect_not(tmsg_schema_store_take(
        receiver.store, 1, 0,
        tmsg_schema_store_prepare(receiver.store, map, &use, 5)));
    tmsg_schema_store_destroy(receiver.store);
    tmsg_map_destroy(map);
}

Test(schema, map_outlives_what_it_was_filled_from)
{
    receiver_t receiver;
    tmsg_map_t *map = new_map();
    tmsg_tensor_t tensor;

    define(&receiver);
    cr_assert_eq(refer(&receiver, "81 ff 93 00 03 92 07 08", map), TMSG_OK);
    tmsg_schema_store_destroy(receiver.store);
    cr_assert_eq(tmsg_map_find(map, "y", &tensor), TMSG_OK);
    cr_expect_eq(tensor.shape[0], 8);
    cr_expect_eq(tensor.shape[1], 4);
    tmsg_map_destroy(map);
}

Test(schema, map_that_was_received_is_sent_on_by_reference)
{
    schema_pair_t from, to;
    tmsg_map_t *map = wide(20, 3, 0);
    tmsg_schema_form_t forms[4];

    schema_pair_open(&from, 2, PLENTY, PLENTY);
    schema_pair_open(&to, 2, PLENTY, PLENTY);
    for (size_t i = 0; i < COUNT(forms); i++) {
        schema_pair_message_t *message = &from.messages[0];

        schema_pair_send(&from, map);
        schema_pair_arrive(&from, 0);
        for (size_t j = 0; j < tmsg_map_size(message->map); j++) {
            tmsg_map_place(message->map, j, somewhere);
        }
        forms[i] = schema_pair_send(&to, message->map);
        schema_pair_settle(&to);
        for (size_t j = 0; j < tmsg_map_size(message->map); j++) {
            tmsg_map_place(message->map, j, NULL);
        }
        schema_pair_settle(&from);
    }
    cr_expect_eq(forms[0], TMSG_SCHEMA_DEFINES);
    cr_expect_eq(forms[1], TMSG_SCHEMA_REFERS);
    cr_expect_eq(forms[3], TMSG_SCHEMA_REFERS);
    tmsg_map_destroy(map);
    schema_pair_close(&from);
    schema_pair_close(&to);
}

/* As a worker takes a header that came on a channel; its turn is at once. */
static tmsg_status_t arrive(receiver_t *receiver, const golden_t *golden,
                            tmsg_map_t *map)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_use_t *use = &extra.schema;
    const tmsg_schema_t *schema;
    tmsg_preamble_t head;
    uint64_t bytes, before;
    tmsg_status_t status =
        tmsg_preamble_decode(golden->bytes, golden->size, &head);

    cr_assert_eq(status, TMSG_OK);
    status = tmsg_body_decode(golden->bytes + head.bytes, head.body_bytes,
                              &limits, map, &extra);
    if (status == TMSG_OK && use->form == TMSG_SCHEMA_REFERS) {
        status = tmsg_schema_store_find(receiver->store, use, &schema);
    }
    if (status == TMSG_OK && use->form == TMSG_SCHEMA_REFERS) {
        status = tmsg_schema_fill(schema, use, map);
    }
    if (status == TMSG_OK && use->form == TMSG_SCHEMA_DEFINES) {
        cr_assert(tmsg_schema_store_take(
            receiver->store, use->slot, use->generation,
            tmsg_schema_store_prepare(receiver->store, map, use,
                                      head.body_bytes)));
    }
    if (status == TMSG_OK) {
        status = tmsg_layout_bytes(map, &limits, &bytes);
    }
    before = head.flags & TMSG_HEADER_SPILLED
                 ? tmsg_layout_spill(head.body_bytes)
                 : 0;
    if (status == TMSG_OK && before + bytes != head.payload_bytes) {
        status = TMSG_ERR_MALFORMED;
    }
    return status;
}

static void expect_json(const tmsg_map_t *map, const golden_t *golden)
{
    char *path, *text = NULL, *frozen;
    cJSON *ours, *expected;

    cr_assert_gt(asprintf(&path, "%s.json", golden->path), 0);
    frozen = golden_read(path);
    cr_assert_eq(tmsg_map_to_json(map, &text), TMSG_OK);
    ours = cJSON_Parse(text);
    expected = cJSON_Parse(frozen);
    cr_expect(cJSON_Compare(ours, expected, 1), "%s: %s", path, text);
    cJSON_Delete(ours);
    cJSON_Delete(expected);
    tmsg_string_free(text);
    free(frozen);
    free(path);
}

Test(schema, v0_is_read_as_frozen)
{
    golden_t cases[GOLDEN_CASES_MAX];
    size_t count = golden_load("v0/schema", cases);
    receiver_t receiver = {.budget.limit = PLENTY};

    cr_assert_eq(tmsg_schema_store_create(TMSG_SCHEMA_SLOTS_MAX,
                                          &receiver.budget, &receiver.store),
                 TMSG_OK);
    for (size_t i = 0; i < count; i++) {
        tmsg_map_t *map = new_map();

        cr_assert_eq(arrive(&receiver, &cases[i], map), TMSG_OK, "%s: %s",
                     cases[i].path, tmsg_error_message());
        expect_json(map, &cases[i]);
        tmsg_map_destroy(map);
    }
    golden_free(cases, count);
    count = golden_load("v0/schema_invalid", cases);
    for (size_t i = 0; i < count; i++) {
        tmsg_status_t wanted = strcmp(cases[i].remark, "MALFORMED") == 0
                                   ? TMSG_ERR_MALFORMED
                                   : TMSG_ERR_LIMIT_EXCEEDED;
        tmsg_map_t *map = new_map();

        cr_expect_eq(arrive(&receiver, &cases[i], map), wanted, "%s: %s",
                     cases[i].path, tmsg_error_message());
        tmsg_map_destroy(map);
    }
    golden_free(cases, count);
    tmsg_schema_store_destroy(receiver.store);
}

/* Layouts of every dtype and kind of shape, from few seeds so that they come
 * again, with an extent or two that changes. */
static tmsg_map_t *random_map(uint64_t *state)
{
    static const int64_t odd[] = {0, 1, 2, 127, 128, 65536, 1ll << 32};
    uint64_t kind = sample_random(state) % 6;
    int64_t extent = odd[sample_random(state) % COUNT(odd)];
    tmsg_map_t *map;

    if (kind == 0) {
        map = points(extent);
    } else if (kind == 1) {
        map = strided(2 + (int64_t)(sample_random(state) % 3),
                      2 + (int64_t)(sample_random(state) % 3));
    } else if (kind == 2) {
        map = wide(3, 3, (unsigned)(sample_random(state) % 13));
    } else {
        map = sample_make(
            &(sample_t){.seed = sample_random(state) % 3,
                        .tensors = sample_random(state) % 4 * 8,
                        .shape = sample_random(state) % SAMPLE_SHAPES});
    }
    if (sample_random(state) % 4 == 0) {
        tmsg_map_set_i64(map, "number", (int64_t)sample_random(state));
        tmsg_map_set_string(map, "text", "a longer one");
    }
    return map;
}

/* Anything that may happen between the two ends, in any order. */
static void wander(schema_pair_t *pair, uint64_t *state, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        uint64_t what = sample_random(state) % 8;
        size_t at = pair->count == 0 ? 0 : sample_random(state) % pair->count;

        if (what < 3 && pair->count < SCHEMA_PAIR_WINDOW / 2) {
            tmsg_map_t *map = random_map(state);

            schema_pair_send(pair, map);
            tmsg_map_destroy(map);
        } else if (what < 5 && pair->count > 0 && !pair->messages[at].arrived) {
            schema_pair_arrive(pair, at);
        } else if (what < 7) {
            schema_pair_turn(pair);
        } else {
            schema_pair_answer(pair);
        }
    }
    schema_pair_settle(pair);
}

Test(schema, random_sequences_arrive_as_they_were_sent)
{
    size_t forms[3] = {0};

    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t state = seed;
        uint32_t slots = 1 + (uint32_t)(seed % 20);
        uint64_t tx = seed % 4 == 0 ? 1000 : PLENTY;
        uint64_t rx = seed % 5 == 0 ? 600 : PLENTY;
        schema_pair_t pair;

        schema_pair_open(&pair, slots, tx, rx);
        wander(&pair, &state, 1000);
        forms[0] += pair.whole;
        forms[1] += pair.defined;
        forms[2] += pair.referred;
        schema_pair_close(&pair);
    }
    cr_expect_gt(forms[0], 1000);
    cr_expect_gt(forms[1], 500);
    cr_expect_gt(forms[2], 1500, "%zu %zu %zu", forms[0], forms[1], forms[2]);
}

/* The n-th allocation fails, for every n. */
Test(schema, sender_without_memory_sends_in_full)
{
    tmsg_map_t *map = wide(20, 3, 0);
    tmsg_schema_table_t *table = NULL;
    tmsg_schema_budget_t budget = {.limit = PLENTY};
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsg_schema_form_t form = TMSG_SCHEMA_NONE;
    unsigned long n;

    failing_alloc_arm(1);
    status = tmsg_schema_table_create(2, &budget, &table);
    cr_assert(failing_alloc_disarm());
    cr_expect_eq(status, TMSG_ERR_NO_MEMORY);
    cr_expect_null(table);
    cr_assert_eq(tmsg_schema_table_create(2, &budget, &table), TMSG_OK);
    for (n = 1; form == TMSG_SCHEMA_NONE; n++) {
        tmsg_body_extra_t extra = {0};
        size_t needed;

        failing_alloc_arm(n);
        status = tmsg_schema_table_choose(table, map, &extra, &needed);
        failing_alloc_disarm();
        cr_expect_eq(status, TMSG_OK);
        form = extra.schema.form;
    }
    cr_expect_gt(n, 5);
    tmsg_schema_table_destroy(table);
    tmsg_map_destroy(map);
    cr_expect_eq(budget.used, 0);
}

Test(schema, receiver_without_memory_keeps_nothing)
{
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES};
    tmsg_map_t *map = wide(20, 3, 0);
    tmsg_schema_store_t *store = NULL;
    tmsg_schema_budget_t budget = {.limit = PLENTY};
    tmsg_schema_t *schema = NULL;
    tmsg_status_t status;

    failing_alloc_arm(1);
    status = tmsg_schema_store_create(2, &budget, &store);
    cr_assert(failing_alloc_disarm());
    cr_expect_eq(status, TMSG_ERR_NO_MEMORY);
    cr_expect_null(store);
    cr_assert_eq(tmsg_schema_store_create(2, &budget, &store), TMSG_OK);
    for (unsigned long n = 1; schema == NULL; n++) {
        cr_expect_eq(budget.pending, 0);
        failing_alloc_arm(n);
        schema = tmsg_schema_store_prepare(store, map, &use, 10);
        cr_expect_eq(failing_alloc_disarm(), schema == NULL);
    }
    cr_expect_eq(budget.pending, 10);
    tmsg_schema_destroy(schema);
    cr_expect_eq(budget.pending, 0);
    tmsg_schema_store_destroy(store);
    tmsg_map_destroy(map);
}

Test(schema, reference_without_memory_leaves_the_map_empty)
{
    receiver_t receiver;
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_t *schema;
    unsigned long n;
    tmsg_map_t *map = new_map();
    uint8_t *body;

    define(&receiver);
    cr_assert_eq(decode("81 ff 93 00 03 92 07 08", map, &extra, &body),
                 TMSG_OK);
    tmsg_map_destroy(map);
    cr_assert_eq(tmsg_schema_store_find(receiver.store, &extra.schema, &schema),
                 TMSG_OK);
    for (n = 1; status != TMSG_OK; n++) {
        map = new_map();
        tmsg_map_set_i64(map, "k", 1);
        tmsg_map_clear(map);
        failing_alloc_arm(n);
        status = tmsg_schema_fill(schema, &extra.schema, map);
        cr_expect_eq(status == TMSG_OK, !failing_alloc_disarm());
        cr_expect_eq(tmsg_map_size(map), status == TMSG_OK ? 2 : 0);
        tmsg_map_destroy(map);
    }
    cr_expect_gt(n, 2);
    free(body);
    tmsg_schema_store_destroy(receiver.store);
}
