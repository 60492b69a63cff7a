/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers: every row of the table "How a fetch ends" of docs/offers.md, over
 * TCP, shared memory, a blob and through a session; slices, versions, and who
 * may. The rows of processes that die or are stopped: test_offer_lives.c. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rpc/builtin.h"
#include "rpc/method.h"
#include "rpc/offer.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define LARGE 6000000

/* What the application hears of one offer. */
typedef struct {
    tmsg_offer_t *offer;
    unsigned overs, releases;
    tmsg_status_t status; /* what on_over said */
} heard_t;

static void on_over(void *arg, tmsg_offer_t *offer, tmsg_status_t status)
{
    heard_t *heard = arg;

    must_true(offer != NULL);
    must_eq(heard->releases, 0);
    heard->overs++;
    heard->status = status;
}

static void on_release(void *arg)
{
    heard_t *heard = arg;

    must_eq(heard->overs, 1);
    heard->releases++;
}

static bool is_released(void *heard)
{
    return ((heard_t *)heard)->releases > 0;
}

/* Offers a map, which is destroyed. `params` may be NULL. */
static void offer(pair_t *pair, heard_t *heard, tmsg_map_t *map,
                  const tmsg_offer_params_t *params)
{
    tmsg_offer_params_t all = {.field_mask = 0};

    if (params != NULL) {
        all = *params;
    }
    all.field_mask |= TMSG_OFFER_PARAM_ON_OVER | TMSG_OFFER_PARAM_ON_RELEASE;
    all.on_over = on_over;
    all.on_release = on_release;
    all.on_over_arg = all.on_release_arg = heard;
    memset(heard, 0, sizeof(*heard));
    must(tmsg_offer_create(pair->a.worker, map, &all, &heard->offer));
    tmsg_map_destroy(map);
}

static void offer_named(pair_t *pair, heard_t *heard, tmsg_map_t *map,
                        const char *name, uint64_t version)
{
    const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME |
                                                      TMSG_OFFER_PARAM_VERSION,
                                        .name = name,
                                        .version = version};

    offer(pair, heard, map, &params);
}

static void withdraw(heard_t *heard)
{
    must(tmsg_offer_withdraw(heard->offer, 0));
    must_eq(heard->overs, 1);
    must_eq(heard->releases, 1);
    tmsg_offer_destroy(heard->offer);
}

static tmsg_offer_key_t key_of(const heard_t *heard)
{
    tmsg_offer_key_t key;

    tmsg_offer_key(heard->offer, &key);
    return key;
}

static bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

static tmsg_call_t *start(pair_t *pair, const tmsg_offer_key_t *key,
                          const tmsg_fetch_params_t *params)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch(pair->to_a, key, params, &call));
    return call;
}

static tmsg_call_t *start_name(pair_t *pair, const char *name,
                               uint64_t at_least, int32_t wait_ms)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                        .wait_ms = wait_ms};
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch_name(pair->to_a, name, at_least, &params, &call));
    return call;
}

static tmsg_call_t *finish(pair_t *pair, tmsg_call_t *call)
{
    pair_await(pair, has_ended, call, "the end of a fetch");
    return call;
}

/* Ends a fetch that must fail so. */
static void fails(pair_t *pair, tmsg_call_t *call, tmsg_status_t status,
                  const char *words)
{
    finish(pair, call);
    must_be(tmsg_call_status(call), status);
    must_say(tmsg_call_error(call), words);
    must_eq(tmsg_map_size(tmsg_call_reply(call)), 0);
    tmsg_call_destroy(call);
}

static void fails_key(pair_t *pair, tmsg_offer_key_t key, const char *words)
{
    fails(pair, start(pair, &key, NULL), TMSG_ERR_NOT_FOUND, words);
}

/* Ends a fetch that must bring sample_bytes(). */
static void brings(pair_t *pair, tmsg_call_t *call, uint64_t seed, size_t bytes)
{
    finish(pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    sample_check_bytes(seed, bytes, tmsg_call_reply(call));
    tmsg_call_destroy(call);
}

/* The version that a fetch by name has brought. */
static int64_t version_of(pair_t *pair, tmsg_call_t *call)
{
    int64_t version;

    finish(pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    must(tmsg_map_get_i64(tmsg_call_reply(call), TMSG_META_OFFER_VERSION,
                          &version));
    tmsg_call_destroy(call);
    return version;
}

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
          "no offer 'nothing', and never was");

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

static bool waits(void *arg)
{
    pair_t *pair = arg;
    char *json;
    bool found;

    must(tmsg_worker_describe(pair->a.worker, &json));
    found = strstr(json, "\"waiting_fetches\":\t1,") != NULL ||
            strstr(json, "\"waiting_fetches\":1,") != NULL ||
            strstr(json, "\"waiting_fetches\": 1,") != NULL;
    tmsg_string_free(json);
    return found;
}

static bool none_waits(void *arg) { return !waits(arg); }

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

/* A tensor of 32 bits an element. */
static tmsg_map_t *matrix(uint8_t code, int64_t rows, int64_t columns)
{
    size_t count = (size_t)(rows * columns);
    float *data = malloc(count * sizeof(*data) + 1);
    const int64_t shape[] = {rows, columns};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {code, 32, 1}, 2, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = data};
    tmsg_map_t *map;

    for (size_t i = 0; i < count; i++) {
        data[i] = (float)i;
    }
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "w", &tensor, &params));
    must(tmsg_map_set_string(map, "about", "weights"));
    return map;
}

