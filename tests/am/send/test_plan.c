/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "am/endpoint/measures.h"
#include "am/send/method.h"
#include "am/send/plan.h"
#include "core/limits.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/checksum.h"
#include "support/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KIB 1024ull

/* Keeps nothing, so that every allocation is one. */
static tmsg_pool_t pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A payload without anything, of a map that must be measurable. Its measures
 * stay until the next call. */
static tmsg_payload_t payload_of(const tmsg_map_t *map, size_t spill)
{
    static tmsg_measures_t measures;
    const tmsg_tuning_t tuning = tmsg_tuning_usual();

    cr_assert_eq(tmsg_plan_measure(map, TMSG_WAY_NO_FRAGMENTS, 0, &measures),
                 TMSG_OK, "%s", tmsg_error_message());
    return (tmsg_payload_t){
        .map = map,
        .measures = &measures,
        .way = tmsg_way_choose(&measures, tmsg_layout_spill(spill),
                               &tuning.of[TMSG_TRANSPORT_UNKNOWN],
                               (tmsg_wish_t){0}),
        .spill = spill};
}

static uint64_t bytes_of(const tmsg_payload_t *payload)
{
    return payload->measures->bytes + tmsg_layout_spill(payload->spill);
}

static tmsg_status_t make(const tmsg_map_t *map, size_t spill,
                          tmsg_plan_t *plan)
{
    const tmsg_payload_t payload = payload_of(map, spill);

    return tmsg_plan_make(&payload, &pool, plan);
}

static const tmsg_strategy_t *gather_of(void)
{
    return tmsg_strategy_of((tmsg_way_t){.gather = true});
}

static const tmsg_strategy_t *scatter_of(void)
{
    return tmsg_strategy_of((tmsg_way_t){.gather = false});
}

static uint8_t memory[4096];

typedef struct {
    const char *what;
    size_t offset; /* into memory */
    tmsg_dtype_t dtype;
    int32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
    bool c_order;
} form_t;

static const form_t forms[] = {
    {"one byte", 5, {TMSG_DTYPE_UINT, 8, 1}, 1, {1}, {0}, true},
    {"0-d", 9, {TMSG_DTYPE_FLOAT, 32, 1}, 0, {0}, {0}, true},
    {"64 bytes", 64, {TMSG_DTYPE_FLOAT, 64, 1}, 2, {2, 4}, {0}, true},
    {"empty", 0, {TMSG_DTYPE_FLOAT, 32, 1}, 2, {3, 0}, {0}, true},
    {"lanes of 64 bytes", 3, {TMSG_DTYPE_FLOAT, 64, 8}, 1, {3}, {0}, true},
    {"sub-byte", 11, {TMSG_DTYPE_INT, 4, 1}, 1, {7}, {0}, true},
    {"Fortran order", 100, {TMSG_DTYPE_FLOAT, 32, 1}, 2, {3, 5}, {1, 3}, false},
    {"every second", 200, {TMSG_DTYPE_FLOAT, 32, 1}, 2, {3, 5}, {20, 2}, false},
    {"broadcast", 300, {TMSG_DTYPE_UINT, 8, 1}, 2, {9, 3}, {0, 1}, false},
    {"backwards", 900, {TMSG_DTYPE_INT, 16, 1}, 1, {70}, {-2}, false},
    {"RGB of RGBA",
     500,
     {TMSG_DTYPE_UINT, 8, 1},
     3,
     {4, 5, 3},
     {20, 4, 1},
     false},
    {"an odd tail", 700, {TMSG_DTYPE_UINT, 8, 1}, 1, {131}, {0}, true},
};

static void add_form(tmsg_map_t *map, size_t number)
{
    const form_t *form = &forms[number % COUNT(forms)];
    char name[32];
    tmsg_tensor_t tensor = {
        memory + form->offset, {TMSG_DEVICE_CPU, 0},
        form->dtype,           form->ndim,
        form->shape,           form->c_order ? NULL : form->strides};

    snprintf(name, sizeof(name), "tensor-%zu", number);
    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK, "%s: %s",
                 form->what, tmsg_error_message());
}

/* Tensors `first` to `first + count - 1` of the endless row of forms. */
static tmsg_map_t *map_of(size_t first, size_t count)
{
    tmsg_map_t *map = NULL;

    for (size_t i = 0; i < sizeof(memory); i++) {
        memory[i] = (uint8_t)(i % 251 + 1); /* 0 is for gaps */
    }
    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    for (size_t i = 0; i < count; i++) {
        add_form(map, first + i);
    }
    return map;
}

static size_t body_bytes(const tmsg_map_t *map)
{
    size_t needed = 0;

    cr_assert_eq(tmsg_body_encode(map, NULL, NULL, 0, &needed), TMSG_OK);
    return needed;
}

