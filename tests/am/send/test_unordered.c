/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Unordered messages do not wait for earlier ones of their channel. */
#include <criterion/criterion.h>

#include "am/endpoint/endpoint.h"
#include "support/channels.h"
#include "support/seeded_maps.h"

static void overtakes(link_t link)
{
    tmsg_request_t *acked;
    full_t full;

    fill(&full, link, 256);
    send_bytes(full.pair.to_a, 1, 3, 100, 0);
    acked = send_on(full.pair.to_a, 1, sample_bytes(4, 200),
                    TMSG_SEND_ACKED | TMSG_SEND_UNORDERED);
    expect(&full.pair, 1, 4, 200);
    must(pair_finish(&full.pair, acked));
    release(&full);
    expect(&full.pair, 1, 2, MIB);
    expect(&full.pair, 1, 3, 100);
    send_bytes(full.pair.to_a, 1, 5, 300, 0);
    expect(&full.pair, 1, 5, 300);
    pair_close(&full.pair);
}

Test(unordered, an_unordered_message_overtakes)
{
    for (link_t link = 0; link < LINKS; link++) {
        overtakes(link);
    }
}

/* An unordered message that has nothing to overtake comes in order. */
Test(unordered, unordered_messages_arrive_once)
{
    enum { MESSAGES = 600, LARGE = 100000 };
    bool seen[MESSAGES] = {false};
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 5}};
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &a, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        send_bytes(pair.to_a, 3, i, i + (i % 5 == 0 ? LARGE : 0),
                   i % 3 == 0 ? 0 : TMSG_SEND_UNORDERED);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_tensor_t tensor;
        uint64_t seed;

        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        seed = (uint64_t)tensor.shape[0] % LARGE;
        must_true(seed < MESSAGES && !seen[seed]);
        sample_check_bytes(seed, (size_t)tensor.shape[0],
                           tmsg_message_map(message));
        seen[seed] = true;
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

/* An unordered message takes a credit, which comes back in its turn: a sender
 * cannot go ahead for ever of a message that does not come. */
Test(unordered, what_overtakes_stays_within_the_window)
{
    enum { DEPTH = 4, BEHIND = 20 };
    full_t full;

    fill(&full, LINK_SHM, DEPTH);
    for (uint64_t i = 0; i < BEHIND; i++) {
        send_bytes(full.pair.to_a, 1, 100 + i, 100, TMSG_SEND_UNORDERED);
    }
    /* The one that is held, and the one that waits, are before them. */
    for (uint64_t i = 0; i < DEPTH - 2; i++) {
        expect(&full.pair, 1, 100 + i, 100);
    }
    pump(&full.pair);
    must_eq(full.pair.to_b->stats.received_messages, DEPTH - 1);
    release(&full);
    for (uint64_t i = 0; i < 1 + BEHIND - (DEPTH - 2); i++) {
        tmsg_message_destroy(pair_take(&full.pair, &full.pair.a));
    }
    pair_close(&full.pair);
}

/* A schema that an unordered message defines waits for its turn, and is then
 * used like any other. */
static void schema_of_unordered(link_t link)
{
    full_t full;
    tmsg_channel_t *channel;
    uint64_t before;

    fill(&full, link, 256);
    before = full.pair.to_a->stats.sent_by_schema;
    channel = tmsg_channel_find(full.pair.to_b, 1);
    tmsg_request_destroy(send_on(
        full.pair.to_a, 1, sample_make(&(sample_t){.seed = 1, .tensors = 5}),
        TMSG_SEND_UNORDERED));
    tmsg_message_destroy(pair_take(&full.pair, &full.pair.a));
    pump(&full.pair);
    must_true(channel->schemas_later != NULL);
    release(&full);
    expect(&full.pair, 1, 2, MIB);
    must_true(channel->schemas_later == NULL);
    pump(&full.pair);
    must_eq(full.pair.to_a->stats.sent_by_schema, before);
    tmsg_request_destroy(send_on(
        full.pair.to_a, 1, sample_make(&(sample_t){.seed = 1, .tensors = 5}),
        TMSG_SEND_UNORDERED));
    tmsg_message_destroy(pair_take(&full.pair, &full.pair.a));
    must_eq(full.pair.to_a->stats.sent_by_schema, before + 1);
    pair_close(&full.pair);
}

Test(unordered, a_schema_of_an_unordered_message_waits_for_its_turn)
{
    schema_of_unordered(LINK_SHM);
    schema_of_unordered(LINK_TCP);
}

/* The same, if its turn never comes. */
Test(unordered, what_overtook_ends_with_the_endpoint)
{
    full_t full;

    fill(&full, LINK_SHM, 256);
    tmsg_request_destroy(send_on(
        full.pair.to_a, 1, sample_make(&(sample_t){.seed = 1, .tensors = 5}),
        TMSG_SEND_UNORDERED));
    tmsg_message_destroy(pair_take(&full.pair, &full.pair.a));
    tmsg_message_destroy(full.held);
    pair_drop(&full.pair);
}

/* A message that was delivered before its turn does not come twice. */
Test(unordered, what_overtook_does_not_come_again)
{
    full_t full;
    tmsg_channel_t *channel;

    fill(&full, LINK_SHM, 256);
    send_bytes(full.pair.to_a, 1, 4, 200, TMSG_SEND_UNORDERED);
    expect(&full.pair, 1, 4, 200);
    channel = tmsg_channel_find(full.pair.to_a, 1);
    channel->tx_sequence--;
    send_bytes(full.pair.to_a, 1, 5, 200, TMSG_SEND_UNORDERED);
    must_be(pair_end_of(&full.pair, full.pair.to_b), TMSG_ERR_MALFORMED);
    tmsg_message_destroy(full.held);
    pair_drop(&full.pair);
}
