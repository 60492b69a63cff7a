/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/dialect.h"
#include "am/send/again.h"
#include "am/send/cancel.h"
#include "am/send/queue.h"
#include "am/worker/lead.h"
#include "core/map.h"
#include "core/params.h"
#include "serialize/json.h"

const tmsg_queue_params_t tmsg_queue_usual = {
    .messages = 65536, .policy = TMSG_QUEUE_REJECT, .bytes = UINT64_MAX};

static const char *const policy_names[] = {"reject", "block", "drop oldest",
                                           "drop newest"};

tmsg_status_t tmsg_queue_read(const tmsg_queue_params_t *params,
                              tmsg_queue_params_t *queue)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_MESSAGES, messages),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_BYTES, bytes),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_POLICY, policy)};
    tmsg_queue_params_t read = *queue;
    tmsg_status_t status;

    status = tmsg_params_read("queue", params, params->field_mask, rows,
                              sizeof(rows) / sizeof(rows[0]), &read);
    if (status != TMSG_OK) {
        return status;
    }
    if (read.messages == 0 || read.bytes == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "queue: %s 0 is no bound",
                              read.messages == 0 ? "messages" : "bytes");
    }
    if (read.policy < TMSG_QUEUE_REJECT ||
        read.policy > TMSG_QUEUE_DROP_NEWEST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "queue: unknown policy %d", read.policy);
    }
    *queue = read;
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_set_queue(tmsg_endpoint_t *endpoint,
                                      const tmsg_queue_params_t *params)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_queue_params_t queue;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    queue = worker->send_queue;
    if (params != NULL) {
        status = tmsg_queue_read(params, &queue);
    }
    if (status == TMSG_OK) {
        tmsg_endpoint_now(endpoint)->queue.bounds = queue;
        /* A thread that waits for room may have some now. */
        tmsg_worker_changed(worker);
    }
    tmsg_worker_unlock(worker);
    return status;
}

static uint64_t tensor_bytes_of(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t bytes = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        bytes += entries[i].bytes;
    }
    return bytes;
}

/* Returns how many messages count against the bounds. Streams and publishers
 * have bounds of their own. */
static size_t waiting_for(const tmsg_endpoint_t *endpoint)
{
    return endpoint->channels.queued - endpoint->channels.queued_streams -
           endpoint->queue.shares;
}

static bool queue_has_room(const tmsg_send_t *send)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_queue_t *queue = &endpoint->queue;
    size_t waiting = waiting_for(endpoint);

    return waiting == 0 ||
           (waiting < queue->bounds.messages &&
            queue->bytes <= queue->bounds.bytes &&
            send->queued_bytes <= queue->bounds.bytes - queue->bytes);
}

/* Returns whether the send is a reply, CANCEL or OVER. */
static bool is_answer(const tmsg_send_t *send)
{
    return send->queues && send->channel->number == TMSG_CHANNEL_CALLS;
}

static void count_in(const tmsg_send_t *send)
{
    tmsg_queue_t *queue = &send->endpoint->queue;

    queue->bytes += send->queued_bytes;
    queue->answers += is_answer(send);
    queue->shares += send->shared_plan != NULL;
}

static void count_out(const tmsg_send_t *send)
{
    tmsg_queue_t *queue = &send->endpoint->queue;

    queue->bytes -= send->queued_bytes;
    queue->answers -= is_answer(send);
    queue->shares -= send->shared_plan != NULL;
}

void tmsg_queue_push(tmsg_send_t *send)
{
    count_in(send);
    tmsg_channel_push(send->channel, &send->node);
}

tmsg_send_t *tmsg_queue_pop(tmsg_channel_t *channel)
{
    tmsg_send_t *send =
        TMSG_CONTAINER_OF(tmsg_channel_pop(channel), tmsg_send_t, node);

    count_out(send);
    return send;
}

void tmsg_queue_remove(tmsg_send_t *send)
{
    tmsg_channel_remove(send->channel, &send->node);
    count_out(send);
}

/* Writes why there is no room. */
static void explain_no_room(const tmsg_send_t *send, char *why, size_t bytes)
{
    const tmsg_queue_t *queue = &send->endpoint->queue;
    const char *peer = send->endpoint->peer;
    size_t waiting = waiting_for(send->endpoint);

    if (waiting >= queue->bounds.messages) {
        snprintf(why, bytes,
                 "%s: the send queue is full: %zu messages wait, of %u that "
                 "may",
                 peer, waiting, queue->bounds.messages);
        return;
    }
    snprintf(why, bytes,
             "%s: the send queue is full: %llu bytes wait, of %llu that may, "
             "and this message has %llu",
             peer, (unsigned long long)queue->bytes,
             (unsigned long long)queue->bounds.bytes,
             (unsigned long long)send->queued_bytes);
}

/* Returns a channel's first send that is not a publisher's, or NULL. */
static tmsg_send_t *first_unshared(const tmsg_channel_t *channel)
{
    for (tmsg_node_t *node = channel->queued.head; node != NULL;
         node = node->next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        if (send->shared_plan == NULL) {
            return send;
        }
    }
    return NULL;
}

/* Returns the oldest send of all channels that may be dropped, or NULL. */
static tmsg_send_t *oldest_droppable(tmsg_endpoint_t *endpoint)
{
    tmsg_send_t *found = NULL;

    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        tmsg_send_t *send = channel->number < TMSG_CHANNEL_CALLS
                                ? first_unshared(channel)
                                : NULL;

        if (send != NULL &&
            (found == NULL ||
             (int32_t)(send->message_id - found->message_id) < 0)) {
            found = send;
        }
    }
    return found;
}

