/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "am/endpoint/log.h"
#include "am/publish/publisher.h"
#include "am/worker/engine.h"
#include "am/worker/lead.h"
#include "core/map.h"
#include "core/params.h"
#include "serialize/json.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_PUBLISHER_PARAM_KEEP | TMSG_PUBLISHER_PARAM_SUBSCRIBER |  \
                TMSG_PUBLISHER_PARAM_ON_PEER))

#define PUBLISH_KNOWN                                                          \
    ((uint64_t)(TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |               \
                TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_CHANNEL |            \
                TMSG_SEND_PARAM_TIMEOUT | TMSG_SEND_PARAM_WAY))

#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_SEND_ACKED | TMSG_SEND_VERIFY | TMSG_SEND_KEEP_STRIDES |  \
                TMSG_SEND_LEND | TMSG_SEND_TRY))

static void destroy_publication(tmsg_request_t *request)
{
    free(TMSG_CONTAINER_OF(request, tmsg_publication_t, request));
}

static void run_free_published(tmsg_due_t *due)
{
    tmsg_publication_t *publication =
        TMSG_CONTAINER_OF(due, tmsg_publication_t, map_due);

    tmsg_map_free(publication->map);
    tmsg_request_drop(&publication->request);
}

void tmsg_publication_use(tmsg_publication_t *publication)
{
    publication->users++;
}

void tmsg_publication_unuse(tmsg_publication_t *publication)
{
    tmsg_worker_t *worker = publication->request.worker;

    publication->users--;
    if (publication->users == 1 && publication->kept) {
        /* The copies that may be lent are few, and newcomers may be, too. */
        tmsg_shared_plan_unlend(publication->shared_plan);
    }
    if (publication->users > 0) {
        return;
    }
    tmsg_loop_clear_timer(&worker->loop, &publication->timer);
    publication->shared_plan->lend_counts = NULL;
    tmsg_shared_plan_drop(publication->shared_plan,
                          tmsg_budget_pool(worker->budget));
    tmsg_publisher_drop(publication->publisher);
    if (tmsg_map_unhold(publication->map)) {
        publication->map_due.run = run_free_published;
        tmsg_request_hold(&publication->request);
        tmsg_worker_due(worker, &publication->map_due);
    }
    tmsg_request_end(&publication->request, TMSG_OK, NULL);
}

static void copy_send_params(const tmsg_send_params_t *params,
                             tmsg_publication_t *publication)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    publication->timeout_ms = -1;
    if (mask & TMSG_SEND_PARAM_FLAGS) {
        publication->flags = params->flags;
    }
    if (mask & TMSG_SEND_PARAM_POLICY) {
        publication->policy = params->policy;
    }
    if (mask & TMSG_SEND_PARAM_ON_DONE) {
        publication->request.on_done = params->on_done;
        publication->request.on_done_arg = params->on_done_arg;
    }
    if (mask & TMSG_SEND_PARAM_CHANNEL) {
        publication->channel = params->channel;
    }
    if (mask & TMSG_SEND_PARAM_TIMEOUT) {
        publication->timeout_ms = params->timeout_ms;
    }
    if (mask & TMSG_SEND_PARAM_WAY) {
        publication->way = params->way;
        publication->protocol = params->protocol;
    }
}

/* Reads and checks the parameters here, not in each subscriber's send, because
 * nobody would hear of an error there. */
static tmsg_status_t read_publish_params(const tmsg_send_params_t *params,
                                         tmsg_publication_t *publication)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & ~PUBLISH_KNOWN) {
        return tmsg_params_unknown("publish", mask & ~PUBLISH_KNOWN);
    }
    copy_send_params(params, publication);
    if (publication->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "publish: unknown flags 0x%x",
                              publication->flags);
    }
    if (publication->policy != TMSG_POLICY_HOST_FALLBACK &&
        publication->policy != TMSG_POLICY_STRICT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "publish: unknown policy %d",
                              publication->policy);
    }
    if (publication->timeout_ms == 0 || publication->timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "publish: timeout_ms %d is neither above 0 nor "
                              "-1",
                              publication->timeout_ms);
    }
    if (publication->way < TMSG_WAY_AUTO ||
        publication->way > TMSG_WAY_FRAGMENTS ||
        publication->protocol < TMSG_PROTOCOL_AUTO ||
        publication->protocol > TMSG_PROTOCOL_RNDV) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "publish: unknown way %d or protocol %d",
                              publication->way, publication->protocol);
    }
    return TMSG_OK;
}

