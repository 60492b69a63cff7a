/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_schema_tools.h"

#include <sys/mman.h>
#include <unistd.h>

#include <tensormsg/meta.h>

#include "support/failing_alloc.h"
#include "support/test_scale.h"

#define PAUSE 256 /* messages without definitions after one was not kept */

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

/* With a layout of which the rows vary in the first of its slots. */
static void open_varying(schema_pair_t *pair, uint32_t slots)
{
    schema_pair_open(pair, slots, PLENTY, PLENTY);
    send(pair, points(5));
    send(pair, points(6));
}

/* Extents that stay are those of a layout of its own, by which other extents
 * than these still go as they went. */
Test(schema, of_extents_that_stay_has_a_slot_of_its_own)
{
    schema_pair_t pair;
    unsigned definitions = 0;
    tmsg_map_t *map = points(7);

    open_varying(&pair, 4);
    for (unsigned i = 0; i < 100; i++) {
        definitions += send(&pair, points(7)) == TMSG_SCHEMA_DEFINES;
    }
    cr_expect_eq(definitions, 1);
    cr_expect_eq(schema_pair_send(&pair, map), TMSG_SCHEMA_REFERS);
    expect_body(&pair, "81 ff 92 01 00"); /* no extents */
    schema_pair_settle(&pair);
    cr_expect_eq(send(&pair, points(5)), TMSG_SCHEMA_REFERS);
    cr_expect_eq(send(&pair, map), TMSG_SCHEMA_REFERS);
    schema_pair_close(&pair);
}

Test(schema, of_extents_that_stay_goes_on_where_there_is_no_slot)
{
    schema_pair_t pair;

    open_varying(&pair, 1);
    for (unsigned i = 0; i < 100; i++) {
        cr_expect_eq(send(&pair, points(7)), TMSG_SCHEMA_REFERS);
    }
    schema_pair_close(&pair);
}

Test(schema, of_extents_that_come_in_turn_has_one_slot)
{
    schema_pair_t pair;

    open_varying(&pair, 4);
    for (unsigned i = 0; i < 100; i++) {
        cr_expect_eq(send(&pair, points(i / 15)), TMSG_SCHEMA_REFERS);
    }
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

/* The whole pages of the map's entries, which nobody may touch from now on, or
 * again. */
static void forbid(const tmsg_map_t *map, bool forbidden)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uintptr_t begin = ((uintptr_t)entries + page - 1) / page * page;
    uintptr_t end = (uintptr_t)(entries + tmsg_map_size(map)) / page * page;

    cr_assert_gt(end, begin);
    cr_assert_eq(mprotect((void *)begin, end - begin,
                          forbidden ? PROT_NONE : PROT_READ | PROT_WRITE),
                 0);
}

Test(schema, of_a_map_that_has_not_changed_costs_nothing_for_a_tensor)
{
    tmsg_map_t *map = wide(10000, 3, 0);
    tmsg_body_extra_t extra = {0};
    schema_pair_t pair;
    uint8_t body[64];
    size_t needed;

    schema_pair_open(&pair, 2, PLENTY, PLENTY);
    schema_pair_send(&pair, map);
    schema_pair_settle(&pair);
    forbid(map, true);
    cr_expect_eq(tmsg_schema_table_choose(pair.table, map, &extra, &needed),
                 TMSG_OK);
    cr_expect_eq(tmsg_body_encode(map, &extra, body, sizeof(body), &needed),
                 TMSG_OK);
    tmsg_schema_table_sent(pair.table, &extra.schema);
    forbid(map, false);
    cr_expect_eq(extra.schema.form, TMSG_SCHEMA_REFERS);
    tmsg_map_destroy(map);
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
    vast.data = whole_run() ? calloc(1, vast.bytes) : NULL;
    if (vast.data == NULL || tmsg_map_set_meta(map, "v", &vast) != TMSG_OK) {
        cr_skip_test("4 GiB twice are for make soak, or cannot be had");
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