static bool may_enter_again(void *arg)
{
    const tmsg_send_t *send = arg;
    const tmsg_endpoint_t *endpoint = send->endpoint;

    return queue_has_room(send) || endpoint->close_wanted ||
           endpoint->state == TMSG_EP_CLOSING ||
           endpoint->state == TMSG_EP_ENDED;
}

static tmsg_status_t block_sender(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_status_t status;

    endpoint->queue.blocked++;
    status = tmsg_worker_until(endpoint->worker, may_enter_again, send,
                               tmsg_send_ms_left(send),
                               "no room in the send queue of ", endpoint->peer);
    return status == TMSG_OK ? TMSG_IN_PROGRESS : status;
}

static void drop_oldest(tmsg_send_t *send, const char *why)
{
    tmsg_send_t *victim;

    while (!queue_has_room(send) &&
           (victim = oldest_droppable(send->endpoint)) != NULL) {
        tmsg_queue_remove(victim);
        send->endpoint->queue.dropped_oldest++;
        tmsg_send_end(victim, TMSG_ERR_DROPPED, why);
    }
    tmsg_queue_push(send);
}

static tmsg_status_t apply_policy(tmsg_send_t *send)
{
    tmsg_queue_t *queue = &send->endpoint->queue;
    char why[TMSG_ERROR_BYTES];

    explain_no_room(send, why, sizeof(why));
    switch (queue->bounds.policy) {
    case TMSG_QUEUE_BLOCK:
        return block_sender(send);
    case TMSG_QUEUE_DROP_OLDEST:
        drop_oldest(send, why);
        return TMSG_OK;
    case TMSG_QUEUE_DROP_NEWEST:
        queue->dropped_newest++;
        tmsg_send_end(send, TMSG_ERR_DROPPED, why);
        return TMSG_OK;
    default:
        queue->rejected++;
        return tmsg_error_set(TMSG_ERR_BUSY, "%s", why);
    }
}

tmsg_status_t tmsg_queue_enter(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (send->flags & TMSG_SEND_TRY) {
        endpoint->queue.would_block++;
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                              "%s: it would have to wait for %s",
                              endpoint->peer,
                              endpoint->state == TMSG_EP_CONNECTING ||
                                      endpoint->state == TMSG_EP_AWAY
                                  ? "the connection"
                                  : "the peer to take those before it");
    }
    send->queued_bytes = send->shared_plan != NULL ||
                                 tmsg_channel_is_stream(send->channel->number)
                             ? 0
                             : tensor_bytes_of(send->map);
    if (!queue_has_room(send) && send->call.type != 0 && !send->queues) {
        char why[TMSG_ERROR_BYTES];

        explain_no_room(send, why, sizeof(why));
        return tmsg_error_set(TMSG_ERR_BUSY, "%s", why);
    }
    if (!queue_has_room(send) && send->shared_plan == NULL &&
        send->call.type == 0) {
        return apply_policy(send);
    }
    tmsg_queue_push(send);
    return TMSG_OK;
}

/* Makes the send the first of its channel again. */
static void put_back(tmsg_send_t *send)
{
    count_in(send);
    tmsg_channel_put_back(send->channel, &send->node);
}

/* Hands over the oldest send of a channel's queue. Returns false if there is
 * none or it has to wait. */
static bool flush_one(tmsg_channel_t *channel)
{
    tmsg_send_t *send;
    tmsg_status_t status;

    if (channel->queued.count == 0 || !tmsg_channel_has_credit(channel)) {
        return false;
    }
    send = tmsg_queue_pop(channel);
    status = send->endpoint->dialect->prepare(send);
    if (status == TMSG_IN_PROGRESS) {
        put_back(send);
        return false;
    }
    if (status == TMSG_OK) {
        tmsg_send_post(send);
    } else {
        tmsg_send_end(send, status, tmsg_error_message());
    }
    return true;
}

/* Serves the channels in turn, one message of each, from where the last call
 * stopped. */
void tmsg_sends_flush(tmsg_endpoint_t *endpoint)
{
    tmsg_channels_t *channels = &endpoint->channels;
    uint32_t waiting = 0; /* channels in a row that sent nothing */

    tmsg_resume_send_again(endpoint);
    while (channels->queued > 0 && waiting < channels->count) {
        waiting = flush_one(channels->turn) ? 0 : waiting + 1;
        channels->turn = tmsg_channel_after(channels->turn);
    }
}

static bool add_queue_number(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

bool tmsg_queue_describe(cJSON *object, const tmsg_endpoint_t *endpoint)
{
    const tmsg_queue_t *queue = &endpoint->queue;
    cJSON *entry = cJSON_AddObjectToObject(object, "queue");

    return entry != NULL &&
           add_queue_number(entry, "messages", queue->bounds.messages) &&
           (queue->bounds.bytes == UINT64_MAX ||
            add_queue_number(entry, "bytes", queue->bounds.bytes)) &&
           cJSON_AddStringToObject(
               entry, "policy", policy_names[queue->bounds.policy]) != NULL &&
           add_queue_number(entry, "rejected", queue->rejected) &&
           add_queue_number(entry, "blocked", queue->blocked) &&
           add_queue_number(entry, "dropped_oldest", queue->dropped_oldest) &&
           add_queue_number(entry, "dropped_newest", queue->dropped_newest) &&
           add_queue_number(entry, "would_block", queue->would_block);
}
