/* SPDX-License-Identifier: BSD-3-Clause */
/* What many offers, and many fetches that wait, cost and take. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/builtin.h"
#include "rpc/offer.h"
#include "support/offers.h"
#include "support/seeded_maps.h"

/* A deadline is put among others in order: those of offers and of waits, which
 * may be many and lie far ahead, are not among them. */
Test(offer_limits, calls_pass_by_no_lifetimes)
{
    enum { OFFERS = 1000 };
    tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_TTL};
    const tmsg_fetch_params_t patient = {.field_mask = TMSG_FETCH_PARAM_WAIT |
                                                       TMSG_FETCH_PARAM_TIMEOUT,
                                         .wait_ms = 3600000,
                                         .timeout_ms = 3600000};
    static tmsg_offer_t *offers[OFFERS];
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_call_t *call;
    tmsg_hub_t *hub;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < OFFERS; i++) {
        /* Every other one ends soon. */
        params.ttl_ms = i % 2 == 0 ? 1 + i * 37 % 20 : 3600000 + i;
        must(tmsg_offer_create(pair.a.worker, map, &params, &offers[i]));
    }
    must(tmsg_endpoint_fetch_name(pair.to_a, "w", 0, &patient, &call));
    pair_await(&pair, waits, &pair, "a fetch that waits");
    hub = offers[0]->hub;
    must_eq(hub->deadlines.count, 0);
    while (told(&pair, "offers") > OFFERS / 2) {
        tmsg_worker_wait(pair.a.worker, 1);
    }
    for (int i = 0; i < OFFERS; i++) {
        must_eq(offers[i]->over, i % 2 == 0);
        tmsg_offer_destroy(offers[i]);
    }
    must_eq(told(&pair, "offers"), 0);
    tmsg_call_cancel(call);
    finish(&pair, call);
    tmsg_call_destroy(call);
    pair_await(&pair, none_waits, &pair, "nobody to wait");
    must_true(hub->lifetimes.least == NULL);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

typedef struct {
    pair_t pair;
    tmsg_call_t *call;
} hurried_t;

static bool waits_or_ended(void *arg)
{
    hurried_t *hurried = arg;

    return waits(&hurried->pair) || has_ended(hurried->call);
}

/* A fetch that waits ends at its deadline also where its caller says nothing.
 */
Test(offer_limits, of_time_end_fetches_that_wait)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_WAIT |
                                                      TMSG_FETCH_PARAM_TIMEOUT,
                                        .wait_ms = -1,
                                        .timeout_ms = 200};
    static hurried_t hurried;
    pair_t *pair = &hurried.pair;

    pair_open(pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_fetch_name(pair->to_a, "w", 0, &params, &hurried.call));
    pair_await(pair, waits_or_ended, &hurried, "a fetch that waits");
    for (int i = 0; i < PEERS_BOUND_MS && !none_waits(pair); i++) {
        tmsg_worker_wait(pair->a.worker, 1);
    }
    must_true(none_waits(pair));
    finish(pair, hurried.call);
    must_be(tmsg_call_status(hurried.call), TMSG_ERR_TIMED_OUT);
    tmsg_call_destroy(hurried.call);
    pair_close(pair);
}

enum { DIMENSIONS = 64 };

/* Starts a fetch by name that waits, with so many slices. It takes a place for
 * each 16 KiB of them, which have 1293 bytes each, and one more. */
static tmsg_call_t *ask_with_slices(tmsg_endpoint_t *endpoint, uint32_t count)
{
    static const int64_t zeros[DIMENSIONS];
    tmsg_slice_t *slices = calloc(count, sizeof(*slices));
    char(*names)[12] = calloc(count, sizeof(*names));
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES |
                                                      TMSG_FETCH_PARAM_WAIT,
                                        .slices = slices,
                                        .slice_count = count,
                                        .wait_ms = -1};
    tmsg_call_t *call;

    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%06u", i);
        slices[i] = (tmsg_slice_t){.name = "w",
                                   .as = names[i],
                                   .ndim = DIMENSIONS,
                                   .start = zeros,
                                   .count = zeros};
    }
    must(tmsg_endpoint_fetch_name(endpoint, "w", 0, &params, &call));
    free(names);
    free(slices);
    return call;
}

static bool all_wait(void *pair)
{
    return told(pair, "waiting_fetches") == 100;
}