/* A float32 tensor whose elements are their own numbers. */
static tmsg_map_t *counted(int64_t rows, int64_t columns)
{
    return matrix(TMSG_DTYPE_FLOAT, rows, columns);
}

static tmsg_call_t *start_slices(pair_t *pair, const tmsg_offer_key_t *key,
                                 const tmsg_slice_t *slices, uint32_t count,
                                 const tmsg_map_t *into)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES |
                                                      TMSG_FETCH_PARAM_INTO,
                                        .slices = slices,
                                        .slice_count = count,
                                        .into = into};

    return start(pair, key, &params);
}

static void check_box(const tmsg_map_t *map, const char *name, int64_t columns,
                      const int64_t *start_at, const int64_t *count)
{
    tmsg_tensor_t tensor;
    float *packed;
    int64_t at = 0;

    must(tmsg_map_find(map, name, &tensor));
    must_eq(tensor.ndim, 2);
    must_eq(tensor.shape[0], count[0]);
    must_eq(tensor.shape[1], count[1]);
    packed = malloc((size_t)(count[0] * count[1]) * sizeof(*packed) + 1);
    must(tmsg_tensor_pack(&tensor, packed));
    for (int64_t i = 0; i < count[0]; i++) {
        for (int64_t j = 0; j < count[1]; j++) {
            must_eq(packed[at++],
                    (start_at[0] + i) * columns + start_at[1] + j);
        }
    }
    free(packed);
}

static void slices(pair_t *pair)
{
    enum { ROWS = 300, COLUMNS = 700 };
    static const int64_t zero[] = {0, 0}, all[] = {ROWS, COLUMNS};
    static const int64_t from[] = {17, 100}, box[] = {40, 333};
    static const int64_t rows_from[] = {250, 0}, rows[] = {50, COLUMNS};
    static const int64_t three[] = {0, 0, 0};
    static const int64_t none[] = {0, 5}, beyond[] = {250, 690};
    static const int64_t rest[] = {-1, -1}, rest_of_box[] = {283, 600};
    static const int64_t last_rows[] = {250};
    const tmsg_slice_t several[] = {{"w", "box", 2, from, box, NULL},
                                    {"w", "rest", 2, from, rest, NULL},
                                    {"w", "last", 1, last_rows, rest, NULL},
                                    {"w", "rows", 2, rows_from, rows, NULL},
                                    {"w", NULL, 0, NULL, NULL, NULL},
                                    {"w", "none", 2, from, none, NULL}};
    const tmsg_slice_t no_such = {"v", "x", 2, from, box, NULL};
    const tmsg_slice_t too_far = {"w", "x", 2, beyond, box, NULL};
    const tmsg_slice_t other_ndim = {"w", NULL, 3, three, three, NULL};
    const tmsg_slice_t first = {"w", NULL, 2, from, box, NULL};
    tmsg_map_t *into = counted(box[0], box[1]), *wrong = counted(3, 3);
    tmsg_map_t *integers = matrix(TMSG_DTYPE_INT, box[0], box[1]);
    tmsg_offer_key_t key;
    const char *about;
    tmsg_call_t *call;
    heard_t heard;

    offer(pair, &heard, counted(ROWS, COLUMNS), NULL);
    key = key_of(&heard);
    call = finish(pair, start_slices(pair, &key, several, 6, NULL));
    must_be(tmsg_call_status(call), TMSG_OK);
    must_eq(tmsg_map_size(tmsg_call_reply(call)), 6);
    check_box(tmsg_call_reply(call), "box", COLUMNS, from, box);
    check_box(tmsg_call_reply(call), "rows", COLUMNS, rows_from, rows);
    check_box(tmsg_call_reply(call), "last", COLUMNS, rows_from, rows);
    check_box(tmsg_call_reply(call), "rest", COLUMNS, from, rest_of_box);
    check_box(tmsg_call_reply(call), "w", COLUMNS, zero, all);
    check_box(tmsg_call_reply(call), "none", COLUMNS, from, none);
    must(tmsg_map_get_string(tmsg_call_reply(call), "about", &about));
    must_say(about, "weights");
    tmsg_call_destroy(call);

    call = finish(pair, start_slices(pair, &key, &first, 1, into));
    must_be(tmsg_call_status(call), TMSG_OK);
    check_box(tmsg_call_reply(call), "w", COLUMNS, from, box);
    check_box(into, "w", COLUMNS, from, box);
    tmsg_call_destroy(call);

    fails(pair, start_slices(pair, &key, &no_such, 1, NULL),
          TMSG_ERR_INVALID_PARAM, "'v': the offer has no such tensor");
    fails(pair, start_slices(pair, &key, &too_far, 1, NULL),
          TMSG_ERR_INVALID_PARAM,
          "'w': dimension 1: 333 elements from 690 on are not in its 700");
    fails(pair, start_slices(pair, &key, &other_ndim, 1, NULL),
          TMSG_ERR_INVALID_PARAM,
          "'w': its slice has 3 dimensions, the tensor 2");
    fails(pair, start_slices(pair, &key, &first, 1, wrong),
          TMSG_ERR_INVALID_PARAM, "its reply does not fit: tensor 'w'");
    fails(pair, start_slices(pair, &key, &first, 1, integers),
          TMSG_ERR_INVALID_PARAM, "its reply does not fit: tensor 'w'");
    withdraw(&heard);
    tmsg_map_destroy(integers);
    tmsg_map_destroy(into);
    tmsg_map_destroy(wrong);
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
    versions(pair);
    slices(pair);
    canceled_by_its_fetcher(pair);
    withdrawn_meanwhile(pair);
    from_one_without_offers(pair);
}

