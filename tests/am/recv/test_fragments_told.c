/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Counters and callbacks count all bytes of messages with fragments, and the
 * fragments of several channels take turns. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define TENSOR 20000

static void small_fragments(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=5000,shm.chunk_bytes=4096,"
           "shm.bulk_bytes=never,"
           "tcp.fragment_bytes=5000,tcp.chunk_bytes=4096",
           1);
}

TestSuite(fragments_told, .init = small_fragments);

/* So many tensors of so many bytes. */
static tmsg_map_t *map_of(size_t tensors, size_t bytes)
{
    const sample_t sample = {.seed = 1,
                             .tensors = tensors,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 4,
                             .elements = bytes};

    return sample_make(&sample);
}

static bool has_arrived(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->ready.count > 0;
}

static bool was_taken_back(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->stats.aborted_messages > 0;
}

/* A message that its sender gives up before the application has taken it. */
Test(fragments_told, are_not_counted_when_taken_back)
{
    const tmsg_histogram_t *sizes;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, map_of(4, TENSOR), TMSG_SEND_ACKED);
    pair_await(&pair, has_arrived, pair.to_b, "the message");
    sizes = &pair.to_b->stats.received_sizes;
    must_eq(sizes->count, 1);
    must_true(pair.to_b->stats.received_bytes >= 4 * TENSOR);
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    pair_await(&pair, was_taken_back, pair.to_b, "its end");
    must_eq(pair.to_b->stats.received_messages, 0);
    must_eq(pair.to_b->stats.received_bytes, 0);
    must_eq(pair.to_b->channels.zero.received_messages, 0);
    must_eq(sizes->sum, 0);
    for (size_t i = 0; i < TMSG_HISTOGRAM_BUCKETS; i++) {
        must_eq(sizes->buckets[i], 0);
    }
    tmsg_request_destroy(sent);
    pair_close(&pair);
}

static void note_bytes(void *arg, tmsg_incoming_t *incoming)
{
    *(uint64_t *)arg = tmsg_incoming_bytes(incoming);
}

/* Returns the bytes that on_header was told of a message that goes this way. */
static uint64_t told_of(pair_t *pair, int32_t way, const uint64_t *told)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = way};
    tmsg_map_t *map = map_of(3, TENSOR);
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
    tmsg_map_destroy(map);
    return *told;
}

Test(fragments_told, are_in_the_bytes_of_an_incoming_message)
{
    const uint64_t whole = UINT64_C(3) * TENSOR;
    uint64_t told = 0;
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = note_bytes,
                   .on_header_arg = &told}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
    must_eq(told_of(&pair, TMSG_WAY_GATHER, &told), whole);
    must_eq(told_of(&pair, TMSG_WAY_AUTO, &told), whole);
    must_eq(told_of(&pair, TMSG_WAY_FRAGMENTS, &told), whole);
    pair_close(&pair);
}

/* A threshold that nothing reaches goes as the largest number on the wire. */
Test(fragments_told, may_be_without_end)
{
    tmsg_request_t *sent;
    pair_t pair;

    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=5000,shm.chunk_bytes=18446744073709551615", 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, map_of(3, TENSOR), TMSG_SEND_ACKED);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

/* Returns how many fragments a message of 2 x 20,000 bytes on channel 0 travels
 * in. */
static uint64_t fragments_of(pair_t *pair, uint32_t flags)
{
    uint64_t before = pair->to_a->tx.fragments_handed;
    tmsg_request_t *sent =
        send_map(pair->to_a, map_of(2, TENSOR), TMSG_SEND_ACKED | flags);

    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
    return pair->to_a->tx.fragments_handed - before;
}

/* Sends a small message. */
static void say(pair_t *pair, uint16_t channel)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = channel};
    tmsg_map_t *map = map_of(1, 8);
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
    tmsg_map_destroy(map);
}

static void open_with_long_ones(pair_t *pair, link_t link)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=5000,shm.chunk_bytes=5000,"
           "shm.lone_chunk_bytes=15000,"
           "tcp.fragment_bytes=5000,tcp.chunk_bytes=5000,"
           "tcp.lone_chunk_bytes=15000",
           1);
    pair_open(pair, link, DRIVE_POLLING, NULL, NULL);
}

static void become_short(link_t link)
{
    pair_t pair;

    open_with_long_ones(&pair, link);
    must_eq(fragments_of(&pair, 0), 2 * 2);
    must_eq(fragments_of(&pair, 0), 2 * 2);
    say(&pair, 0); /* it cannot pass */
    must_eq(fragments_of(&pair, 0), 2 * 2);
    say(&pair, 1);
    must_eq(fragments_of(&pair, 0), 2 * 4);
    must_eq(fragments_of(&pair, 0), 2 * 4);
    pair_close(&pair);
}

Test(fragments_told, become_short_where_a_small_message_may_pass_shm)
{
    become_short(LINK_SHM);
}

Test(fragments_told, become_short_where_a_small_message_may_pass_tcp)
{
    become_short(LINK_TCP);
}

Test(fragments_told, become_short_where_one_without_order_may_pass)
{
    pair_t pair;

    open_with_long_ones(&pair, LINK_SHM);
    must_eq(fragments_of(&pair, TMSG_SEND_UNORDERED), 2 * 2);
    must_eq(fragments_of(&pair, TMSG_SEND_UNORDERED), 2 * 2);
    say(&pair, 0);
    must_eq(fragments_of(&pair, TMSG_SEND_UNORDERED), 2 * 4);
    pair_close(&pair);
}

#define LARGES 2
#define LARGE 4000000

/* Large messages on two channels, and a smaller one behind them on a third. */
Test(fragments_told, wait_for_those_of_no_other_channel)
{
    tmsg_request_t *sent[LARGES + 1];
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint16_t i = 0; i <= LARGES; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_CHANNEL, .channel = i};
        tmsg_map_t *map = map_of(2, i < LARGES ? LARGE : TENSOR);

        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent[i]));
        tmsg_map_destroy(map);
    }
    message = pair_take(&pair, &pair.a);
    must_eq(tmsg_message_channel(message), LARGES);
    tmsg_message_destroy(message);
    for (uint16_t i = 0; i < LARGES; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    for (uint16_t i = 0; i <= LARGES; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}