/* The payload as docs/wire/wire-format.md has it: the body padded to 64, then
 * each tensor at its alignment, dense ones as they lie. */
static uint8_t *expected_payload(const tmsg_map_t *map, size_t spill,
                                 uint64_t *bytes_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t begin = (spill + 63) / 64 * 64, at = 0;
    uint8_t *payload;
    size_t needed;

    for (int round = 0; round < 2; round++) {
        at = 0;
        payload = round == 0 ? NULL : calloc(1, *bytes_p + 1);
        for (size_t i = 0; i < tmsg_map_size(map); i++) {
            const tmsg_tensor_t *tensor = &entries[i].tensor;

            at = tmsg_layout_next(at, tensor->dtype, entries[i].bytes);
            if (round == 1 && tmsg_tensor_is_dense(tensor)) {
                memcpy(payload + begin + at, tensor->data, entries[i].bytes);
            } else if (round == 1) {
                cr_assert_eq(tmsg_plan_pack(&entries[i], payload + begin + at),
                             TMSG_OK);
            }
            at += entries[i].bytes;
        }
        *bytes_p = begin + at;
    }
    if (spill > 0) {
        cr_assert_eq(tmsg_body_encode(map, NULL, payload, spill, &needed),
                     TMSG_OK);
        cr_assert_eq(needed, spill);
    }
    return payload;
}

/* What UCX would send, as one piece. */
static uint8_t *flatten(const tmsg_plan_t *plan)
{
    uint8_t *payload = malloc(plan->bytes + 1), *to = payload;

    if (plan->iov_count == 0 && plan->bytes > 0) {
        memcpy(to, plan->contiguous, plan->bytes);
        return payload;
    }
    for (size_t i = 0; i < plan->iov_count; i++) {
        cr_assert_gt(plan->iov[i].iov_len, 0, "entry %zu is empty", i);
        cr_assert_leq((uint64_t)(to - payload) + plan->iov[i].iov_len,
                      plan->bytes, "entry %zu of %zu goes beyond the end", i,
                      plan->iov_count);
        memcpy(to, plan->iov[i].iov_base, plan->iov[i].iov_len);
        to += plan->iov[i].iov_len;
    }
    cr_assert_eq((uint64_t)(to - payload), plan->bytes, "%lu bytes, not %lu",
                 (uint64_t)(to - payload), plan->bytes);
    return payload;
}

static void expect_payload(const tmsg_plan_t *plan, const tmsg_map_t *map,
                           size_t spill, const char *who)
{
    uint64_t bytes;
    uint8_t *expected = expected_payload(map, spill, &bytes);
    uint8_t *payload = flatten(plan);
    size_t count = tmsg_map_size(map);

    cr_expect_eq(plan->bytes, bytes, "%s, %zu tensors: %lu bytes, not %lu", who,
                 count, plan->bytes, bytes);
    for (uint64_t i = 0; i < bytes && i < plan->bytes; i++) {
        if (payload[i] != expected[i]) {
            cr_expect(false,
                      "%s, %zu tensors, spill %zu: byte %lu is %u, not "
                      "%u",
                      who, count, spill, i, payload[i], expected[i]);
            break;
        }
    }
    free(expected);
    free(payload);
}

static void expect_all_strategies(const tmsg_map_t *map, size_t spill)
{
    const tmsg_payload_t payload = payload_of(map, spill);
    const tmsg_strategy_t *strategies[] = {gather_of(), scatter_of()};
    tmsg_plan_t plan = {0};

    cr_assert_eq(make(map, spill, &plan), TMSG_OK, "%s", tmsg_error_message());
    expect_payload(&plan, map, spill, "chosen");
    for (size_t i = 0; plan.bytes > 0 && i < COUNT(strategies); i++) {
        tmsg_plan_t other = {.bytes = plan.bytes};

        cr_assert_eq(strategies[i]->make(&payload, &pool, &other), TMSG_OK);
        expect_payload(&other, map, spill, strategies[i]->name);
        tmsg_plan_free(&other, &pool);
        cr_expect(other.iov == NULL && other.staging.data == NULL &&
                  other.bytes == 0);
    }
    tmsg_plan_free(&plan, &pool);
}

Test(plan, gather_and_scatter_lay_out_the_same_payload)
{
    for (size_t first = 0; first < COUNT(forms); first++) {
        for (size_t count = 1; count <= 2 * COUNT(forms); count++) {
            tmsg_map_t *map = map_of(first, count);

            expect_all_strategies(map, 0);
            expect_all_strategies(map, body_bytes(map));
            tmsg_map_destroy(map);
        }
    }
}

