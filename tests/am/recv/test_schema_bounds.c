/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* How much a malicious peer can make a side spend on kept layouts and on
 * answers to them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"
#include "am/recv/schemas.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

static uint64_t noted(pair_t *pair, const sample_t *sample)
{
    tmsg_request_t *request =
        send_map(pair->to_a, sample_make(sample), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    uint64_t bytes = message->noted;

    tmsg_message_destroy(message);
    must(pair_finish(pair, request));
    return bytes;
}

/* A message's layout lives as long as the message, even if another layout has
 * its slot by then. */
Test(schema_bounds, a_message_counts_its_layout_that_went_before)
{
    const sample_t sample = {.seed = 3, .tensors = 50, .name_bytes = 4000};
    pair_t pair;
    uint64_t whole;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    whole = noted(&pair, &sample);
    cr_expect(ge(u64, whole, 50 * 4000 + 1));
    cr_expect(ge(u64, noted(&pair, &sample), whole));
    cr_expect(eq(u64, pair.to_a->stats.sent_by_schema, 1));
    pair_close(&pair);
}

/* The sender keeps what its peer keeps; the peer must not decide how much that
 * is. */
Test(schema_bounds, a_greedy_offer_is_not_taken)
{
    enum { LAYOUTS = 40 };
    tmsg_request_t *requests[LAYOUTS];
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.schema_slots = UINT16_MAX;
    pair.to_a->peer_hello.schema_bytes = UINT32_MAX;
    for (uint64_t i = 0; i < LAYOUTS; i++) {
        const sample_t sample = {
            .seed = i, .tensors = 10 + i, .name_bytes = 1000};

        requests[i] = send_map(pair.to_a, sample_make(&sample), 0);
        cr_expect(le(u64, pair.to_a->tx.budget.used, TMSG_SCHEMA_BYTES));
    }
    for (uint64_t i = 0; i < LAYOUTS; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, requests[i]));
    }
    pair_close(&pair);
}

static uint64_t kept_for_all(const pair_t *pair)
{
    return atomic_load(&pair->a.worker->life->schemas.used);
}

static bool keeps_none(void *pair) { return kept_for_all(pair) == 0; }

/* Two connections: the worker may keep a layout of either, but not of both. */
Test(schema_bounds, a_worker_keeps_no_more_of_all_its_peers_together)
{
    const sample_t sample = {.seed = 1, .tensors = 10, .name_bytes = 100};
    tmsg_endpoint_t *second;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair.a.worker->life->schemas.limit = 2000;
    (void)noted(&pair, &sample);
    (void)noted(&pair, &sample);
    cr_expect(eq(u64, pair.to_a->stats.sent_by_schema, 1));
    cr_expect(ge(u64, kept_for_all(&pair), 1001));
    second = side_dial(&pair.b, &pair.a);
    for (int i = 0; i < 3; i++) {
        tmsg_request_t *request =
            send_map(second, sample_make(&sample), TMSG_SEND_ACKED);

        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, request));
        cr_expect(eq(u64, second->stats.sent_by_schema, 0));
    }
    cr_expect(le(u64, kept_for_all(&pair), 2000));
    tmsg_endpoint_destroy(pair.to_a);
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_a = second;
    pair_await(&pair, keeps_none, &pair, "its layouts to go");
    pair_drop(&pair);
}

/* Sends from b, which never reads what comes back. */
static void send_blindly(pair_t *pair, uint32_t sequence)
{
    static const uint8_t noise = 0xc1;
    forged_t forged;

    forged_make(pair,
                (tmsg_preamble_t){.kind = TMSG_KIND_MAP, .sequence = sequence},
                &noise, 1, &forged);
    forged_put(pair, &forged);
    tmsg_worker_progress(pair->a.worker);
}

Test(schema_bounds, a_peer_that_reads_no_answers_is_ended)
{
    enum { DEPTH = 8, SENT = 5000 };
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    uint32_t sequence;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &options, NULL);
    sequence = pair.to_a->channels.zero.tx_sequence;
    for (int i = 0; i < SENT && tmsg_endpoint_status(pair.to_b) == TMSG_OK;
         i++) {
        send_blindly(&pair, sequence++);
    }
    must_be(tmsg_endpoint_status(pair.to_b), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_endpoint_error(pair.to_b), "without taking its answers");
    pair_drop(&pair);
}
