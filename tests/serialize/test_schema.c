/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_schema_tools.h"

#include <tensormsg/meta.h>

#include "serialize/schema_struct.h"
#include "support/seeded_maps.h"

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
