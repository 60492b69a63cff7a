/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/schemas.h"

#include "am/control.h"
#include "core/error.h"
#include "serialize/checksum.h"

#define ANSWER_BYTES 3 /* slot, generation, kept */

/* What a peer keeps we keep as well: no more of either than we would offer. */
static uint32_t slots_of(const tmsg_hello_t *hello)
{
    return hello->schema_slots < TMSG_SCHEMA_SLOTS ? hello->schema_slots
                                                   : TMSG_SCHEMA_SLOTS;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Nor may a definition make a body longer than the peer takes. */
static uint64_t budget_of(const tmsg_hello_t *hello)
{
    return least(least(hello->schema_bytes, TMSG_SCHEMA_BYTES),
                 hello->max_header_bytes);
}

tmsg_schema_table_t *tmsg_schemas_table(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_hello_t *peer = &endpoint->peer_hello;
    uint32_t slots = slots_of(peer);

    if (channel->tx_schemas == NULL && slots > 0) {
        endpoint->tx_budget.limit = budget_of(peer);
        (void)tmsg_schema_table_create(slots, &endpoint->tx_budget,
                                       &channel->tx_schemas);
    }
    return channel->tx_schemas;
}

static tmsg_schema_store_t *store_of(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_hello_t *mine = &endpoint->ucx->hello;

    if (channel->rx_schemas == NULL && mine->schema_slots > 0) {
        endpoint->rx_budget.limit = mine->schema_bytes;
        (void)tmsg_schema_store_create(mine->schema_slots, &endpoint->rx_budget,
                                       &channel->rx_schemas);
    }
    return channel->rx_schemas;
}

static tmsg_status_t refer(tmsg_message_t *message)
{
    const tmsg_schema_use_t *use = &message->extra.schema;
    tmsg_endpoint_t *endpoint = message->endpoint;
    const tmsg_schema_t *schema;
    tmsg_status_t status =
        tmsg_schema_store_find(message->channel->rx_schemas, use, &schema);

    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
        return status;
    }
    status = tmsg_schema_fill(schema, use, message->map);
    if (status != TMSG_OK) {
        return status;
    }
    return tmsg_checksum_check_count(message->map, &message->extra);
}

tmsg_status_t tmsg_schemas_decoded(tmsg_message_t *message)
{
    switch (message->extra.schema.form) {
    case TMSG_SCHEMA_DEFINES:
        message->schema = tmsg_schema_store_prepare(
            store_of(message->channel), message->map, &message->extra.schema,
            message->head.body_bytes);
        return TMSG_OK; /* without it the answer is no */
    case TMSG_SCHEMA_REFERS:
        return refer(message);
    default:
        return TMSG_OK;
    }
}

void tmsg_schemas_in_turn(tmsg_message_t *message)
{
    const tmsg_schema_use_t *use = &message->extra.schema;
    bool kept;

    if (use->form != TMSG_SCHEMA_DEFINES) {
        return;
    }
    kept = tmsg_schema_store_take(message->channel->rx_schemas, use->slot,
                                  use->generation, message->schema);
    message->schema = NULL;
    tmsg_control_schema(message->endpoint, use->slot, use->generation, kept);
}

ucs_status_t tmsg_schema_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    const uint8_t *answer = arrival->body;
    tmsg_status_t status;

    if (endpoint == NULL) {
        return UCS_OK;
    }
    status =
        arrival->head.body_bytes < ANSWER_BYTES
            ? tmsg_error_set(TMSG_ERR_MALFORMED,
                             "an answer to a schema of %u bytes",
                             arrival->head.body_bytes)
            : tmsg_schema_table_answered(endpoint->channels.zero.tx_schemas,
                                         answer[0], answer[1], answer[2] != 0);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
    }
    return UCS_OK;
}
