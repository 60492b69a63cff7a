/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/schemas_out.h"

#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/recv/schemas.h"
#include "core/error.h"

#define ANSWER_BYTES 3 /* slot, generation, kept */

/* The library keeps what a peer keeps as well, so it uses no more slots, and no
 * more bytes, than it would offer itself. */
static uint32_t slots_of(const tmsg_hello_t *hello)
{
    return hello->schema_slots < TMSG_SCHEMA_SLOTS ? hello->schema_slots
                                                   : TMSG_SCHEMA_SLOTS;
}

static uint64_t smaller_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* A definition must not make a body longer than the peer takes, either. */
static uint64_t budget_of(const tmsg_hello_t *hello)
{
    return smaller_of(smaller_of(hello->schema_bytes, TMSG_SCHEMA_BYTES),
                      hello->max_header_bytes);
}

tmsg_schema_table_t *tmsg_schemas_table(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_hello_t *peer = &endpoint->peer_hello;
    uint32_t slots = slots_of(peer);

    if (channel->tx_schemas == NULL && slots > 0) {
        endpoint->tx.budget.limit = budget_of(peer);
        (void)tmsg_schema_table_create(slots, &endpoint->tx.budget,
                                       &channel->tx_schemas);
    }
    return channel->tx_schemas;
}

tmsg_ucx_status_t tmsg_schema_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_channel_t *channel = tmsg_control_channel(arrival);
    const uint8_t *answer = arrival->body;
    tmsg_status_t status;

    if (channel == NULL) {
        return TMSG_UCX_OK;
    }
    status = arrival->head.body_bytes < ANSWER_BYTES
                 ? tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "an answer to a schema of %u bytes",
                                  arrival->head.body_bytes)
                 : tmsg_schema_table_answered(channel->tx_schemas, answer[0],
                                              answer[1], answer[2] != 0);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(channel->endpoint, status, tmsg_error_message());
    }
    return TMSG_UCX_OK;
}
