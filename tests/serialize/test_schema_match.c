/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_schema_tools.h"

#include "serialize/schema_match.h"
#include "serialize/schema_struct.h"

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
