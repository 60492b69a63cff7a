/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers whose callbacks end them, give their handle back or wait, and offers
 * whose worker ends. */
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

/* Offers end with their worker, and their handles may outlive it. */
Test(offer_callbacks, end_with_their_worker)
{
    static pair_t pair;
    heard_t heard, under_way;
    tmsg_offer_key_t key;
    tmsg_call_t *call, *waits_there;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    offer_named(&pair, &heard, sample_bytes(1, 1000), "w", 1);
    offer(&pair, &under_way, sample_bytes(1, 6000000), NULL);
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
Test(offer_callbacks, may_end_in_a_callback)
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
