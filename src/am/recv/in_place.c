/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/in_place.h"

#include "am/endpoint/endpoint.h"
#include "am/recv/scatter.h"
#include "am/ucx/retained.h"

bool tmsg_message_may_stay_in_place(const tmsg_message_t *message)
{
    uint64_t spill = tmsg_payload_spill(&message->head);
    uint64_t bytes = message->head.payload_bytes;

    return !message->rendezvous && !message->copied && message->data != NULL &&
           message->fragments == NULL && message->posted == NULL &&
           message->stage == NULL && bytes > TMSG_IN_PLACE_LEAST &&
           !tmsg_budget_asks(message->budget) &&
           (uintptr_t)message->data % TMSG_PAYLOAD_ALIGNMENT == 0 &&
           tmsg_scatter_missing(message->map) == bytes - spill;
}

tmsg_status_t tmsg_message_use_in_place(tmsg_message_t *message)
{
    uint64_t bytes = message->head.payload_bytes;
    tmsg_status_t status = tmsg_budget_reserve(message->budget, bytes);

    if (status == TMSG_OK) {
        tmsg_refs_take(&message->ucx->holders);
        message->in_place_bytes = bytes;
        message->endpoint->stats.received_in_place++;
        tmsg_payload_place(message->map,
                           (uint8_t *)message->data +
                               tmsg_payload_spill(&message->head));
    }
    return status;
}

/* UCX may be called by one thread at a time only, and not from its callbacks.
 * So the payload is only marked here, and goes back to UCX later. */
void tmsg_message_end_in_place(tmsg_message_t *message)
{
    tmsg_ucx_t *ucx = message->ucx;

    if (message->in_place_bytes == 0) {
        return;
    }
    if (message->data != NULL && tmsg_ucx_lift(ucx, message->data)) {
        tmsg_budget_signal(message->budget);
    }
    tmsg_budget_discharge(message->budget, message->in_place_bytes);
    tmsg_ucx_let_go(ucx);
}
