/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out what became of a send, and when its buffers are free. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/log.h"
#include "am/endpoint/session.h"
#include "am/send/consumer.h"
#include "am/send/fragments.h"
#include "am/send/lend.h"
#include "am/send/pack.h"
#include "am/send/queue.h"
#include "am/send/stage_out.h"
#include "am/send/trace.h"
#include "am/ucx/ucx.h"
#include "core/map.h"

#define NS_PER_MS 1000000ULL

static void free_unheld_map(tmsg_due_t *due)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(due, tmsg_send_t, map_due);

    tmsg_map_free(send->map);
    tmsg_request_drop(&send->request);
}

static void run_on_release(tmsg_due_t *due)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(due, tmsg_send_t, release_due);

    send->on_release(send->on_release_arg);
    tmsg_request_drop(&send->request);
}

void tmsg_send_released(tmsg_send_t *send)
{
    if (send->on_release != NULL && send->release_due.run == NULL) {
        send->release_due.run = run_on_release;
        tmsg_request_hold(&send->request);
        tmsg_worker_due(send->endpoint->worker, &send->release_due);
    }
}

void tmsg_send_drop_header(tmsg_send_t *send)
{
    if (send->header != send->small_header) {
        free(send->header);
    }
    send->header = NULL;
}

void tmsg_send_drop_more(tmsg_send_t *send)
{
    if (send->more != NULL && tmsg_map_unhold(send->more)) {
        /* Such a map has nothing of an application, so that no callback
         * runs. */
        tmsg_map_free(send->more);
    }
    send->more = NULL;
}

/* Forfeits the lease if the peer may still be reading the buffers that go back.
 * Once the peer has answered a message, it reads no more of it. */
static void make_sure(tmsg_send_t *send)
{
    if (send->unsure &&
        (!send->answered || send->given_up != TMSG_GIVE_UP_NONE)) {
        tmsg_lease_forfeit(send->endpoint, send->ucx_status);
    }
    send->unsure = false;
}

static void no_answer(tmsg_timer_t *timer)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(timer, tmsg_send_t, timer);

    tmsg_lease_forfeit(send->endpoint, send->ucx_status);
}

/* Waits a while for the peer's answer. A peer that failed to read says so soon;
 * a peer that never heard of the message does not answer. The send's own
 * deadline stays if it is earlier. */
static void await_answer(tmsg_send_t *send)
{
    tmsg_worker_t *worker = send->endpoint->worker;
    uint64_t ms = tmsg_context_peer_timeout_ms(worker->context);
    uint64_t until = tmsg_now_ns() + ms * NS_PER_MS;

    if (send->timer.deadline_ns == 0 || send->timer.deadline_ns > until) {
        send->timer.expired = no_answer;
        tmsg_loop_set_timer(&worker->loop, &send->timer, ms);
    }
}

/* Frees plan, fragments and header, when UCX has done with them. */
static void free_send_plan(tmsg_send_t *send)
{
    tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);

    tmsg_fragments_free(send);
    if (send->packed_bytes > 0) {
        tmsg_pack_over(send);
    }
    tmsg_plan_free(&send->plan, pool);
    tmsg_written_free(&send->written, pool);
    /* This map has nothing of an application, either. */
    tmsg_map_destroy(send->kept);
    send->kept = NULL;
    tmsg_send_drop_header(send);
}

void tmsg_send_give_back(tmsg_send_t *send)
{
    make_sure(send);
    if (send->flags & TMSG_SEND_LEND) {
        tmsg_lend_give_back(send);
    }
    tmsg_send_released(send);
    free_send_plan(send);
    tmsg_stage_out_free(send);
    if (send->shared_plan != NULL) {
        tmsg_shared_plan_drop(send->shared_plan,
                              tmsg_budget_pool(send->endpoint->worker->budget));
        send->shared_plan = NULL;
    }
    tmsg_send_drop_more(send);
    if (send->holds_map && tmsg_map_unhold(send->map)) {
        send->map_due.run = free_unheld_map;
        tmsg_request_hold(&send->request);
        tmsg_worker_due(send->endpoint->worker, &send->map_due);
    }
    send->holds_map = false;
}

static bool was_wanted(tmsg_status_t status)
{
    return status == TMSG_ERR_CANCELED || status == TMSG_ERR_DROPPED;
}

void tmsg_send_tell_failed(tmsg_send_t *send, tmsg_status_t status,
                           const char *error)
{
    const char *words = error != NULL ? error : tmsg_status_name(status);

    if (send->call.type != 0 && !send->last) {
        tmsg_call_bounced(send->endpoint, &send->call, send->message_id,
                          send->posted, status, words);
    }
    if (tmsg_call_is_stream(send->call.type)) {
        tmsg_stream_unsent(send->channel, &send->call, status, words);
    }
}

void tmsg_send_end(tmsg_send_t *send, tmsg_status_t status, const char *error)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (status != TMSG_OK) {
        tmsg_send_tell_failed(send, status, error);
    }
    if (status != TMSG_OK && endpoint->state != TMSG_EP_ENDED) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_FAILED_KIND,
                          was_wanted(status) || send->call.type != 0
                              ? TMSG_LOG_DEBUG
                              : TMSG_LOG_WARN,
                          "message %u failed: %s", send->message_id, error);
    }
    tmsg_loop_clear_timer(&endpoint->worker->loop, &send->timer);
    if (status != TMSG_OK) {
        tmsg_trace_failed(send, status);
    }
    tmsg_send_give_back(send);
    tmsg_request_end(&send->request, status, error);
    tmsg_endpoint_return(endpoint);
}