Test(plan, many_tensors_are_laid_out_alike)
{
    tmsg_map_t *map = map_of(0, 3000);

    expect_all_strategies(map, 0);
    expect_all_strategies(map, body_bytes(map));
    tmsg_map_destroy(map);
}

/* A payload that fits into the caller's own memory takes none of the pool's. */
Test(plan, a_small_payload_is_gathered_into_the_spare)
{
    static uint8_t spare[4 * KIB];
    tmsg_map_t *map = map_of(0, 3);
    tmsg_payload_t payload = payload_of(map, 0);

    payload.spare = spare;
    for (int less = 0; less <= 1; less++) {
        tmsg_plan_t plan = {.bytes = bytes_of(&payload)};

        payload.spare_bytes = plan.bytes - (uint64_t)less;
        cr_assert_leq(plan.bytes, sizeof(spare));
        cr_assert_eq(gather_of()->make(&payload, &pool, &plan), TMSG_OK);
        cr_expect_eq(plan.contiguous == spare, !less);
        cr_expect_eq(plan.staging.data != NULL, less);
        expect_payload(&plan, map, 0, "gather");
        tmsg_plan_free(&plan, &pool);
    }
    tmsg_map_destroy(map);
}

/* A body may fill its padding exactly, or miss it by one. */
Test(plan, a_spilled_body_is_padded_to_64_bytes)
{
    static char text[129];

    for (size_t length = 0; length < 128; length++) {
        tmsg_map_t *map = map_of(0, 2);

        memset(text, 'v', length);
        text[length] = '\0';
        cr_assert_eq(tmsg_map_set_string(map, "filler", text), TMSG_OK);
        expect_all_strategies(map, body_bytes(map));
        tmsg_map_destroy(map);
    }
}

Test(plan, nothing_makes_an_empty_plan)
{
    tmsg_map_t *map = map_of(3, 1); /* the empty tensor */
    tmsg_plan_t plan = {0};

    cr_expect_eq(make(map, 0, &plan), TMSG_OK);
    cr_expect(plan.bytes == 0 && plan.iov_count == 0 &&
              plan.staging.data == NULL);
    tmsg_plan_free(&plan, &pool);
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK);
    cr_expect_eq(make(map, 0, &plan), TMSG_OK);
    cr_expect(plan.bytes == 0 && plan.iov_count == 0 &&
              plan.staging.data == NULL);
    tmsg_plan_free(&plan, &pool);
    expect_all_strategies(map, body_bytes(map)); /* a body alone */
    tmsg_map_destroy(map);
}

/* The values of its own body, at the head of the payload, and of the payload's
 * own bytes. */
static void expect_checksums(const tmsg_plan_t *plan,
                             const tmsg_payload_t *made, const char *who)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(made->map);
    const tmsg_limits_t limits = tmsg_limits_usual();
    uint8_t *payload = flatten(plan);
    uint64_t at = 0, begin = tmsg_layout_spill(made->spill);
    tmsg_body_extra_t extra = *made->extra;
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    if (made->spill > 0) {
        cr_assert_eq(
            tmsg_body_decode(payload, made->spill, &limits, map, &extra),
            TMSG_OK, "%s: %s", who, tmsg_error_message());
    }
    for (size_t i = 0; i < tmsg_map_size(made->map); i++) {
        uint64_t told = tmsg_checksum_value(&extra, i), found;

        at = tmsg_layout_next(at, entries[i].tensor.dtype, entries[i].bytes);
        found = extra.checksum->compute(payload + begin + at, entries[i].bytes);
        at += entries[i].bytes;
        cr_expect_eq(told, found, "%s, %zu tensors: %zu has %lx, not %lx", who,
                     tmsg_map_size(made->map), i, told, found);
    }
    tmsg_map_destroy(map);
    free(payload);
}

Test(plan, checksums_are_of_the_bytes_in_the_payload)
{
    const tmsg_strategy_t *strategies[] = {gather_of(), scatter_of()};
    uint8_t values[8 * 2 * COUNT(forms)];
    tmsg_body_extra_t extra = {.checksums = values};

    cr_assert_eq(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra.checksum),
                 TMSG_OK);
    for (size_t n = 0; n < 4 * 2 * COUNT(forms); n++) {
        tmsg_map_t *map = map_of(n % COUNT(forms), 1 + n / 4);
        const tmsg_strategy_t *strategy = strategies[n % 2];
        tmsg_payload_t payload = payload_of(map, 0);
        tmsg_plan_t plan = {0};

        payload.extra = &extra;
        payload.checksums = values;

        if (n % 4 >= 2) {
            cr_assert_eq(tmsg_body_encode(map, &extra, NULL, 0, &payload.spill),
                         TMSG_OK);
        }
        memset(values, 0xee, sizeof(values));
        plan.bytes = bytes_of(&payload);
        cr_assert_eq(strategy->make(&payload, &pool, &plan), TMSG_OK);
        expect_checksums(&plan, &payload, strategy->name);
        tmsg_plan_free(&plan, &pool);
        tmsg_map_destroy(map);
    }
}

