/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements the owner's part of tensormsg/offer.h: makes offers, ends them,
 * and tells the application. */
#include "rpc/offer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/map.h"
#include "core/params.h"
#include "core/utf8.h"
#include "rpc/builtin.h"
#include "rpc/metrics.h"
#include "rpc/principal.h"

/* After a withdrawal's time fetches are given up. Fetchers that do not stand
 * still answer soon that they read no more. */
#define GRACE_MS 500

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |             \
                TMSG_OFFER_PARAM_TTL | TMSG_OFFER_PARAM_FETCHES |              \
                TMSG_OFFER_PARAM_PRINCIPALS | TMSG_OFFER_PARAM_ON_OVER |       \
                TMSG_OFFER_PARAM_ON_RELEASE | TMSG_OFFER_PARAM_FLAGS))

#define FLAGS_KNOWN ((uint32_t)TMSG_OFFER_LEND)

static void drop_refs(tmsg_offer_t *offer, unsigned count)
{
    tmsg_hub_t *hub = offer->hub;
    bool last;

    tmsg_hub_lock(hub);
    offer->refs -= count;
    last = offer->refs == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        tmsg_map_destroy(offer->version_meta);
        free(offer->principals);
        free(offer->name);
        free(offer);
        tmsg_hub_drop(hub);
    }
}

void tmsg_offer_drop(tmsg_offer_t *offer) { drop_refs(offer, 1); }

static void hold_offer(tmsg_offer_t *offer)
{
    tmsg_hub_lock(offer->hub);
    offer->refs++;
    tmsg_hub_unlock(offer->hub);
}

static void fire_settle(tmsg_rpc_event_t *event)
{
    tmsg_offer_t *offer = TMSG_CONTAINER_OF(event, tmsg_offer_t, event);

    tmsg_hub_lock(offer->hub);
    offer->queued = false;
    tmsg_hub_unlock(offer->hub);
    tmsg_offer_settle(offer);
    tmsg_offer_drop(offer);
}

void tmsg_offer_settle_later(tmsg_offer_t *offer)
{
    if (!offer->queued) {
        offer->queued = true;
        offer->refs++;
        offer->event.fire = fire_settle;
        tmsg_hub_tell(offer->hub, &offer->event);
    }
}

/* Gives the map back, and calls on_release. */
static void release_offer(tmsg_offer_t *offer)
{
    const tmsg_map_t *map = offer->map;
    tmsg_hub_t *hub = offer->hub;

    offer->map = NULL;
    if (offer->lends) {
        tmsg_calls_unlend(hub->calls, &offer->lending);
    }
    if (tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
    if (offer->on_release != NULL) {
        offer->on_release(offer->on_release_arg);
    }
    tmsg_hub_lock(hub);
    tmsg_lifetime_end(hub, &offer->recall_at);
    offer->released = true;
    tmsg_hub_unlock(hub);
}

/* Does the next thing that is due. Lock held, and let go meanwhile. Returns
 * false if nothing is due. */
static bool settle_once(tmsg_offer_t *offer)
{
    tmsg_hub_t *hub = offer->hub;

    if (offer->over && !offer->over_told) {
        offer->over_told = true;
        tmsg_hub_unlock(hub);
        if (offer->on_over != NULL) {
            offer->on_over(offer->on_over_arg, offer, offer->status);
        }
    } else if (offer->recall) {
        offer->recall = false;
        tmsg_hub_unlock(hub);
        tmsg_lent_recall(offer);
    } else if (offer->over && offer->lent.count == 0 && !offer->free_told) {
        offer->free_told = true;
        hub->offers->lent_bytes -= offer->bytes;
        tmsg_hub_unlock(hub);
        release_offer(offer);
        if (!atomic_load(&hub->over)) {
            tmsg_calls_stir(hub->calls);
        }
        tmsg_offer_drop(offer); /* never the last: the caller has one */
    } else {
        return false;
    }
    tmsg_hub_lock(hub);
    return true;
}

void tmsg_offer_settle(tmsg_offer_t *offer)
{
    tmsg_hub_t *hub = offer->hub;

    tmsg_hub_lock(hub);
    offer->settle_again = true;
    if (!offer->settling) { /* else that thread does it, or this one further up
                             */
        offer->settling = true;
        offer->settler = pthread_self();
        while (offer->settle_again) {
            offer->settle_again = false;
            while (settle_once(offer)) {
            }
        }
        offer->settling = false;
    }
    tmsg_hub_unlock(hub);
}

static void expire_offer(tmsg_lifetime_t *lifetime)
{
    tmsg_offer_t *offer = TMSG_CONTAINER_OF(lifetime, tmsg_offer_t, ttl);

    tmsg_offer_finish(offer, TMSG_ERR_TIMED_OUT);
    tmsg_offer_settle_later(offer);
}

static void expire_fetches(tmsg_lifetime_t *lifetime)
{
    tmsg_offer_t *offer = TMSG_CONTAINER_OF(lifetime, tmsg_offer_t, recall_at);

    offer->recall = true;
    tmsg_offer_settle_later(offer);
}

static tmsg_status_t read_name(const tmsg_offer_params_t *params,
                               tmsg_offer_t *offer)
{
    size_t bytes = strlen(params->name);

    if (bytes == 0 || bytes > TMSG_OFFER_NAME_MAX ||
        !tmsg_utf8_valid(params->name, bytes)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "offer: a name is 1 to %d bytes of UTF-8",
                              TMSG_OFFER_NAME_MAX);
    }
    offer->name = strdup(params->name);
    if (offer->name == NULL) {
        return tmsg_error_memory("an offer");
    }
    offer->name_bytes = bytes;
    offer->name_key = tmsg_offer_name_key(offer->name, bytes);
    return TMSG_OK;
}

