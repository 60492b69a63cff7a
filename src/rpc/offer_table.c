/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds offers by key and by name, and says why those are not there that are
 * not found. The hub's lock is held in most functions here. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/bytes.h"
#include "rpc/offer.h"
#include "rpc/principal.h"

tmsg_status_t tmsg_offers_create(tmsg_offers_t **offers_p)
{
    tmsg_offers_t *offers = calloc(1, sizeof(*offers));

    if (offers == NULL) {
        return tmsg_error_memory("offers");
    }
    *offers_p = offers;
    return TMSG_OK;
}

void tmsg_offers_free(tmsg_offers_t *offers)
{
    if (offers == NULL) {
        return;
    }
    tmsg_hub_free_records(&offers->lent_kept);
    tmsg_table_free(&offers->by_number);
    tmsg_table_free(&offers->by_version);
    tmsg_table_free(&offers->by_reader);
    tmsg_table_free(&offers->waited);
    tmsg_ended_free(offers);
    free(offers);
}

void tmsg_offers_count(tmsg_hub_t *hub, tmsg_calls_counts_t *counts)
{
    const tmsg_offers_t *offers;

    tmsg_hub_lock(hub);
    offers = hub->offers;
    if (offers == NULL) {
        tmsg_hub_unlock(hub);
        return;
    }
    counts->offers += offers->live.count;
    counts->offered_bytes += offers->bytes;
    counts->lent_bytes += offers->lent_bytes;
    counts->fetches += offers->fetches;
    counts->waiting_fetches += offers->waits;
    counts->fetched_maps += offers->fetched;
    counts->fetched_bytes += offers->fetched_bytes;
    tmsg_hub_unlock(hub);
}

static tmsg_status_t get_random(uint8_t *to, size_t bytes)
{
    ssize_t got;

    do {
        got = getrandom(to, bytes, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)bytes ? TMSG_OK
                                 : tmsg_error_errno(TMSG_ERR_IO, "getrandom");
}

tmsg_status_t tmsg_offers_begin(tmsg_offers_t *offers)
{
    struct timespec now;
    tmsg_status_t status;

    if (offers->epoch != 0) {
        return TMSG_OK;
    }
    status = get_random(offers->instance, sizeof(offers->instance));
    if (status == TMSG_OK) {
        clock_gettime(CLOCK_REALTIME, &now);
        offers->epoch =
            (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    }
    return status;
}

void tmsg_key_write(const tmsg_key_parts_t *parts, tmsg_offer_key_t *key)
{
    uint8_t *to = key->bytes;

    memcpy(to, parts->instance, sizeof(parts->instance));
    to = tmsg_put_le(to + sizeof(parts->instance), parts->epoch, 8);
    to = tmsg_put_le(to, parts->number, 8);
    memcpy(to, parts->random, sizeof(parts->random));
}

void tmsg_key_read(const uint8_t *bytes, tmsg_key_parts_t *parts)
{
    const uint8_t *numbers = bytes + sizeof(parts->instance);

    memcpy(parts->instance, bytes, sizeof(parts->instance));
    parts->epoch = tmsg_get_le(numbers, 8);
    parts->number = tmsg_get_le(numbers + 8, 8);
    memcpy(parts->random, numbers + 16, sizeof(parts->random));
}

static tmsg_status_t check_room(const tmsg_hub_t *hub,
                                const tmsg_offer_t *offer)
{
    const tmsg_offers_t *offers = hub->offers;
    uint64_t lent = offers->lent_bytes;

    if (offers->live.count >= TMSG_OFFERS_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "offer: the worker has %d offers already",
                              TMSG_OFFERS_MOST);
    }
    if (lent > hub->lent_most || offer->bytes > hub->lent_most - lent) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "offer: %" PRIu64 " bytes, %" PRIu64 " are lent "
                              "already, the worker may lend %" PRIu64
                              " (its limit lent_bytes)",
                              offer->bytes, lent, hub->lent_most);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_offers_add(tmsg_hub_t *hub, tmsg_offer_t *offer)
{
    tmsg_offers_t *offers = hub->offers;
    tmsg_status_t status = check_room(hub, offer);

    if (status != TMSG_OK) {
        return status;
    }
    if (offer->name != NULL && tmsg_version_is_there(offers, offer)) {
        return tmsg_error_set(
            TMSG_ERR_ALREADY_EXISTS,
            "offer: '%s' with version %" PRIu64 " is offered already",
            tmsg_error_name(offer->name, offer->name_bytes).text,
            offer->version);
    }
    status = get_random(offer->random, sizeof(offer->random));
    if (status == TMSG_OK && offer->name != NULL) {
        status = tmsg_versions_add(offers, offer);
    }
    if (status != TMSG_OK) {
        return status;
    }
    offer->number = ++offers->last_number;
    offers->bytes += offer->bytes;
    offers->lent_bytes += offer->bytes;
    tmsg_list_push(&offers->live, &offer->node);
    tmsg_table_add(&offers->by_number, &offer->by_number, offer->number);
    return TMSG_OK;
}

void tmsg_offer_finish(tmsg_offer_t *offer, tmsg_status_t status)
{
    tmsg_offers_t *offers = offer->hub->offers;

    if (offer->over) {
        return;
    }
    offer->over = true;
    offer->status = status;
    offers->bytes -= offer->bytes;
    tmsg_list_remove(&offers->live, &offer->node);
    tmsg_table_remove(&offers->by_number, &offer->by_number);
    if (offer->name != NULL) {
        tmsg_versions_remove(offers, offer);
    }
    tmsg_lifetime_end(offer->hub, &offer->ttl);
    tmsg_ended_add(offers, offer);
}

static const char *words_of_end(tmsg_status_t status)
{
    return status == TMSG_OK              ? "was fetched as often as it may be"
           : status == TMSG_ERR_TIMED_OUT ? "has expired"
                                          : "was withdrawn";
}

/* Compares what nobody may guess byte by byte. */
static bool is_same_secret(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    uint8_t differ = 0;

    for (size_t i = 0; i < bytes; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

/* Says why there is no offer with that key. Who guesses hears the same of every
 * number: else the words would tell which offers are live, and how many there
 * were. */
static tmsg_status_t miss_key(const tmsg_offers_t *offers,
                              const tmsg_key_parts_t *key)
{
    const tmsg_ended_offer_t *ended;

    if (offers->epoch == 0 || key->epoch != offers->epoch ||
        !is_same_secret(key->instance, offers->instance,
                        sizeof(key->instance))) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "the key is of another run of this owner, or of "
                              "another owner");
    }
    ended = tmsg_ended_by_number(offers, key->number);
    if (ended != NULL &&
        is_same_secret(key->random, ended->random, sizeof(key->random))) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "the offer %s",
                              words_of_end(ended->status));
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                          offers->forgotten
                              ? "the offer is over, or never existed"
                              : "there never was such an offer");
}

