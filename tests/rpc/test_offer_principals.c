/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers for some principals: who may fetch, see and choose among them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rpc/offer.h"
#include "support/offers.h"
#include "support/seeded_maps.h"

/* Who fetches has proved a key. */
static void play_as(const char *name, void (*rows)(pair_t *pair))
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};
    side_options_t options = {.keyring = NULL};

    must(tmsg_keyring_create(&options.keyring));
    must(tmsg_keyring_add(options.keyring, name, key));
    play_on_each(rows, &options);
    tmsg_keyring_destroy(options.keyring);
}

/* What b is told of a's names. */
static char *listed(pair_t *pair)
{
    tmsg_call_t *call;
    char *json;

    must(tmsg_endpoint_call(pair->to_a, "tensormsg.offers", NULL, NULL, &call));
    finish(pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    must(tmsg_map_to_json(tmsg_call_reply(call), &json));
    tmsg_call_destroy(call);
    return json;
}

static void for_some_principals(pair_t *pair)
{
    const char *const names[] = {"alice", "bob alice", "*", "bob"};

    for (int i = 0; i < 4; i++) {
        const tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_PRINCIPALS | TMSG_OFFER_PARAM_NAME,
            .name = "secret",
            .principals = names[i]};
        tmsg_offer_key_t key;
        heard_t heard;
        char *json;

        offer(pair, &heard, sample_bytes(1, 100), &params);
        key = key_of(&heard);
        json = listed(pair);
        if (i < 3) {
            brings(pair, start(pair, &key, NULL), 1, 100);
            must_eq(version_of(pair, start_name(pair, "secret", 0, 0)), 0);
            must_say(json, "offer/secret");
        } else {
            fails(pair, start(pair, &key, NULL), TMSG_ERR_REFUSED,
                  "the offer is for other principals");
            fails(pair, start_name(pair, "secret", 9, 0), TMSG_ERR_NOT_FOUND,
                  "the offer 'secret' was withdrawn"); /* one for everybody */
            must_true(strstr(json, "secret") == NULL);
        }
        tmsg_string_free(json);
        withdraw(&heard);
    }
}

Test(offer_principals, may_be_for_some_principals)
{
    play_as("alice", for_some_principals);
}

/* Why an offer ended is said to those who could fetch it, of that which ended
 * last. */
static void ended_for_the_asker(pair_t *pair)
{
    static const struct {
        const char *principals;
        bool expires, seen;
    } rows[] = {
        {"bob", false, false},       {"bob alice", true, true},
        {"alice", false, true},      {"bob", true, false},
        {NULL, true, true},          {"* alice", false, true},
        {"alice alice", true, true}, {"bob", false, false},
    };
    const char *words = "no offer 'it', and never was one";

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_PRINCIPALS | TMSG_OFFER_PARAM_NAME,
            .name = "it",
            .principals = rows[i].principals};
        heard_t heard;

        if (rows[i].expires) {
            params.field_mask |= TMSG_OFFER_PARAM_TTL;
            params.ttl_ms = 1;
        }
        offer(pair, &heard, sample_bytes(1, 10), &params);
        if (rows[i].expires) {
            pair_await(pair, is_released, &heard, "its time to be up");
            tmsg_offer_destroy(heard.offer);
        } else {
            withdraw(&heard);
        }
        words = !rows[i].seen     ? words
                : rows[i].expires ? "the offer 'it' has expired"
                                  : "the offer 'it' was withdrawn";
        fails(pair, start_name(pair, "it", 0, 0), TMSG_ERR_NOT_FOUND, words);
    }
}

Test(offer_principals, hear_why_offers_ended_that_were_for_them)
{
    play_as("alice", ended_for_the_asker);
}

static void offer_for(pair_t *pair, heard_t *heard, const char *principals,
                      uint64_t version)
{
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_PRINCIPALS | TMSG_OFFER_PARAM_NAME |
                      TMSG_OFFER_PARAM_VERSION,
        .name = "mine",
        .version = version,
        .principals = principals};

    offer(pair, heard, sample_bytes(version, 100), &params);
}

