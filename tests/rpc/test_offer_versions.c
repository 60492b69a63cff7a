/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions of a name, and what is remembered of offers that are over. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/offers.h"
#include "support/seeded_maps.h"

static tmsg_call_t *start_epoch(pair_t *pair, uint64_t epoch, uint64_t at_least)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_EPOCH,
                                        .epoch = epoch};
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch_name(pair->to_a, "w", at_least, &params, &call));
    return call;
}

static void versions(pair_t *pair)
{
    heard_t one, two, three;
    int64_t epoch;
    tmsg_call_t *call;

    offer_named(pair, &one, sample_bytes(1, 10), "w", 1);
    offer_named(pair, &two, sample_bytes(2, 10), "w", 2);
    must_eq(version_of(pair, start_name(pair, "w", 0, 0)), 2);
    must_eq(version_of(pair, start_name(pair, "w", 1, 0)), 2);
    fails(pair, start_name(pair, "w", 3, 0), TMSG_ERR_NOT_FOUND,
          "'w' has version 2, and not yet 3");

    call = finish(pair, start_name(pair, "w", 0, 0));
    must(
        tmsg_map_get_i64(tmsg_call_reply(call), TMSG_META_OFFER_EPOCH, &epoch));
    tmsg_call_destroy(call);
    must_eq(version_of(pair, start_epoch(pair, (uint64_t)epoch, 2)), 2);
    fails(pair, start_epoch(pair, (uint64_t)epoch, 100), TMSG_ERR_NOT_FOUND,
          "not yet 100");
    /* Of a dead owner: nobody waits for what cannot come. */
    must_eq(version_of(pair, start_epoch(pair, (uint64_t)epoch - 1, 100)), 2);

    call = start_name(pair, "w", 3, -1);
    pair_await(pair, waits, pair, "a fetch that waits");
    withdraw(&two);
    must_eq(version_of(pair, start_name(pair, "w", 0, 0)), 1);
    offer_named(pair, &three, sample_bytes(3, 10), "w", 3);
    must_eq(version_of(pair, call), 3);
    withdraw(&one);
    withdraw(&three);
}

Test(offer_versions, by_each_way) { play_on_each(versions, NULL); }

/* Why the last 1024 ended is remembered, whenever they were made. */
Test(offer_versions, that_ended_last_are_remembered)
{
    static pair_t pair;
    heard_t oldest, other, live;
    tmsg_offer_key_t key, first;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    offer_named(&pair, &oldest, sample_bytes(1, 10), "w", 1);
    key = key_of(&oldest);
    for (uint64_t i = 0; i < 1100; i++) {
        offer_named(&pair, &other, sample_bytes(1, 10), "w", i + 2);
        if (i == 0) {
            first = key_of(&other);
        }
        withdraw(&other);
    }
    withdraw(&oldest);
    fails_key(&pair, key, "the offer was withdrawn");
    fails_key(&pair, first, "the offer is over, or never existed");
    /* Who guesses hears nothing of what is there, or was. */
    offer(&pair, &live, sample_bytes(1, 10), NULL);
    key = key_of(&live);
    key.bytes[47] ^= 1;
    for (unsigned number = 0; number <= 1103; number++) {
        key.bytes[24] = (uint8_t)number;
        key.bytes[25] = (uint8_t)(number >> 8);
        fails_key(&pair, key, "the offer is over, or never existed");
    }
    withdraw(&live);
    pair_close(&pair);
}

#define VERSIONS 300

static void expect_newest(pair_t *pair, tmsg_offer_t *const *offers)
{
    int64_t newest = VERSIONS - 1;

    while (newest >= 0 && (offers[newest] == NULL || newest % 3 == 0)) {
        newest--;
    }
    if (newest >= 0) {
        must_eq(version_of(pair, start_name(pair, "w", 0, 0)), newest);
    } else {
        fails(pair, start_name(pair, "w", 0, 0), TMSG_ERR_NOT_FOUND, "");
    }
}

Test(offer_versions, the_newest_of_many_versions_is_found_whatever_goes)
{
    tmsg_offer_t *offers[VERSIONS] = {NULL};
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME |
                                                TMSG_OFFER_PARAM_VERSION |
                                                TMSG_OFFER_PARAM_PRINCIPALS,
                                  .name = "w"};
    uint64_t seed = 11;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 4 * VERSIONS; i++) {
        /* More come than go at first, later the other way round. */
        bool comes = i < 2 * VERSIONS ? i % 3 > 0 : i % 3 == 0;
        tmsg_offer_t **place;

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        params.version = (seed >> 33) % VERSIONS;
        params.principals = params.version % 3 == 0 ? "bob carol" : NULL;
        place = &offers[params.version];
        if (comes && *place != NULL) {
            tmsg_offer_t *again;

            must_be(tmsg_offer_create(pair.a.worker, map, &params, &again),
                    TMSG_ERR_ALREADY_EXISTS);
        } else if (comes) {
            must(tmsg_offer_create(pair.a.worker, map, &params, place));
        } else {
            tmsg_offer_destroy(*place);
            *place = NULL;
        }
        expect_newest(&pair, offers);
    }
    for (int i = VERSIONS - 1; i >= 0; i--) {
        tmsg_offer_destroy(offers[i]);
        offers[i] = NULL;
        expect_newest(&pair, offers);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}
