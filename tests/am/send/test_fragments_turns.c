/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Fragments of several channels at a receiver without memory for all of them.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "am/path/bulk.h"
#include "am/send/fragments.h"
#include "support/channels.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

#define BYTES 1000000

static void small_fragments(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=1000,shm.chunk_bytes=10000,"
           "tcp.fragment_bytes=1000,tcp.chunk_bytes=10000",
           1);
}

TestSuite(fragments_turns, .init = small_fragments);

/* A receiver has memory for one message: those of other channels wait for it,
 * and their fragments must not be in the way of the one that has it. */
static void take_turns(link_t link, size_t channels)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2}};
    tmsg_request_t *sent[16];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (size_t i = 0; i < channels; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_CHANNEL | TMSG_SEND_PARAM_FLAGS,
            .channel = (uint16_t)i,
            .flags = TMSG_SEND_ACKED};
        tmsg_map_t *map = sample_bytes(i, BYTES);

        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent[i]));
        tmsg_map_destroy(map);
    }
    for (size_t i = 0; i < channels; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check_bytes(tmsg_message_channel(message), BYTES,
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (size_t i = 0; i < channels; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(fragments_turns, two_channels_shm) { take_turns(LINK_SHM, 2); }
Test(fragments_turns, two_channels_tcp) { take_turns(LINK_TCP, 2); }
Test(fragments_turns, many_channels_shm) { take_turns(LINK_SHM, 16); }
Test(fragments_turns, many_channels_tcp) { take_turns(LINK_TCP, 16); }

/* The first message is for a device: the receiver asks for its fragments, and
 * they come by UCX all the same. */
static void choose(void *arg, tmsg_incoming_t *incoming)
{
    static const tmsg_stream_t none;
    bool *seen = arg;

    if (!*seen) {
        must(tmsg_incoming_choose_all(incoming, device_at(1), none));
    }
    *seen = true;
}

static bool has_bulk(void *arg) { return tmsg_bulk_may_send(arg); }

static tmsg_request_t *send_fragments(tmsg_endpoint_t *endpoint,
                                      uint16_t channel, uint64_t seed,
                                      size_t bytes)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL |
                                                     TMSG_SEND_PARAM_WAY,
                                       .channel = channel,
                                       .way = TMSG_WAY_FRAGMENTS};
    tmsg_map_t *map = sample_bytes(seed, bytes);
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(endpoint, map, &params, &sent));
    tmsg_map_destroy(map);
    return sent;
}

/* The other messages wait for memory that the first one holds, and leave it a
 * place in the window. */
static void find_a_place(uint16_t others)
{
    bool seen = false;
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2},
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &seen}};
    tmsg_request_t *sent[4];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &options, NULL);
    pair_await(&pair, has_bulk, pair.to_a, "the bulk stream");
    sent[0] = send_on(pair.to_a, 0, sample_bytes(0, BYTES), 0);
    for (uint16_t i = 1; i <= others; i++) {
        sent[i] = send_fragments(pair.to_a, i, i, BYTES);
    }
    for (uint16_t i = 0; i <= others; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_eq(tmsg_message_channel(message), i);
        if (i > 0) {
            sample_check_bytes(i, BYTES, tmsg_message_map(message));
        }
        tmsg_message_destroy(message);
    }
    for (uint16_t i = 0; i <= others; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}

Test(fragments_turns, what_is_asked_for_finds_a_place) { find_a_place(1); }
Test(fragments_turns, what_is_asked_for_finds_a_place_among_many)
{
    find_a_place(3);
}

/* A message is given up, and the one behind it on its channel goes on. */
Test(fragments_turns, what_is_given_up_holds_up_nothing)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2}};
    tmsg_request_t *held, *given_up, *behind;
    tmsg_message_t *first, *last;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &options, NULL);
    pair_await(&pair, has_bulk, pair.to_a, "the bulk stream");
    held = send_on(pair.to_a, 0, sample_bytes(1, BYTES), 0);
    first = pair_take(&pair, &pair.a);
    given_up = send_on(pair.to_a, 0, sample_bytes(2, BYTES), 0);
    behind = send_fragments(pair.to_a, 0, 3, BYTES / 4);
    tmsg_request_cancel(given_up);
    last = pair_take(&pair, &pair.a);
    sample_check_bytes(3, BYTES / 4, tmsg_message_map(last));
    tmsg_message_destroy(last);
    tmsg_message_destroy(first);
    must(pair_finish(&pair, held));
    must_be(pair_finish(&pair, given_up), TMSG_ERR_CANCELED);
    must(pair_finish(&pair, behind));
    pair_close(&pair);
}

/* The other messages could fill all of the worker's buffers between device and
 * host before the first message's memory may be read. */
Test(fragments_turns, what_began_first_finds_a_buffer)
{
    enum { CHANNELS = 20 };
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2}};
    const tmsg_stream_t stream = device_stream(1);
    const device_tensor_t late = {
        .device = 1, .bytes = BYTES, .stream = stream};
    const device_tensor_t other = {.device = 1, .bytes = BYTES};
    tmsg_request_t *sent[CHANNELS];
    pair_t pair;

    device_maps_begin();
    device_block(stream);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (unsigned i = 0; i < CHANNELS; i++) {
        const device_tensor_t *tensor = i == 0 ? &late : &other;

        sent[i] = send_on(pair.to_a, i, device_map(i + 1, tensor, 1), 0);
    }
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.b.worker);
        tmsg_worker_progress(pair.a.worker);
    }
    device_unblock(stream);
    for (unsigned i = 0; i < CHANNELS; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        unsigned channel = tmsg_message_channel(message);

        device_map_check(channel + 1, &other, 1, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (unsigned i = 0; i < CHANNELS; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}
