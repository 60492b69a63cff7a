/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/fail.h"

#include <stdio.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/lease.h"
#include "am/ucx/ucx.h"
#include "core/shown.h"

/* A busy machine, or a relay, may delay the last words this long. */
#define LAST_WORDS_MS 1000

void tmsg_endpoint_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *error)
{
    /* Once the peer has our FIN it may end, and UCX may be the first to tell.
     * The socket says whether the end was in order. */
    if (status == TMSG_ERR_PEER_LOST && endpoint->fin_sent &&
        endpoint->link.source.fd >= 0) {
        return;
    }
    if (endpoint->broken == TMSG_OK) {
        endpoint->broken = status;
        tmsg_shown_format(endpoint->broken_why, sizeof(endpoint->broken_why),
                          "%s", error);
    }
    tmsg_worker_chore(endpoint->worker, endpoint);
}

static void no_last_words(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, lost.timer);

    tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, endpoint->lost.why);
}

/* Waits for the peer's last words: a peer that ends a connection says why on
 * the socket, but UCX and the bulk stream may be faster. What the socket said
 * goes before what they say afterwards. False: there is no socket to wait for.
 */
static bool awaits_last_words(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_lease_withdraw(endpoint); /* sends end that the peer may be reading */
    if (endpoint->link.hung_up) {
        return true;
    }
    if (endpoint->link.source.fd < 0 || !endpoint->link.connected) {
        return false;
    }
    if (endpoint->lost.timer.deadline_ns == 0) {
        snprintf(endpoint->lost.why, sizeof(endpoint->lost.why), "%s", why);
        endpoint->lost.timer.expired = no_last_words;
        tmsg_loop_set_timer(&endpoint->worker->loop, &endpoint->lost.timer,
                            LAST_WORDS_MS);
    }
    return true;
}

void tmsg_endpoint_lose(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs)
{
    const char *lost = endpoint->ucx != NULL && endpoint->ucx->pipes != NULL
                           ? "the stream of messages is lost"
                           : "UCX lost the connection";
    char why[128];

    if (!awaits_last_words(endpoint, lost)) {
        snprintf(why, sizeof(why), "%s: %s", lost, tmsg_ucx_status_words(ucs));
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_endpoint_lose_stream(tmsg_endpoint_t *endpoint, const char *why)
{
    if (!awaits_last_words(endpoint, why)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_endpoint_lose_bulk(tmsg_endpoint_t *endpoint, const char *words)
{
    char why[128];

    snprintf(why, sizeof(why), "the connection for large payloads is lost: %s",
             words);
    if (!awaits_last_words(endpoint, why)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_endpoint_unsent(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs)
{
    if (tmsg_ucx_is_loss(ucs)) {
        tmsg_endpoint_lose(endpoint, ucs);
    } else {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                            tmsg_ucx_status_words(ucs));
    }
}

void tmsg_endpoint_forget_loss(tmsg_endpoint_t *endpoint)
{
    tmsg_loop_clear_timer(&endpoint->worker->loop, &endpoint->lost.timer);
}