/* Ends a publication whose time has passed. It goes to no further subscriber.
 * Sends that are under way end by themselves. */
static void publication_expired(tmsg_timer_t *timer)
{
    tmsg_publication_t *publication =
        TMSG_CONTAINER_OF(timer, tmsg_publication_t, timer);
    tmsg_publisher_t *publisher = publication->publisher;

    tmsg_publication_use(publication);
    publisher->refs++;
    if (publication->kept) {
        publication->kept = false;
        tmsg_list_remove(&publisher->kept, &publication->node);
        tmsg_publication_unuse(publication);
    }
    for (tmsg_node_t *node = publisher->subscribers.head; node != NULL;
         node = node->next) {
        tmsg_subscriber_drop_late(
            TMSG_CONTAINER_OF(node, tmsg_subscriber_t, node), publication);
    }
    tmsg_publication_unuse(publication);
    tmsg_publisher_advance(publisher);
    tmsg_publisher_drop(publisher);
}

static void set_publication_timer(tmsg_publication_t *publication)
{
    if (publication->timeout_ms > 0) {
        uint64_t ms = (uint64_t)publication->timeout_ms;

        publication->deadline_ns = tmsg_now_ns() + ms * 1000000;
        publication->timer.expired = publication_expired;
        tmsg_loop_set_timer(&publication->request.worker->loop,
                            &publication->timer, ms);
    }
}

/* Makes a publication that has not begun. */
static tmsg_status_t create_publication(tmsg_publisher_t *publisher,
                                        const tmsg_map_t *map,
                                        const tmsg_send_params_t *params,
                                        tmsg_publication_t **publication_p)
{
    tmsg_publication_t *publication = calloc(1, sizeof(*publication));
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status;

    if (publication == NULL) {
        return tmsg_error_memory("a publication");
    }
    tmsg_request_init(&publication->request, publisher->worker,
                      destroy_publication, NULL);
    status = read_publish_params(params, publication);
    if (status == TMSG_OK) {
        publication->shared_plan = tmsg_shared_plan_create();
        if (publication->shared_plan == NULL) {
            status = tmsg_error_memory("a publication");
        }
    }
    if (status != TMSG_OK) {
        free(publication);
        return status;
    }
    publication->map = map;
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        publication->bytes += entries[i].bytes;
    }
    *publication_p = publication;
    return TMSG_OK;
}

/* Frees a publication that has not begun, or NULL. */
static void free_publication(tmsg_publication_t *publication)
{
    if (publication != NULL) {
        tmsg_shared_plan_drop(
            publication->shared_plan,
            tmsg_budget_pool(publication->request.worker->budget));
        free(publication);
    }
}

static void begin_publication(tmsg_publisher_t *publisher,
                              tmsg_publication_t *publication)
{
    publication->flags &= ~(uint32_t)TMSG_SEND_TRY;
    publication->users = 1;
    tmsg_map_hold(publication->map);
    publication->publisher = publisher;
    publisher->refs++;
    publication->shared_plan->lend_counts = &publisher->lends;
    publication->shared_plan->group = publisher->number;
    set_publication_timer(publication);
}

static void forget_oldest(tmsg_publisher_t *publisher)
{
    tmsg_publication_t *oldest = TMSG_CONTAINER_OF(
        tmsg_list_pop(&publisher->kept), tmsg_publication_t, node);

    oldest->kept = false;
    tmsg_publication_unuse(oldest);
}

static void keep_publication(tmsg_publisher_t *publisher,
                             tmsg_publication_t *publication)
{
    if (publisher->keep == 0) {
        return;
    }
    tmsg_publication_use(publication);
    publication->kept = true;
    tmsg_list_push(&publisher->kept, &publication->node);
    if (publisher->kept.count > publisher->keep) {
        forget_oldest(publisher);
    }
}

static tmsg_status_t check_open(const tmsg_publisher_t *publisher)
{
    return publisher->closing
               ? tmsg_error_set(TMSG_ERR_CLOSED, "the publisher is closed")
               : tmsg_worker_check(publisher->worker);
}

