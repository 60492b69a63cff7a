/* SPDX-License-Identifier: BSD-3-Clause */
/* Schemas under a script. The first byte chooses what it is for: a sender and
 * a receiver of ours, between which anything may overtake, or a receiver of
 * ours and bodies from anyone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "support/must.h"
#include "support/schema_pair.h"

#define STEPS 32 /* more of them find no more, and take longer */
#define SLOTS_OF_A_STRANGER 4
#define BUDGET_OF_A_STRANGER 2000

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} script_t;

/* The next byte, 0 behind the end. */
static unsigned take(script_t *script)
{
    return script->at < script->end ? *script->at++ : 0;
}

/* A map of a few names, dtypes, shapes and strides, two bytes a tensor. */
static tmsg_map_t *make_map(script_t *script)
{
    static uint8_t somewhere[1];
    static const int64_t extents[] = {0, 1, 2, 3, 7, 128, 70000, 1ll << 29};
    unsigned count = take(script) % 12;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (unsigned i = 0; i < count; i++) {
        unsigned what = take(script), shape = take(script);
        const int64_t dims[] = {extents[shape % 8], extents[shape / 8 % 8]};
        const int64_t strides[] = {1, what & 32 ? 0 : dims[0]};
        tmsg_tensor_t tensor = {
            .data = somewhere,
            .device = {what & 1 ? TMSG_DEVICE_CPU : TMSG_DEVICE_CUDA, 0},
            .dtype = {TMSG_DTYPE_UINT, what & 2 ? 8 : 16, 1},
            .ndim = (int32_t)(shape / 64 % 3),
            .shape = dims,
            .strides = shape / 64 == 2 && what & 4 ? strides : NULL,
        };
        char name[16];

        snprintf(name, sizeof(name), "%u", what / 8 % 4 * 100 + i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    if (take(script) % 4 == 0) {
        must(tmsg_map_set_i64(map, "k", (int64_t)take(script)));
    }
    return map;
}

/* Both ends are ours: no message is lost, none is other than it was. */
static void play_pair(script_t *script)
{
    static const uint64_t budgets[] = {1u << 20, 1000, 200, 20};
    unsigned how = take(script);
    tmsg_map_t *map = NULL;
    schema_pair_t pair;

    schema_pair_open(&pair, 1 + how % 5, budgets[how / 8 % 4],
                     budgets[how / 32 % 4]);
    for (int i = 0; i < STEPS && script->at < script->end; i++) {
        unsigned what = take(script);

        if (what % 8 < 2 || map == NULL) {
            tmsg_map_destroy(map);
            map = make_map(script);
        }
        if (what % 8 < 4 && pair.count < SCHEMA_PAIR_WINDOW / 2 &&
            pair.answer_count < SCHEMA_PAIR_WINDOW / 2) {
            schema_pair_send(&pair, map);
        } else if (what % 8 == 4) {
            size_t at = what / 8;

            if (at < pair.count && !pair.messages[at].arrived) {
                schema_pair_arrive(&pair, at);
            }
        } else if (what % 8 < 7) {
            schema_pair_turn(&pair);
        } else {
            schema_pair_answer(&pair);
        }
    }
    schema_pair_settle(&pair);
    tmsg_map_destroy(map);
    schema_pair_close(&pair);
}

/* What one element of each travels in: repeated ones travel once. */
static uint64_t bytes_once(const tmsg_tensor_t *tensor)
{
    uint64_t elements = 1;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        bool repeated = tensor->strides != NULL && tensor->strides[i] == 0;

        elements *=
            repeated && tensor->shape[i] != 0 ? 1 : (uint64_t)tensor->shape[i];
    }
    return (elements * tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
}

/* What is taken of a stranger fits the limits, and can be written again. */
static void check_taken(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t bytes;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        must_eq(entries[i].bytes, bytes_once(&entries[i].tensor));
        must(tmsg_map_find(map, entries[i].name, NULL));
    }
    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
}

static void receive(tmsg_schema_store_t *store, const tmsg_limits_t *limits,
                    const uint8_t *body, size_t bytes)
{
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_use_t *use = &extra.schema;
    const tmsg_schema_t *schema;
    tmsg_schema_t *aside = NULL;
    tmsg_map_t *map;
    tmsg_status_t status;

    must(tmsg_map_create(&map));
    status = tmsg_body_decode(body, bytes, limits, map, &extra);
    if (status == TMSG_OK && use->form == TMSG_SCHEMA_REFERS) {
        status = tmsg_schema_store_find(store, use, &schema);
    }
    if (status == TMSG_OK && use->form == TMSG_SCHEMA_REFERS) {
        status = tmsg_schema_fill(schema, use, map);
    }
    if (status == TMSG_OK) {
        check_taken(map);
    } else {
        must_true(use->form == TMSG_SCHEMA_REFERS || tmsg_map_size(map) == 0);
        must_true(tmsg_error_message()[0] != '\0');
    }
    if (use->form == TMSG_SCHEMA_DEFINES) {
        if (status == TMSG_OK) {
            aside = tmsg_schema_store_prepare(store, map, use, bytes);
        }
        tmsg_schema_store_take(store, use->slot, use->generation, aside);
    }
    tmsg_map_destroy(map);
}

/* Bodies from anyone, each after a byte that says how long it is, and answers
 * from anyone to a sender that asked nothing. */
static void play_stranger(script_t *script)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_schema_budget_t budget = {.limit = BUDGET_OF_A_STRANGER};
    tmsg_schema_store_t *store;
    tmsg_schema_table_t *table;

    must(tmsg_schema_store_create(SLOTS_OF_A_STRANGER, &budget, &store));
    must(tmsg_schema_table_create(SLOTS_OF_A_STRANGER, &budget, &table));
    while (script->at < script->end) {
        size_t bytes = take(script);
        size_t left = (size_t)(script->end - script->at);
        uint8_t *body;

        bytes = bytes < left ? bytes : left;
        body = calloc(1, bytes + 1);
        must_true(body != NULL);
        memcpy(body, script->at, bytes);
        script->at += bytes;
        receive(store, &limits, body, bytes);
        must_be(tmsg_schema_table_answered(table, body[0], 0, true),
                TMSG_ERR_MALFORMED);
        must_true(budget.used <= budget.limit && budget.pending == 0);
        free(body);
    }
    tmsg_schema_table_destroy(table);
    tmsg_schema_store_destroy(store);
    must_eq(budget.used, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    script_t script = {data, data + size};

    if (take(&script) % 2 == 0) {
        play_pair(&script);
    } else {
        play_stranger(&script);
    }
    return 0;
}
