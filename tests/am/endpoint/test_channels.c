/* SPDX-License-Identifier: BSD-3-Clause */
/* Each channel of an endpoint has an order and credits of its own. */
#include <criterion/criterion.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/channels.h"
#include "support/seeded_maps.h"

static void many_at_once(link_t link, drive_t drive)
{
    enum { CHANNELS = 64, EACH = 7 };
    unsigned next[CHANNELS] = {0};
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (unsigned i = 0; i < EACH; i++) {
        for (unsigned channel = 0; channel < CHANNELS; channel++) {
            uint64_t seed = channel * 1000 + i;

            send_bytes(pair.to_a, channel, seed, size_of(seed), 0);
        }
    }
    for (unsigned i = 0; i < EACH * CHANNELS; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        unsigned channel = tmsg_message_channel(message);
        uint64_t seed = channel * 1000 + next[channel]++;

        sample_check_bytes(seed, size_of(seed), tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

Test(channels, each_of_64_keeps_its_order_tcp)
{
    many_at_once(LINK_TCP, DRIVE_POLLING);
    many_at_once(LINK_TCP, DRIVE_THREAD);
}

Test(channels, each_of_64_keeps_its_order_shm)
{
    many_at_once(LINK_SHM, DRIVE_POLLING);
    many_at_once(LINK_SHM, DRIVE_FD);
}

Test(channels, each_of_64_keeps_its_order_unix)
{
    many_at_once(LINK_UNIX, DRIVE_FD);
    many_at_once(LINK_UNIX, DRIVE_THREAD);
}

Test(channels, each_of_64_keeps_its_order_blob)
{
    many_at_once(LINK_BLOB, DRIVE_POLLING);
}

/* A channel whose messages nobody takes holds up no other. */
static void without_credit(link_t link)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 4}};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &a, NULL);
    for (uint64_t i = 0; i < 10; i++) {
        send_bytes(pair.to_a, 1, i, 100, 0);
    }
    await_arrivals(&pair, 4);
    pump(&pair);
    await_arrivals(&pair, 4);
    for (uint64_t i = 0; i < 4; i++) {
        send_bytes(pair.to_a, 2, 100 + i, 100, 0);
        send_bytes(pair.to_a, 0, 200 + i, 100, 0);
    }
    await_arrivals(&pair, 12);
    for (uint64_t i = 0; i < 4; i++) {
        expect(&pair, 1, i, 100);
    }
    for (uint64_t i = 0; i < 4; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_true(tmsg_message_channel(message) != 1);
        tmsg_message_destroy(message);
    }
    await_arrivals(&pair, 16);
    pair_drop(&pair);
}

Test(channels, one_without_credit_holds_up_no_other)
{
    for (link_t link = 0; link < LINKS; link++) {
        without_credit(link);
    }
}

/* Sends that wait for the connection leave by turns, not channel by channel. */
static void by_turns(link_t link)
{
    enum { EACH = 30 };
    tmsg_endpoint_t *second;
    int lead = 0;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    second = side_dial(&pair.b, &pair.a);
    for (unsigned channel = 1; channel <= 3; channel++) {
        for (uint64_t i = 0; i < EACH; i++) {
            send_bytes(second, channel, i, 50, 0);
        }
    }
    for (unsigned i = 0; i < 3 * EACH; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        unsigned channel = tmsg_message_channel(message);

        lead += channel == 1 ? 2 : -1; /* ahead of the two others */
        must_true(lead >= -2 && lead <= 2);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

Test(channels, what_waits_leaves_by_turns)
{
    by_turns(LINK_TCP);
    by_turns(LINK_SHM);
    by_turns(LINK_UNIX);
}

static void behind_a_large_one(link_t link)
{
    full_t full;

    fill(&full, link, 256);
    for (uint64_t i = 0; i < 10; i++) {
        send_bytes(full.pair.to_a, 2, i, 100, 0);
        send_bytes(full.pair.to_a, 1, 50 + i, 100, 0);
        expect(&full.pair, 2, i, 100);
    }
    release(&full);
    expect(&full.pair, 1, 2, MIB);
    for (uint64_t i = 0; i < 10; i++) {
        expect(&full.pair, 1, 50 + i, 100);
    }
    pair_close(&full.pair);
}

Test(channels, a_small_message_passes_a_large_one_on_another)
{
    for (link_t link = 0; link < LINKS; link++) {
        behind_a_large_one(link);
    }
}

/* Each direction counts for itself, and a channel may be used in one alone. */
Test(channels, both_directions_are_their_own)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 300; i++) {
        tmsg_message_t *message;

        send_bytes(pair.to_a, 5, i, 100, 0);
        expect(&pair, 5, i, 100);
        send_bytes(pair.to_b, 63, i, 100, 0);
        message = pair_take(&pair, &pair.b);
        must_eq(tmsg_message_channel(message), 63);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

/* The orderly end waits for all channels, and for the sends in their queues. */
static void close_them(link_t link)
{
    enum { CHANNELS = 20, EACH = 12 };
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 3}};
    unsigned next[CHANNELS] = {0};
    tmsg_request_t *closed;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &a, NULL);
    for (unsigned i = 0; i < EACH; i++) {
        for (unsigned channel = 0; channel < CHANNELS; channel += 1 + channel) {
            send_bytes(pair.to_a, channel, i, size_of(channel + i), 0);
            send_bytes(pair.to_b, channel, i, 10, 0);
        }
    }
    must(tmsg_endpoint_close(pair.to_a, &closed));
    for (unsigned i = 0; i < 6 * EACH; i++) { /* channels 0, 1, 3, 7, 15 */
        tmsg_message_t *message;
        unsigned channel;

        if (i >= 5 * EACH) {
            continue;
        }
        message = pair_take(&pair, &pair.a);
        channel = tmsg_message_channel(message);
        sample_check_bytes(next[channel], size_of(channel + next[channel]),
                           tmsg_message_map(message));
        next[channel]++;
        tmsg_message_destroy(message);
        tmsg_message_destroy(pair_take(&pair, &pair.b));
    }
    must(pair_finish(&pair, closed));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED);
    pair_drop(&pair);
}

