/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/dialect.h"
#include "am/send/again.h"
#include "am/send/cancel.h"
#include "am/send/queue.h"
#include "am/send/template_out.h"
#include "am/worker/age.h"
#include "am/worker/lead.h"
#include "core/map.h"
#include "core/params.h"
#include "serialize/json.h"

const tmsg_queue_params_t tmsg_queue_usual = {.messages = 65536,
                                              .policy = TMSG_QUEUE_REJECT,
                                              .bytes = UINT64_MAX,
                                              .window = UINT32_MAX,
                                              .most_ms = UINT32_MAX};

static const char *const policy_names[] = {"reject", "block", "drop oldest",
                                           "drop newest", "newest"};

tmsg_status_t tmsg_queue_read(const tmsg_queue_params_t *params,
                              tmsg_queue_params_t *queue)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_MESSAGES, messages),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_BYTES, bytes),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_POLICY, policy),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_WINDOW, window),
        TMSG_PARAM(tmsg_queue_params_t, TMSG_QUEUE_PARAM_MOST_MS, most_ms)};
    tmsg_queue_params_t read = *queue;
    tmsg_status_t status;

    status = tmsg_params_read("queue", params, params->field_mask, rows,
                              sizeof(rows) / sizeof(rows[0]), &read);
    if (status != TMSG_OK) {
        return status;
    }
    if (read.messages == 0 || read.bytes == 0 || read.window == 0 ||
        read.most_ms == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "queue: %s is 0: it must be 1 or more",
                              read.messages == 0 ? "messages"
                              : read.bytes == 0  ? "bytes"
                              : read.window == 0 ? "window"
                                                 : "most_ms");
    }
    if (read.policy < TMSG_QUEUE_REJECT || read.policy > TMSG_QUEUE_NEWEST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "queue: unknown policy %d", read.policy);
    }
    if (read.policy == TMSG_QUEUE_NEWEST) {
        read.messages = 1;
        read.window = 1;
    }
    *queue = read;
    return TMSG_OK;
}

/* From now on no message of a map goes by a template: those with a window are
 * acknowledged. */
static void forget_templates(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        if (channel->number < TMSG_CHANNEL_CALLS) {
            tmsg_template_forget_out(channel);
        }
    }
}

