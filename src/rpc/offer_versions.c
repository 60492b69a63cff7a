/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the live offers of a name: the newest at once, and each by its version,
 * however many there are. The hub's lock is held. */
#include <stdlib.h>
#include <string.h>

#include "rpc/offer.h"
#include "rpc/principal.h"

#define ROOM_AT_FIRST 4

uint64_t tmsg_offer_name_key(const char *name, size_t bytes)
{
    uint64_t key = tmsg_table_key(name, bytes);

    return key == 0 ? 1 : key;
}

static uint64_t version_key(uint64_t name_key, uint64_t version)
{
    return name_key + version * UINT64_C(0x9e3779b97f4a7c15);
}

bool tmsg_offer_has_name(const tmsg_offer_t *offer, const char *name,
                         size_t bytes)
{
    return offer->name != NULL && offer->name_bytes == bytes &&
           memcmp(offer->name, name, bytes) == 0;
}

tmsg_versions_t *tmsg_versions_find(const tmsg_offers_t *offers,
                                    const char *name, size_t bytes)
{
    tmsg_keyed_t *item =
        tmsg_table_find(&offers->by_name, tmsg_offer_name_key(name, bytes));

    for (; item != NULL; item = tmsg_table_next(item)) {
        tmsg_versions_t *versions =
            TMSG_CONTAINER_OF(item, tmsg_versions_t, by_name);

        if (tmsg_offer_has_name(versions->heap[0], name, bytes)) {
            return versions;
        }
    }
    return NULL;
}

tmsg_offer_t *tmsg_versions_newest(const tmsg_versions_t *versions,
                                   const tmsg_endpoint_t *asker)
{
    tmsg_offer_t *newest = NULL;

    /* The first is the newest of all. */
    for (size_t i = 0; i < versions->count && newest != versions->heap[0];
         i++) {
        tmsg_offer_t *offer = versions->heap[i];

        if ((newest == NULL || offer->version > newest->version) &&
            tmsg_principals_allow(offer->principals, asker)) {
            newest = offer;
        }
    }
    return newest;
}

size_t tmsg_versions_count(const tmsg_versions_t *versions,
                           const tmsg_endpoint_t *asker)
{
    size_t count = 0;

    for (size_t i = 0; i < versions->count; i++) {
        count += tmsg_principals_allow(versions->heap[i]->principals, asker);
    }
    return count;
}

bool tmsg_version_is_there(const tmsg_offers_t *offers,
                           const tmsg_offer_t *wanted)
{
    uint64_t name = tmsg_offer_name_key(wanted->name, wanted->name_bytes);
    tmsg_keyed_t *item = tmsg_table_find(&offers->by_version,
                                         version_key(name, wanted->version));

    for (; item != NULL; item = tmsg_table_next(item)) {
        const tmsg_offer_t *offer =
            TMSG_CONTAINER_OF(item, tmsg_offer_t, by_version);

        if (offer->version == wanted->version &&
            tmsg_offer_has_name(offer, wanted->name, wanted->name_bytes)) {
            return true;
        }
    }
    return false;
}

static void put(tmsg_versions_t *versions, size_t place, tmsg_offer_t *offer)
{
    versions->heap[place] = offer;
    offer->place = place;
}

/* Puts an offer into the free place, or nearer to the newest: no offer is older
 * than those that lie below it, at 2 * place + 1 and + 2. */
static void rise(tmsg_versions_t *versions, size_t place, tmsg_offer_t *offer)
{
    while (place > 0) {
        tmsg_offer_t *above = versions->heap[(place - 1) / 2];

        if (above->version > offer->version) {
            break;
        }
        put(versions, place, above);
        place = (place - 1) / 2;
    }
    put(versions, place, offer);
}

/* Moves the free place down to where nothing lies below it, and returns it. */
static size_t sink(tmsg_versions_t *versions, size_t place)
{
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= versions->count) {
            return place;
        }
        if (below + 1 < versions->count && versions->heap[below + 1]->version >
                                               versions->heap[below]->version) {
            below++;
        }
        put(versions, place, versions->heap[below]);
        place = below;
    }
}

static bool make_room(tmsg_versions_t *versions)
{
    size_t room = versions->room == 0 ? ROOM_AT_FIRST : 2 * versions->room;
    tmsg_offer_t **heap;

    if (versions->count < versions->room) {
        return true;
    }
    heap = realloc(versions->heap, room * sizeof(tmsg_offer_t *));
    if (heap == NULL) {
        return false;
    }
    versions->heap = heap;
    versions->room = room;
    return true;
}

static void free_versions(tmsg_versions_t *versions)
{
    free(versions->heap);
    free(versions);
}

tmsg_status_t tmsg_versions_add(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    uint64_t key = tmsg_offer_name_key(offer->name, offer->name_bytes);
    tmsg_versions_t *versions =
        tmsg_versions_find(offers, offer->name, offer->name_bytes);
    bool first = versions == NULL;

    if (first) {
        versions = calloc(1, sizeof(*versions));
    }
    if (versions == NULL || !make_room(versions)) {
        if (first) {
            free(versions);
        }
        return tmsg_error_memory("an offer");
    }
    if (first) {
        tmsg_table_add(&offers->by_name, &versions->by_name, key);
    }
    rise(versions, versions->count++, offer);
    offer->versions = versions;
    tmsg_table_add(&offers->by_version, &offer->by_version,
                   version_key(key, offer->version));
    return TMSG_OK;
}

void tmsg_versions_remove(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    tmsg_versions_t *versions = offer->versions;
    tmsg_offer_t *last = versions->heap[versions->count - 1];

    offer->versions = NULL;
    tmsg_table_remove(&offers->by_version, &offer->by_version);
    if (versions->count == 1) {
        tmsg_table_remove(&offers->by_name, &versions->by_name);
        free_versions(versions);
        return;
    }
    versions->count--;
    if (last != offer) {
        rise(versions, sink(versions, offer->place), last);
    }
}
