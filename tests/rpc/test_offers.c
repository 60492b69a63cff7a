/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers: every row of the table "How a fetch ends" of
 * docs/reference/offers.md, over TCP, shared memory, a blob and through a
 * session, and what offers have as calls. The rows of processes that die or are
 * stopped: test_offer_lives.c; of slices, versions, principals and limits:
 * files of these names. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/builtin.h"
#include "rpc/method.h"
#include "rpc/offer.h"
#include "support/offers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define LARGE 6000000

static bool stats_are_of(void *arg)
{
    const heard_t *heard = arg;
    tmsg_offer_stats_t stats;

    tmsg_offer_stats(heard->offer, &stats);
    return stats.fetches == 3 && stats.under_way == 0;
}

static void whole_maps(pair_t *pair)
{
    static const size_t sizes[] = {64, 70000, LARGE};
    const sample_t mixed = {.seed = 7, .tensors = 20};
    tmsg_offer_stats_t stats;
    heard_t heard;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tmsg_offer_key_t key;

        offer(pair, &heard, sample_bytes(i, sizes[i]), NULL);
        key = key_of(&heard);
        for (int j = 0; j < 3; j++) {
            brings(pair, start(pair, &key, NULL), i, sizes[i]);
        }
        pair_await(pair, stats_are_of, &heard, "its fetches to end");
        tmsg_offer_stats(heard.offer, &stats);
        must_eq(stats.bytes, 3 * sizes[i]);
        must_eq(stats.failed, 0);
        must_eq(heard.overs, 0);
        withdraw(&heard);
    }
    offer(pair, &heard, sample_make(&mixed), NULL);
    {
        tmsg_offer_key_t key = key_of(&heard);
        tmsg_call_t *call = finish(pair, start(pair, &key, NULL));

        must_be(tmsg_call_status(call), TMSG_OK);
        sample_check(&mixed, tmsg_call_reply(call));
        tmsg_call_destroy(call);
    }
    withdraw(&heard);
}

static void those_not_there(pair_t *pair)
{
    const tmsg_offer_params_t short_lived = {
        .field_mask = TMSG_OFFER_PARAM_TTL | TMSG_OFFER_PARAM_NAME,
        .name = "short",
        .ttl_ms = 1};
    const tmsg_offer_params_t few = {.field_mask = TMSG_OFFER_PARAM_FETCHES,
                                     .fetches = 2};
    tmsg_offer_key_t key, forged;
    tmsg_offer_t *other;
    tmsg_map_t *map;
    heard_t heard;

    fails(pair, start_name(pair, "nothing", 0, 0), TMSG_ERR_NOT_FOUND,
          "no offer 'nothing', and never was one");

    offer_named(pair, &heard, sample_bytes(1, 100), "gone", 0);
    key = forged = key_of(&heard);
    forged.bytes[24] ^= 0x40; /* its number */
    fails_key(pair, forged, "there never was such an offer");
    forged = key;
    forged.bytes[47] ^= 1;
    fails_key(pair, forged, "there never was such an offer");
    withdraw(&heard);
    fails_key(pair, key, "the offer was withdrawn");
    fails_key(pair, forged, "there never was such an offer");
    fails(pair, start_name(pair, "gone", 0, 0), TMSG_ERR_NOT_FOUND,
          "the offer 'gone' was withdrawn");

    offer(pair, &heard, sample_bytes(1, 100), &short_lived);
    key = key_of(&heard);
    pair_await(pair, is_released, &heard, "its time to be up");
    must_be(heard.status, TMSG_ERR_TIMED_OUT);
    fails_key(pair, key, "the offer has expired");
    fails(pair, start_name(pair, "short", 0, 0), TMSG_ERR_NOT_FOUND,
          "the offer 'short' has expired");
    tmsg_offer_destroy(heard.offer);

    offer(pair, &heard, sample_bytes(2, 100000), &few);
    key = key_of(&heard);
    brings(pair, start(pair, &key, NULL), 2, 100000);
    must_eq(heard.overs, 0);
    brings(pair, start(pair, &key, NULL), 2, 100000);
    pair_await(pair, is_released, &heard, "its fetches to be used up");
    must_be(heard.status, TMSG_OK);
    fails_key(pair, key, "the offer was fetched as often as it may be");
    tmsg_offer_destroy(heard.offer);

    map = sample_bytes(1, 100);
    must(tmsg_offer_create(pair->b.worker, map, NULL, &other));
    tmsg_offer_key(other, &key);
    fails_key(pair, key, "another run of this owner, or of another owner");
    tmsg_offer_destroy(other);
    tmsg_map_destroy(map);
}