/* Those that wait make way for a fetch only if it gets enough room by that. */
Test(offer_limits, no_fetch_is_pushed_out_in_vain)
{
    /* Four connections take all places; the last of each takes 1000. */
    enum { PEERS = 4, SMALL = 24, EACH = SMALL + 1, SLICES = 12670 };
    static tmsg_call_t *calls[PEERS * EACH];
    tmsg_call_t **call = calls;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    /* More than one connection may ever have. */
    fails(&pair, ask_with_slices(pair.to_a, 14000), TMSG_ERR_INVALID_PARAM,
          "its slices are too many to wait");
    for (int i = 0; i < PEERS; i++) {
        const tmsg_fetch_params_t waits = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                           .wait_ms = -1};
        tmsg_endpoint_t *peer = side_dial(&pair.b, &pair.a);

        for (int j = 0; j < SMALL; j++) {
            must(tmsg_endpoint_fetch_name(peer, "w", 0, &waits, call++));
        }
        *call++ = ask_with_slices(peer, SLICES);
    }
    pair_await(&pair, all_wait, &pair, "all to wait");
    fails(&pair, ask_with_slices(pair.to_a, SLICES),
          TMSG_ERR_RESOURCE_EXHAUSTED, "as many fetches wait as may");
    must_true(all_wait(&pair));
    for (call = calls; call < calls + PEERS * EACH; call++) {
        must_true(!has_ended(*call));
        tmsg_call_cancel(*call);
        tmsg_call_destroy(*call);
    }
    pair_await(&pair, none_waits, &pair, "nobody to wait");
    pair_close(&pair);
}

/* The list has so many names, and says whether there are more. */
Test(offer_limits, the_list_says_whether_there_are_more)
{
    static tmsg_offer_t *offers[TMSG_LIST_MOST + 1];
    const side_options_t threaded = {.drive = DRIVE_THREAD};
    tmsg_map_t *map = sample_bytes(1, 10);
    char name[16], *json;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_THREAD, &threaded, NULL);
    for (int i = 0; i <= TMSG_LIST_MOST; i++) {
        const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                            .name = name};

        snprintf(name, sizeof(name), "%d", i);
        must(tmsg_offer_create(pair.a.worker, map, &params, &offers[i]));
    }
    must(tmsg_endpoint_offers(pair.to_a, PEERS_BOUND_MS, &json));
    must_say(json, "true");
    tmsg_string_free(json);
    tmsg_offer_destroy(offers[0]);
    must(tmsg_endpoint_offers(pair.to_a, PEERS_BOUND_MS, &json));
    must_say(json, "false");
    must_say(json, "\"4096\"");
    tmsg_string_free(json);
    for (int i = 1; i <= TMSG_LIST_MOST; i++) {
        tmsg_offer_destroy(offers[i]);
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}

static void never_called(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)task;
    abort();
}

typedef struct {
    tmsg_call_t *calls[100];
    unsigned ended, refused;
} asked_t;

static bool all_ended(void *arg)
{
    asked_t *asked = arg;

    while (asked->ended < 100 && has_ended(asked->calls[asked->ended])) {
        asked->refused +=
            tmsg_call_status(asked->calls[asked->ended]) != TMSG_OK;
        asked->ended++;
    }
    return asked->ended == 100;
}

/* Asks for 100 lists at once. */
static void ask_for_lists(pair_t *pair, const char *method)
{
    asked_t asked = {.ended = 0};

    for (int i = 0; i < 100; i++) {
        must(tmsg_endpoint_call(pair->to_a, method, NULL, NULL,
                                &asked.calls[i]));
    }
    pair_await(pair, all_ended, &asked, "the lists");
    must_true(asked.refused > 0);
    for (int i = 0; i < 100; i++) {
        if (tmsg_call_status(asked.calls[i]) != TMSG_OK) {
            must_be(tmsg_call_status(asked.calls[i]),
                    TMSG_ERR_RESOURCE_EXHAUSTED);
            must_say(tmsg_call_error(asked.calls[i]), "lists are on their way");
        }
        tmsg_call_destroy(asked.calls[i]);
    }
    printf("%s: %u of 100 refused\n", method, asked.refused);
}

static tmsg_call_t *ask_for_list(const pair_t *pair)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "tensormsg.offers", NULL, NULL, &call));
    return call;
}

/* Lists that are given up on their way take no room for long. */
static void give_lists_up(pair_t *pair)
{
    unsigned free_places = 0;

    for (int i = 0; i < 10; i++) {
        tmsg_call_t *call = ask_for_list(pair);

        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
        tmsg_call_destroy(call);
    }
    for (int i = 0; i < 10000 && free_places < TMSG_LISTS_MOST; i++) {
        tmsg_call_t *calls[TMSG_LISTS_MOST];

        for (int j = 0; j < TMSG_LISTS_MOST; j++) {
            calls[j] = ask_for_list(pair);
        }
        free_places = 0;
        for (int j = 0; j < TMSG_LISTS_MOST; j++) {
            finish(pair, calls[j]);
            free_places += tmsg_call_status(calls[j]) == TMSG_OK;
            tmsg_call_destroy(calls[j]);
        }
    }
    must_eq(free_places, TMSG_LISTS_MOST);
}