typedef struct {
    tmsg_publisher_t *publisher;
    uint64_t bytes; /* of the map that is to be published */
} room_wait_t;

/* Returns a subscriber for which publishing has to wait, or NULL. */
static const tmsg_subscriber_t *
find_slow_subscriber(const tmsg_publisher_t *publisher, uint64_t bytes)
{
    for (tmsg_node_t *node = publisher->subscribers.head; node != NULL;
         node = node->next) {
        const tmsg_subscriber_t *subscriber =
            TMSG_CONTAINER_OF(node, tmsg_subscriber_t, node);

        if (!tmsg_subscriber_has_room(subscriber, bytes)) {
            return subscriber;
        }
    }
    return NULL;
}

static bool may_publish(void *arg)
{
    const room_wait_t *wait = arg;

    return wait->publisher->closing ||
           find_slow_subscriber(wait->publisher, wait->bytes) == NULL;
}

/* Waits until there is room, and takes that off the publication's time. The
 * lock is let go meanwhile. */
static tmsg_status_t await_room(tmsg_publisher_t *publisher,
                                tmsg_publication_t *publication)
{
    room_wait_t wait = {publisher, publication->bytes};
    const tmsg_subscriber_t *slow =
        find_slow_subscriber(publisher, publication->bytes);
    uint64_t begun = tmsg_now_ns(), waited_ms;
    char peer[TMSG_ERROR_BYTES];
    tmsg_status_t status;

    /* The subscriber may be gone when this is said. */
    snprintf(peer, sizeof(peer), "%s, which has not taken %zu messages",
             slow->endpoint->peer, slow->waiting.count + slow->under_way.count);
    if (publication->flags & TMSG_SEND_TRY) {
        if (publisher->room_events == NULL ||
            publication->bytes > publisher->room_bytes) {
            publisher->room_bytes = publication->bytes;
        }
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                              "publishing would have to wait for %s", peer);
    }
    publisher->blocked++;
    status = tmsg_worker_until(publisher->worker, may_publish, &wait,
                               publication->timeout_ms,
                               "no room for another map to ", peer);
    waited_ms = (tmsg_now_ns() - begun) / 1000000;
    if (publication->timeout_ms > 0) {
        publication->timeout_ms =
            waited_ms < (uint64_t)publication->timeout_ms
                ? publication->timeout_ms - (int32_t)waited_ms
                : 1;
    }
    return status == TMSG_OK ? check_open(publisher) : status;
}

/* Lock held: publishes a map. */
static tmsg_status_t publish_map(tmsg_publisher_t *publisher,
                                 const tmsg_map_t *map,
                                 const tmsg_send_params_t *params,
                                 tmsg_request_t **request_p)
{
    tmsg_publication_t *publication = NULL;
    tmsg_status_t status = check_open(publisher);

    if (status == TMSG_OK) {
        status = create_publication(publisher, map, params, &publication);
    }
    if (status == TMSG_OK &&
        find_slow_subscriber(publisher, publication->bytes) != NULL) {
        status = await_room(publisher, publication);
    }
    if (status != TMSG_OK) {
        free_publication(publication);
        return status;
    }
    if (publisher->room_events == NULL) {
        publisher->room_bytes = 0;
    }
    begin_publication(publisher, publication);
    publisher->published++;
    if (request_p != NULL) {
        tmsg_request_hold(&publication->request);
        *request_p = &publication->request;
    }
    keep_publication(publisher, publication);
    for (tmsg_node_t *node = publisher->subscribers.head, *next; node != NULL;
         node = next) {
        next = node->next; /* the subscriber may leave */
        tmsg_subscriber_offer(TMSG_CONTAINER_OF(node, tmsg_subscriber_t, node),
                              publication);
    }
    tmsg_publication_unuse(publication);
    return TMSG_OK;
}

tmsg_status_t tmsg_publisher_publish(tmsg_publisher_t *publisher,
                                     const tmsg_map_t *map,
                                     const tmsg_send_params_t *params,
                                     tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = publisher->worker;
    tmsg_status_t status;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "publish: map is NULL");
    }
    tmsg_worker_enter(worker);
    publisher->refs++;
    status = publish_map(publisher, map, params, request_p);
    tmsg_publisher_drop(publisher);
    tmsg_worker_leave(worker, true);
    return status;
}

