/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the endpoints of a worker by their ids, and counts their references. */
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/engine.h"

#define REFS_AHEAD 64

void tmsg_endpoint_hold(tmsg_endpoint_t *endpoint)
{
    tmsg_refs_take(&endpoint->refs.count);
}

void tmsg_endpoint_drop(tmsg_endpoint_t *endpoint)
{
    if (tmsg_refs_drop(&endpoint->refs.count)) {
        tmsg_engine.free(endpoint);
    }
}

void tmsg_endpoint_unlist(tmsg_endpoint_t *endpoint)
{
    (void)tmsg_refs_drop_some(&endpoint->refs.count, endpoint->refs.ahead);
    endpoint->refs.ahead = 0;
    endpoint->refs.listed = false;
}

void tmsg_endpoint_borrow(tmsg_endpoint_t *endpoint)
{
    if (!endpoint->refs.listed) {
        tmsg_endpoint_hold(endpoint);
        return;
    }
    if (endpoint->refs.ahead == 0) {
        tmsg_refs_take_some(&endpoint->refs.count, REFS_AHEAD);
        endpoint->refs.ahead = REFS_AHEAD;
    }
    endpoint->refs.ahead--;
}

void tmsg_endpoint_return(tmsg_endpoint_t *endpoint)
{
    if (endpoint->refs.listed) {
        endpoint->refs.ahead++;
    } else {
        tmsg_endpoint_drop(endpoint);
    }
}

tmsg_endpoint_t *tmsg_endpoint_next(const tmsg_worker_t *worker,
                                    const tmsg_ucx_t *ucx, uint32_t *i)
{
    while (*i < worker->endpoint_slots) {
        tmsg_endpoint_t *endpoint = worker->endpoints[(*i)++];

        if (endpoint != NULL && (ucx == NULL || endpoint->ucx == ucx)) {
            return endpoint;
        }
    }
    return NULL;
}

static tmsg_status_t find_endpoint_slot(tmsg_worker_t *worker, uint32_t *slot_p)
{
    uint32_t slots = worker->endpoint_slots;
    tmsg_endpoint_t **table;

    for (uint32_t i = 0; i < slots; i++) {
        if (worker->endpoints[i] == NULL) {
            *slot_p = i;
            return TMSG_OK;
        }
    }
    if (slots > TMSG_ENDPOINT_SLOT_MASK / 2) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a worker has at most %u endpoints", slots);
    }
    slots = slots == 0 ? 8 : slots * 2;
    table = reallocarray(worker->endpoints, slots, sizeof(*table));
    if (table == NULL) {
        return tmsg_error_memory("the table of endpoints");
    }
    for (uint32_t i = worker->endpoint_slots; i < slots; i++) {
        table[i] = NULL;
    }
    *slot_p = worker->endpoint_slots;
    worker->endpoints = table;
    worker->endpoint_slots = slots;
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_create(tmsg_worker_t *worker,
                                   const tmsg_dialect_t *dialect,
                                   tmsg_endpoint_t **endpoint_p)
{
    uint32_t slot = 0;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status = find_endpoint_slot(worker, &slot);

    if (status != TMSG_OK) {
        return status;
    }
    endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return tmsg_error_memory("an endpoint");
    }
    tmsg_refs_init(&endpoint->refs.count, 2);
    endpoint->dialect = dialect;
    endpoint->worker = worker;
    endpoint->queue.bounds = worker->send_queue;
    endpoint->life = worker->life;
    endpoint->face = endpoint;
    atomic_init(&endpoint->now, endpoint);
    tmsg_life_hold(worker->life);
    endpoint->handle = true;
    tmsg_channels_init(endpoint);
    atomic_init(&endpoint->peer, endpoint->peer_url);
    atomic_init(&endpoint->user, NULL);
    atomic_init(&endpoint->admit.principal, NULL);
    endpoint->link.fd = -1;
    endpoint->peer_memory = UINT64_MAX; /* until it is known */
    endpoint->link.source.fd = -1;
    endpoint->link.resolve_source.fd = -1;
    endpoint->id = slot;
    tmsg_endpoint_rename(endpoint);
    worker->endpoints[slot] = endpoint;
    worker->endpoint_count++;
    endpoint->refs.listed = true;
    *endpoint_p = endpoint;
    return TMSG_OK;
}

void tmsg_endpoint_rename(tmsg_endpoint_t *endpoint)
{
    uint32_t *generation = &endpoint->worker->generation;

    do { /* id 0 is nobody's */
        *generation += 1;
        endpoint->id = (endpoint->id & TMSG_ENDPOINT_SLOT_MASK) |
                       (*generation << TMSG_ENDPOINT_SLOT_BITS);
    } while (endpoint->id <= TMSG_ENDPOINT_SLOT_MASK);
}

tmsg_endpoint_t *tmsg_endpoint_by_id(tmsg_worker_t *worker, uint32_t id)
{
    uint32_t slot = id & TMSG_ENDPOINT_SLOT_MASK;
    tmsg_endpoint_t *endpoint =
        slot < worker->endpoint_slots ? worker->endpoints[slot] : NULL;

    return endpoint != NULL && endpoint->id == id ? endpoint : NULL;
}

void tmsg_endpoint_reported(tmsg_endpoint_t *endpoint)
{
    endpoint->in_ucx--;
    if (endpoint->state == TMSG_EP_AWAY && endpoint->in_ucx == 0) {
        /* The endpoint may get its next connection. */
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    if (endpoint->state == TMSG_EP_ENDED && endpoint->in_ucx == 0 &&
        tmsg_endpoint_heir(endpoint)->state == TMSG_EP_AWAY) {
        /* Its heir may connect. */
        tmsg_worker_chore(endpoint->worker, tmsg_endpoint_heir(endpoint));
    }
    tmsg_engine.forget(endpoint);
}