Test(channels, close_waits_for_all_of_them)
{
    for (link_t link = 0; link < LINKS; link++) {
        close_them(link);
    }
}

/* A channel that the peer does not take is the caller's error: at once or, if
 * the peer is not known yet, when it is. */
Test(channels, one_that_the_peer_does_not_take_is_refused)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_CHANNELS, .channels = 3}};
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_send_params_t params = on_channel(3, 0);
    tmsg_endpoint_t *second;
    tmsg_request_t *early;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
    must_be(tmsg_endpoint_send(pair.to_a, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "channel 3: this peer takes 0 to 2");
    params.channel = 2;
    must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    second = side_dial(&pair.b, &pair.a);
    early = send_on(second, 65535, sample_bytes(2, 10), 0);
    must_be(pair_wait(&pair, early), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_request_error(early), "channel 65535");
    tmsg_request_destroy(early);
    send_bytes(second, 1, 3, 10, 0);
    expect(&pair, 1, 3, 10);
    pair.to_a->peer_hello.channels = 1; /* as of an older one */
    params.channel = 1;
    must_be(tmsg_endpoint_send(pair.to_a, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "takes no other than 0");
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

Test(channels, each_is_counted)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 4}};
    char *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_true(strstr(json, "\"channels\"") == NULL);
    tmsg_string_free(json);
    for (uint64_t i = 0; i < 6; i++) {
        send_bytes(pair.to_a, 9, i, 10, 0);
    }
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "\"channels\"");
    must_say(json, "\"channel\":\t9,");
    must_say(json, "\"waiting_messages\":\t2,");
    must_say(json, "\"sent_messages\":\t4,");
    must_say(json, "\"credits\":\t0");
    tmsg_string_free(json);
    for (uint64_t i = 0; i < 6; i++) {
        expect(&pair, 9, i, 10);
    }
    pair_close(&pair);
}

Test(channels, a_worker_offers_1_to_1024)
{
    static const uint32_t wrong[] = {0, 1025, UINT32_MAX};
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    must(tmsg_context_create(NULL, &context));
    for (size_t i = 0; i < 3; i++) {
        const tmsg_worker_params_t params = {
            .field_mask = TMSG_WORKER_PARAM_CHANNELS, .channels = wrong[i]};

        must_be(tmsg_worker_create(context, &params, &worker),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "channels");
    }
    tmsg_context_destroy(context);
}

/* All 1024, and the orderly end that counts each. */
static void all_of_them(link_t link)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_CHANNELS, .channels = 1024}};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &a, NULL);
    for (unsigned channel = 0; channel < 1024; channel++) {
        send_bytes(pair.to_a, channel, channel, 20, 0);
    }
    for (unsigned channel = 0; channel < 1024; channel++) {
        expect(&pair, channel, channel, 20);
    }
    pair_close(&pair);
}

Test(channels, as_many_as_can_be)
{
    all_of_them(LINK_UNIX);
    all_of_them(LINK_BLOB);
}

/* No number of a channel's is special: here its 2^32 wrap. */
static void wrap(pair_t *pair, unsigned number)
{
    tmsg_channel_t *to, *from;

    send_bytes(pair->to_a, number, 0, 10, 0);
    expect(pair, number, 0, 10);
    to = tmsg_channel_find(pair->to_a, (uint16_t)number);
    from = tmsg_channel_find(pair->to_b, (uint16_t)number);
    to->tx_sequence = UINT32_MAX - 20;
    to->tx_window = to->tx_sequence + 256;
    from->rx_sequence = to->tx_sequence;
    from->rx_consumed = to->tx_sequence;
    from->rx_credited = to->tx_sequence;
}

Test(channels, numbers_wrap)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    wrap(&pair, 9);
    for (uint64_t i = 0; i < 600; i++) {
        send_bytes(pair.to_a, 9, i, 10, i % 2 ? TMSG_SEND_UNORDERED : 0);
        expect(&pair, 9, i, 10);
    }
    pair_close(&pair);
}
