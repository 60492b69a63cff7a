/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/channel.h"

#include <stdlib.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "core/error.h"

static void init_channel(tmsg_channel_t *channel, tmsg_endpoint_t *endpoint,
                         uint16_t number)
{
    channel->endpoint = endpoint;
    channel->number = number;
    channel->tx_window = endpoint->peer_hello.queue_depth;
    endpoint->channels.count++;
}

void tmsg_channels_init(tmsg_endpoint_t *endpoint)
{
    init_channel(&endpoint->channels.zero, endpoint, 0);
    endpoint->channels.turn = &endpoint->channels.zero;
}

void tmsg_channels_opened(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        channel->tx_window = endpoint->peer_hello.queue_depth;
    }
}

tmsg_channel_t *tmsg_channel_find(tmsg_endpoint_t *endpoint, uint16_t number)
{
    tmsg_channels_t *channels = &endpoint->channels;

    if (number == 0) {
        return &channels->zero;
    }
    if (number == TMSG_CHANNEL_CALLS) {
        return channels->calls;
    }
    if (tmsg_channel_is_stream(number)) {
        uint32_t index = number - TMSG_CHANNEL_STREAMS;

        return index < channels->stream_slots ? channels->streams[index] : NULL;
    }
    return number <= channels->slots ? channels->further[number - 1] : NULL;
}

/* Makes sure that a table has at least `needed` slots. */
static tmsg_status_t grow_table(tmsg_channel_t ***table_p, uint32_t *slots_p,
                                uint32_t needed)
{
    uint32_t slots = *slots_p == 0 ? 4 : *slots_p;
    tmsg_channel_t **table;

    if (needed <= *slots_p) {
        return TMSG_OK;
    }
    while (slots < needed) {
        slots *= 2;
    }
    table = reallocarray(*table_p, slots, sizeof(*table));
    if (table == NULL) {
        return tmsg_error_memory("the table of channels");
    }
    for (uint32_t i = *slots_p; i < slots; i++) {
        table[i] = NULL;
    }
    *table_p = table;
    *slots_p = slots;
    return TMSG_OK;
}

/* Makes a slot for that number in its table. */
static tmsg_status_t make_slot(tmsg_channels_t *channels, uint16_t number)
{
    if (number == TMSG_CHANNEL_CALLS) {
        return TMSG_OK;
    }
    return tmsg_channel_is_stream(number)
               ? grow_table(&channels->streams, &channels->stream_slots,
                            number - TMSG_CHANNEL_STREAMS + 1)
               : grow_table(&channels->further, &channels->slots, number);
}

static void append_channel(tmsg_channels_t *channels, tmsg_channel_t *channel)
{
    tmsg_channel_t *last = &channels->zero;

    while (last->next != NULL) {
        last = last->next;
    }
    last->next = channel;
    if (channel->number == TMSG_CHANNEL_CALLS) {
        channels->calls = channel;
    } else if (tmsg_channel_is_stream(channel->number)) {
        channels->streams[channel->number - TMSG_CHANNEL_STREAMS] = channel;
    } else {
        channels->further[channel->number - 1] = channel;
    }
}

tmsg_status_t tmsg_channel_get(tmsg_endpoint_t *endpoint, uint16_t number,
                               tmsg_channel_t **channel_p)
{
    tmsg_channel_t *channel = tmsg_channel_find(endpoint, number);
    tmsg_status_t status;

    if (channel == NULL) {
        status = make_slot(&endpoint->channels, number);
        if (status != TMSG_OK) {
            return status;
        }
        channel = calloc(1, sizeof(*channel));
        if (channel == NULL) {
            return tmsg_error_memory("a channel");
        }
        init_channel(channel, endpoint, number);
        append_channel(&endpoint->channels, channel);
    }
    *channel_p = channel;
    return TMSG_OK;
}

tmsg_status_t tmsg_channel_judge(const tmsg_endpoint_t *endpoint,
                                 uint16_t number)
{
    uint16_t channels = endpoint->peer_hello.channels;

    if (number == TMSG_CHANNEL_CALLS) {
        return endpoint->peer_hello.features & TMSG_FEATURE_CALLS
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                    "%s: this peer takes no calls",
                                    endpoint->peer);
    }
    if (tmsg_channel_is_stream(number)) {
        return endpoint->peer_hello.features & TMSG_FEATURE_STREAMS
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                    "%s: this peer takes no streams",
                                    endpoint->peer);
    }
    if (number == 0 || number < channels) {
        return TMSG_OK;
    }
    if (channels <= 1) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: channel %u: this peer takes no other than 0",
                              endpoint->peer, number);
    }
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "%s: channel %u: this peer takes 0 to %d",
                          endpoint->peer, number, channels - 1);
}