Test(plan, a_payload_of_nothing_has_checksums_of_nothing)
{
    tmsg_map_t *map = map_of(3, 1); /* the empty tensor */
    uint8_t values[8];
    tmsg_body_extra_t extra = {.checksums = values};
    tmsg_payload_t payload = payload_of(map, 0);
    tmsg_plan_t plan = {0};

    payload.extra = &extra;
    payload.checksums = values;
    cr_assert_eq(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra.checksum),
                 TMSG_OK);
    cr_assert_eq(tmsg_plan_make(&payload, &pool, &plan), TMSG_OK);
    cr_expect_eq(tmsg_checksum_value(&extra, 0), 0x2d06800538d394c2u);
    tmsg_plan_free(&plan, &pool);
    tmsg_map_destroy(map);
}

/* Tensors that need no packing are sent from their own memory. */
Test(plan, scatter_copies_only_what_must_be_packed)
{
    static const struct {
        size_t form;
        bool copied;
    } rows[] = {{2, false}, {5, false}, {6, false}, {7, true},
                {8, false}, {9, true},  {10, true}, {11, false}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = map_of(rows[i].form, 1);
        const tmsg_payload_t payload = payload_of(map, 0);
        tmsg_plan_t plan = {.bytes = bytes_of(&payload)};
        const uint8_t *sent;
        bool copied;

        cr_assert_eq(scatter_of()->make(&payload, &pool, &plan), TMSG_OK);
        sent = plan.contiguous;
        copied = sent < memory || sent >= memory + sizeof(memory);
        cr_expect_eq(plan.iov_count, 0, "%s: a list of %zu",
                     forms[rows[i].form].what, plan.iov_count);
        cr_expect_eq(copied, rows[i].copied, "%s: copied %d",
                     forms[rows[i].form].what, copied);
        cr_expect_eq(plan.staging.data != NULL, rows[i].copied, "%s",
                     forms[rows[i].form].what);
        tmsg_plan_free(&plan, &pool);
        tmsg_map_destroy(map);
    }
}

Test(plan, names_what_cannot_be_packed)
{
    static const int64_t shape[] = {2, 3}, strides[] = {4, 1};
    static const char words[] = "tensor 'gpu': device type 2 is not readable";
    const tmsg_strategy_t *strategies[] = {gather_of(), scatter_of()};
    tmsg_tensor_t tensor = {
        memory, {TMSG_DEVICE_CUDA, 0}, {TMSG_DTYPE_INT, 8, 1}, 2, shape,
        strides};
    tmsg_map_t *map = map_of(0, 3);

    cr_assert_eq(tmsg_map_add(map, "gpu", &tensor, NULL), TMSG_OK);
    for (size_t i = 0; i < COUNT(strategies); i++) {
        const tmsg_payload_t payload = payload_of(map, 0);
        tmsg_plan_t plan = {.bytes = bytes_of(&payload)};
        tmsg_status_t status = strategies[i]->make(&payload, &pool, &plan);

        cr_expect_eq(status, TMSG_ERR_UNSUPPORTED, "%s: %s",
                     strategies[i]->name, tmsg_status_name(status));
        cr_expect(strncmp(tmsg_error_message(), words, strlen(words)) == 0,
                  "%s: '%s'", strategies[i]->name, tmsg_error_message());
        tmsg_plan_free(&plan, &pool);
    }
    tmsg_map_destroy(map);
}

Test(plan, survives_every_failed_allocation)
{
    tmsg_map_t *map = map_of(0, 2 * COUNT(forms));
    const tmsg_strategy_t *strategies[] = {gather_of(), scatter_of()};
    size_t spill = body_bytes(map);
    const tmsg_payload_t payload = payload_of(map, spill);

    for (size_t i = 0; i < COUNT(strategies); i++) {
        unsigned long failures = 0;
        bool failed = true;

        for (unsigned long n = 1; failed; n++) {
            tmsg_plan_t plan = {.bytes = bytes_of(&payload)};
            tmsg_status_t status;

            failing_alloc_arm(n);
            status = strategies[i]->make(&payload, &pool, &plan);
            failed = failing_alloc_disarm();
            failures += failed;
            cr_expect_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK,
                         "%s, allocation %lu: %s", strategies[i]->name, n,
                         tmsg_status_name(status));
            tmsg_plan_free(&plan, &pool);
        }
        cr_expect_eq(failures, i + 1, "%s: %lu allocations",
                     strategies[i]->name, failures);
    }
    tmsg_map_destroy(map);
}
