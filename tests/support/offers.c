/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/offers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

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

bool is_released(void *heard) { return ((heard_t *)heard)->releases > 0; }

void offer(pair_t *pair, heard_t *heard, tmsg_map_t *map,
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

void offer_named(pair_t *pair, heard_t *heard, tmsg_map_t *map,
                 const char *name, uint64_t version)
{
    const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME |
                                                      TMSG_OFFER_PARAM_VERSION,
                                        .name = name,
                                        .version = version};

    offer(pair, heard, map, &params);
}

void withdraw(heard_t *heard)
{
    must(tmsg_offer_withdraw(heard->offer, 0));
    must_eq(heard->overs, 1);
    must_eq(heard->releases, 1);
    tmsg_offer_destroy(heard->offer);
}

tmsg_offer_key_t key_of(const heard_t *heard)
{
    tmsg_offer_key_t key;

    tmsg_offer_key(heard->offer, &key);
    return key;
}

bool has_ended(void *call)
{
    return tmsg_call_status(call) != TMSG_IN_PROGRESS;
}

tmsg_call_t *start(pair_t *pair, const tmsg_offer_key_t *key,
                   const tmsg_fetch_params_t *params)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch(pair->to_a, key, params, &call));
    return call;
}

tmsg_call_t *start_name(pair_t *pair, const char *name, uint64_t at_least,
                        int32_t wait_ms)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                        .wait_ms = wait_ms};
    tmsg_call_t *call;

    must(tmsg_endpoint_fetch_name(pair->to_a, name, at_least, &params, &call));
    return call;
}

tmsg_call_t *finish(pair_t *pair, tmsg_call_t *call)
{
    pair_await(pair, has_ended, call, "the end of a fetch");
    return call;
}

void fails(pair_t *pair, tmsg_call_t *call, tmsg_status_t status,
           const char *words)
{
    finish(pair, call);
    must_be(tmsg_call_status(call), status);
    must_say(tmsg_call_error(call), words);
    must_eq(tmsg_map_size(tmsg_call_reply(call)), 0);
    tmsg_call_destroy(call);
}

void fails_key(pair_t *pair, tmsg_offer_key_t key, const char *words)
{
    fails(pair, start(pair, &key, NULL), TMSG_ERR_NOT_FOUND, words);
}

void brings(pair_t *pair, tmsg_call_t *call, uint64_t seed, size_t bytes)
{
    finish(pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    sample_check_bytes(seed, bytes, tmsg_call_reply(call));
    tmsg_call_destroy(call);
}

int64_t version_of(pair_t *pair, tmsg_call_t *call)
{
    int64_t version;

    finish(pair, call);
    must_be(tmsg_call_status(call), TMSG_OK);
    must(tmsg_map_get_i64(tmsg_call_reply(call), TMSG_META_OFFER_VERSION,
                          &version));
    tmsg_call_destroy(call);
    return version;
}

long long told(pair_t *pair, const char *name)
{
    char quoted[40], *json;
    long long figure;
    const char *at;

    must(tmsg_worker_describe(pair->a.worker, &json));
    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    at = strstr(json, quoted);
    must_true(at != NULL);
    figure = strtoll(at + strlen(quoted), NULL, 10);
    tmsg_string_free(json);
    return figure;
}

bool waits(void *pair) { return told(pair, "waiting_fetches") == 1; }

bool none_waits(void *pair) { return told(pair, "waiting_fetches") == 0; }

void play_on_each(void (*rows)(pair_t *pair), const side_options_t *options)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_BLOB};
    how_t how = {.link = LINK_TCP};
    static joined_t joined;
    static pair_t pair;

    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        printf("%s\n", link_names[links[i]]);
        pair_open(&pair, links[i], DRIVE_POLLING, options, options);
        rows(&pair);
        pair_close(&pair);
    }
    printf("a session\n");
    if (options != NULL) {
        how.a = how.b = *options;
    }
    joined_open(&joined, &how);
    rows(&joined.pair);
    joined_close(&joined);
}
