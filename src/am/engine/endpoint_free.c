/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/endpoint_free.h"

#include <stdlib.h>

#include "am/connect/admit.h"
#include "am/connect/wireup.h"
#include "am/endpoint/channel.h"
#include "am/endpoint/endpoint.h"
#include "am/path/bulk.h"
#include "am/recv/abort.h"
#include "am/recv/consumer.h"
#include "am/recv/schemas.h"
#include "am/send/template_out.h"
#include "am/session/resume.h"

static void free_content(tmsg_channel_t *channel)
{
    tmsg_template_free(channel);
    tmsg_schema_table_destroy(channel->tx_schemas);
    tmsg_schema_store_destroy(channel->rx_schemas);
    tmsg_schemas_forget(channel);
    free(channel->overtook);
    channel->tx_schemas = NULL;
    channel->rx_schemas = NULL;
    channel->overtook = NULL;
}

static void free_channels(tmsg_endpoint_t *endpoint)
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
    for (uint32_t i = 0; i < channels->stream_slots; i++) {
        if (channels->streams[i] != NULL) {
            free_content(channels->streams[i]);
            free(channels->streams[i]);
        }
    }
    free(channels->streams);
    if (channels->calls != NULL) {
        free_content(channels->calls);
        free(channels->calls);
    }
}

void tmsg_channels_detached(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        free_content(channel);
    }
}

void tmsg_endpoint_free(tmsg_endpoint_t *endpoint)
{
    tmsg_call_forget(endpoint);
    tmsg_aborts_free(endpoint);
    tmsg_wireup_forget(endpoint);
    free_channels(endpoint);
    tmsg_life_drop(endpoint->life);
    tmsg_resume_free(endpoint);
    tmsg_admit_end(endpoint);
    free(endpoint->ucxx);
    if (endpoint->face != endpoint) {
        tmsg_endpoint_drop(endpoint->face);
    }
    free(endpoint);
}

void tmsg_endpoint_forget(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_t **slot =
        &endpoint->worker->endpoints[endpoint->id & TMSG_ENDPOINT_SLOT_MASK];

    if (endpoint->state == TMSG_EP_ENDED && endpoint->in_ucx == 0 &&
        !endpoint->handle && *slot == endpoint) {
        *slot = NULL;
        endpoint->worker->endpoint_count--;
        tmsg_stats_add(&endpoint->worker->past.stats, &endpoint->stats);
        endpoint->worker->past.endpoints += !tmsg_bulk_took_socket(endpoint);
        if (endpoint->ucx != NULL) {
            endpoint->ucx->users--;
            endpoint->ucx = NULL;
        }
        tmsg_endpoint_unlist(endpoint);
        tmsg_template_leave(endpoint);
        tmsg_endpoint_drop(endpoint);
    }
}