static tmsg_status_t read_numbers(const tmsg_offer_params_t *params,
                                  tmsg_offer_t *offer, int32_t *ttl_ms_p)
{
    uint64_t mask = params->field_mask;

    if (mask & TMSG_OFFER_PARAM_VERSION) {
        offer->version = params->version;
    }
    if (mask & TMSG_OFFER_PARAM_FETCHES) {
        offer->fetches_most = params->fetches;
    }
    if (mask & TMSG_OFFER_PARAM_TTL) {
        *ttl_ms_p = params->ttl_ms;
    }
    if (offer->version > INT64_MAX) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "offer: version %" PRIu64 " is above 2^63 - 1",
                              offer->version);
    }
    if (offer->version > 0 && offer->name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "offer: a version without a name");
    }
    return *ttl_ms_p > 0 || *ttl_ms_p == -1
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "offer: ttl_ms %d is neither above 0 nor -1",
                                *ttl_ms_p);
}

static tmsg_status_t read_flags(const tmsg_offer_params_t *params,
                                tmsg_offer_t *offer)
{
    offer->lends = params->flags & TMSG_OFFER_LEND;
    return params->flags & ~FLAGS_KNOWN
               ? tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "offer: unknown flags 0x%x", params->flags)
               : TMSG_OK;
}

static tmsg_status_t read_params(const tmsg_offer_params_t *params,
                                 tmsg_offer_t *offer, int32_t *ttl_ms_p)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status = TMSG_OK;

    if (mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("offer", mask & ~PARAMS_KNOWN);
    }
    if (mask & TMSG_OFFER_PARAM_NAME && params->name != NULL) {
        status = read_name(params, offer);
    }
    if (status == TMSG_OK && params != NULL) {
        status = read_numbers(params, offer, ttl_ms_p);
    }
    if (status == TMSG_OK && mask & TMSG_OFFER_PARAM_PRINCIPALS) {
        status = tmsg_principals_read("offer", params->principals,
                                      &offer->principals);
    }
    if (status == TMSG_OK && mask & TMSG_OFFER_PARAM_FLAGS) {
        status = read_flags(params, offer);
    }
    if (mask & TMSG_OFFER_PARAM_ON_OVER) {
        offer->on_over = params->on_over;
        offer->on_over_arg = params->on_over_arg;
    }
    if (mask & TMSG_OFFER_PARAM_ON_RELEASE) {
        offer->on_release = params->on_release;
        offer->on_release_arg = params->on_release_arg;
    }
    return status;
}

/* Makes the metadata that tell a fetcher by name what it got. */
static tmsg_status_t make_version_meta(tmsg_offer_t *offer, uint64_t epoch)
{
    tmsg_status_t status = tmsg_map_create(&offer->version_meta);

    if (status == TMSG_OK) {
        status = tmsg_map_set_i64(offer->version_meta, TMSG_META_OFFER_EPOCH,
                                  (int64_t)epoch);
    }
    return status == TMSG_OK
               ? tmsg_map_set_i64(offer->version_meta, TMSG_META_OFFER_VERSION,
                                  (int64_t)offer->version)
               : status;
}

static tmsg_status_t begin_offers(tmsg_hub_t *hub, uint64_t *epoch_p)
{
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = tmsg_builtin_begin(hub);
    if (status == TMSG_OK) {
        status = tmsg_offers_begin(hub->offers);
    }
    if (status == TMSG_OK) {
        *epoch_p = hub->offers->epoch;
    }
    tmsg_hub_unlock(hub);
    return status;
}

