/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the live offers of a name: the newest that a reader may fetch at once,
 * and each by its version, however many there are, and for whomever. The hub's
 * lock is held. */
#include <stdlib.h>
#include <string.h>

#include "rpc/offer.h"
#include "rpc/principal.h"

#define ROOM_AT_FIRST 4

/* Reads what has no principals. */
#define ANYBODY ""

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

uint64_t tmsg_reader_key(uint64_t name_key, const char *reader, size_t bytes)
{
    return version_key(name_key, tmsg_table_key(reader, bytes));
}

static uint64_t reader_key(const char *name, const char *reader, size_t bytes)
{
    return tmsg_reader_key(tmsg_offer_name_key(name, strlen(name)), reader,
                           bytes);
}

const char *tmsg_readers_of(const char *principals)
{
    return principals == NULL ? ANYBODY
           : tmsg_principals_have(principals, TMSG_PRINCIPAL_ANY)
               ? TMSG_PRINCIPAL_ANY
               : principals;
}

size_t tmsg_readers_of_asker(const tmsg_endpoint_t *asker,
                             const char *readers[TMSG_READERS_MOST])
{
    const char *principal = tmsg_endpoint_principal(asker);

    readers[0] = ANYBODY;
    readers[1] = TMSG_PRINCIPAL_ANY;
    readers[2] = principal;
    return principal == NULL                            ? 1
           : strcmp(principal, TMSG_PRINCIPAL_ANY) == 0 ? 2
                                                        : 3;
}

static tmsg_versions_t *find(const tmsg_offers_t *offers, const char *name,
                             const char *reader, size_t bytes)
{
    tmsg_keyed_t *item =
        tmsg_table_find(&offers->by_reader, reader_key(name, reader, bytes));

    for (; item != NULL; item = tmsg_table_next(item)) {
        tmsg_versions_t *versions =
            TMSG_CONTAINER_OF(item, tmsg_versions_t, by_reader);

        if (versions->reader_bytes == bytes &&
            memcmp(versions->reader, reader, bytes) == 0 &&
            tmsg_offer_has_name(versions->heap[0]->offer, name, strlen(name))) {
            return versions;
        }
    }
    return NULL;
}

/* Finds all that an asker may fetch: an offer is in one of these only. Returns
 * how many there are. */
static size_t find_all(const tmsg_offers_t *offers, const char *name,
                       const tmsg_endpoint_t *asker,
                       const tmsg_versions_t *found[TMSG_READERS_MOST])
{
    const char *readers[TMSG_READERS_MOST];
    size_t count = tmsg_readers_of_asker(asker, readers), some = 0;

    for (size_t i = 0; i < count; i++) {
        found[some] = find(offers, name, readers[i], strlen(readers[i]));
        some += found[some] != NULL;
    }
    return some;
}

tmsg_offer_t *tmsg_versions_newest(const tmsg_offers_t *offers,
                                   const char *name,
                                   const tmsg_endpoint_t *asker)
{
    const tmsg_versions_t *found[TMSG_READERS_MOST];
    size_t count = find_all(offers, name, asker, found);
    tmsg_offer_t *newest = NULL;

    for (size_t i = 0; i < count; i++) {
        tmsg_offer_t *offer = found[i]->heap[0]->offer;

        if (newest == NULL || offer->version > newest->version) {
            newest = offer;
        }
    }
    return newest;
}

size_t tmsg_versions_count(const tmsg_offers_t *offers, const char *name,
                           const tmsg_endpoint_t *asker)
{
    const tmsg_versions_t *found[TMSG_READERS_MOST];
    size_t lists = find_all(offers, name, asker, found), count = 0;

    for (size_t i = 0; i < lists; i++) {
        count += found[i]->count;
    }
    return count;
}

bool tmsg_version_is_newest(const tmsg_offer_t *offer)
{
    size_t i = 0;

    while (i < offer->version_count && offer->versions[i].place > 0) {
        i++;
    }
    return i < offer->version_count;
}