/* Frees a send for which nobody waits any more, when UCX has reported. */
static void free_given_up(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    tmsg_send_give_back(send);
    tmsg_request_drop(&send->request);
    tmsg_endpoint_return(endpoint);
}

void tmsg_send_settle(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool over = endpoint->state == TMSG_EP_ENDED;

    if (send->in_ucx || tmsg_fragments_pending(send)) {
        return;
    }
    if (send->ucx_status == TMSG_UCX_OK) {
        tmsg_trace_done(send);
    }
    if (!send->answered && !over && send->given_up != TMSG_GIVE_UP_ENDED &&
        (send->flags & TMSG_SEND_ACKED || send->ucx_status != TMSG_UCX_OK)) {
        /* The peer's answer is still to come. */
        if (tmsg_resume_keeps(endpoint)) {
            make_sure(send);
            free_send_plan(send);
        } else if (send->unsure) {
            await_answer(send);
        } else {
            tmsg_send_give_back(send);
        }
        return;
    }
    tmsg_list_remove(&endpoint->posted, &send->node);
    tmsg_queue_landed(send);
    if (send->given_up == TMSG_GIVE_UP_ENDED) {
        free_given_up(send);
    } else if (send->answered) {
        tmsg_send_end(send, send->answer, send->answer_text);
    } else if (!over || (send->ucx_status == TMSG_UCX_OK &&
                         !(send->flags & TMSG_SEND_ACKED))) {
        tmsg_send_end(send, TMSG_OK, NULL);
    } else {
        tmsg_send_end(send, endpoint->status, endpoint->error);
    }
    if (tmsg_close_waits(endpoint)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

/* Notes UCX's status, of the message or of one of its fragments. The message is
 * not whole if UCX could not move all of them. */
static void note_status(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    if (ucs != TMSG_UCX_OK) {
        send->ucx_status = ucs;
        if (tmsg_ucx_is_loss(ucs) || send->fragments != NULL) {
            tmsg_lease_reported(send->endpoint, ucs);
        } else {
            /* A peer of a dialect that answers nothing has no lease, either. */
            send->unsure = send->endpoint->dialect->failed == NULL &&
                           tmsg_lease_is_unsure(ucs);
        }
        tmsg_fragments_stop(send);
    }
}

void tmsg_send_fragment_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    note_status(send, ucs);
    tmsg_send_settle(send);
}

void tmsg_send_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    /* The endpoint stays in its table until tmsg_endpoint_reported(). */
    tmsg_op_over(endpoint, &send->op);
    send->in_ucx = false;
    note_status(send, ucs);
    if (ucs != TMSG_UCX_OK && endpoint->dialect->failed != NULL) {
        endpoint->dialect->failed(send, ucs);
    }
    tmsg_send_settle(send);
    tmsg_endpoint_reported(endpoint);
}

void tmsg_send_answer(tmsg_send_t *send, tmsg_status_t status,
                      const char *format, ...)
{
    va_list arguments;

    if (send->given_up != TMSG_GIVE_UP_NONE) {
        return;
    }
    send->answered = true;
    send->answer = status;
    if (status == TMSG_OK || send->answer_text != NULL) {
        return;
    }
    va_start(arguments, format);
    if (vasprintf(&send->answer_text, format, arguments) < 0) {
        send->answer_text = NULL;
    }
    va_end(arguments);
}

/* Looks from the end that is nearer by number: a peer may answer the last send
 * first. */
tmsg_send_t *tmsg_send_find(const tmsg_endpoint_t *endpoint,
                            uint32_t message_id)
{
    const tmsg_list_t *posted = &endpoint->posted;
    bool backwards =
        posted->tail != NULL &&
        TMSG_CONTAINER_OF(posted->tail, tmsg_send_t, node)->message_id -
                message_id <
            message_id -
                TMSG_CONTAINER_OF(posted->head, tmsg_send_t, node)->message_id;

    for (tmsg_node_t *node = backwards ? posted->tail : posted->head;
         node != NULL; node = backwards ? node->previous : node->next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        if (send->message_id == message_id) {
            return send;
        }
    }
    return NULL;
}

void tmsg_send_acknowledged(tmsg_endpoint_t *endpoint, uint32_t message_id,
                            tmsg_status_t status, const char *error)
{
    tmsg_send_t *send = tmsg_send_find(endpoint, message_id);

    if (send == NULL) {
        if (status != TMSG_OK && !tmsg_call_bounced(endpoint, NULL, message_id,
                                                    true, status, error)) {
            tmsg_endpoint_log(
                endpoint, TMSG_LOG_FAILED_KIND,
                was_wanted(status) ? TMSG_LOG_DEBUG : TMSG_LOG_WARN,
                "message %u was lost after it was sent: %s", message_id, error);
        }
        return;
    }
    tmsg_trace_acked(send, status);
    tmsg_send_answer(send, status, "%s: %s", endpoint->peer, error);
    if (status != TMSG_OK) {
        tmsg_fragments_stop(send);
    }
    tmsg_send_settle(send);
}

void tmsg_sends_end(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->posted.head;

    while (node != NULL) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);
        tmsg_node_t *next = node->next;

        /* Sends that UCX holds stay until it reports. */
        tmsg_fragments_stop(send);
        tmsg_send_settle(send);
        node = next;
    }
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        while (channel->queued.count > 0) {
            tmsg_send_end(tmsg_queue_pop(channel), endpoint->status,
                          endpoint->error);
        }
    }
    tmsg_loop_clear_timer(&endpoint->worker->loop, &endpoint->queue.timer);
}