/* Who may not fetch a version hears and sees nothing of it. */
static void chosen_for_the_asker(pair_t *pair)
{
    heard_t bobs[3], ours[4];
    tmsg_call_t *call;
    char *json;

    offer_for(pair, &bobs[0], "bob", 9);
    fails(pair, start_name(pair, "mine", 0, 0), TMSG_ERR_NOT_FOUND,
          "no offer 'mine', and never was one");
    call = start_name(pair, "mine", 0, -1);
    pair_await(pair, waits, pair, "a fetch that waits");
    offer_for(pair, &bobs[1], "bob", 7);
    offer_for(pair, &ours[0], "alice bob", 4);
    must_eq(version_of(pair, call), 4);
    offer_for(pair, &bobs[2], "bob", 5);
    offer_for(pair, &ours[1], NULL, 3);
    offer_for(pair, &ours[2], "bob alice bob alice", 2);
    offer_for(pair, &ours[3], "alice *", 1);
    must_eq(version_of(pair, start_name(pair, "mine", 4, 0)), 4);
    fails(pair, start_name(pair, "mine", 5, 0), TMSG_ERR_NOT_FOUND,
          "'mine' has version 4, and not yet 5");
    json = listed(pair);
    must_say(json, "\\\"version\\\":4,");
    must_say(json, "\\\"offers\\\":4}");
    tmsg_string_free(json);
    for (int i = 0; i < 4; i++) {
        must_eq(version_of(pair, start_name(pair, "mine", 0, 0)), 4 - i);
        withdraw(&ours[i]);
    }
    for (int i = 0; i < 3; i++) {
        withdraw(&bobs[i]);
    }
    fails(pair, start_name(pair, "mine", 0, 0), TMSG_ERR_NOT_FOUND,
          "the offer 'mine' was withdrawn"); /* ours */
}

Test(offer_principals, are_chosen_among_those_for_the_asker)
{
    play_as("alice", chosen_for_the_asker);
}

/* Seconds of this thread, which is both sides, for fetches that find nothing.
 */
static double cost_of_fetches(pair_t *pair, const char *name)
{
    double least = 1e9;

    for (int i = 0; i < 5; i++) {
        struct timespec from, to;
        double cost;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int j = 0; j < 20; j++) {
            fails(pair, start_name(pair, name, 0, 0), TMSG_ERR_NOT_FOUND,
                  "no offer");
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        cost = (double)(to.tv_sec - from.tv_sec) +
               1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        least = cost < least ? cost : least;
    }
    return least;
}

/* Versions for others cost the owner no time where somebody asks who may not
 * fetch them, be they for one or for many. */
static void many_for_others(pair_t *pair)
{
    enum { MANY = 20000 };
    static tmsg_offer_t *offers[MANY];
    char several[40];
    tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_PRINCIPALS |
                                                TMSG_OFFER_PARAM_NAME |
                                                TMSG_OFFER_PARAM_VERSION};
    tmsg_map_t *map = sample_bytes(1, 10);
    double nothing;

    for (int i = 0; i < MANY; i++) {
        snprintf(several, sizeof(several), "bob%d carol", i);
        params.name = i % 2 == 0 ? "for bob" : "for many";
        params.principals = i % 2 == 0 ? "bob" : several;
        params.version = (uint64_t)i;
        must(tmsg_offer_create(pair->a.worker, map, &params, &offers[i]));
    }
    nothing = cost_of_fetches(pair, "for nobody");
    must_true(cost_of_fetches(pair, "for bob") < 8 * nothing);
    must_true(cost_of_fetches(pair, "for many") < 8 * nothing);
    for (int i = 0; i < MANY; i++) {
        tmsg_offer_destroy(offers[i]);
    }
    tmsg_map_destroy(map);
}

Test(offer_principals, for_others_cost_no_time)
{
    play_as("alice", many_for_others);
}

enum { WAITS = 20 };

static bool all_wait(void *offers)
{
    return ((tmsg_offers_t *)offers)->waiting == WAITS;
}

/* An offer wakes no fetch of those who may not have it, and no words are made
 * for a fetch that goes on to wait. */
static void waits_of_others(pair_t *pair)
{
    tmsg_call_t *calls[WAITS];
    heard_t bobs[2], ours;
    tmsg_offers_t *offers;

    offer_for(pair, &bobs[0], "bob", 1);
    offers = bobs[0].offer->hub->offers;
    for (int i = 0; i < WAITS; i++) {
        calls[i] = start_name(pair, "mine", 0, 1000000);
    }
    pair_await(pair, all_wait, offers, "all to wait");
    must_true(strstr(tmsg_error_message(), "no offer") == NULL);
    offer_for(pair, &bobs[1], "bob carol", 2);
    must_eq(offers->waiting, WAITS);
    offer_for(pair, &ours, "bob alice", 3);
    must_eq(offers->waiting, 0);
    for (int i = 0; i < WAITS; i++) {
        must_eq(version_of(pair, calls[i]), 3);
    }
    withdraw(&bobs[0]);
    withdraw(&bobs[1]);
    withdraw(&ours);
}

Test(offer_principals, wake_those_who_wait_and_may_have_them)
{
    play_as("alice", waits_of_others);
}