static void those_not_yet_there(pair_t *pair)
{
    const tmsg_fetch_params_t hurried = {.field_mask = TMSG_FETCH_PARAM_WAIT |
                                                       TMSG_FETCH_PARAM_TIMEOUT,
                                         .wait_ms = -1,
                                         .timeout_ms = 20};
    tmsg_call_t *call;
    heard_t heard;

    call = start_name(pair, "soon", 0, 60000);
    pair_await(pair, waits, pair, "a fetch that waits");
    offer_named(pair, &heard, sample_bytes(3, 5000), "later", 0);
    must_true(waits(pair)); /* another name */
    withdraw(&heard);
    offer_named(pair, &heard, sample_bytes(3, 5000), "soon", 0);
    must_eq(version_of(pair, call), 0);
    withdraw(&heard);

    fails(pair, start_name(pair, "never", 0, 10), TMSG_ERR_NOT_FOUND,
          "no offer 'never'");
    must(tmsg_endpoint_fetch_name(pair->to_a, "never", 0, &hurried, &call));
    fails(pair, call, TMSG_ERR_TIMED_OUT,
          "no reply in 20 ms, fetching 'never'");
    must(tmsg_endpoint_fetch_name(pair->to_a, "never", 7, &hurried, &call));
    fails(pair, call, TMSG_ERR_TIMED_OUT,
          "no reply in 20 ms, fetching 'never', version 7 or higher");
    pair_await(pair, none_waits, pair, "nobody to wait");

    call = start_name(pair, "never", 0, -1);
    pair_await(pair, waits, pair, "a fetch that waits");
    tmsg_call_cancel(call);
    fails(pair, call, TMSG_ERR_CANCELED, "canceled");
    pair_await(pair, none_waits, pair, "nobody to wait");
}

/* A map of memory that stays the caller's. */
static tmsg_map_t *borrowing(void *data, size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

/* Withdraws an offer while it is fetched. The fetcher does not run meanwhile.
 * Returns whether its memory was free at once. The map is destroyed. */
static bool withdrawn_at_once(pair_t *pair, tmsg_map_t *map)
{
    tmsg_offer_key_t key;
    tmsg_status_t status;
    tmsg_call_t *call;
    heard_t heard;
    tmsg_offer_stats_t stats;

    offer(pair, &heard, map, NULL);
    key = key_of(&heard);
    call = start(pair, &key, NULL);
    do {
        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
        tmsg_offer_stats(heard.offer, &stats);
    } while (stats.under_way == 0 && !has_ended(call));
    status = tmsg_offer_withdraw(heard.offer, 0);
    must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
    must_eq(heard.overs, 1);
    must_be(heard.status, TMSG_ERR_CANCELED);
    tmsg_offer_stats(heard.offer, &stats);
    must_eq(stats.under_way, status != TMSG_OK);
    must_eq(heard.releases, status == TMSG_OK);
    fails(pair, call, TMSG_ERR_CANCELED, "the offer was withdrawn");
    pair_await(pair, is_released, &heard, "the memory to be free");
    fails_key(pair, key, "the offer was withdrawn");
    tmsg_offer_destroy(heard.offer);
    return status == TMSG_OK;
}

static void withdrawn_meanwhile(pair_t *pair)
{
    uint8_t *buffer = calloc(1, 8 * LARGE);
    tmsg_offer_stats_t stats;
    tmsg_offer_key_t key;
    tmsg_call_t *call;
    heard_t heard;

    /* Whoever owns the memory, it is lent as long. */
    must_eq(withdrawn_at_once(pair, borrowing(buffer, 8 * LARGE)),
            withdrawn_at_once(pair, sample_bytes(4, 8 * LARGE)));
    free(buffer);

    /* Where there is time the fetch ends well; an event loop does not wait. */
    offer(pair, &heard, sample_bytes(4, 100), NULL);
    must_be(tmsg_offer_end(heard.offer, -2), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "offer_end: timeout_ms is below -1");
    must(tmsg_offer_end(heard.offer, 1000));
    pair_await(pair, is_released, &heard, "the memory to be free");
    tmsg_offer_destroy(heard.offer);

    offer(pair, &heard, sample_bytes(4, LARGE), NULL);
    key = key_of(&heard);
    call = start(pair, &key, NULL);
    do {
        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
        tmsg_offer_stats(heard.offer, &stats);
    } while (stats.under_way == 0 && !has_ended(call));
    (void)tmsg_offer_withdraw(heard.offer, 1);
    must_eq(heard.overs, 1);
    finish(pair, call);
    if (tmsg_call_status(call) == TMSG_OK) {
        sample_check_bytes(4, LARGE, tmsg_call_reply(call));
    } else {
        must_be(tmsg_call_status(call), TMSG_ERR_CANCELED);
    }
    tmsg_call_destroy(call);
    pair_await(pair, is_released, &heard, "the memory to be free");
    tmsg_offer_destroy(heard.offer);
}

/* Answers a call as a fetch of the offer, which ends when the fetch is counted
 * and its answer not sent yet: another thread may do so. */
static void answer_after_its_end(void *arg, tmsg_task_t *task)
{
    tmsg_offer_t *made = ((heard_t *)arg)->offer;
    tmsg_lent_t *lent;

    tmsg_hub_lock(made->hub);
    lent = tmsg_lent_begin(made, task, true);
    tmsg_hub_unlock(made->hub);
    must_true(lent != NULL);
    must(tmsg_offer_end(made, 0));
    task->how.on_done = tmsg_lent_done;
    task->how.on_done_arg = lent;
    must(tmsg_task_reply(task, made->map, NULL));
    tmsg_lent_begun(lent, true);
}

Test(offers, give_up_a_fetch_that_is_withdrawn_before_its_answer)
{
    static pair_t pair;
    tmsg_server_t *server;
    tmsg_call_t *call;
    heard_t heard;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "after", answer_after_its_end, &heard,
                              NULL));
    offer(&pair, &heard, sample_bytes(4, LARGE), NULL);
    must(tmsg_endpoint_call(pair.to_a, "after", NULL, NULL, &call));
    fails(&pair, call, TMSG_ERR_CANCELED, "the offer was withdrawn");
    pair_await(&pair, is_released, &heard, "the memory to be free");
    tmsg_offer_destroy(heard.offer);
    tmsg_server_destroy(server);
    pair_close(&pair);
}

