/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Parts of several channels at a receiver without memory for all of them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "am/lane.h"
#include "am/parts.h"
#include "support/channels.h"
#include "support/device_map.h"
#include "support/devices.h"
#include "support/peers.h"
#include "support/sample.h"

#define BYTES 1000000

static void small_parts(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.part_bytes=1000,shm.chunk_bytes=10000,"
           "tcp.part_bytes=1000,tcp.chunk_bytes=10000",
           1);
}

TestSuite(parts_turns, .init = small_parts);

/* A receiver has memory for one message: those of other channels wait for it,
 * and their parts must not be in the way of the one that has it. */
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

Test(parts_turns, two_channels_shm) { take_turns(LINK_SHM, 2); }
Test(parts_turns, two_channels_tcp) { take_turns(LINK_TCP, 2); }
Test(parts_turns, many_channels_shm) { take_turns(LINK_SHM, 16); }
Test(parts_turns, many_channels_tcp) { take_turns(LINK_TCP, 16); }

/* What comes first is for a device: it is asked for, and then comes by UCX all
 * the same. */
static void choose(void *arg, tmsg_incoming_t *incoming)
{
    static const tmsg_stream_t none;
    bool *seen = arg;

    if (!*seen) {
        must(tmsg_incoming_choose_all(incoming, device_at(1), none));
    }
    *seen = true;
}

static bool has_lane(void *arg) { return tmsg_lane_may_send(arg); }

Test(parts_turns, what_is_asked_for_finds_a_place_among_what_waits)
{
    bool seen = false;
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2},
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &seen}};
    const tmsg_send_params_t by_ucx = {.field_mask = TMSG_SEND_PARAM_CHANNEL |
                                                     TMSG_SEND_PARAM_WAY,
                                       .channel = 1,
                                       .way = TMSG_WAY_PARTS};
    tmsg_map_t *map = sample_bytes(1, BYTES);
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &options, NULL);
    pair_await(&pair, has_lane, pair.to_a, "the lane");
    sent = send_on(pair.to_a, 0, sample_bytes(0, BYTES), 0);
    must(tmsg_endpoint_send(pair.to_a, map, &by_ucx, NULL));
    tmsg_map_destroy(map);
    for (uint16_t i = 0; i < 2; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_eq(tmsg_message_channel(message), i);
        if (i == 1) {
            sample_check_bytes(1, BYTES, tmsg_message_map(message));
        }
        tmsg_message_destroy(message);
    }
    must(pair_finish(&pair, sent));
    pair_close(&pair);
    device_maps_end();
}