tmsg_status_t tmsg_publisher_ready(tmsg_publisher_t *publisher,
                                   tmsg_request_t **request_p)
{
    tmsg_status_t status;

    tmsg_worker_lock(publisher->worker);
    status = check_open(publisher);
    if (status == TMSG_OK) {
        status = tmsg_events_add(&publisher->room_events, publisher->worker,
                                 NULL, request_p);
    }
    if (status == TMSG_OK) {
        tmsg_publisher_advance(publisher);
    }
    tmsg_worker_unlock(publisher->worker);
    return status;
}

tmsg_status_t tmsg_publisher_create(tmsg_worker_t *worker,
                                    const tmsg_publisher_params_t *params,
                                    tmsg_publisher_t **publisher_p)
{
    static atomic_uint_fast64_t last_number;
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    const tmsg_subscriber_params_t *defaults = NULL;
    tmsg_publisher_t *publisher;
    tmsg_status_t status;

    if (mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("publisher", mask & ~PARAMS_KNOWN);
    }
    if (mask & TMSG_PUBLISHER_PARAM_SUBSCRIBER) {
        defaults = params->subscriber;
    }
    publisher = calloc(1, sizeof(*publisher));
    if (publisher == NULL) {
        return tmsg_error_memory("a publisher");
    }
    publisher->refs = 1;
    publisher->worker = worker;
    publisher->number = atomic_fetch_add(&last_number, 1) + 1;
    publisher->keep = mask & TMSG_PUBLISHER_PARAM_KEEP ? params->keep : 0;
    if (mask & TMSG_PUBLISHER_PARAM_ON_PEER) {
        publisher->on_peer = params->on_peer;
        publisher->on_lost = params->on_lost;
        publisher->on_peer_arg = params->on_peer_arg;
    }
    status = tmsg_subscriber_read(defaults, &publisher->defaults);
    tmsg_worker_lock(worker);
    if (status == TMSG_OK) {
        status = tmsg_worker_check(worker);
    }
    if (status == TMSG_OK) {
        publisher->next = worker->publishers;
        worker->publishers = publisher;
        *publisher_p = publisher;
    } else {
        free(publisher);
    }
    tmsg_worker_unlock(worker);
    return status;
}

/* Lock held: adds a subscriber, unless the endpoint cannot be one. */
static tmsg_status_t subscribe_endpoint(tmsg_publisher_t *publisher,
                                        tmsg_endpoint_t *endpoint,
                                        const tmsg_subscriber_params_t *params)
{
    tmsg_status_t status = check_open(publisher);

    if (status != TMSG_OK) {
        return status;
    }
    if (endpoint->state == TMSG_EP_ENDED) {
        return tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    if (tmsg_subscriber_find(publisher, endpoint) != NULL) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                              "%s: it is a subscriber already", endpoint->peer);
    }
    return tmsg_subscriber_create(publisher, endpoint, params);
}

tmsg_status_t tmsg_publisher_add(tmsg_publisher_t *publisher,
                                 tmsg_endpoint_t *endpoint,
                                 const tmsg_subscriber_params_t *params)
{
    tmsg_subscriber_params_t read = publisher->defaults;
    tmsg_status_t status = TMSG_OK;

    if (params != NULL) {
        status = tmsg_subscriber_read(params, &read);
    }
    if (status != TMSG_OK) {
        return status;
    }
    /* The lock of this worker keeps no heir of another worker's. */
    if (endpoint->worker != publisher->worker) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the endpoint belongs to another worker");
    }
    tmsg_worker_lock(publisher->worker);
    status = subscribe_endpoint(publisher, tmsg_endpoint_now(endpoint), &read);
    tmsg_worker_unlock(publisher->worker);
    return status;
}

void tmsg_publisher_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    tmsg_publisher_t *publisher = arg;
    tmsg_worker_t *worker = publisher->worker;
    tmsg_subscriber_params_t params = publisher->defaults;
    tmsg_status_t status;

    params.flags |= TMSG_SUBSCRIBER_OWNED;
    tmsg_worker_lock(worker);
    status = subscribe_endpoint(publisher, endpoint, &params);
    if (status != TMSG_OK) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_UNPUBLISHED_KIND, TMSG_LOG_WARN,
                          "it is not published to: %s", tmsg_error_message());
        tmsg_engine.release(endpoint);
    }
    tmsg_worker_unlock(worker);
}