static void renew_ages(tmsg_endpoint_t *endpoint);

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
    endpoint = tmsg_endpoint_now(endpoint);
    queue = worker->send_queue;
    if (params != NULL) {
        status = tmsg_queue_read(params, &queue);
    }
    if (status == TMSG_OK) {
        endpoint->queue.bounds = queue;
        renew_ages(endpoint);
        if (queue.window != UINT32_MAX) {
            forget_templates(endpoint);
        }
        if (endpoint->state == TMSG_EP_OPEN) {
            tmsg_worker_chore(worker, endpoint); /* more may go now */
        }
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

static bool drops_oldest(const tmsg_queue_t *queue)
{
    return queue->bounds.policy == TMSG_QUEUE_DROP_OLDEST ||
           queue->bounds.policy == TMSG_QUEUE_NEWEST;
}

static bool has_age_bound(const tmsg_queue_t *queue)
{
    return tmsg_age_is_bound(queue->bounds.most_ms);
}

static bool is_too_old(const tmsg_send_t *send)
{
    const tmsg_queue_t *queue = &send->endpoint->queue;

    return has_age_bound(queue) && send->queued_ns != 0 &&
           tmsg_age_left_ns(queue->bounds.most_ms, send->queued_ns) == 0;
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

/* Returns whether the queue has room, and if not for which bound. */
static bool look_for_room(tmsg_endpoint_t *endpoint, uint64_t bytes,
                          tmsg_queue_drop_t *bound_p)
{
    const tmsg_queue_t *queue = &endpoint->queue;
    size_t waiting = waiting_for(endpoint);
    const tmsg_send_t *oldest;

    if (waiting == 0) {
        return true;
    }
    if (waiting >= queue->bounds.messages) {
        *bound_p = TMSG_QUEUE_DROP_MESSAGES;
        return false;
    }
    if (queue->bytes > queue->bounds.bytes ||
        bytes > queue->bounds.bytes - queue->bytes) {
        *bound_p = TMSG_QUEUE_DROP_BYTES;
        return false;
    }
    *bound_p = TMSG_QUEUE_DROP_AGE;
    oldest = has_age_bound(queue) ? oldest_droppable(endpoint) : NULL;
    return oldest == NULL || !is_too_old(oldest);
}

static bool queue_has_room(const tmsg_send_t *send)
{
    tmsg_queue_drop_t bound;

    return look_for_room(send->endpoint, send->queued_bytes, &bound);
}

bool tmsg_queue_takes(tmsg_endpoint_t *endpoint, const tmsg_map_t *map)
{
    tmsg_queue_drop_t bound;

    return look_for_room(endpoint, tensor_bytes_of(map), &bound);
}

bool tmsg_queue_lets_go(const tmsg_send_t *send)
{
    const tmsg_queue_t *queue = &send->endpoint->queue;

    return !send->windowed || queue->under_way < queue->bounds.window;
}

void tmsg_queue_went(const tmsg_send_t *send)
{
    send->endpoint->queue.under_way += send->windowed;
}

void tmsg_queue_landed(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (send->windowed) {
        send->windowed = false;
        endpoint->queue.under_way--;
        if (endpoint->channels.queued > 0) {
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
    }
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

static void drop_send(tmsg_send_t *send, tmsg_queue_drop_t bound,
                      const char *why)
{
    tmsg_queue_t *queue = &send->endpoint->queue;

    tmsg_queue_remove(send);
    queue->dropped_oldest++;
    queue->drops[bound]++;
    tmsg_send_end(send, TMSG_ERR_DROPPED, why);
}

static void set_age_timer(tmsg_endpoint_t *endpoint);

static void drop_too_old(tmsg_endpoint_t *endpoint)
{
    tmsg_send_t *oldest;
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why),
             "%s: it has waited in the send queue for %u ms, the longest that "
             "it may",
             endpoint->peer, endpoint->queue.bounds.most_ms);
    while ((oldest = oldest_droppable(endpoint)) != NULL &&
           is_too_old(oldest)) {
        drop_send(oldest, TMSG_QUEUE_DROP_AGE, why);
    }
}

static void waited_too_long(tmsg_timer_t *timer)
{
    tmsg_queue_t *queue = TMSG_CONTAINER_OF(timer, tmsg_queue_t, timer);
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(queue, tmsg_endpoint_t, queue);

    tmsg_endpoint_hold(endpoint);
    if (drops_oldest(queue)) {
        drop_too_old(endpoint);
    }
    set_age_timer(endpoint);
    tmsg_endpoint_drop(endpoint);
}

/* Has the oldest message that waits dropped when it has waited for too long. */
static void set_age_timer(tmsg_endpoint_t *endpoint)
{
    tmsg_queue_t *queue = &endpoint->queue;
    const tmsg_send_t *oldest;

    if (!has_age_bound(queue) || !drops_oldest(queue) ||
        queue->timer.deadline_ns != 0) {
        return;
    }
    oldest = oldest_droppable(endpoint);
    if (oldest != NULL) {
        queue->timer.expired = waited_too_long;
        tmsg_loop_set_alarm(
            &endpoint->worker->loop, &queue->timer,
            tmsg_age_left_ns(queue->bounds.most_ms, oldest->queued_ns));
    }
}

/* Applies a new bound for age to what waits. Messages that were queued without
 * such a bound count from now on. */
static void renew_ages(tmsg_endpoint_t *endpoint)
{
    uint64_t now = tmsg_now_ns();

    tmsg_loop_clear_timer(&endpoint->worker->loop, &endpoint->queue.timer);
    if (!has_age_bound(&endpoint->queue)) {
        return;
    }
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        for (tmsg_node_t *node = channel->queued.head; node != NULL;
             node = node->next) {
            tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

            send->queued_ns = send->queued_ns == 0 ? now : send->queued_ns;
        }
    }
    set_age_timer(endpoint);
}

void tmsg_queue_push(tmsg_send_t *send)
{
    count_in(send);
    tmsg_channel_push(send->channel, &send->node);
    if (has_age_bound(&send->endpoint->queue)) {
        /* What a restarted peer gets has waited since it was sent. */
        send->queued_ns =
            send->queued_ns == 0 ? tmsg_now_ns() : send->queued_ns;
        set_age_timer(send->endpoint);
    }
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
static tmsg_queue_drop_t explain_no_room(const tmsg_send_t *send, char *why,
                                         size_t bytes)
{
    const tmsg_queue_t *queue = &send->endpoint->queue;
    const char *peer = send->endpoint->peer;
    size_t waiting = waiting_for(send->endpoint);
    tmsg_queue_drop_t bound = TMSG_QUEUE_DROP_MESSAGES;

    look_for_room(send->endpoint, send->queued_bytes, &bound);
    switch (bound) {
    case TMSG_QUEUE_DROP_MESSAGES:
        snprintf(why, bytes,
                 "%s: the send queue is full: %zu messages wait, of %u that "
                 "may",
                 peer, waiting, queue->bounds.messages);
        break;
    case TMSG_QUEUE_DROP_BYTES:
        snprintf(why, bytes,
                 "%s: the send queue is full: %llu bytes wait, of %llu that "
                 "may, and this message has %llu",
                 peer, (unsigned long long)queue->bytes,
                 (unsigned long long)queue->bounds.bytes,
                 (unsigned long long)send->queued_bytes);
        break;
    default:
        snprintf(why, bytes,
                 "%s: the send queue is full: the oldest of its %zu messages "
                 "has waited for %u ms, the longest that it may",
                 peer, waiting, queue->bounds.most_ms);
        break;
    }
    return bound;
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
    tmsg_queue_drop_t bound;

    while (!look_for_room(send->endpoint, send->queued_bytes, &bound) &&
           (victim = oldest_droppable(send->endpoint)) != NULL) {
        drop_send(victim, bound, why);
    }
    tmsg_queue_push(send);
}

static tmsg_status_t apply_policy(tmsg_send_t *send)
{
    tmsg_queue_t *queue = &send->endpoint->queue;
    char why[TMSG_ERROR_BYTES];
    tmsg_queue_drop_t bound = explain_no_room(send, why, sizeof(why));

    switch (queue->bounds.policy) {
    case TMSG_QUEUE_BLOCK:
        return block_sender(send);
    case TMSG_QUEUE_DROP_OLDEST:
    case TMSG_QUEUE_NEWEST:
        drop_oldest(send, why);
        return TMSG_OK;
    case TMSG_QUEUE_DROP_NEWEST:
        queue->dropped_newest++;
        queue->drops[bound]++;
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
    if (!queue_has_room(send) && send->call.type != 0 && !send->queues &&
        endpoint->queue.bounds.policy != TMSG_QUEUE_NEWEST) {
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
    send = TMSG_CONTAINER_OF(channel->queued.head, tmsg_send_t, node);
    if (!tmsg_queue_lets_go(send)) {
        return false;
    }
    tmsg_queue_remove(send);
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
    if (has_age_bound(&endpoint->queue) && drops_oldest(&endpoint->queue)) {
        drop_too_old(endpoint); /* the timer may be late */
    }
    while (channels->queued > 0 && waiting < channels->count) {
        waiting = flush_one(channels->turn) ? 0 : waiting + 1;
        channels->turn = tmsg_channel_after(channels->turn);
    }
}

static bool add_queue_number(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

static bool add_drops(cJSON *object, const uint64_t drops[TMSG_QUEUE_DROPS])
{
    cJSON *entry = cJSON_AddObjectToObject(object, "dropped_for");

    return entry != NULL &&
           add_queue_number(entry, "messages",
                            drops[TMSG_QUEUE_DROP_MESSAGES]) &&
           add_queue_number(entry, "bytes", drops[TMSG_QUEUE_DROP_BYTES]) &&
           add_queue_number(entry, "age", drops[TMSG_QUEUE_DROP_AGE]);
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
           add_queue_number(entry, "would_block", queue->would_block) &&
           (queue->bounds.window == UINT32_MAX ||
            (add_queue_number(entry, "window", queue->bounds.window) &&
             add_queue_number(entry, "under_way", queue->under_way))) &&
           (!has_age_bound(queue) ||
            add_queue_number(entry, "most_ms", queue->bounds.most_ms)) &&
           add_drops(entry, queue->drops);
}