/* By each way. Both sides have the options. */
static void play_on_each(void (*rows)(pair_t *pair),
                         const side_options_t *options)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_BLOB};
    const how_t how = {.link = LINK_TCP, .a = *options, .b = *options};
    static joined_t joined;
    static pair_t pair;

    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        printf("%s\n", link_names[links[i]]);
        pair_open(&pair, links[i], DRIVE_POLLING, options, options);
        rows(&pair);
        pair_close(&pair);
    }
    printf("a session\n");
    joined_open(&joined, &how);
    rows(&joined.pair);
    joined_close(&joined);
}

static const side_options_t no_options = {.keyring = NULL};

Test(offers, over_tcp_shared_memory_a_blob_and_on_a_session)
{
    play_on_each(all_rows, &no_options);
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

Test(offers, may_be_for_some_principals)
{
    play_as("alice", for_some_principals);
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
          "no offer 'mine', and never was");
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

Test(offers, are_chosen_among_those_for_the_asker)
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

Test(offers, for_others_cost_no_time) { play_as("alice", many_for_others); }

/* Why the last 1024 ended is remembered, whenever they were made. */
Test(offers, that_ended_last_are_remembered)
{
    static pair_t pair;
    heard_t oldest, other;
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
    fails_key(&pair, first, "the offer is over, or never was there");
    key.bytes[47] ^= 1;
    fails_key(&pair, key, "there never was such an offer");
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

/* Offers end with their worker, and their handles may outlive it. */
Test(offers, end_with_their_worker)
{
    static pair_t pair;
    heard_t heard, under_way;
    tmsg_offer_key_t key;
    tmsg_call_t *call, *waits_there;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    offer_named(&pair, &heard, sample_bytes(1, 1000), "w", 1);
    offer(&pair, &under_way, sample_bytes(1, LARGE), NULL);
    key = key_of(&under_way);
    call = start(&pair, &key, NULL);
    waits_there = start_name(&pair, "later", 0, -1);
    pair_await(&pair, waits, &pair, "a fetch that waits");
    pair_drop(&pair);
    must_be(heard.status, TMSG_ERR_CLOSED);
    must_eq(heard.releases, 1);
    must_eq(under_way.overs, 1);
    must_eq(under_way.releases, 1);
    must_be(tmsg_offer_withdraw(heard.offer, -1), TMSG_OK);
    tmsg_offer_destroy(heard.offer);
    tmsg_offer_destroy(under_way.offer);
    tmsg_call_destroy(call);
    tmsg_call_destroy(waits_there);
}

typedef struct {
    heard_t heard;
    unsigned ends;
} inside_t;

static void withdraw_inside(void *arg, tmsg_call_t *call)
{
    inside_t *inside = arg;
    tmsg_status_t status;

    (void)call;
    status = tmsg_offer_withdraw(inside->heard.offer, 1000);
    must_true(status == TMSG_OK || status == TMSG_ERR_WOULD_BLOCK);
    tmsg_offer_destroy(inside->heard.offer);
    inside->ends++;
}

/* Of the owner's callbacks any may end an offer. */
Test(offers, may_end_in_a_callback)
{
    static pair_t pair;
    static inside_t inside;
    tmsg_call_t *call;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    offer(&pair, &inside.heard, sample_bytes(1, 1000), NULL);
    {
        const tmsg_fetch_params_t params = {.field_mask =
                                                TMSG_FETCH_PARAM_ON_DONE,
                                            .on_done = withdraw_inside,
                                            .on_done_arg = &inside};

        /* a asks b, which offers nothing. */
        must(tmsg_endpoint_fetch_name(pair.to_b, "x", 0, &params, &call));
    }
    finish(&pair, call);
    pair_await(&pair, is_released, &inside.heard, "its release");
    must_eq(inside.ends, 1);
    tmsg_call_destroy(call);
    pair_close(&pair);
}

/* The bytes of messages that a's worker holds. */
static uint64_t held_bytes(pair_t *pair)
{
    uint64_t bytes;
    const char *at;
    char *json;

    must(tmsg_worker_describe(pair->a.worker, &json));
    at = strstr(json, "\"held_bytes\":");
    bytes = strtoull(at + strlen("\"held_bytes\":"), NULL, 10);
    tmsg_string_free(json);
    return bytes;
}

static tmsg_map_t *request_by_name(const char *tensor, int64_t count)
{
    int64_t *numbers = calloc(2 * (size_t)count, sizeof(*numbers));
    const int64_t shape[] = {2, count};
    const tmsg_tensor_t box = {
        numbers, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_INT, 64, 1}, 2, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = numbers};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, tensor, &box, &params));
    must(tmsg_map_set_string(map, "name", "w"));
    must(tmsg_map_set_i64(map, "wait_ms", -1));
    return map;
}

