/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/credit.h"

#include "am/endpoint/dialect.h"
#include "am/endpoint/fail.h"

/* Payloads up to this size are taken at once. */
#define FREE_BYTES 512
/* A payload costs this many bytes besides its own. */
#define RECORD_BYTES 64
#define WINDOW_MOST (4u << 20)
/* This many peers are expected to get about the same. */
#define PEERS_EXPECTED 64

uint64_t tmsg_credit_cost(uint64_t payload_bytes, bool spilled)
{
    if (payload_bytes == 0 || (payload_bytes <= FREE_BYTES && !spilled)) {
        return 0;
    }
    return payload_bytes > UINT64_MAX - RECORD_BYTES
               ? UINT64_MAX
               : payload_bytes + RECORD_BYTES;
}

bool tmsg_credit_counts(const tmsg_hello_t *hello)
{
    return hello->eager_bytes != TMSG_CREDIT_UNBOUNDED;
}

bool tmsg_credit_has_room(const tmsg_endpoint_t *endpoint,
                          uint64_t payload_bytes, bool spilled)
{
    const tmsg_credit_t *credit = &endpoint->credit;

    return !tmsg_credit_counts(&endpoint->peer_hello) ||
           tmsg_credit_cost(payload_bytes, spilled) <=
               credit->tx_edge - credit->tx_charged;
}

/* A quarter of held_bytes is shared among all peers. No peer gets so much of
 * what is left that the next peers get little. */
uint64_t tmsg_credit_open(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = endpoint->worker;
    uint64_t all = worker->context->limits.held_bytes / 4;
    uint64_t share = (all - worker->windows.bytes) /
                     (PEERS_EXPECTED + worker->windows.count);

    share = share < WINDOW_MOST ? share : WINDOW_MOST;
    endpoint->credit.rx_window = share;
    endpoint->credit.has_window = true;
    worker->windows.bytes += share;
    worker->windows.count++;
    return share;
}

void tmsg_credit_opened(tmsg_endpoint_t *endpoint)
{
    tmsg_credit_t *credit = &endpoint->credit;

    if (credit->tx_edge < endpoint->peer_hello.eager_bytes) {
        credit->tx_edge = endpoint->peer_hello.eager_bytes;
    }
    if (!credit->has_window && endpoint->dialect->answers) {
        tmsg_credit_open(endpoint);
    }
}

void tmsg_credit_close(tmsg_endpoint_t *endpoint)
{
    if (endpoint->credit.has_window) {
        endpoint->worker->windows.bytes -= endpoint->credit.rx_window;
        endpoint->worker->windows.count--;
        endpoint->credit.has_window = false;
    }
}

void tmsg_credit_reset(tmsg_endpoint_t *endpoint)
{
    uint64_t deferred = endpoint->credit.tx_deferred;

    tmsg_credit_close(endpoint);
    endpoint->credit = (tmsg_credit_t){.tx_deferred = deferred};
}

void tmsg_credit_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from)
{
    uint64_t deferred = to->credit.tx_deferred;

    to->credit = from->credit;
    to->credit.tx_deferred = deferred;
    from->credit = (tmsg_credit_t){0};
}

bool tmsg_credit_count(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                       uint64_t *charged_p)
{
    tmsg_credit_t *credit = &endpoint->credit;
    uint64_t cost = tmsg_credit_cost(arrival->data_bytes,
                                     arrival->head.flags & TMSG_HEADER_SPILLED);

    *charged_p = 0;
    if (!tmsg_credit_counts(&endpoint->peer_hello)) {
        return true;
    }
    if (!(arrival->head.flags & TMSG_HEADER_CHARGED)) {
        if (arrival->rendezvous || cost == 0) {
            return true;
        }
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an eager payload that was not counted");
        return false;
    }
    if (cost > credit->rx_edge - credit->rx_charged) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an eager payload beyond the window it was given");
        return false;
    }
    credit->rx_charged += cost;
    *charged_p = cost;
    return true;
}

void tmsg_credit_free(tmsg_endpoint_t *endpoint, uint64_t *charged)
{
    if (*charged == 0) {
        return;
    }
    endpoint->credit.rx_freed += *charged;
    *charged = 0;
    if (endpoint->state != TMSG_EP_ENDED && tmsg_credit_is_due(endpoint)) {
        endpoint->dialect->credit(&endpoint->channels.zero);
    }
}

bool tmsg_credit_allows(const tmsg_endpoint_t *endpoint, uint64_t charge)
{
    return charge <= endpoint->credit.rx_edge - endpoint->credit.rx_charged;
}

void tmsg_credit_pass(tmsg_endpoint_t *endpoint, uint64_t charge)
{
    endpoint->credit.rx_charged += charge;
    tmsg_credit_free(endpoint, &charge);
}

uint64_t tmsg_credit_edge(const tmsg_endpoint_t *endpoint)
{
    return endpoint->credit.rx_freed + endpoint->credit.rx_window;
}

bool tmsg_credit_is_due(const tmsg_endpoint_t *endpoint)
{
    uint64_t news = tmsg_credit_edge(endpoint) - endpoint->credit.rx_edge;

    return tmsg_credit_counts(&endpoint->peer_hello) && news > 0 &&
           news >= endpoint->credit.rx_window / 2;
}

uint64_t tmsg_credit_given(const tmsg_worker_t *worker)
{
    return worker->windows.bytes;
}
