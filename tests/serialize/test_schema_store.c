/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_schema_tools.h"

#include <cjson/cJSON.h>

#include <tensormsg/json.h>

#include "support/failing_alloc.h"

/* A receiver, and what it is given. */
typedef struct {
    tmsg_schema_budget_t budget;
    tmsg_schema_store_t *store;
} receiver_t;

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

/* The layout that a map gets by it. */
static const tmsg_map_t *layout_by(const tmsg_schema_t *schema)
{
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_REFERS};
    const tmsg_map_t *layout;
    tmsg_map_t *map = new_map();

    cr_assert_eq(tmsg_schema_fill(schema, &use, map), TMSG_OK);
    layout = tmsg_map_layout(map);
    tmsg_map_destroy(map);
    return layout;
}

/* Of two peers' equal layouts one is kept; of another the newest, but a large
 * one only where it is shared already. */
Test(schema, equal_layouts_are_shared)
{
    enum { A, AGAIN, OTHER, LARGE, SCHEMAS };
    const tmsg_schema_use_t use = {.form = TMSG_SCHEMA_DEFINES};
    tmsg_schema_budget_t budget = {.limit = 1000};
    tmsg_map_t *maps[SCHEMAS] = {points(1), points(1), points(2),
                                 wide(100, 2, 0)};
    tmsg_schema_t *schemas[SCHEMAS];
    tmsg_schema_store_t *store;
    tmsg_map_t *newest = NULL;
    const tmsg_map_t *first;

    cr_assert_eq(tmsg_schema_store_create(1, &budget, &store), TMSG_OK);
    for (int i = 0; i < SCHEMAS; i++) {
        schemas[i] = tmsg_schema_store_prepare(store, maps[i], &use, 1);
        cr_assert_not_null(schemas[i]);
        tmsg_map_destroy(maps[i]);
    }
    tmsg_schema_share(schemas[A], PLENTY, &newest);
    first = newest;
    cr_expect_eq(layout_by(schemas[A]), first);
    cr_expect_neq(layout_by(schemas[AGAIN]), first);
    tmsg_schema_share(schemas[AGAIN], 0, &newest);
    cr_expect_eq(layout_by(schemas[AGAIN]), first);
    tmsg_schema_share(schemas[AGAIN], 0, &newest); /* once is as good */
    cr_expect_eq(newest, first);
    tmsg_schema_share(schemas[LARGE], 1000, &newest);
    cr_expect_eq(newest, first);
    cr_expect_neq(layout_by(schemas[LARGE]), first);
    tmsg_schema_share(schemas[OTHER], PLENTY, &newest);
    cr_expect_eq(layout_by(schemas[OTHER]), newest);
    cr_expect_neq(newest, first);
    tmsg_schema_destroy(schemas[A]); /* whose it was */
    cr_expect_eq(layout_by(schemas[AGAIN]), first);
    tmsg_map_destroy(newest);
    cr_expect_eq(tmsg_map_size(layout_by(schemas[OTHER])), 2);
    for (int i = AGAIN; i < SCHEMAS; i++) {
        tmsg_schema_destroy(schemas[i]);
    }
    tmsg_schema_store_destroy(store);
    cr_expect_eq(budget.pending, 0);
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
