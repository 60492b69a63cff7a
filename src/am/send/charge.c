/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/charge.h"

#include "am/endpoint/credit.h"
#include "am/send/send.h"

void tmsg_credit_charge(tmsg_send_t *send, tmsg_preamble_t *head,
                        uint64_t payload_bytes)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_credit_t *credit = &endpoint->credit;
    uint64_t cost =
        tmsg_credit_cost(payload_bytes, head->flags & TMSG_HEADER_SPILLED);

    send->charge = 0;
    if (!tmsg_credit_counts(&endpoint->peer_hello) || cost == 0 ||
        send->am_flags & TMSG_UCX_SEND_RENDEZVOUS) {
        return;
    }
    if (tmsg_credit_has_room(endpoint, payload_bytes,
                             head->flags & TMSG_HEADER_SPILLED)) {
        send->charge = cost;
        head->flags |= TMSG_HEADER_CHARGED;
        return;
    }
    credit->tx_deferred++;
    send->am_flags &= ~(uint32_t)TMSG_UCX_SEND_EAGER;
    send->am_flags |= TMSG_UCX_SEND_RENDEZVOUS;
}