static tmsg_status_t find_by_key(tmsg_offers_t *offers,
                                 const tmsg_key_parts_t *key,
                                 const tmsg_endpoint_t *asker,
                                 tmsg_offer_t **offer_p)
{
    tmsg_keyed_t *item = tmsg_table_find(&offers->by_number, key->number);
    tmsg_offer_t *offer =
        item == NULL ? NULL : TMSG_CONTAINER_OF(item, tmsg_offer_t, by_number);

    if (offer == NULL || key->epoch != offers->epoch ||
        !is_same_secret(key->instance, offers->instance,
                        sizeof(key->instance)) ||
        !is_same_secret(key->random, offer->random, sizeof(key->random))) {
        return miss_key(offers, key);
    }
    if (!tmsg_principals_allow(offer->principals, asker)) {
        return tmsg_error_set(TMSG_ERR_REFUSED,
                              "the offer is for other principals");
    }
    *offer_p = offer;
    return TMSG_OK;
}

bool tmsg_offer_suits(const tmsg_offers_t *offers, const tmsg_offer_t *offer,
                      const tmsg_fetch_ask_t *ask)
{
    bool any = ask->has_epoch && ask->epoch != offers->epoch;

    return ask->name != NULL &&
           tmsg_offer_has_name(offer, ask->name, strlen(ask->name)) &&
           (any || offer->version >= ask->at_least);
}

/* Says why there is no offer of that name for the asker. `newest` is the newest
 * for it, which is too old, or NULL. */
static tmsg_status_t miss_name(const tmsg_offers_t *offers,
                               const tmsg_fetch_ask_t *ask,
                               const tmsg_endpoint_t *asker,
                               const tmsg_offer_t *newest)
{
    size_t bytes = strlen(ask->name);
    uint64_t name = tmsg_offer_name_key(ask->name, bytes);
    const tmsg_ended_offer_t *last;

    if (newest != NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "'%s' has version %" PRIu64 ", and not yet "
                              "%" PRIu64,
                              tmsg_error_name(ask->name, bytes).text,
                              newest->version, ask->at_least);
    }
    last = tmsg_ended_by_name(offers, name, asker);
    return last == NULL
               ? tmsg_error_set(TMSG_ERR_NOT_FOUND, "there is no offer '%s'%s",
                                tmsg_error_name(ask->name, bytes).text,
                                offers->forgotten ? "" : ", and never was one")
               : tmsg_error_set(TMSG_ERR_NOT_FOUND, "the offer '%s' %s",
                                tmsg_error_name(ask->name, bytes).text,
                                words_of_end(last->status));
}

static tmsg_status_t find_by_name(const tmsg_offers_t *offers,
                                  const tmsg_fetch_ask_t *ask,
                                  const tmsg_endpoint_t *asker, bool tells,
                                  tmsg_offer_t **offer_p)
{
    tmsg_offer_t *newest = tmsg_versions_newest(offers, ask->name, asker);

    if (newest == NULL || !tmsg_offer_suits(offers, newest, ask)) {
        return tells ? miss_name(offers, ask, asker, newest)
                     : TMSG_ERR_NOT_FOUND;
    }
    *offer_p = newest;
    return TMSG_OK;
}

tmsg_status_t tmsg_offers_find(tmsg_offers_t *offers,
                               const tmsg_fetch_ask_t *ask,
                               const tmsg_endpoint_t *asker, bool tells,
                               tmsg_offer_t **offer_p)
{
    return ask->name == NULL ? find_by_key(offers, &ask->key, asker, offer_p)
                             : find_by_name(offers, ask, asker, tells, offer_p);
}