tmsg_status_t tmsg_publisher_remove(tmsg_publisher_t *publisher,
                                    tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = publisher->worker;
    tmsg_subscriber_t *subscriber;
    tmsg_status_t status = TMSG_OK;

    if (endpoint->worker != worker) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "the endpoint belongs to another worker");
    }
    tmsg_worker_lock(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    subscriber = tmsg_subscriber_find(publisher, endpoint);
    if (subscriber != NULL) {
        tmsg_subscriber_leave(subscriber);
        tmsg_publisher_advance(publisher);
    } else {
        status = tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                "%s: it is not a subscriber", endpoint->peer);
    }
    tmsg_worker_unlock(worker);
    return status;
}

size_t tmsg_publisher_size(const tmsg_publisher_t *publisher)
{
    size_t size;

    tmsg_worker_lock(publisher->worker);
    size = publisher->subscribers.count;
    tmsg_worker_unlock(publisher->worker);
    return size;
}

static bool add_publisher_number(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

static bool add_fates(cJSON *object, const uint64_t fates[TMSG_FATES])
{
    return add_publisher_number(object, "delivered",
                                fates[TMSG_FATE_DELIVERED]) &&
           add_publisher_number(object, "dropped", fates[TMSG_FATE_DROPPED]) &&
           add_publisher_number(object, "failed", fates[TMSG_FATE_FAILED]);
}

static bool add_drops(cJSON *object, const uint64_t drops[TMSG_DROPS])
{
    static const char *const reasons[TMSG_DROPS] = {
        "messages", "bytes", "age", "timeout", "left", "memory"};
    cJSON *entry = cJSON_AddObjectToObject(object, "dropped_for");
    bool ok = entry != NULL;

    for (int i = 0; i < TMSG_DROPS; i++) {
        ok = ok && add_publisher_number(entry, reasons[i], drops[i]);
    }
    return ok;
}

static bool add_subscriber(cJSON *array, const tmsg_subscriber_t *subscriber)
{
    cJSON *entry = cJSON_CreateObject();

    return tmsg_json_add(array, NULL, entry) &&
           add_publisher_number(entry, "id", subscriber->endpoint->id) &&
           cJSON_AddStringToObject(entry, "peer", subscriber->endpoint->peer) !=
               NULL &&
           add_fates(entry, subscriber->fates) &&
           add_publisher_number(entry, "waiting", subscriber->waiting.count) &&
           add_publisher_number(entry, "under_way",
                                subscriber->under_way.count) &&
           cJSON_AddStringToObject(entry, "mode",
                                   tmsg_subscriber_mode(subscriber)) != NULL &&
           add_drops(entry, subscriber->drops);
}

/* Says how many messages were lent, and why not all that were to be. */
static bool add_lends(cJSON *object, const tmsg_lend_counts_t *lends)
{
    return add_publisher_number(object, "lent", lends->lent) &&
           add_publisher_number(object, "not_lent", lends->not_lent) &&
           (lends->why[0] == '\0' ||
            cJSON_AddStringToObject(object, "why_not_lent", lends->why) !=
                NULL);
}

bool tmsg_publisher_add_description(cJSON *object,
                                    const tmsg_publisher_t *publisher,
                                    size_t most)
{
    cJSON *array;
    bool ok;

    ok = add_publisher_number(object, "published", publisher->published) &&
         add_publisher_number(object, "kept", publisher->kept.count) &&
         add_fates(object, publisher->fates) &&
         add_lends(object, &publisher->lends) &&
         add_publisher_number(object, "blocked", publisher->blocked) &&
         add_drops(object, publisher->drops);
    array = ok ? cJSON_AddArrayToObject(object, "subscribers") : NULL;
    ok = array != NULL;
    for (tmsg_node_t *node = publisher->subscribers.head;
         node != NULL && ok && most > 0; node = node->next, most--) {
        ok = add_subscriber(array,
                            TMSG_CONTAINER_OF(node, tmsg_subscriber_t, node));
    }
    return ok;
}

tmsg_status_t tmsg_publisher_describe(const tmsg_publisher_t *publisher,
                                      char **json_p)
{
    cJSON *object = cJSON_CreateObject();
    bool ok;

    tmsg_worker_lock(publisher->worker);
    ok = object != NULL &&
         tmsg_publisher_add_description(object, publisher, SIZE_MAX);
    tmsg_worker_unlock(publisher->worker);
    return tmsg_json_finish(object, ok, json_p);
}

/* Closes a subscriber that has received everything: closes its endpoint if that
 * is owned, or lets the subscriber leave. */
static void close_one(tmsg_subscriber_t *subscriber)
{
    if (subscriber->waiting.count > 0 || subscriber->under_way.count > 0) {
        return;
    }
    if (!(subscriber->params.flags & TMSG_SUBSCRIBER_OWNED)) {
        tmsg_subscriber_leave(subscriber);
    } else if (!subscriber->endpoint->close_wanted) {
        tmsg_endpoint_close_begin(subscriber->endpoint);
    }
}

void tmsg_publisher_advance(tmsg_publisher_t *publisher)
{
    tmsg_worker_changed(publisher->worker); /* threads may wait for room */
    if (publisher->room_events != NULL &&
        find_slow_subscriber(publisher, publisher->room_bytes) == NULL) {
        tmsg_events_end(&publisher->room_events, TMSG_OK, NULL);
    }
    if (!publisher->closing) {
        return;
    }
    tmsg_events_end(&publisher->room_events, TMSG_ERR_CLOSED,
                    "the publisher is closed");
    for (tmsg_node_t *node = publisher->subscribers.head, *next; node != NULL;
         node = next) {
        next = node->next;
        close_one(TMSG_CONTAINER_OF(node, tmsg_subscriber_t, node));
    }
    if (publisher->subscribers.count == 0) {
        tmsg_events_end(&publisher->close_events, TMSG_OK, NULL);
    }
}

tmsg_status_t tmsg_publisher_close(tmsg_publisher_t *publisher,
                                   tmsg_request_t **request_p)
{
    tmsg_request_t *request;
    tmsg_status_t status;

    tmsg_worker_lock(publisher->worker);
    status = check_open(publisher);
    if (status == TMSG_OK) {
        status = tmsg_events_add(&publisher->close_events, publisher->worker,
                                 NULL, &request);
    }
    if (status == TMSG_OK) {
        publisher->closing = true;
        tmsg_publisher_advance(publisher);
        if (request_p != NULL) {
            *request_p = request;
        } else {
            tmsg_request_drop(request);
        }
    }
    tmsg_worker_unlock(publisher->worker);
    return status;
}

void tmsg_publisher_drop(tmsg_publisher_t *publisher)
{
    if (--publisher->refs == 0) {
        free(publisher);
    }
}

void tmsg_publisher_release(tmsg_publisher_t *publisher)
{
    tmsg_publisher_t **place = &publisher->worker->publishers;

    while (*place != publisher) {
        place = &(*place)->next;
    }
    *place = publisher->next;
    publisher->closing = true;
    publisher->on_peer = NULL;
    publisher->on_lost = NULL;
    while (publisher->subscribers.count > 0) {
        tmsg_subscriber_t *subscriber = TMSG_CONTAINER_OF(
            publisher->subscribers.head, tmsg_subscriber_t, node);
        tmsg_endpoint_t *endpoint = subscriber->endpoint;
        bool owned = subscriber->params.flags & TMSG_SUBSCRIBER_OWNED;

        tmsg_endpoint_hold(endpoint);
        tmsg_subscriber_leave(subscriber);
        if (owned && endpoint->face->handle) {
            tmsg_engine.release(endpoint->face);
        }
        tmsg_endpoint_drop(endpoint);
    }
    while (publisher->kept.count > 0) {
        forget_oldest(publisher);
    }
    tmsg_events_end(&publisher->close_events, TMSG_ERR_CANCELED,
                    "the publisher was destroyed");
    tmsg_events_end(&publisher->room_events, TMSG_ERR_CANCELED,
                    "the publisher was destroyed");
    tmsg_worker_changed(publisher->worker);
    tmsg_publisher_drop(publisher);
}

void tmsg_publisher_destroy(tmsg_publisher_t *publisher)
{
    tmsg_worker_t *worker;

    if (publisher == NULL) {
        return;
    }
    worker = publisher->worker;
    tmsg_worker_lock(worker);
    tmsg_publisher_release(publisher);
    tmsg_worker_unlock(worker);
}
