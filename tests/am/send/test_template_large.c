/* SPDX-License-Identifier: BSD-3-Clause */
/* Template messages that are not small: they cost credit in bytes and memory of
 * the receiver's, as on the general way. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/channels.h"
#include "support/seeded_maps.h"

#define RECORD_BYTES 64 /* that credit costs beside each payload */

/* Of `tensors` vectors of `each` bytes. */
typedef struct {
    size_t tensors, each;
} kind_t;

static const kind_t medium = {40, 100};

static sample_t sample_of(kind_t kind, uint64_t seed)
{
    sample_t sample = sample_plain(seed, kind.each);

    sample.tensors = kind.tensors;
    return sample;
}

static void post(tmsg_endpoint_t *endpoint, kind_t kind, uint64_t seed,
                 tmsg_request_t **request_p)
{
    const sample_t sample = sample_of(kind, seed);
    tmsg_map_t *map = sample_make(&sample);

    must(tmsg_endpoint_send(endpoint, map, NULL, request_p));
    tmsg_map_destroy(map);
}

static void check_message(kind_t kind, uint64_t seed, tmsg_message_t *message)
{
    const sample_t sample = sample_of(kind, seed);

    sample_check(&sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void pass(pair_t *pair, kind_t kind, uint64_t seed)
{
    post(pair->to_a, kind, seed, NULL);
    check_message(kind, seed, pair_take(pair, &pair->a));
}

static uint64_t received(const pair_t *pair)
{
    return pair->to_b->stats.received_by_template;
}

static void warm_up(pair_t *pair, kind_t kind)
{
    uint64_t before = received(pair);

    for (uint64_t i = 0; received(pair) < before + 2; i++) {
        must_true(i < 1000);
        pass(pair, kind, i);
    }
}

/* All credit that was charged has come back. */
static void check_credit(pair_t *pair)
{
    pump(pair);
    must_eq(pair->to_b->credit.rx_charged, pair->to_a->credit.tx_charged);
    must_eq(pair->to_b->credit.rx_freed, pair->to_a->credit.tx_charged);
}

static void go_on(link_t link, drive_t drive, kind_t kind)
{
    enum { MESSAGES = 300 };
    uint64_t before, held;
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    warm_up(&pair, kind);
    held = tmsg_budget_held(pair.a.worker->budget);
    before = received(&pair);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        pass(&pair, kind, i);
    }
    cr_expect(ge(u64, received(&pair), before + MESSAGES / 2), "%zu x %zu",
              kind.tensors, kind.each);
    must_eq(tmsg_budget_held(pair.a.worker->budget), held);
    check_credit(&pair);
    must_true(pair.to_a->credit.tx_charged >=
              MESSAGES * (kind.tensors * kind.each + RECORD_BYTES));
    pair_close(&pair);
}

static const kind_t kinds[] = {{1, 513},  {1, 576},  {1, 577},  {1, 4000},
                               {1, 8192}, {16, 64},  {9, 61},   {40, 100},
                               {128, 64}, {500, 16}, {3, 1000}, {2, 4096}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void all_kinds(link_t link)
{
    for (size_t i = 0; i < KINDS; i++) {
        go_on(link, DRIVE_POLLING, kinds[i]);
    }
}

Test(template_large, shm) { all_kinds(LINK_SHM); }
Test(template_large, tcp) { all_kinds(LINK_TCP); }
Test(template_large, by_descriptor) { go_on(LINK_SHM, DRIVE_FD, medium); }
Test(template_large, between_threads) { go_on(LINK_SHM, DRIVE_THREAD, medium); }

/* The messages are like each other, and none of them goes by a template. */
static void expect_none(pair_t *pair, kind_t kind)
{
    for (uint64_t i = 0; i < 20; i++) {
        pass(pair, kind, i);
        pump(pair);
    }
    must_true(pair->to_a->stats.sent_by_schema >= 10);
    must_eq(pair->to_a->stats.sent_by_template, 0);
    pair_close(pair);
}

Test(template_large, what_is_longer_goes_as_it_did)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    expect_none(&pair, (kind_t){1, TMSG_TEMPLATE_BYTES + 1});
}

/* Records that had room for one size get room for the next. */
Test(template_large, kinds_in_turn)
{
    uint64_t state = 3;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 300; i++) {
        kind_t kind = kinds[sample_random(&state) % KINDS];

        if (i % 3 == 0) {
            kind = (kind_t){8, 8}; /* small */
        }
        for (uint64_t run = 1 + sample_random(&state) % 5; run > 0; run--) {
            pass(&pair, kind, i + run);
        }
    }
    cr_expect(ge(u64, received(&pair), 100));
    check_credit(&pair);
    pair_close(&pair);
}

