/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers whose callbacks end them, give their handle back or wait. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>

#include "support/offers.h"
#include "support/seeded_maps.h"

typedef struct {
    tmsg_offer_t *offer; /* NULL: it was given back */
    unsigned overs, releases;
    tmsg_status_t waited; /* what a withdrawal in on_over came to */
    atomic_bool free;
} made_t;

static void withdraw_and_wait(void *arg, tmsg_offer_t *offer,
                              tmsg_status_t status)
{
    made_t *made = arg;

    must_be(status, TMSG_ERR_CANCELED);
    made->overs++;
    made->waited = tmsg_offer_withdraw(offer, -1);
}

static void count_release(void *arg)
{
    made_t *made = arg;

    made->releases++;
    made->waited = tmsg_offer_withdraw(made->offer, 1000);
}

/* A callback in a call that ends the offer cannot wait for its release, which
 * comes later. */
Test(offer_callbacks, do_not_wait_for_what_comes_after_them)
{
    made_t made = {.overs = 0};
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_ON_OVER | TMSG_OFFER_PARAM_ON_RELEASE,
        .on_over = withdraw_and_wait,
        .on_over_arg = &made,
        .on_release = count_release,
        .on_release_arg = &made};
    tmsg_map_t *map = sample_bytes(1, 100);
    side_t side;

    side_open(&side, NULL);
    must(tmsg_offer_create(side.worker, map, &params, &made.offer));
    must(tmsg_offer_end(made.offer, 0));
    must_be(made.waited, TMSG_ERR_WOULD_BLOCK);
    must_eq(made.overs, 1);
    must_eq(made.releases, 1);
    must(tmsg_offer_withdraw(made.offer, -1));
    tmsg_offer_destroy(made.offer);
    tmsg_map_destroy(map);
    side_close(&side);
}

static void give_back(void *arg, tmsg_offer_t *offer, tmsg_status_t status)
{
    made_t *made = arg;

    must_be(status, TMSG_OK);
    must_true(made->offer == offer);
    made->offer = NULL;
    tmsg_offer_destroy(offer);
}

static void say_free(void *arg)
{
    made_t *made = arg;

    must_true(made->offer == NULL);
    atomic_store(&made->free, true);
}

static bool is_free(void *arg) { return atomic_load(&((made_t *)arg)->free); }

/* A fetch that waits ends such an offer on another thread, maybe before the
 * call that makes it returns. */
Test(offer_callbacks, may_come_before_the_offer_is_returned)
{
    enum { ROUNDS = 300 };
    const side_options_t threaded = {.drive = DRIVE_THREAD};
    tmsg_map_t *map = sample_bytes(1, 100);
    static made_t made[ROUNDS];
    static pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_THREAD, &threaded, &threaded);
    for (int i = 0; i < ROUNDS; i++) {
        const tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_FETCHES |
                          TMSG_OFFER_PARAM_ON_OVER |
                          TMSG_OFFER_PARAM_ON_RELEASE,
            .name = "once",
            .fetches = 1,
            .on_over = give_back,
            .on_over_arg = &made[i],
            .on_release = say_free,
            .on_release_arg = &made[i]};
        tmsg_call_t *call = start_name(&pair, "once", 0, -1);

        pair_await(&pair, waits, &pair, "a fetch that waits");
        must(tmsg_offer_create(pair.a.worker, map, &params, &made[i].offer));
        must_eq(version_of(&pair, call), 0);
        pair_await(&pair, is_free, &made[i], "its release");
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}
