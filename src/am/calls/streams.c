/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of streams, which are ordered on channels of their own. What a
 * message is for is looked up when its turn has come, because heads may arrive
 * in another order. */

#include "am/calls/calls.h"
#include "am/endpoint/consumer.h"
#include "am/endpoint/dialect.h"
#include "am/send/cancel.h"
#include "am/send/consumer.h"
#include "am/send/send.h"
#include "am/worker/lead.h"

static tmsg_send_params_t params_of(const tmsg_endpoint_t *endpoint,
                                    const tmsg_stream_send_t *how)
{
    const tmsg_send_params_t none = {.field_mask = 0};
    tmsg_send_params_t params = how->params == NULL ? none : *how->params;
    uint32_t flags =
        params.field_mask & TMSG_SEND_PARAM_FLAGS ? params.flags : 0;

    params.field_mask |= TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL;
    params.flags = flags & ~(uint32_t)(TMSG_SEND_TRY | TMSG_SEND_UNORDERED);
    params.channel = how->channel;
    if (endpoint->resume != NULL) {
        /* A session sends again only what is to be acknowledged. */
        params.flags |= TMSG_SEND_ACKED;
    }
    if (how->call.on_release != NULL) {
        params.field_mask |= TMSG_SEND_PARAM_ON_RELEASE;
        params.on_release = how->call.on_release;
        params.on_release_arg = how->call.on_release_arg;
    }
    if (how->call.on_done != NULL) {
        params.field_mask |= TMSG_SEND_PARAM_ON_DONE;
        params.on_done = how->call.on_done;
        params.on_done_arg = how->call.on_done_arg;
    }
    return params;
}

tmsg_status_t tmsg_stream_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_stream_send_t *how,
                               tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    const tmsg_send_params_t params = params_of(endpoint, how);
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    status = how->may(how->arg, tmsg_stream_waiting(endpoint, how->channel));
    if (status == TMSG_OK) {
        status = tmsg_send_begin(endpoint, map, &params, NULL, &how->call,
                                 request_p);
    }
    tmsg_worker_leave(worker, true);
    return status;
}

size_t tmsg_stream_waiting(tmsg_endpoint_t *endpoint, uint16_t number)
{
    const tmsg_channel_t *channel = tmsg_channel_find(endpoint, number);

    return channel == NULL ? 0 : channel->queued.count;
}

void tmsg_stream_clear(tmsg_endpoint_t *endpoint, uint16_t number, uint64_t id)
{
    tmsg_channel_t *channel;
    tmsg_send_t *send;

    if (atomic_load(&endpoint->life->over)) {
        return;
    }
    tmsg_worker_lock(endpoint->worker);
    channel = tmsg_channel_find(endpoint, number);
    while (channel != NULL &&
           (send = tmsg_stream_waits(channel, id, true)) != NULL) {
        tmsg_send_fail(send, TMSG_ERR_CANCELED, "its stream has ended");
    }
    tmsg_worker_unlock(endpoint->worker);
}

tmsg_status_t tmsg_stream_side(tmsg_endpoint_t *endpoint, bool *dialled_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    *dialled_p = endpoint->dialling;
    if (endpoint->state != TMSG_EP_CONNECTING || !endpoint->dialect->answers) {
        status = endpoint->state == TMSG_EP_ENDED
                     ? TMSG_OK /* the send reports that error in more detail */
                     : tmsg_channel_judge(endpoint, TMSG_CHANNEL_STREAMS);
    }
    tmsg_worker_unlock(worker);
    return status;
}

void tmsg_stream_push(tmsg_list_t *list, tmsg_message_t *message)
{
    tmsg_list_push(list, &message->queue);
}

tmsg_message_t *tmsg_stream_pop(tmsg_list_t *list)
{
    tmsg_node_t *node = tmsg_list_pop(list);

    return node == NULL ? NULL : TMSG_CONTAINER_OF(node, tmsg_message_t, queue);
}