/* A fetcher that gives up sets the memory free. */
static void canceled_by_its_fetcher(pair_t *pair)
{
    tmsg_offer_key_t key;
    tmsg_call_t *call;
    heard_t heard;

    offer(pair, &heard, sample_bytes(4, 2 * LARGE), NULL);
    key = key_of(&heard);
    call = start(pair, &key, NULL);
    for (int i = 0; i < 50; i++) {
        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
    }
    tmsg_call_cancel(call);
    must_true(has_ended(call));
    tmsg_call_destroy(call);
    tmsg_offer_destroy(heard.offer);
    pair_await(pair, is_released, &heard, "the memory to be free");
}

/* A peer whose library has no such method, with a server and without. */
static void from_one_without_offers(pair_t *pair)
{
    tmsg_server_t *server;
    tmsg_method_t *method;
    tmsg_offer_key_t key;
    heard_t heard;

    offer(pair, &heard, sample_bytes(6, 100), NULL);
    key = key_of(&heard);
    method = tmsg_hub_method(heard.offer->hub, TMSG_OFFER_FETCH,
                             strlen(TMSG_OFFER_FETCH));
    method->name[0] = '?';
    fails(pair, start(pair, &key, NULL), TMSG_ERR_UNSUPPORTED,
          "nobody serves here");
    must(tmsg_server_create(pair->a.worker, NULL, &server));
    fails(pair, start(pair, &key, NULL), TMSG_ERR_UNSUPPORTED,
          "no such method here");
    tmsg_server_destroy(server);
    method->name[0] = TMSG_OFFER_FETCH[0];
    brings(pair, start(pair, &key, NULL), 6, 100);
    withdraw(&heard);
}

static void all_rows(pair_t *pair)
{
    whole_maps(pair);
    those_not_there(pair);
    those_not_yet_there(pair);
    canceled_by_its_fetcher(pair);
    withdrawn_meanwhile(pair);
    from_one_without_offers(pair);
}

Test(offers, over_tcp_shared_memory_a_blob_and_on_a_session)
{
    play_on_each(all_rows, NULL);
}

typedef struct {
    joined_t joined;
    tmsg_call_t *call;
    bool cut;
} broken_t;

static bool cut_and_ended(void *arg)
{
    broken_t *broken = arg;

    if (!broken->cut) {
        broken->cut = true;
        relay_cut(broken->joined.relay);
    }
    return has_ended(broken->call);
}