/* More messages than UCX's queue takes: a gathered payload that is not copied
 * yet stays its message's, and so does a map that is not gathered. */
static void fill_ucx(kind_t kind)
{
    enum { MESSAGES = 120 };
    tmsg_request_t *requests[MESSAGES];
    uint64_t posted = 0;
    pair_t pair;

    setenv("UCX_POSIX_FIFO_SIZE", "64", 1); /* newer ones have more */
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 5; round++) {
        uint64_t before;

        warm_up(&pair, kind);
        pump(&pair);
        before = pair.to_a->stats.sent_by_template;
        for (uint64_t i = 0; i < MESSAGES; i++) {
            post(pair.to_a, kind, i, &requests[i]);
            posted += pair.to_a->posted.count > 0 &&
                      pair.to_a->stats.sent_by_template == before + i + 1;
        }
        for (uint64_t i = 0; i < MESSAGES; i++) {
            check_message(kind, i, pair_take(&pair, &pair.a));
            must(pair_finish(&pair, requests[i]));
        }
    }
    cr_expect(ge(u64, posted, 5));
    check_credit(&pair);
    pair_close(&pair);
}

Test(template_large, ucx_is_full)
{
    fill_ucx(medium);
    fill_ucx((kind_t){1, 4000});
}

/* Beyond the window a message goes by rendezvous, and template messages go on
 * behind. */
Test(template_large, credit_runs_out)
{
    enum { HELD = 2 * MIB, WINDOW = HELD / 4 / 64 };
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (uint64_t round = 0; round < 20; round++) {
        uint64_t deferred, charged;

        warm_up(&pair, (kind_t){10, 100});
        pump(&pair);
        deferred = pair.to_a->credit.tx_deferred;
        charged = pair.to_a->credit.tx_charged;
        for (uint64_t i = 0; i < 20; i++) {
            post(pair.to_a, (kind_t){10, 100}, i, NULL);
        }
        must_true(pair.to_a->credit.tx_charged - charged <= WINDOW);
        must_true(pair.to_a->credit.tx_deferred > deferred);
        for (uint64_t i = 0; i < 20; i++) {
            check_message((kind_t){10, 100}, i, pair_take(&pair, &pair.a));
        }
    }
    check_credit(&pair);
    pair_close(&pair);
}

/* A message that its sender had no credit for ends the connection, as it would
 * without a template. */
Test(template_large, beyond_the_window_the_connection_ends)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, medium);
    pump(&pair);
    pair.to_b->credit.rx_edge = pair.to_b->credit.rx_charged + 4000;
    post(pair.to_a, medium, 1, NULL);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    pair_drop(&pair);
}

/* Each message that the application has counts with its payload. No more are
 * taken than held_bytes allows, plus the payload that came with the last
 * header. */