/* A list costs more than to ask for it. */
static void lists_at_once(pair_t *pair)
{
    enum { NAMES = 1000, METHODS = 200 };
    static tmsg_offer_t *offers[NAMES];
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_server_t *server;
    char name[200];

    for (int i = 0; i < NAMES; i++) {
        const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                            .name = name};

        snprintf(name, sizeof(name), "%0190d", i);
        must(tmsg_offer_create(pair->a.worker, map, &params, &offers[i]));
    }
    must(tmsg_server_create(pair->a.worker, NULL, &server));
    for (int i = 0; i < METHODS; i++) {
        snprintf(name, sizeof(name), "%0120d", i);
        must(tmsg_server_register(server, name, never_called, NULL, NULL));
    }
    for (int i = 0; i < 2; i++) {
        ask_for_lists(pair, "tensormsg.offers");
        ask_for_lists(pair, "tensormsg.methods");
        give_lists_up(pair);
    }
    tmsg_server_destroy(server);
    for (int i = 0; i < NAMES; i++) {
        tmsg_offer_destroy(offers[i]);
    }
    tmsg_map_destroy(map);
}

Test(offer_limits, few_lists_go_to_a_peer_at_a_time)
{
    play_on_each(lists_at_once, NULL);
}

/* Each peer may have so many fetches wait. */
static void too_many_of_one(pair_t *pair)
{
    enum { MANY = TMSG_FETCHES_WAITING / 4 + 10 };
    static tmsg_call_t *calls[MANY];
    unsigned refused = 0;
    heard_t heard;

    for (int i = 0; i < MANY; i++) {
        calls[i] = start_name(pair, "w", 0, -1);
        if (i % 64 == 0) {
            tmsg_worker_progress(pair->a.worker);
            tmsg_worker_progress(pair->b.worker);
        }
    }
    finish(pair, calls[MANY - 1]);
    must_be(tmsg_call_status(calls[MANY - 1]), TMSG_ERR_RESOURCE_EXHAUSTED);
    must_say(tmsg_call_error(calls[MANY - 1]), "as many fetches wait as may");
    offer_named(pair, &heard, sample_bytes(1, 10), "w", 0);
    for (int i = 0; i < MANY; i++) {
        finish(pair, calls[i]);
        refused += tmsg_call_status(calls[i]) != TMSG_OK;
        tmsg_call_destroy(calls[i]);
    }
    must_eq(refused, 10);
    pair_await(pair, none_waits, pair, "nobody to wait");
    withdraw(&heard);
}

Test(offer_limits, bound_the_fetches_that_wait)
{
    play_on_each(too_many_of_one, NULL);
}

typedef struct {
    tmsg_call_t *calls[TMSG_FETCHES_WAITING];
    unsigned refused;
} crowd_t;

static bool one_is_refused(void *arg)
{
    crowd_t *crowd = arg;

    crowd->refused = 0;
    for (int i = 0; i < TMSG_FETCHES_WAITING; i++) {
        if (has_ended(crowd->calls[i])) {
            must_be(tmsg_call_status(crowd->calls[i]),
                    TMSG_ERR_RESOURCE_EXHAUSTED);
            must_say(tmsg_call_error(crowd->calls[i]),
                     "most of the fetches that wait are of this connection");
            crowd->refused++;
        }
    }
    return crowd->refused > 0;
}

/* Four connections that take all places leave some to a fifth. */
static void too_many_of_several(pair_t *pair)
{
    enum { PEERS = 4, EACH = TMSG_FETCHES_WAITING / PEERS };
    static crowd_t crowd;
    tmsg_endpoint_t *peers[PEERS];
    tmsg_call_t *call;
    heard_t heard;

    for (int i = 0; i < PEERS; i++) {
        const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                            .wait_ms = -1};

        peers[i] = side_dial(&pair->b, &pair->a);
        for (int j = 0; j < EACH; j++) {
            must(tmsg_endpoint_fetch_name(peers[i], "w", 0, &params,
                                          &crowd.calls[i * EACH + j]));
            if (j % 64 == 0) {
                tmsg_worker_progress(pair->a.worker);
                tmsg_worker_progress(pair->b.worker);
            }
        }
        must(tmsg_endpoint_fetch_name(peers[i], "x", 0, NULL, &call));
        fails(pair, call, TMSG_ERR_NOT_FOUND, "no offer 'x'");
    }
    call = start_name(pair, "w", 0, -1);
    pair_await(pair, one_is_refused, &crowd, "one to make way");
    must_eq(crowd.refused, 1);
    must_true(!has_ended(call));
    offer_named(pair, &heard, sample_bytes(1, 10), "w", 0);
    must_eq(version_of(pair, call), 0);
    for (int i = 0; i < TMSG_FETCHES_WAITING; i++) {
        finish(pair, crowd.calls[i]);
        tmsg_call_destroy(crowd.calls[i]);
    }
    pair_await(pair, none_waits, pair, "nobody to wait");
    withdraw(&heard);
}