/* What was under way when the connection broke ends well with the next. */
Test(offers, through_a_connection_that_breaks)
{
    const how_t how = {.link = LINK_TCP};
    const tmsg_offer_params_t once = {.field_mask = TMSG_OFFER_PARAM_FETCHES,
                                      .fetches = 4};
    static broken_t broken;
    tmsg_offer_key_t key;
    heard_t heard;

    joined_open(&broken.joined, &how);
    offer(&broken.joined.pair, &heard, sample_bytes(5, LARGE), &once);
    key = key_of(&heard);
    for (int i = 0; i < 4; i++) {
        broken.call = start(&broken.joined.pair, &key, NULL);
        broken.cut = false;
        pair_await(&broken.joined.pair, cut_and_ended, &broken,
                   "the end of a fetch");
        brings(&broken.joined.pair, broken.call, 5, LARGE);
        pair_await(&broken.joined.pair, joined_is_open, &broken.joined,
                   "the connection");
    }
    pair_await(&broken.joined.pair, is_released, &heard, "the end of it");
    must_be(heard.status, TMSG_OK);
    tmsg_offer_destroy(heard.offer);
    joined_close(&broken.joined);
}

static void nothing(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, NULL, NULL));
}

/* Either side offers, beside a server and after it has gone. */
Test(offers, need_no_server_and_go_both_ways)
{
    static pair_t pair;
    tmsg_methods_t *methods;
    tmsg_server_t *server;
    tmsg_offer_key_t key;
    tmsg_offer_t *back;
    tmsg_call_t *call;
    heard_t heard;
    tmsg_map_t *map = sample_bytes(9, 1000);

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    /* Nobody has begun to call or offer there. */
    fails(&pair, start_name(&pair, "w", 0, 0), TMSG_ERR_NOT_FOUND, "no offer");
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "nothing", nothing, NULL, NULL));
    offer(&pair, &heard, sample_bytes(8, 1000), NULL);
    key = key_of(&heard);
    brings(&pair, start(&pair, &key, NULL), 8, 1000);
    must(tmsg_endpoint_call(pair.to_a, TMSG_METHOD_METHODS, NULL, NULL, &call));
    finish(&pair, call);
    must(tmsg_methods_read(tmsg_call_reply(call), &methods));
    must_eq(tmsg_methods_size(methods), 1);
    tmsg_methods_destroy(methods);
    tmsg_call_destroy(call);
    must_be(
        tmsg_server_register(server, "tensormsg.fetch", nothing, NULL, NULL),
        TMSG_ERR_INVALID_PARAM);
    (void)tmsg_server_drain(server, 0);
    brings(&pair, start(&pair, &key, NULL), 8, 1000);
    tmsg_server_destroy(server);
    brings(&pair, start(&pair, &key, NULL), 8, 1000);

    must(tmsg_offer_create(pair.b.worker, map, NULL, &back));
    tmsg_offer_key(back, &key);
    must(tmsg_endpoint_fetch(pair.to_b, &key, NULL, &call));
    brings(&pair, call, 9, 1000);
    tmsg_offer_destroy(back);
    withdraw(&heard);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

Test(offers, are_listed_by_name_and_counted)
{
    static pair_t pair;
    heard_t one, two, hidden;
    side_options_t threaded = {.drive = DRIVE_THREAD};
    char *json;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, &threaded, NULL);
    offer_named(&pair, &one, sample_bytes(1, 100), "weights", 4);
    offer_named(&pair, &two, sample_bytes(1, 300), "weights", 5);
    offer(&pair, &hidden, sample_bytes(1, 7), NULL);
    must(tmsg_endpoint_offers(pair.to_a, PEERS_BOUND_MS, &json));
    must_say(json, "weights");
    must_say(json, "300");
    tmsg_string_free(json);
    must(tmsg_worker_describe(pair.a.worker, &json));
    must_say(json, "\"offers\"");
    must_say(json, "407"); /* bytes that are offered */
    tmsg_string_free(json);
    must(tmsg_offer_withdraw(one.offer, 0));
    must(tmsg_offer_withdraw(two.offer, 0));
    must(tmsg_offer_withdraw(hidden.offer, 0));
    tmsg_offer_destroy(one.offer);
    tmsg_offer_destroy(two.offer);
    tmsg_offer_destroy(hidden.offer);
    pair_close(&pair);
}