/* Makes the offer one that fetches find, and wakes those that wait for it. From
 * then on another thread may end the offer, and a callback give the handle
 * back. */
static tmsg_status_t launch_offer(tmsg_offer_t *offer, int32_t ttl_ms,
                                  tmsg_offer_t **offer_p)
{
    tmsg_hub_t *hub = offer->hub;
    bool named = offer->name != NULL;
    uint64_t at_ns = 0;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = tmsg_offers_add(hub, offer);
    if (status == TMSG_OK && ttl_ms > 0) {
        at_ns = tmsg_calls_now_ns() + (uint64_t)ttl_ms * 1000000;
        if (!tmsg_lifetime_begin(hub, &offer->ttl, at_ns)) {
            at_ns = 0;
        }
    }
    if (status == TMSG_OK) {
        *offer_p = offer;
        tmsg_fetch_look_again(hub, offer);
    }
    tmsg_hub_unlock(hub);
    if (at_ns != 0) {
        tmsg_calls_alarm(hub->calls, at_ns);
    }
    if (status == TMSG_OK && named) {
        tmsg_hub_wake(hub);
    }
    return status;
}

static tmsg_status_t make_offer(tmsg_offer_t *offer, const tmsg_map_t *map,
                                const tmsg_offer_params_t *params,
                                tmsg_offer_t **offer_p)
{
    int32_t ttl_ms = -1;
    uint64_t epoch = 0;
    tmsg_status_t status = read_params(params, offer, &ttl_ms);

    if (status == TMSG_OK) {
        status = begin_offers(offer->hub, &epoch);
    }
    if (status == TMSG_OK && offer->name != NULL) {
        status = make_version_meta(offer, epoch);
    }
    if (status != TMSG_OK) {
        return status;
    }
    offer->map = map;
    tmsg_map_hold(map);
    offer->tensors = tmsg_map_size(map);
    offer->bytes = tmsg_meter_bytes(map);
    offer->refs++; /* until it is released */
    status = launch_offer(offer, ttl_ms, offer_p);
    if (status != TMSG_OK) {
        offer->refs--;
        (void)tmsg_map_unhold(map); /* never the last: the caller has it */
    }
    return status;
}

tmsg_status_t tmsg_offer_create(tmsg_worker_t *worker, const tmsg_map_t *map,
                                const tmsg_offer_params_t *params,
                                tmsg_offer_t **offer_p)
{
    tmsg_offer_t *offer;
    void *hub;
    tmsg_status_t status;

    if (worker == NULL || map == NULL || offer_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "offer: %s is NULL",
                              worker == NULL ? "worker"
                              : map == NULL  ? "map"
                                             : "offer_p");
    }
    status = tmsg_calls_start(worker, &tmsg_hub_ops, &hub);
    if (status != TMSG_OK) {
        return status;
    }
    offer = calloc(1, sizeof(*offer));
    if (offer == NULL) {
        return tmsg_error_memory("an offer");
    }
    offer->refs = 1;
    offer->hub = hub;
    tmsg_hub_hold(hub);
    offer->ttl.expire = expire_offer;
    offer->recall_at.expire = expire_fetches;
    status = make_offer(offer, map, params, offer_p);
    if (status != TMSG_OK) {
        tmsg_offer_drop(offer);
    }
    return status;
}

void tmsg_offer_key(const tmsg_offer_t *offer, tmsg_offer_key_t *key_p)
{
    const tmsg_offers_t *offers = offer->hub->offers;
    tmsg_key_parts_t parts = {.epoch = offers->epoch, .number = offer->number};

    memcpy(parts.instance, offers->instance, sizeof(parts.instance));
    memcpy(parts.random, offer->random, sizeof(parts.random));
    tmsg_key_write(&parts, key_p);
}

void tmsg_offer_stats(const tmsg_offer_t *offer, tmsg_offer_stats_t *stats_p)
{
    tmsg_hub_lock(offer->hub);
    *stats_p = offer->stats;
    stats_p->under_way = offer->lent.count;
    tmsg_hub_unlock(offer->hub);
}

static bool is_released(void *arg)
{
    tmsg_offer_t *offer = arg;
    bool released;

    tmsg_hub_lock(offer->hub);
    released = offer->released;
    tmsg_hub_unlock(offer->hub);
    return released;
}

