/* SPDX-License-Identifier: BSD-3-Clause */
/* What many offers, and many fetches that wait, cost and take. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/offer.h"
#include "support/offers.h"
#include "support/seeded_maps.h"

/* A deadline is put among others in order: those of offers and of waits, which
 * may be many and lie far ahead, are not among them. */
Test(offer_limits, calls_pass_by_no_lifetimes)
{
    enum { OFFERS = 1000 };
    tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_TTL};
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
    call = start_name(&pair, "w", 0, 3600000);
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