tmsg_status_t tmsg_channel_check(const tmsg_channel_t *channel)
{
    return tmsg_channel_judge(channel->endpoint, channel->number);
}

tmsg_status_t tmsg_channel_open(tmsg_endpoint_t *endpoint, uint16_t number,
                                tmsg_channel_t **channel_p)
{
    tmsg_status_t status =
        endpoint->state == TMSG_EP_CONNECTING && endpoint->dialect->answers
            ? TMSG_OK
            : tmsg_channel_judge(endpoint, number);

    return status != TMSG_OK ? status
                             : tmsg_channel_get(endpoint, number, channel_p);
}

tmsg_channel_t *tmsg_channel_of(tmsg_endpoint_t *endpoint, uint16_t number)
{
    tmsg_channel_t *channel = tmsg_channel_find(endpoint, number);

    if (number != 0 && number >= endpoint->ucx->hello.channels &&
        number != TMSG_CHANNEL_CALLS && !tmsg_channel_is_stream(number)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message on a channel that was not offered");
        return NULL;
    }
    if (channel == NULL &&
        tmsg_channel_get(endpoint, number, &channel) != TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_NO_MEMORY, tmsg_error_message());
    }
    return channel;
}

tmsg_channel_t *tmsg_channel_after(tmsg_channel_t *channel)
{
    return channel->next != NULL ? channel->next
                                 : &channel->endpoint->channels.zero;
}

/* Returns the number of bits for the next queue_depth messages. A message's bit
 * is its number modulo this. */
static uint32_t overtaking_bits(const tmsg_channel_t *channel)
{
    uint32_t bits = 64;

    while (bits < channel->endpoint->worker->queue_depth) {
        bits *= 2;
    }
    return bits;
}

uint64_t *tmsg_channel_overtaking(const tmsg_channel_t *channel,
                                  uint32_t sequence, uint64_t *mask_p)
{
    uint32_t bit = sequence & (overtaking_bits(channel) - 1);

    *mask_p = UINT64_C(1) << bit % 64;
    return &channel->overtook[bit / 64];
}

bool tmsg_channel_may_overtake(tmsg_channel_t *channel)
{
    if (channel->overtook == NULL) {
        channel->overtook = calloc(overtaking_bits(channel) / 64, 8);
    }
    return channel->overtook != NULL;
}

void tmsg_channel_overtake(tmsg_channel_t *channel, uint32_t sequence)
{
    uint64_t mask;

    *tmsg_channel_overtaking(channel, sequence, &mask) |= mask;
}

bool tmsg_channel_overtook(const tmsg_channel_t *channel, uint32_t sequence)
{
    uint64_t mask;

    return channel->overtook != NULL &&
           (*tmsg_channel_overtaking(channel, sequence, &mask) & mask) != 0;
}

uint32_t tmsg_channel_next(const tmsg_channel_t *channel, uint32_t sequence)
{
    while (tmsg_channel_overtook(channel, sequence)) {
        sequence++;
    }
    return sequence;
}

bool tmsg_channel_has_credit(const tmsg_channel_t *channel)
{
    return (int32_t)(channel->tx_window - channel->tx_sequence) > 0;
}

static void count_queued(tmsg_channel_t *channel, int more)
{
    tmsg_channels_t *channels = &channel->endpoint->channels;

    channels->queued += (size_t)more;
    if (tmsg_channel_is_stream(channel->number)) {
        channels->queued_streams += (size_t)more;
    }
}

void tmsg_channel_push(tmsg_channel_t *channel, tmsg_node_t *send)
{
    tmsg_list_push(&channel->queued, send);
    count_queued(channel, 1);
}

void tmsg_channel_put_back(tmsg_channel_t *channel, tmsg_node_t *send)
{
    tmsg_list_insert(&channel->queued, NULL, send);
    count_queued(channel, 1);
}

tmsg_node_t *tmsg_channel_pop(tmsg_channel_t *channel)
{
    tmsg_node_t *send = tmsg_list_pop(&channel->queued);

    if (send != NULL) {
        count_queued(channel, -1);
    }
    return send;
}

void tmsg_channel_remove(tmsg_channel_t *channel, tmsg_node_t *send)
{
    tmsg_list_remove(&channel->queued, send);
    count_queued(channel, -1);
}
