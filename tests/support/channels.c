/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/channels.h"

#include "am/endpoint/endpoint.h"
#include "support/seeded_maps.h"

tmsg_send_params_t on_channel(unsigned channel, uint32_t flags)
{
    return (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_CHANNEL |
                                              TMSG_SEND_PARAM_FLAGS,
                                .channel = (uint16_t)channel,
                                .flags = flags};
}

tmsg_request_t *send_on(tmsg_endpoint_t *endpoint, unsigned channel,
                        tmsg_map_t *map, uint32_t flags)
{
    tmsg_send_params_t params = on_channel(channel, flags);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

void send_bytes(tmsg_endpoint_t *endpoint, unsigned channel, uint64_t seed,
                size_t bytes, uint32_t flags)
{
    tmsg_request_destroy(
        send_on(endpoint, channel, sample_bytes(seed, bytes), flags));
}

void expect(pair_t *pair, unsigned channel, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    must_eq(tmsg_message_channel(message), channel);
    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

void pump(pair_t *pair)
{
    for (int i = 0; i < 400; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

typedef struct {
    tmsg_endpoint_t *endpoint;
    uint64_t messages;
} arrivals_t;

static bool have_arrived(void *arg)
{
    const arrivals_t *wanted = arg;

    return wanted->endpoint->stats.received_messages >= wanted->messages;
}

void await_arrivals(pair_t *pair, uint64_t messages)
{
    arrivals_t wanted = {pair->to_b, messages};

    pair_await(pair, have_arrived, &wanted, "messages");
    must_eq(pair->to_b->stats.received_messages, messages);
}

size_t size_of(uint64_t seed)
{
    static const size_t sizes[] = {0, 1, 700, 9000, 100000, 64, 300000};

    return sizes[seed % (sizeof(sizes) / sizeof(sizes[0]))];
}

void fill(full_t *full, link_t link, uint32_t queue_depth)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = MIB + MIB / 2},
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = queue_depth}};

    pair_open(&full->pair, link, DRIVE_POLLING, &a, NULL);
    send_bytes(full->pair.to_a, 1, 1, MIB, 0);
    full->held = pair_take(&full->pair, &full->pair.a);
    send_bytes(full->pair.to_a, 1, 2, MIB, 0);
    pump(&full->pair);
    must_eq(full->pair.to_b->stats.received_messages, 1);
}

void release(full_t *full)
{
    sample_check_bytes(1, MIB, tmsg_message_map(full->held));
    tmsg_message_destroy(full->held);
}