bool tmsg_version_is_there(const tmsg_offers_t *offers,
                           const tmsg_offer_t *wanted)
{
    tmsg_keyed_t *item = tmsg_table_find(
        &offers->by_version, version_key(wanted->name_key, wanted->version));

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

static void put(tmsg_versions_t *versions, size_t place,
                tmsg_version_t *version)
{
    versions->heap[place] = version;
    version->place = place;
}

/* Puts an offer into the free place, or nearer to the newest: no offer is older
 * than those that lie below it, at 2 * place + 1 and + 2. */
static void rise(tmsg_versions_t *versions, size_t place,
                 tmsg_version_t *version)
{
    while (place > 0) {
        tmsg_version_t *above = versions->heap[(place - 1) / 2];

        if (above->offer->version > version->offer->version) {
            break;
        }
        put(versions, place, above);
        place = (place - 1) / 2;
    }
    put(versions, place, version);
}

/* Moves the free place down to where nothing lies below it, and returns it. */
static size_t sink(tmsg_versions_t *versions, size_t place)
{
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= versions->count) {
            return place;
        }
        if (below + 1 < versions->count &&
            versions->heap[below + 1]->offer->version >
                versions->heap[below]->offer->version) {
            below++;
        }
        put(versions, place, versions->heap[below]);
        place = below;
    }
}

static bool make_room(tmsg_versions_t *versions)
{
    size_t room = versions->room == 0 ? ROOM_AT_FIRST : 2 * versions->room;
    tmsg_version_t **heap;

    if (versions->count < versions->room) {
        return true;
    }
    heap = realloc(versions->heap, room * sizeof(tmsg_version_t *));
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

static tmsg_versions_t *make_versions(const char *reader, size_t bytes)
{
    tmsg_versions_t *versions = calloc(1, sizeof(*versions) + bytes);

    if (versions == NULL) {
        return NULL;
    }
    versions->reader_bytes = bytes;
    memcpy(versions->reader, reader, bytes);
    if (!make_room(versions)) {
        free(versions);
        return NULL;
    }
    return versions;
}

/* Adds an offer to what a reader may fetch, unless he has it already. */
static tmsg_status_t add_for(tmsg_offers_t *offers, tmsg_offer_t *offer,
                             const char *reader, size_t bytes)
{
    tmsg_versions_t *versions = find(offers, offer->name, reader, bytes);
    uint64_t number = offers->last_number + 1; /* that it is to have */
    tmsg_version_t *version = &offer->versions[offer->version_count];

    if (versions != NULL && versions->added == number) {
        return TMSG_OK;
    }
    if (versions == NULL) {
        versions = make_versions(reader, bytes);
        if (versions != NULL) {
            tmsg_table_add(&offers->by_reader, &versions->by_reader,
                           reader_key(offer->name, reader, bytes));
        }
    } else if (!make_room(versions)) {
        versions = NULL;
    }
    if (versions == NULL) {
        return tmsg_error_memory("an offer");
    }
    *version = (tmsg_version_t){.offer = offer, .versions = versions};
    offer->version_count++;
    versions->added = number;
    rise(versions, versions->count++, version);
    return TMSG_OK;
}

static void remove_version(tmsg_offers_t *offers, tmsg_version_t *version)
{
    tmsg_versions_t *versions = version->versions;
    tmsg_version_t *last = versions->heap[versions->count - 1];

    versions->added = 0;
    if (versions->count == 1) {
        tmsg_table_remove(&offers->by_reader, &versions->by_reader);
        free_versions(versions);
        return;
    }
    versions->count--;
    if (last != version) {
        rise(versions, sink(versions, version->place), last);
    }
}

/* Removes an offer from what its readers may fetch. */
static void remove_all(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    while (offer->version_count > 0) {
        remove_version(offers, &offer->versions[--offer->version_count]);
    }
    free(offer->versions);
    offer->versions = NULL;
}

static size_t count_words(const char *list)
{
    size_t count = 1;

    while ((list = strchr(list, ' ')) != NULL) {
        list++;
        count++;
    }
    return count;
}

tmsg_status_t tmsg_versions_add(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    const char *list = tmsg_readers_of(offer->principals);
    tmsg_status_t status = TMSG_OK;

    offer->versions = malloc(count_words(list) * sizeof(*offer->versions));
    if (offer->versions == NULL) {
        return tmsg_error_memory("an offer");
    }
    while (list != NULL && status == TMSG_OK) {
        size_t bytes = strcspn(list, " ");

        status = add_for(offers, offer, list, bytes);
        list = list[bytes] == '\0' ? NULL : list + bytes + 1;
    }
    if (status != TMSG_OK) {
        remove_all(offers, offer);
        return status;
    }
    tmsg_table_add(&offers->by_version, &offer->by_version,
                   version_key(offer->name_key, offer->version));
    return TMSG_OK;
}

void tmsg_versions_remove(tmsg_offers_t *offers, tmsg_offer_t *offer)
{
    tmsg_table_remove(&offers->by_version, &offer->by_version);
    remove_all(offers, offer);
}
