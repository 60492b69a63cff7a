/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells of all that is on a worker in one JSON object: what an observer asks
 * for again and again. */
#include <unistd.h>

#include <cjson/cJSON.h>
#include <tensormsg/version.h>

#include "am/connect/paths.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/transport.h"
#include "am/engine/describe.h"
#include "am/publish/publisher.h"
#include "serialize/json.h"

#define ENDPOINTS_MOST 256
#define PUBLISHERS_MOST 256
#define SUBSCRIBERS_MOST 256 /* of all publishers together */
#define NS_PER_MS UINT64_C(1000000)

static const char *const state_names[] = {[TMSG_EP_CONNECTING] = "connecting",
                                          [TMSG_EP_OPEN] = "connected",
                                          [TMSG_EP_CLOSING] = "closing",
                                          [TMSG_EP_ENDED] = "ended",
                                          [TMSG_EP_AWAY] = "away"};

static bool add_number(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

static bool add_text(cJSON *object, const char *key, const char *text)
{
    return cJSON_AddStringToObject(object, key, text) != NULL;
}

static bool add_spread(cJSON *entry, const char *key,
                       const tmsg_histogram_t *histogram)
{
    cJSON *object = cJSON_AddObjectToObject(entry, key);

    return object != NULL && add_number(object, "count", histogram->count) &&
           add_number(object, "p50", tmsg_histogram_quantile(histogram, 0.5)) &&
           add_number(object, "p99", tmsg_histogram_quantile(histogram, 0.99));
}

static bool add_endpoint(cJSON *array, const tmsg_endpoint_t *endpoint)
{
    const tmsg_stats_t *stats = &endpoint->stats;
    const tmsg_queue_t *queue = &endpoint->queue;
    cJSON *entry = cJSON_CreateObject();

    return tmsg_json_add(array, NULL, entry) &&
           add_number(entry, "id", endpoint->id) &&
           add_text(entry, "peer", endpoint->peer) &&
           (endpoint->admit.principal == NULL ||
            add_text(entry, "principal", endpoint->admit.principal)) &&
           add_text(entry, "state", state_names[endpoint->state]) &&
           add_text(entry, "transport",
                    tmsg_transport_name(endpoint->transport)) &&
           add_number(entry, "unacknowledged_ms",
                      tmsg_paths_unacked_ns(endpoint) / NS_PER_MS) &&
           add_number(entry, "waiting_messages", endpoint->channels.queued) &&
           add_number(entry, "ready_messages", endpoint->face->ready.count) &&
           add_number(entry, "sent_messages", stats->sent_messages) &&
           add_number(entry, "sent_bytes", stats->sent_bytes) &&
           add_number(entry, "received_messages", stats->received_messages) &&
           add_number(entry, "received_bytes", stats->received_bytes) &&
           add_number(entry, "dropped_messages",
                      queue->dropped_oldest + queue->dropped_newest) &&
           add_number(entry, "lost_messages", stats->lost_messages) &&
           add_number(entry, "refused_messages", stats->refused_messages) &&
           add_number(entry, "starved_messages", stats->starved_messages) &&
           add_spread(entry, "send_ns", &stats->send_ns) &&
           add_spread(entry, "ack_ns", &stats->ack_ns);
}

/* Adds the connections that have not ended. Lock held. */
static bool add_endpoints(cJSON *object, const tmsg_worker_t *worker)
{
    cJSON *array = cJSON_AddArrayToObject(object, "endpoints");
    const tmsg_endpoint_t *endpoint;
    uint64_t count = 0;
    bool ok = array != NULL;
    uint32_t i = 0;

    while (ok && (endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        if (tmsg_endpoint_heir(endpoint) == endpoint &&
            endpoint->state != TMSG_EP_ENDED && count++ < ENDPOINTS_MOST) {
            ok = add_endpoint(array, endpoint);
        }
    }
    return ok &&
           add_number(object, "more_endpoints",
                      count > ENDPOINTS_MOST ? count - ENDPOINTS_MOST : 0);
}

/* Adds a publisher with some of its subscribers. */
static bool add_publisher(cJSON *array, const tmsg_publisher_t *publisher,
                          size_t most)
{
    cJSON *entry = cJSON_CreateObject();

    return tmsg_json_add(array, NULL, entry) &&
           tmsg_publisher_add_description(entry, publisher, most) &&
           add_number(entry, "more_subscribers",
                      publisher->subscribers.count - most);
}

/* Lock held. */
static bool add_publishers(cJSON *object, const tmsg_worker_t *worker)
{
    cJSON *array = cJSON_AddArrayToObject(object, "publishers");
    size_t left = SUBSCRIBERS_MOST;
    uint64_t count = 0;
    bool ok = array != NULL;

    for (const tmsg_publisher_t *publisher = worker->publishers;
         publisher != NULL && ok; publisher = publisher->next) {
        size_t there = publisher->subscribers.count;
        size_t most = there < left ? there : left;

        if (count++ < PUBLISHERS_MOST) {
            ok = add_publisher(array, publisher, most);
            left -= most;
        }
    }
    return ok &&
           add_number(object, "more_publishers",
                      count > PUBLISHERS_MOST ? count - PUBLISHERS_MOST : 0);
}

tmsg_status_t tmsg_worker_overview(tmsg_worker_t *worker, char **json_p)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *about;
    bool ok;

    ok = object != NULL && add_text(object, "version", tmsg_version()) &&
         add_number(object, "pid", (uint64_t)getpid());
    about = ok ? cJSON_AddObjectToObject(object, "worker") : NULL;
    ok = about != NULL && tmsg_describe_worker(about, worker);
    tmsg_worker_lock(worker);
    ok = ok && add_endpoints(object, worker) && add_publishers(object, worker);
    tmsg_worker_unlock(worker);
    return tmsg_json_finish(object, ok, json_p);
}