static tmsg_call_t *ask_by_name(pair_t *pair, tmsg_map_t *map)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "tensormsg.fetch", map, NULL, &call));
    tmsg_map_destroy(map);
    return call;
}

/* A peer cannot fill the worker's memory with fetches that wait. */
Test(offers, keep_of_a_fetch_that_waits_what_it_asks_for)
{
    const int64_t from[] = {1, 2}, count[] = {2, 3};
    const tmsg_slice_t slice = {"w", "x", 2, from, count, NULL};
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES |
                                                      TMSG_FETCH_PARAM_WAIT,
                                        .slices = &slice,
                                        .slice_count = 1,
                                        .wait_ms = -1};
    static char text[1 << 20];
    static pair_t pair;
    tmsg_call_t *call, *with_slice;
    tmsg_map_t *map;
    heard_t heard;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    fails(&pair, ask_by_name(&pair, request_by_name("ballast", 64)),
          TMSG_ERR_INVALID_PARAM, "'ballast': it is no slice");
    fails(&pair, ask_by_name(&pair, request_by_name("slice/w", 65)),
          TMSG_ERR_INVALID_PARAM, "'slice/w': it is not int64[2,n]");
    map = request_by_name("slice/x", 0);
    memset(text, 'x', sizeof(text) - 1);
    must(tmsg_map_set_string(map, "note", text));
    must(tmsg_map_set_string(map, "of/x", "w"));
    call = ask_by_name(&pair, map);
    pair_await(&pair, waits, &pair, "a fetch that waits");
    must(tmsg_endpoint_fetch_name(pair.to_a, "w", 0, &params, &with_slice));
    fails(&pair, start_name(&pair, "other", 0, 0), TMSG_ERR_NOT_FOUND, "no");
    must_true(held_bytes(&pair) < 1000);
    offer_named(&pair, &heard, counted(4, 5), "w", 0);
    must_be(tmsg_call_status(finish(&pair, call)), TMSG_OK);
    check_box(tmsg_call_reply(call), "x", 5, (const int64_t[]){0, 0},
              (const int64_t[]){4, 5});
    must_be(tmsg_call_status(finish(&pair, with_slice)), TMSG_OK);
    check_box(tmsg_call_reply(with_slice), "x", 5, from, count);
    tmsg_call_destroy(call);
    tmsg_call_destroy(with_slice);
    withdraw(&heard);
    pair_close(&pair);
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

Test(offers, bound_the_fetches_that_wait)
{
    play_on_each(too_many_of_one, &no_options);
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

Test(offers, let_the_fetches_of_each_peer_wait)
{
    play_on_each(too_many_of_several, &no_options);
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

Test(offers, the_newest_of_many_versions_is_found_whatever_goes)
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

Test(offers, of_one_worker_lend_no_more_than_its_limit)
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

Test(offers, give_a_fetcher_maps_that_it_gives_back_in_part)
{
    const sample_t sample = {.seed = 3,
                             .tensors = 4,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .elements = LARGE};
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

Test(offers, of_one_worker_are_65536_at_most)
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
