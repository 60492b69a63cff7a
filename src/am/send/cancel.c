/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX does not let go of an active message that it was given. So a send that is
 * given up is over for those who wait, here and at the peer, while its record
 * stays until UCX has reported. */
#include "am/send/cancel.h"

#include <stdio.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/measures.h"
#include "am/send/again.h"
#include "am/send/fragments.h"
#include "am/send/lend.h"
#include "am/send/queue.h"
#include "am/send/stage_out.h"
#include "core/map.h"

/* Returns whether memory is read that somebody may change afterwards. */
static bool lends_memory(const tmsg_send_t *send)
{
    const tmsg_plan_t *plan = &send->plan;
    const uint8_t *data = plan->contiguous;
    bool copied = plan->iov_count == 0 &&
                  (data == plan->staging.data ||
                   (data >= send->small_payload &&
                    data < send->small_payload + sizeof(send->small_payload)));

    return ((plan->bytes > 0 && !copied) || tmsg_fragments_pending(send)) &&
           (send->reclaims || tmsg_map_borrows(send->map)) &&
           !tmsg_stage_out_is_lost(send);
}

/* Ends a send for those who wait, while UCX still has its record. */
static void end_in_ucx(tmsg_send_t *send, tmsg_status_t status, const char *why)
{
    send->given_up = TMSG_GIVE_UP_ENDED;
    if (send->flags & TMSG_SEND_LEND) {
        tmsg_lend_released(send);
    }
    tmsg_send_released(send);
    tmsg_send_tell_failed(send, status, why);
    tmsg_request_hold(&send->request); /* UCX's reference */
    tmsg_request_end(&send->request, status, why);
}

/* Gives up a send that UCX has not reported, or that is being written to the
 * bulk stream. */
static void give_up_in_ucx(tmsg_send_t *send, tmsg_status_t status,
                           const char *why)
{
    tmsg_send_answer(send, status, "%s", why);
    send->given_up = TMSG_GIVE_UP_PENDING;
    if (lends_memory(send)) {
        tmsg_request_pend(&send->request, why);
        return;
    }
    end_in_ucx(send, status, why);
}

/* Tells the peer, if it knows how, to drop what its application has not got. */
static void tell_peer(const tmsg_send_t *send, tmsg_status_t status,
                      const char *why)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;

    if (send->posted && endpoint->peer_hello.aborts != 0 &&
        (endpoint->state == TMSG_EP_OPEN ||
         endpoint->state == TMSG_EP_CLOSING)) {
        tmsg_control_abort(send->channel, send->message_id, send->sequence,
                           status, why);
    }
}

/* Gives a send up. `why` is for the peer, too, and so names nobody. */
static void give_up_send(tmsg_send_t *send, tmsg_status_t status,
                         const char *why)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    char words[TMSG_ERROR_BYTES];

    tmsg_loop_clear_timer(&endpoint->worker->loop, &send->timer);
    endpoint->stats.timed_out_messages += status == TMSG_ERR_TIMED_OUT;
    endpoint->stats.canceled_messages += status == TMSG_ERR_CANCELED;
    snprintf(words, sizeof(words), "%s: message %u: %s", endpoint->peer,
             send->message_id, why);
    tell_peer(send, status, why);
    if (endpoint->peer_hello.aborts != 0) {
        /* A peer that knows no ABORT would wait for them. */
        tmsg_fragments_stop(send);
    }
    if (send->in_ucx || tmsg_fragments_pending(send)) {
        give_up_in_ucx(send, status, words);
        return;
    }
    if (send->posted) {
        tmsg_resume_dropped(send);
        tmsg_list_remove(&endpoint->posted, &send->node);
        tmsg_queue_landed(send);
    } else {
        tmsg_queue_remove(send);
    }
    tmsg_endpoint_hold(endpoint);
    tmsg_send_end(send, status, words);
    if (tmsg_close_waits(endpoint)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

void tmsg_send_cancel(tmsg_request_t *request)
{
    give_up_send(TMSG_CONTAINER_OF(request, tmsg_send_t, request),
                 TMSG_ERR_CANCELED, "canceled by its sender");
}

void tmsg_send_fail(tmsg_send_t *send, tmsg_status_t status, const char *why)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool waits = send->posted && endpoint->peer_hello.aborts == 0;
    char words[TMSG_ERROR_BYTES];

    if (send->given_up != TMSG_GIVE_UP_NONE) {
        if (send->given_up == TMSG_GIVE_UP_PENDING && !lends_memory(send)) {
            end_in_ucx(send, send->answer, send->answer_text);
        }
        return;
    }
    /* The words may go with the send. */
    snprintf(words, sizeof(words), "%s", why);
    tmsg_fragments_stop(send);
    give_up_send(send, status, words);
    if (waits) {
        tmsg_endpoint_break(endpoint, status,
                            "the rest of a message could not be sent, and the "
                            "peer could not be told");
    }
}

/* Returns how many sends wait before this one. */
static unsigned count_before(const tmsg_send_t *send)
{
    unsigned count = 0;

    for (const tmsg_node_t *node = send->node.previous; node != NULL;
         node = node->previous) {
        count++;
    }
    return count;
}

/* Returns in words what the send still waited for. */
static const char *name_awaited(const tmsg_send_t *send, char *words,
                                size_t room)
{
    unsigned before;

    if (send->posted) {
        return send->in_ucx || tmsg_fragments_pending(send)
                   ? "it was not sent"
                   : "it was not acknowledged";
    }
    if (tmsg_stage_out_sums(send)) {
        return "its checksums were not known";
    }
    if (tmsg_lend_is_copying(send)) {
        return "the copy to be lent was not made";
    }
    if (send->endpoint->state == TMSG_EP_CONNECTING ||
        send->endpoint->state == TMSG_EP_AWAY) {
        return "the connection was not made";
    }
    before = count_before(send);
    snprintf(words, room,
             "the peer's application did not take those before it");
    if (before > 0) {
        snprintf(words, room,
                 "the peer's application did not take those before it, of "
                 "which %u wait here",
                 before);
    }
    return words;
}

static void expire_send(tmsg_timer_t *timer)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(timer, tmsg_send_t, timer);
    char why[128], words[96];

    snprintf(why, sizeof(why), "%s in %d ms",
             name_awaited(send, words, sizeof(words)), send->timeout_ms);
    give_up_send(send, TMSG_ERR_TIMED_OUT, why);
}

void tmsg_send_limit(tmsg_send_t *send, int32_t timeout_ms)
{
    send->timeout_ms = timeout_ms;
    send->deadline_ns = tmsg_now_ns() + (uint64_t)timeout_ms * 1000000;
}

int32_t tmsg_send_ms_left(const tmsg_send_t *send)
{
    uint64_t now = tmsg_now_ns();

    if (send->deadline_ns == 0) {
        return -1;
    }
    return now >= send->deadline_ns
               ? 0
               : (int32_t)((send->deadline_ns - now + 999999) / 1000000);
}

void tmsg_send_set_timer(tmsg_send_t *send)
{
    if (send->deadline_ns == 0 ||
        tmsg_request_test(&send->request) != TMSG_IN_PROGRESS) {
        return;
    }
    send->timer.expired = expire_send;
    tmsg_loop_set_timer(&send->endpoint->worker->loop, &send->timer,
                        (uint64_t)tmsg_send_ms_left(send));
}
