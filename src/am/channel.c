/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/channel.h"

#include <stdlib.h>

#include "am/endpoint.h"
#include "core/error.h"

static void init(tmsg_channel_t *channel, tmsg_endpoint_t *endpoint,
                 uint16_t number)
{
    channel->endpoint = endpoint;
    channel->number = number;
    channel->tx_window = endpoint->peer_hello.queue_depth;
}

void tmsg_channels_init(tmsg_endpoint_t *endpoint)
{
    init(&endpoint->channels.zero, endpoint, 0);
}

static void free_content(tmsg_channel_t *channel)
{
    tmsg_schema_table_destroy(channel->tx_schemas);
    tmsg_schema_store_destroy(channel->rx_schemas);
}

void tmsg_channels_free(tmsg_endpoint_t *endpoint)
{
    tmsg_channels_t *channels = &endpoint->channels;

    free_content(&channels->zero);
    for (uint32_t i = 0; i < channels->slots; i++) {
        if (channels->further[i] != NULL) {
            free_content(channels->further[i]);
            free(channels->further[i]);
        }
    }
    free(channels->further);
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
    return number <= channels->slots ? channels->further[number - 1] : NULL;
}

/* Room for that number in the table. */
static tmsg_status_t make_room(tmsg_channels_t *channels, uint16_t number)
{
    uint32_t slots = channels->slots == 0 ? 4 : channels->slots;
    tmsg_channel_t **table;

    if (number <= channels->slots) {
        return TMSG_OK;
    }
    while (slots < number) {
        slots *= 2;
    }
    table = reallocarray(channels->further, slots, sizeof(*table));
    if (table == NULL) {
        return tmsg_error_memory("the table of channels");
    }
    for (uint32_t i = channels->slots; i < slots; i++) {
        table[i] = NULL;
    }
    channels->further = table;
    channels->slots = slots;
    return TMSG_OK;
}

static void append(tmsg_channels_t *channels, tmsg_channel_t *channel)
{
    tmsg_channel_t *last = &channels->zero;

    while (last->next != NULL) {
        last = last->next;
    }
    last->next = channel;
    channels->further[channel->number - 1] = channel;
}

tmsg_status_t tmsg_channel_get(tmsg_endpoint_t *endpoint, uint16_t number,
                               tmsg_channel_t **channel_p)
{
    tmsg_channel_t *channel = tmsg_channel_find(endpoint, number);
    tmsg_status_t status;

    if (channel == NULL) {
        status = make_room(&endpoint->channels, number);
        if (status != TMSG_OK) {
            return status;
        }
        channel = calloc(1, sizeof(*channel));
        if (channel == NULL) {
            return tmsg_error_memory("a channel");
        }
        init(channel, endpoint, number);
        append(&endpoint->channels, channel);
    }
    *channel_p = channel;
    return TMSG_OK;
}

bool tmsg_channel_has_credit(const tmsg_channel_t *channel)
{
    return (int32_t)(channel->tx_window - channel->tx_sequence) > 0;
}

void tmsg_channel_push(tmsg_channel_t *channel, tmsg_node_t *send)
{
    tmsg_list_push(&channel->queued, send);
    channel->endpoint->channels.queued++;
}

tmsg_node_t *tmsg_channel_pop(tmsg_channel_t *channel)
{
    tmsg_node_t *send = tmsg_list_pop(&channel->queued);

    channel->endpoint->channels.queued -= send != NULL;
    return send;
}

void tmsg_channel_remove(tmsg_channel_t *channel, tmsg_node_t *send)
{
    tmsg_list_remove(&channel->queued, send);
    channel->endpoint->channels.queued--;
}