/* Gives up the fetches under way now, in timeout_ms, or never (-1). */
static void recall_in(tmsg_offer_t *offer, int timeout_ms)
{
    tmsg_hub_t *hub = offer->hub;
    uint64_t at_ns = 0;

    tmsg_hub_lock(hub);
    tmsg_lifetime_end(hub, &offer->recall_at);
    if (timeout_ms == 0) {
        offer->recall = offer->lent.count > 0;
    } else if (timeout_ms > 0 && offer->lent.count > 0 &&
               !atomic_load(&hub->over)) {
        at_ns = tmsg_calls_now_ns() + (uint64_t)timeout_ms * 1000000;
        if (!tmsg_lifetime_begin(hub, &offer->recall_at, at_ns)) {
            at_ns = 0;
        }
    }
    tmsg_hub_unlock(hub);
    if (at_ns != 0) {
        tmsg_calls_alarm(hub->calls, at_ns);
    }
}

/* Ends the offer as withdrawn, if it is live. */
static void end_now(tmsg_offer_t *offer)
{
    tmsg_hub_lock(offer->hub);
    tmsg_offer_finish(offer, TMSG_ERR_CANCELED);
    tmsg_hub_unlock(offer->hub);
}

/* Returns whether this thread is in one of the offer's callbacks, after which
 * the offer can be released. */
static bool is_inside(const tmsg_offer_t *offer)
{
    bool inside;

    tmsg_hub_lock(offer->hub);
    inside = offer->settling && pthread_equal(offer->settler, pthread_self());
    tmsg_hub_unlock(offer->hub);
    return inside;
}

static tmsg_status_t await_release(tmsg_offer_t *offer, int timeout_ms)
{
    static const char missing[] = "withdraw: a peer may still read the memory";

    if (is_released(offer)) {
        return TMSG_OK;
    }
    if (atomic_load(&offer->hub->over)) {
        return tmsg_error_set(TMSG_ERR_CLOSED,
                              "withdraw: the worker was destroyed");
    }
    if (is_inside(offer)) {
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                              "withdraw: a callback must not wait");
    }
    return tmsg_calls_until(offer->hub->calls, is_released, offer, timeout_ms,
                            missing, "");
}

static tmsg_status_t check_end(const char *what, const tmsg_offer_t *offer,
                               int timeout_ms)
{
    if (offer == NULL || timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s: %s", what,
                              offer == NULL ? "offer is NULL"
                                            : "timeout_ms is below -1");
    }
    return TMSG_OK;
}

/* Ends the offer, and gives its fetches that much time. The caller has a
 * reference: a callback may destroy the handle. */
static void begin_to_end(tmsg_offer_t *offer, int timeout_ms)
{
    end_now(offer);
    recall_in(offer, timeout_ms);
    tmsg_offer_settle(offer);
}

tmsg_status_t tmsg_offer_end(tmsg_offer_t *offer, int timeout_ms)
{
    tmsg_status_t status = check_end("offer_end", offer, timeout_ms);

    if (status == TMSG_OK) {
        hold_offer(offer);
        begin_to_end(offer, timeout_ms);
        tmsg_offer_drop(offer);
    }
    return status;
}

tmsg_status_t tmsg_offer_withdraw(tmsg_offer_t *offer, int timeout_ms)
{
    tmsg_status_t status = check_end("withdraw", offer, timeout_ms);

    if (status != TMSG_OK) {
        return status;
    }
    hold_offer(offer);
    begin_to_end(offer, timeout_ms);
    status = await_release(offer, timeout_ms);
    if (status == TMSG_ERR_TIMED_OUT && timeout_ms > 0) {
        recall_in(offer, 0);
        tmsg_offer_settle(offer);
        status = await_release(offer, GRACE_MS);
        if (status == TMSG_ERR_TIMED_OUT) {
            tmsg_error_set(status,
                           "withdraw: %d ms after the fetches were given up a "
                           "peer may still read the memory",
                           GRACE_MS);
        }
    }
    tmsg_offer_drop(offer);
    return status;
}

void tmsg_offer_destroy(tmsg_offer_t *offer)
{
    bool live;

    if (offer == NULL) {
        return;
    }
    tmsg_hub_lock(offer->hub);
    live = !offer->over;
    tmsg_hub_unlock(offer->hub);
    if (live) {
        begin_to_end(offer, 0);
    }
    tmsg_offer_drop(offer);
}

void tmsg_offers_close(tmsg_hub_t *hub)
{
    tmsg_offer_t *offer;

    tmsg_hub_lock(hub);
    while (hub->offers != NULL && hub->offers->live.head != NULL) {
        offer = TMSG_CONTAINER_OF(hub->offers->live.head, tmsg_offer_t, node);
        offer->refs++;
        tmsg_offer_finish(offer, TMSG_ERR_CLOSED);
        tmsg_hub_unlock(hub);
        tmsg_offer_settle(offer);
        tmsg_offer_drop(offer);
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
}
