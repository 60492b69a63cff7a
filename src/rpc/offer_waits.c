/* SPDX-License-Identifier: BSD-3-Clause */
/* The fetches that wait for a name or a version: whose places they take, and
 * which of them an offer wakes. What others wait for, and how many they are,
 * costs little. The hub's lock is held. */
#include <stdlib.h>

#include "rpc/offer.h"
#include "rpc/principal.h"

/* The fetches that wait for one name, oldest first. */
struct tmsg_waited {
    tmsg_keyed_t by_name;
    unsigned refs; /* of fetches that have places */
    tmsg_list_t waits;
};

void tmsg_waits_begin(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_rpc_peer_t *peer = wait->task->peer;

    wait->waits = true;
    hub->offers->waiting++;
    tmsg_list_push(&wait->waited->waits, &wait->node);
    tmsg_list_push(&peer->waits, &wait->own);
    if (peer->waits.count == 1) {
        tmsg_list_push(&hub->offers->waiters, &peer->waiter);
    }
}

/* Takes a fetch out of those that wait. */
static void take_out(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_rpc_peer_t *peer = wait->task->peer;

    wait->waits = false;
    hub->offers->waiting--;
    tmsg_list_remove(&wait->waited->waits, &wait->node);
    tmsg_list_remove(&peer->waits, &wait->own);
    if (peer->waits.count == 0) {
        tmsg_list_remove(&hub->offers->waiters, &peer->waiter);
    }
}

void tmsg_waits_end(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    take_out(hub, wait);
    tmsg_lifetime_end(hub, &wait->patience);
}

static tmsg_waited_t *find_waited(const tmsg_offers_t *offers, uint64_t name)
{
    tmsg_keyed_t *item = tmsg_table_find(&offers->waited, name);

    return item == NULL ? NULL
                        : TMSG_CONTAINER_OF(item, tmsg_waited_t, by_name);
}

/* Returns whether a peer that waits may fetch an offer, and compares that once
 * for all its waits. Lock held. */
static bool may_fetch(const tmsg_fetch_wait_t *wait, const tmsg_offer_t *offer)
{
    tmsg_rpc_peer_t *peer = wait->task->peer;

    if (peer->looked != offer->number) {
        peer->looked = offer->number;
        peer->may_fetch =
            tmsg_principals_allow(offer->principals, wait->task->endpoint);
    }
    return peer->may_fetch;
}

void tmsg_fetch_look_again(tmsg_hub_t *hub, const tmsg_offer_t *offer)
{
    const tmsg_waited_t *waited =
        offer->name == NULL ? NULL : find_waited(hub->offers, offer->name_key);
    tmsg_node_t *next;

    for (tmsg_node_t *node = waited == NULL ? NULL : waited->waits.head;
         node != NULL; node = next) {
        tmsg_fetch_wait_t *wait =
            TMSG_CONTAINER_OF(node, tmsg_fetch_wait_t, node);

        next = node->next;
        if (tmsg_offer_suits(hub->offers, offer, &wait->ask) &&
            may_fetch(wait, offer)) {
            take_out(hub, wait); /* its patience goes on */
            tmsg_hub_tell(hub, &wait->event);
        }
    }
}

/* Returns the peer that waits whose fetches take most places, if those are more
 * than `most`; else NULL. */
static tmsg_rpc_peer_t *find_largest(const tmsg_offers_t *offers, unsigned most)
{
    tmsg_rpc_peer_t *largest = NULL;

    for (tmsg_node_t *node = offers->waiters.head; node != NULL;
         node = node->next) {
        tmsg_rpc_peer_t *peer =
            TMSG_CONTAINER_OF(node, tmsg_rpc_peer_t, waiter);

        if (peer->fetches_waiting > most) {
            most = peer->fetches_waiting;
            largest = peer;
        }
    }
    return largest;
}

static void give_places(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    hub->offers->places -= wait->places;
    wait->task->peer->fetches_waiting -= wait->places;
    wait->places = 0;
}

/* Gives the places of a peer's oldest wait to others. Its event tells the
 * fetcher. */
static void push_out(tmsg_hub_t *hub, tmsg_rpc_peer_t *peer)
{
    tmsg_fetch_wait_t *wait =
        TMSG_CONTAINER_OF(peer->waits.head, tmsg_fetch_wait_t, own);

    tmsg_waits_end(hub, wait);
    give_places(hub, wait);
    wait->pushed_out = true;
    tmsg_hub_tell(hub, &wait->event);
}

/* Returns whether the waits that can be pushed out have so many places: those
 * of peers that have more than `most`, until they have no more than that. */
static bool can_yield(const tmsg_offers_t *offers, unsigned most,
                      uint64_t wanted)
{
    uint64_t yielding = 0;

    for (tmsg_node_t *node = offers->waiters.head;
         node != NULL && yielding < wanted; node = node->next) {
        const tmsg_rpc_peer_t *peer =
            TMSG_CONTAINER_OF(node, tmsg_rpc_peer_t, waiter);
        unsigned left = peer->fetches_waiting;

        for (tmsg_node_t *own = peer->waits.head;
             own != NULL && left > most && yielding < wanted; own = own->next) {
            uint32_t places =
                TMSG_CONTAINER_OF(own, tmsg_fetch_wait_t, own)->places;

            left -= places;
            yielding += places;
        }
    }
    return yielding >= wanted;
}

/* Finds those that wait for the same name, or begins with the first. Errors:
 * NO_MEMORY. */
static tmsg_status_t join_waited(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_waited_t *waited = find_waited(hub->offers, wait->name);

    if (waited == NULL) {
        waited = calloc(1, sizeof(*waited));
        if (waited == NULL) {
            return tmsg_error_memory("a fetch that waits");
        }
        tmsg_table_add(&hub->offers->waited, &waited->by_name, wait->name);
    }
    waited->refs++;
    wait->waited = waited;
    return TMSG_OK;
}

tmsg_status_t tmsg_waits_take_place(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_offers_t *offers = hub->offers;
    tmsg_rpc_peer_t *peer = wait->task->peer;
    unsigned most = peer->fetches_waiting + wait->places;
    uint64_t wanted = offers->places + wait->places;
    bool room = most <= TMSG_WAITS_OF_A_PEER &&
                (wanted <= TMSG_FETCHES_WAITING ||
                 can_yield(offers, most, wanted - TMSG_FETCHES_WAITING));
    tmsg_status_t status;

    if (!room) {
        return tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                              "as many fetches wait as may");
    }
    status = join_waited(hub, wait);
    if (status != TMSG_OK) {
        return status;
    }
    while (offers->places + wait->places > TMSG_FETCHES_WAITING) {
        push_out(hub, find_largest(offers, most));
    }
    offers->waits++;
    offers->places += wait->places;
    peer->fetches_waiting += wait->places;
    return TMSG_OK;
}

void tmsg_waits_give_place(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    hub->offers->waits--;
    give_places(hub, wait);
    if (--wait->waited->refs == 0) {
        tmsg_table_remove(&hub->offers->waited, &wait->waited->by_name);
        free(wait->waited);
    }
}