Test(offer_limits, let_the_fetches_of_each_peer_wait)
{
    play_on_each(too_many_of_several, NULL);
}

/* Reads a figure of a description. */
static long long figure_of(const char *json, const char *key)
{
    char quoted[40];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(json, quoted);
    must_true(at != NULL);
    return strtoll(at + strlen(quoted), NULL, 10);
}

static void expect_lent(const side_t *side, long long offers, long long lent)
{
    char *json;

    must(tmsg_worker_describe(side->worker, &json));
    must_eq(figure_of(json, "offers"), offers);
    must_eq(figure_of(json, "lent_bytes"), lent);
    tmsg_string_free(json);
    must(tmsg_listener_describe(side->listener, &json));
    must_eq(figure_of(json, "offers"), offers);
    must_eq(figure_of(json, "lent_bytes"), lent);
    must_eq(figure_of(json, "fetches"), 0);
    tmsg_string_free(json);
}

Test(offer_limits, of_one_worker_lend_no_more_than_its_limit)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_LENT_BYTES, .lent_bytes = 1000}};
    tmsg_map_t *map = sample_bytes(1, 400);
    tmsg_offer_t *one, *two, *three;
    side_t side;

    side_open(&side, &options);
    side_listen(&side, "tcp://127.0.0.1:0");
    must(tmsg_offer_create(side.worker, map, NULL, &one));
    must(tmsg_offer_create(side.worker, map, NULL, &two));
    expect_lent(&side, 2, 800);
    must_be(tmsg_offer_create(side.worker, map, NULL, &three),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(),
             "400 bytes, 800 are lent already, the worker may lend 1000 (its "
             "limit lent_bytes)");
    must(tmsg_offer_withdraw(one, 0));
    expect_lent(&side, 1, 400);
    must(tmsg_offer_create(side.worker, map, NULL, &three));
    expect_lent(&side, 2, 800);
    tmsg_offer_destroy(two);
    tmsg_offer_destroy(three);
    expect_lent(&side, 0, 0);
    tmsg_offer_destroy(one);
    side_close(&side);
    tmsg_map_destroy(map);
}

static long long held(const side_t *side)
{
    long long bytes;
    char *json;

    must(tmsg_worker_describe(side->worker, &json));
    bytes = figure_of(json, "held_bytes");
    tmsg_string_free(json);
    return bytes;
}

Test(offer_limits, give_a_fetcher_maps_that_it_gives_back_in_part)
{
    const sample_t sample = {.seed = 3,
                             .tensors = 4,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .elements = 6000000};
    tmsg_offer_key_t key;
    tmsg_call_t *call;
    long long before, given = 0;
    heard_t heard;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    offer(&pair, &heard, sample_make(&sample), NULL);
    key = key_of(&heard);
    call = start(&pair, &key, NULL);
    must_be(tmsg_call_give_back(call, 0), TMSG_ERR_INVALID_PARAM);
    finish(&pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    sample_check(&sample, tmsg_call_reply(call));
    before = held(&pair.b);
    for (size_t i = 1; i < 3; i++) {
        tmsg_tensor_t tensor;
        uint64_t bytes;

        must(tmsg_map_at(tmsg_call_reply(call), i, NULL, &tensor));
        must(tmsg_tensor_bytes(&tensor, &bytes));
        must(tmsg_call_give_back(call, i));
        given += (long long)bytes;
        must_true(before - held(&pair.b) >= given - 8192);
    }
    must_be(tmsg_call_give_back(call, 4), TMSG_ERR_NOT_FOUND);
    tmsg_call_destroy(call);
    withdraw(&heard);
    pair_close(&pair);
}

Test(offer_limits, of_one_worker_are_65536_at_most)
{
    static tmsg_offer_t *offers[TMSG_OFFERS_MOST];
    tmsg_offer_t *more = NULL;
    tmsg_map_t *map = sample_bytes(1, 10);
    side_t side;

    side_open(&side, NULL);
    for (int i = 0; i < TMSG_OFFERS_MOST; i++) {
        must(tmsg_offer_create(side.worker, map, NULL, &offers[i]));
    }
    must_be(tmsg_offer_create(side.worker, map, NULL, &more),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "65536");
    must(tmsg_offer_withdraw(offers[7], 0));
    must(tmsg_offer_create(side.worker, map, NULL, &more));
    side_close(&side);
    for (int i = 0; i < TMSG_OFFERS_MOST; i++) {
        tmsg_offer_destroy(offers[i]);
    }
    tmsg_offer_destroy(more);
    tmsg_map_destroy(map);
}