Test(template_large, what_is_kept_counts)
{
    enum { HELD = 4 * MIB, OVER = 65536, MESSAGES = 400, PAYLOAD = 4000 };
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD}};
    tmsg_message_t *kept[MESSAGES] = {NULL};
    uint64_t empty, before;
    tmsg_budget_t *budget;
    unsigned count = 0;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    budget = pair.a.worker->budget;
    empty = tmsg_budget_held(budget);
    warm_up(&pair, medium);
    must_eq(tmsg_budget_held(budget), empty);
    before = received(&pair);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        post(pair.to_a, medium, i, NULL);
        pump(&pair);
        if (tmsg_worker_recv(pair.a.worker, 0, &kept[count]) == TMSG_OK) {
            count++;
        }
        must_true(tmsg_budget_held(budget) >=
                  empty + (uint64_t)count * PAYLOAD);
        must_true(tmsg_budget_held(budget) <= HELD + OVER);
    }
    must_true(count >= 50 && count < MESSAGES);
    must_true(received(&pair) > before);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        check_message(medium, i,
                      i < count ? kept[i] : pair_take(&pair, &pair.a));
    }
    must_eq(tmsg_budget_held(budget), empty);
    check_credit(&pair);
    pair_close(&pair);
}

/* A template message counts as much as any other: the next one, which is
 * acknowledged, goes without a template. */
Test(template_large, what_is_kept_counts_as_any_other)
{
    uint64_t held[3];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, medium);
    for (unsigned i = 0; i < 3; i++) {
        const sample_t sample = sample_of(medium, i);
        uint64_t before = received(&pair);
        uint64_t empty = tmsg_budget_held(pair.a.worker->budget);
        tmsg_request_t *sent = send_map(pair.to_a, sample_make(&sample),
                                        i == 1 ? TMSG_SEND_ACKED : 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_eq(received(&pair), before + (i != 1));
        held[i] = tmsg_budget_held(pair.a.worker->budget) - empty;
        check_message(medium, i, message);
        must(pair_finish(&pair, sent));
    }
    must_eq(held[0], held[1]);
    must_eq(held[2], held[1]);
    pair_close(&pair);
}

/* Otherwise small messages would be taken for ever, and the large one never. */
Test(template_large, none_is_before_a_message_that_waits_for_memory)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = MIB + MIB / 2}};
    tmsg_message_t *held;
    uint64_t before;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    warm_up(&pair, medium);
    send_bytes(pair.to_a, 1, 1, MIB, 0);
    held = pair_take(&pair, &pair.a);
    send_bytes(pair.to_a, 1, 2, MIB, 0);
    pump(&pair);
    before = pair.to_b->stats.received_messages;
    post(pair.to_a, medium, 7, NULL);
    pump(&pair);
    must_eq(pair.to_b->stats.received_messages, before);
    tmsg_message_destroy(held);
    for (int i = 0; i < 2; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        if (tmsg_message_channel(message) == 0) {
            check_message(medium, 7, message);
        } else {
            sample_check_bytes(2, MIB, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
    }
    pair_close(&pair);
}

/* Messages that the application keeps are not overwritten by later ones, and
 * may outlive their worker; their maps may be sent on. */
Test(template_large, received_messages_may_be_kept_and_sent_on)
{
    enum { KEPT = 30 };
    tmsg_message_t *kept[KEPT] = {NULL};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, medium);
    for (uint64_t i = 0; i < 300; i++) {
        tmsg_message_t **place = &kept[i * 7 % KEPT];
        tmsg_message_t *message;

        if (*place != NULL) {
            check_message(medium, i - KEPT, *place);
        }
        post(pair.to_a, medium, i, NULL);
        *place = pair_take(&pair, &pair.a);
        post(pair.to_a, medium, i + 1000, NULL);
        message = pair_take(&pair, &pair.a);
        must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(message), NULL,
                                NULL));
        tmsg_message_destroy(message);
        check_message(medium, i + 1000, pair_take(&pair, &pair.b));
    }
    cr_expect(ge(u64, received(&pair), 200));
    pair_drop(&pair);
    for (int i = 0; i < KEPT; i++) {
        tmsg_message_destroy(kept[i]);
    }
}

/* If thresholds ask for a list of the tensors, nothing is gathered. */
Test(template_large, thresholds_are_heeded)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.b.context->tuning.of[TMSG_TRANSPORT_SHM].gather_bytes = 0;
    pair.b.context->tuning.of[TMSG_TRANSPORT_SHM].gather_mean_bytes = 1;
    pair.b.context->tuning.of[TMSG_TRANSPORT_SHM].eager_list_bytes = MIB;
    expect_none(&pair, medium);
}
