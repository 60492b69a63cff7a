/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/schemas.h"

#include <stdlib.h>

#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/recv/template_in.h"
#include "serialize/checksum.h"
#include "serialize/split.h"

/* Keeps the definition of a message that was delivered before its turn. */
typedef struct tmsg_schema_later {
    struct tmsg_schema_later *next;
    uint32_t sequence;
    uint8_t slot;
    uint8_t generation;
    tmsg_schema_t *schema; /* NULL: the schema cannot be kept */
} later_t;

static tmsg_schema_store_t *schema_store_of(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_hello_t *mine = &endpoint->ucx->hello;

    if (channel->rx_schemas == NULL && mine->schema_slots > 0) {
        endpoint->rx.budget.limit = mine->schema_bytes;
        endpoint->rx.budget.total = &endpoint->life->schemas;
        (void)tmsg_schema_store_create(mine->schema_slots, &endpoint->rx.budget,
                                       &channel->rx_schemas);
    }
    return channel->rx_schemas;
}

static tmsg_status_t refer_to_schema(tmsg_message_t *message)
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
    if (status == TMSG_OK && message->extra.split.large > 0) {
        status = tmsg_split_check(&message->extra.split, message->map);
    }
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
            schema_store_of(message->channel), message->map,
            &message->extra.schema, message->head.body_bytes);
        return TMSG_OK; /* without a schema the answer is no */
    case TMSG_SCHEMA_REFERS:
        return refer_to_schema(message);
    default:
        return TMSG_OK;
    }
}

/* Takes a schema into use, and answers the sender. The peers of a worker mostly
 * send the same layout. Equal schemas share one, so a record that was laid out
 * for one peer's template fits those of all. */
static void take_schema(tmsg_channel_t *channel, uint8_t slot,
                        uint8_t generation, tmsg_schema_t *schema)
{
    bool kept;

    if (schema != NULL) {
        tmsg_schema_share(schema, TMSG_TEMPLATE_LAYOUT_BYTES,
                          &channel->endpoint->worker->layout);
    }
    tmsg_template_forget_in(channel);
    kept =
        tmsg_schema_store_take(channel->rx_schemas, slot, generation, schema);
    tmsg_control_schema(channel, slot, generation, kept);
}

void tmsg_schemas_in_turn(tmsg_message_t *message)
{
    const tmsg_schema_use_t *use = &message->extra.schema;
    tmsg_schema_t *schema = message->schema;

    if (use->form == TMSG_SCHEMA_DEFINES) {
        message->schema = NULL;
        take_schema(message->channel, use->slot, use->generation, schema);
    }
}

bool tmsg_schemas_keep(tmsg_message_t *message)
{
    const tmsg_schema_use_t *use = &message->extra.schema;
    later_t *later;

    if (use->form != TMSG_SCHEMA_DEFINES) {
        return true;
    }
    later = malloc(sizeof(*later));
    if (later == NULL) {
        return false;
    }
    *later = (later_t){message->channel->schemas_later, message->head.sequence,
                       use->slot, use->generation, message->schema};
    message->schema = NULL;
    message->channel->schemas_later = later;
    return true;
}

void tmsg_schemas_passed(tmsg_channel_t *channel, uint32_t sequence)
{
    later_t **place = &channel->schemas_later;
    later_t *later;

    while (*place != NULL && (*place)->sequence != sequence) {
        place = &(*place)->next;
    }
    later = *place;
    if (later != NULL) {
        *place = later->next;
        take_schema(channel, later->slot, later->generation, later->schema);
        free(later);
    }
}

void tmsg_schemas_forget(tmsg_channel_t *channel)
{
    while (channel->schemas_later != NULL) {
        later_t *later = channel->schemas_later;

        channel->schemas_later = later->next;
        tmsg_schema_destroy(later->schema);
        free(later);
    }
}

void tmsg_schemas_drop(tmsg_message_t *message)
{
    tmsg_schema_destroy(message->schema);
    message->schema = NULL;
    message->extra.schema.form = TMSG_SCHEMA_NONE;
}
