/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/siblings_tend.h"

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/ucx/siblings.h"
#include "am/ucx/ucx_events.h"

/* Returns whether an endpoint may still have UCX look for the memory of that
 * peer. */
static bool deals_with(const tmsg_ucx_t *ucx, uint64_t peer)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (endpoint->peer_hello.ucx_id == peer &&
            (endpoint->ep != NULL || endpoint->in_ucx > 0)) {
            return true;
        }
    }
    return false;
}

/* Returns whether the endpoint's peer has gone without a sign: no socket tells
 * the end of a peer that came by blob. */
static bool is_forlorn(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.fd < 0 && !tmsg_endpoint_is_down(endpoint) &&
           tmsg_sibling_has_gone(endpoint->ucx, endpoint->peer_hello.ucx_id);
}

/* Returns the next forlorn endpoint, from *i on. */
static tmsg_endpoint_t *next_forlorn(const tmsg_ucx_t *ucx, uint32_t *i)
{
    tmsg_endpoint_t *endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);

    while (endpoint != NULL && !is_forlorn(endpoint)) {
        endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);
    }
    return endpoint;
}

/* Breaks the connections by blob to siblings that have left. What the siblings
 * had sent was read. */
static void break_forlorn(const tmsg_ucx_t *ucx)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = next_forlorn(ucx, &i)) != NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, tmsg_siblings_gone);
    }
}

/* Tends one UCX worker. False: there was nothing to do. */
static bool tend_ucx(tmsg_ucx_t *ucx)
{
    uint32_t first = 0;

    if (!tmsg_siblings_look(ucx, deals_with) &&
        next_forlorn(ucx, &first) == NULL) {
        return false;
    }
    if (!tmsg_ucx_events.drain(ucx)) {
        ucx->waits = true; /* there is more than can be read at once */
        return true;
    }
    break_forlorn(ucx);
    tmsg_siblings_let_go(ucx);
    return true;
}

unsigned tmsg_siblings_tend(tmsg_worker_t *worker)
{
    unsigned count = 0;

    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        if (tmsg_siblings_want_tending(ucx)) {
            count += tend_ucx(ucx);
        }
    }
    return count;
}
