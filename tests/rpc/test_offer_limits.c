/* SPDX-License-Identifier: BSD-3-Clause */
/* What many offers, and many fetches that wait, cost and take. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
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