Test(offers, of_wrong_parameters_are_refused)
{
    static const struct {
        tmsg_offer_params_t params;
        const char *words;
    } rows[] = {
        {{.field_mask = 1 << 20}, "offer"},
        {{.field_mask = TMSG_OFFER_PARAM_NAME, .name = ""}, "a name is 1 to"},
        {{.field_mask = TMSG_OFFER_PARAM_NAME, .name = "\xff"}, "UTF-8"},
        {{.field_mask = TMSG_OFFER_PARAM_TTL, .ttl_ms = 0}, "ttl_ms 0"},
        {{.field_mask = TMSG_OFFER_PARAM_VERSION, .version = 2},
         "a version without a name"},
        {{.field_mask = TMSG_OFFER_PARAM_PRINCIPALS, .principals = "a  b"},
         "offer: principals"},
    };
    static pair_t pair;
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_offer_t *none = NULL;
    tmsg_call_t *call;
    heard_t heard;
    const tmsg_offer_params_t again = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                       .name = "w"};

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        must_be(tmsg_offer_create(pair.a.worker, map, &rows[i].params, &none),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), rows[i].words);
    }
    must_be(tmsg_offer_create(pair.a.worker, NULL, NULL, &none),
            TMSG_ERR_INVALID_PARAM);
    offer_named(&pair, &heard, sample_bytes(1, 10), "w", 0);
    must_be(tmsg_offer_create(pair.a.worker, map, &again, &none),
            TMSG_ERR_ALREADY_EXISTS);
    must_true(none == NULL);
    withdraw(&heard);
    must_be(tmsg_endpoint_fetch_name(pair.to_a, "", 0, NULL, &call),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_fetch(pair.to_a, NULL, NULL, &call),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_map_set_bool(map, "free", 1)); /* nothing holds it */
    /* A request of another making. */
    must(tmsg_endpoint_call(pair.to_a, "tensormsg.fetch", NULL, NULL, &call));
    fails(&pair, call, TMSG_ERR_INVALID_PARAM, "neither a key nor a name");
    must(tmsg_endpoint_call(pair.to_a, "tensormsg.fetch", map, NULL, &call));
    fails(&pair, call, TMSG_ERR_INVALID_PARAM, "neither a key nor a name");
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* The map may go before the offer is over, and is not to be changed. */
Test(offers, keep_their_map)
{
    static pair_t pair;
    tmsg_map_t *map = sample_bytes(1, 1000);
    tmsg_offer_key_t key;
    tmsg_offer_t *made;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_offer_create(pair.a.worker, map, NULL, &made));
    must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
    tmsg_map_destroy(map);
    tmsg_offer_key(made, &key);
    brings(&pair, start(&pair, &key, NULL), 1, 1000);
    tmsg_offer_destroy(made);
    pair_close(&pair);
}

typedef struct {
    unsigned begun, ended;
    bool refuses;
} seen_t;

static tmsg_status_t see_begin(void *arg, tmsg_intercepted_t *call)
{
    seen_t *seen = arg;

    must_eq(call->side, TMSG_SIDE_SERVER);
    must_say(call->method, "tensormsg.fetch");
    seen->begun++;
    return seen->refuses ? TMSG_ERR_REFUSED : TMSG_OK;
}

static void see_end(void *arg, const tmsg_intercepted_t *call)
{
    must_be(call->status, TMSG_OK);
    must_eq(call->sent_bytes, 5000);
    ((seen_t *)arg)->ended++;
}

/* As calls: counted, and seen, by who looks at calls. */
Test(offers, are_measured_and_intercepted)
{
    static pair_t pair;
    static seen_t seen;
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_END,
        .arg = &seen,
        .begin = see_begin,
        .end = see_end};
    tmsg_offer_key_t key;
    heard_t heard;
    char *text;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_metrics_start(pair.a.worker));
    must(tmsg_metrics_start(pair.b.worker));
    offer(&pair, &heard, sample_bytes(1, 5000), NULL);
    key = key_of(&heard);
    brings(&pair, start(&pair, &key, NULL), 1, 5000);
    must(tmsg_metrics_text(pair.a.worker, &text));
    must_say(text, "tensormsg_calls_total{side=\"server\",method=\""
                   "tensormsg.fetch\",status=\"ok\"} 1");
    tmsg_string_free(text);
    must(tmsg_metrics_text(pair.b.worker, &text));
    must_say(text, "tensormsg_calls_total{side=\"caller\",method=\""
                   "tensormsg.fetch\",status=\"ok\"} 1");
    tmsg_string_free(text);

    must(tmsg_worker_intercept(pair.a.worker, TMSG_SIDE_SERVER, &interceptor));
    brings(&pair, start(&pair, &key, NULL), 1, 5000);
    must_eq(seen.begun, 1);
    must_eq(seen.ended, 1);
    seen.refuses = true;
    fails(&pair, start(&pair, &key, NULL), TMSG_ERR_REFUSED, "");
    withdraw(&heard);
    pair_close(&pair);
}
