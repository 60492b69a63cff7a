/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/session.h"
#include "am/path/fastboxes.h"
#include "am/send/cancel.h"
#include "am/send/consumer.h"
#include "am/send/fragments.h"
#include "am/send/lend.h"
#include "am/send/move.h"
#include "am/send/queue.h"
#include "am/send/send.h"
#include "am/send/stage_out.h"
#include "am/send/template_out.h"
#include "am/send/trace.h"
#include "am/worker/lead.h"
#include "core/bytes.h"
#include "core/map.h"
#include "core/params.h"
#include "core/tensor.h"
#include "memory/domain.h"

#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_SEND_ACKED | TMSG_SEND_VERIFY | TMSG_SEND_UNORDERED |     \
                TMSG_SEND_TRY | TMSG_SEND_NO_PACK | TMSG_SEND_KEEP_STRIDES |   \
                TMSG_SEND_LEND))

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |               \
                TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_CHANNEL |            \
                TMSG_SEND_PARAM_TIMEOUT | TMSG_SEND_PARAM_ON_RELEASE |         \
                TMSG_SEND_PARAM_WAY))

void tmsg_send_free_spare(tmsg_spare_t *spare)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(spare, tmsg_send_t, spare);

    tmsg_budget_drop(send->budget);
    free(send->fragments_kept);
    free(send);
}

/* Gives the record back to the memory budget. The worker may be gone by now. */
static void destroy_send(tmsg_request_t *request)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(request, tmsg_send_t, request);
    tmsg_budget_t *budget = send->budget;

    free(send->answer_text);
    free(send->call_text);
    send->spare.bytes = sizeof(*send) + tmsg_fragments_spare(send);
    tmsg_budget_keep(budget, tmsg_budget_sends(budget), &send->spare);
}

void tmsg_send_init_request(tmsg_send_t *send, tmsg_worker_t *worker)
{
    tmsg_request_init(&send->request, worker, destroy_send, tmsg_send_cancel);
}

tmsg_send_t *tmsg_send_record(tmsg_budget_t *budget)
{
    tmsg_spare_t *spare = tmsg_spares_take(tmsg_budget_sends(budget));
    tmsg_send_t *send;

    if (spare != NULL) {
        send = TMSG_CONTAINER_OF(spare, tmsg_send_t, spare);
    } else {
        send = malloc(sizeof(*send));
        if (send == NULL) {
            return NULL;
        }
        send->budget = budget;
        send->fragments_kept = NULL;
        tmsg_budget_hold(budget);
    }
    return send;
}

void tmsg_send_clear(tmsg_send_t *send)
{
    tmsg_zero(&send->spare,
              offsetof(tmsg_send_t, budget) - offsetof(tmsg_send_t, spare));
}

static void abandon_send(tmsg_op_t *op)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(op, tmsg_send_t, op);

    tmsg_cma_abandon(&send->read);
    tmsg_send_reported(send, TMSG_UCX_CANCELED);
}

void tmsg_send_ucx_reported(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    tmsg_ucx_request_free(request);
    tmsg_send_reported(arg, ucs);
}

void tmsg_send_count(tmsg_channel_t *channel, uint64_t bytes)
{
    tmsg_stats_t *stats = &channel->endpoint->stats;

    /* A worker that sends does not only wait. */
    channel->endpoint->worker->idle = 0;
    channel->tx_sequence++;
    channel->sent_messages++;
    stats->sent_messages++;
    stats->sent_bytes += bytes;
    tmsg_histogram_note(&stats->sent_sizes, bytes);
}

void tmsg_send_count_bulk(tmsg_send_t *send, bool by_bulk)
{
    tmsg_stats_t *stats = &send->endpoint->stats;

    stats->sent_by_bulk += (uint64_t)by_bulk - (uint64_t)send->by_bulk;
    send->by_bulk = by_bulk;
}

void tmsg_send_hand_over(tmsg_send_t *send)
{
    tmsg_op_begin(send->endpoint, &send->op, abandon_send);
    send->in_ucx = true;
}

bool tmsg_send_is_for_fastbox(const tmsg_send_t *send)
{
    return send->fragments == NULL &&
           !(send->am_flags & TMSG_UCX_SEND_RENDEZVOUS) &&
           send->wish.way == TMSG_WAY_AUTO &&
           send->wish.protocol == TMSG_PROTOCOL_AUTO &&
           tmsg_fastboxes_are_for(send->endpoint, send->header_bytes,
                                  send->plan.bytes);
}

/* Returns false if the message may not go by a fast box now. */
static bool put_into_fastbox(tmsg_send_t *send)
{
    const tmsg_plan_t *plan = &send->plan;
    tmsg_fastbox_t *fastbox = tmsg_fastboxes_choose(send->endpoint);
    uint8_t *to;

    if (fastbox == NULL) {
        return false;
    }
    to = tmsg_fastbox_begin(fastbox, send->header_bytes, 0);
    tmsg_fastbox_write_header(fastbox, send->header);
    if (plan->iov_count == 0 && plan->bytes > 0) {
        memcpy(to, plan->contiguous, plan->bytes);
    }
    for (size_t i = 0; i < plan->iov_count; i++) {
        memcpy(to, plan->iov[i].iov_base, plan->iov[i].iov_len);
        to += plan->iov[i].iov_len;
    }
    tmsg_fastboxes_put(send->endpoint, plan->bytes);
    return true;
}

static void finish_lent_read(tmsg_cma_out_t *read, tmsg_ucx_status_t ucs)
{
    tmsg_send_reported(TMSG_CONTAINER_OF(read, tmsg_send_t, read), ucs);
}

/* Has the peer read the payload out of this process's memory; see cma.h. */
static tmsg_ucx_status_t have_it_read(tmsg_send_t *send)
{
    send->read.over = finish_lent_read;
    return tmsg_cma_post(send->endpoint, send->header, send->header_bytes,
                         send->plan.contiguous, &send->read);
}

static tmsg_ucx_status_t hand_map_to_ucx(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_plan_t *plan = &send->plan;
    const tmsg_ucx_send_t message = {
        .header = send->header,
        .header_bytes = send->header_bytes,
        .data =
            plan->iov_count > 0 ? (const void *)plan->iov : plan->contiguous,
        .bytes = plan->bytes,
        .pieces = plan->iov_count,
        .flags = endpoint->dialect->send_flags | send->am_flags,
    };

    return tmsg_endpoint_send_am(endpoint, &message, tmsg_send_ucx_reported,
                                 send);
}

/* Puts the message into a fast box or hands it to UCX. Reports the send unless
 * UCX is to report it later. */
static tmsg_ucx_status_t hand_over_send(tmsg_send_t *send)
{
    tmsg_ucx_status_t ucs =
        tmsg_send_is_for_fastbox(send) && put_into_fastbox(send)
            ? TMSG_UCX_OK
            : hand_map_to_ucx(send);

    if (ucs == TMSG_UCX_IN_PROGRESS) {
        return TMSG_UCX_OK;
    }
    tmsg_send_reported(send, ucs);
    return ucs;
}

void tmsg_send_post(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    uint64_t fragments_bytes = tmsg_fragments_begin(send);
    tmsg_ucx_status_t ucs;

    if (!send->again) {
        tmsg_list_push(&endpoint->posted, &send->node);
        send->posted = true;
        tmsg_queue_went(send);
        send->sequence = send->channel->tx_sequence;
        send->bytes = send->plan.bytes + fragments_bytes;
        if (send->flags & TMSG_SEND_LEND) {
            send->bytes += tmsg_lend_bytes(send);
        }
        tmsg_send_count(send->channel, send->bytes);
        send->channel->sent_in_fragments += fragments_bytes > 0;
        endpoint->tx.sent_in_fragments += fragments_bytes > 0;
        tmsg_trace_posted(send);
    }
    tmsg_send_count_bulk(send, send->pulled);
    endpoint->credit.tx_charged += send->charge;
    send->again = false;
    /* An earlier post, before a break, may have left another status. */
    send->ucx_status = TMSG_UCX_OK;
    tmsg_send_hand_over(send);
    ucs = send->is_read ? have_it_read(send) : hand_over_send(send);
    if (ucs != TMSG_UCX_OK) {
        tmsg_endpoint_unsent(endpoint, ucs);
    }
    tmsg_fragments_flush(endpoint);
}

static void copy_params(const tmsg_send_params_t *params, tmsg_send_t *send)
{
    if (params->field_mask & TMSG_SEND_PARAM_FLAGS) {
        send->flags = params->flags;
    }
    if (params->field_mask & TMSG_SEND_PARAM_POLICY) {
        send->policy = params->policy;
    }
    if (params->field_mask & TMSG_SEND_PARAM_ON_DONE) {
        send->request.on_done = params->on_done;
        send->request.on_done_arg = params->on_done_arg;
    }
    if (params->field_mask & TMSG_SEND_PARAM_TIMEOUT) {
        send->timeout_ms = params->timeout_ms;
    }
    if (params->field_mask & TMSG_SEND_PARAM_ON_RELEASE) {
        send->on_release = params->on_release;
        send->on_release_arg = params->on_release_arg;
    }
    if (params->field_mask & TMSG_SEND_PARAM_WAY) {
        send->wish.way = params->way;
        send->wish.protocol = params->protocol;
    }
    if (send->flags & TMSG_SEND_VERIFY) {
        /* Nobody would learn of a mismatch without an answer. */
        send->flags |= TMSG_SEND_ACKED;
    }
}

static tmsg_status_t read_params_of_send(const tmsg_send_params_t *params,
                                         tmsg_send_t *send)
{
    send->timeout_ms = -1;
    if (params == NULL) {
        return TMSG_OK;
    }
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("send", params->field_mask & ~PARAMS_KNOWN);
    }
    copy_params(params, send);
    if (send->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "send: unknown flags 0x%x",
                              send->flags & ~FLAGS_KNOWN);
    }
    if (send->policy != TMSG_POLICY_HOST_FALLBACK &&
        send->policy != TMSG_POLICY_STRICT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "send: unknown policy %d",
                              send->policy);
    }
    if (send->timeout_ms == 0 || send->timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "send: timeout_ms %d is neither above 0 nor -1",
                              send->timeout_ms);
    }
    if (send->timeout_ms > 0) {
        tmsg_send_limit(send, send->timeout_ms);
    }
    if (send->wish.way < TMSG_WAY_AUTO || send->wish.way > TMSG_WAY_FRAGMENTS ||
        send->wish.protocol < TMSG_PROTOCOL_AUTO ||
        send->wish.protocol > TMSG_PROTOCOL_RNDV) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "send: unknown way %d or protocol %d",
                              send->wish.way, send->wish.protocol);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_send_check_params(const tmsg_send_params_t *params)
{
    tmsg_send_t send = {.flags = 0};

    return read_params_of_send(params, &send);
}

/* Refuses memory that no domain holds, and device memory for a peer that speaks
 * another dialect: UCX would read memory that it does not know, and crash.
 * *foreign_p says whether there is device memory. */
static tmsg_status_t check_memory(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, bool *foreign_p)
{
    const tmsg_measures_t *measures;
    const tmsg_map_entry_t *entries;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "send: map is NULL");
    }
    measures = tmsg_send_measured(endpoint, map);
    /* A map that was sent before was checked then. */
    if (measures->stamp == tmsg_map_stamp(map)) {
        *foreign_p = measures->foreign > 0;
        return TMSG_OK;
    }
    entries = tmsg_map_entries(map);
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_domain_t *domain = tmsg_domain_of(entries[i].tensor.device);
        bool is_host = domain == &tmsg_domain_host;

        *foreign_p |= !is_host && entries[i].bytes > 0;
        if (domain == NULL || (!is_host && !endpoint->dialect->answers)) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "tensor '%s': memory of device type %d "
                "cannot be sent %s",
                entries[i].name, entries[i].tensor.device.type,
                domain == NULL ? "by this process, where no domain "
                                 "holds it"
                               : "to a ucx:// peer");
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_strides(const tmsg_send_t *send,
                                   const tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    /* A peer that does not answer knows C order alone. */
    bool keeps = endpoint->dialect->answers;

    if (keeps && send->flags & TMSG_SEND_KEEP_STRIDES) {
        /* prepare.c checks the strides, for they depend on the peer. */
        return TMSG_OK;
    }
    for (size_t i = 0;
         send->flags & TMSG_SEND_NO_PACK && i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;

        if (entries[i].bytes > 0 &&
            (keeps ? !tmsg_tensor_is_dense(tensor)
                   : !tmsg_tensor_is_contiguous(tensor))) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "tensor '%s': its strides would have it packed, which "
                "TMSG_SEND_NO_PACK rules out",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_answers(const tmsg_send_t *send,
                                   const tmsg_endpoint_t *endpoint)
{
    if (endpoint->dialect->answers ||
        !(send->flags & (TMSG_SEND_ACKED | TMSG_SEND_VERIFY))) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "%s: TMSG_SEND_%s: a ucx:// peer acknowledges "
                          "nothing",
                          endpoint->peer,
                          send->flags & TMSG_SEND_VERIFY ? "VERIFY" : "ACKED");
}

static uint16_t channel_number_of(const tmsg_send_params_t *params)
{
    return params != NULL && params->field_mask & TMSG_SEND_PARAM_CHANNEL
               ? params->channel
               : 0;
}

static void take_call_params(tmsg_send_t *send, const tmsg_call_send_t *call)
{
    if (call != NULL) {
        send->call = *call->head;
        send->call_deadline_ns = call->deadline_ns;
        send->queues = call->queues;
        send->last = call->last;
        send->reclaims = call->reclaims;
        send->more = call->more;
        send->spares_more = call->spares_more;
        if (send->more != NULL) {
            tmsg_map_hold(send->more);
        }
        if (call->flags & TMSG_CALL_SEND_LEND) {
            tmsg_lend_call(send, call);
        }
        tmsg_call_number(call, send->message_id);
    }
}

/* Copies the text of a call, which is to be read after the send call
 * returned. */
static tmsg_status_t keep_call(tmsg_send_t *send)
{
    if (send->call.type == 0 || send->call_text != NULL ||
        send->call.text_bytes == 0) {
        return TMSG_OK;
    }
    send->call_text = malloc(send->call.text_bytes + 1);
    if (send->call_text == NULL) {
        return tmsg_error_memory("a call");
    }
    memcpy(send->call_text, send->call.text, send->call.text_bytes);
    send->call.text = send->call_text;
    return TMSG_OK;
}

static tmsg_status_t check_channel(uint16_t channel)
{
    return channel != TMSG_CHANNEL_CALLS && !tmsg_channel_is_stream(channel)
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "channel %u is reserved for calls and streams",
                                channel);
}

void tmsg_send_take(tmsg_send_t *send, tmsg_endpoint_t *endpoint,
                    const tmsg_map_t *map)
{
    send->endpoint = endpoint;
    tmsg_endpoint_borrow(endpoint);
    send->map = map;
    tmsg_map_hold(map);
    send->holds_map = true;
    send->message_id = endpoint->tx.next_message_id++;
}

static tmsg_status_t create_send(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map,
                                 const tmsg_send_params_t *params,
                                 const tmsg_call_send_t *call,
                                 tmsg_send_t **send_p)
{
    tmsg_send_t *send = tmsg_send_record(endpoint->worker->budget);
    bool foreign = false;
    tmsg_status_t status;

    if (send == NULL) {
        return tmsg_error_memory("a send");
    }
    tmsg_send_clear(send);
    tmsg_send_init_request(send, endpoint->worker);
    status = read_params_of_send(params, send);
    if (status == TMSG_OK) {
        status = check_answers(send, endpoint);
    }
    if (status == TMSG_OK) {
        status = check_memory(endpoint, map, &foreign);
    }
    if (status == TMSG_OK) {
        status = check_strides(send, endpoint, map);
    }
    if (status == TMSG_OK && call == NULL) {
        status = check_channel(channel_number_of(params));
    }
    if (status == TMSG_OK) {
        status = tmsg_channel_open(endpoint, channel_number_of(params),
                                   &send->channel);
    }
    send->endpoint = endpoint;
    send->map = map;
    if (status == TMSG_OK && foreign) {
        status = tmsg_stage_out_create(send);
    }
    if (status != TMSG_OK) {
        tmsg_request_drop(&send->request);
        return status;
    }
    tmsg_send_take(send, endpoint, map);
    take_call_params(send, call);
    *send_p = send;
    return TMSG_OK;
}

static tmsg_status_t check_state(const tmsg_endpoint_t *endpoint)
{
    if (endpoint->state == TMSG_EP_ENDED &&
        endpoint->status != TMSG_ERR_CANCELED) {
        return tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    if (endpoint->state == TMSG_EP_CLOSING && !endpoint->close_wanted &&
        endpoint->dialling && endpoint->resume != NULL) {
        return tmsg_error_set(TMSG_ERR_UNAVAILABLE,
                              "%s: the peer is ending the connection",
                              endpoint->peer);
    }
    if (endpoint->state == TMSG_EP_ENDED ||
        endpoint->state == TMSG_EP_CLOSING || endpoint->close_wanted) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: the endpoint is closed",
                              endpoint->peer);
    }
    return TMSG_OK;
}

/* Returns whether no other send goes before this one, and it may be posted now:
 * the peer has given credit for it, and UCX may be called. */
static bool goes_at_once(const tmsg_send_t *send)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;

    return endpoint->state == TMSG_EP_OPEN && !endpoint->worker->inside &&
           !tmsg_resume_has_again(endpoint) &&
           send->channel->queued.count == 0 &&
           tmsg_channel_has_credit(send->channel) && tmsg_queue_lets_go(send);
}

/* Checks a message of a stream against the peer's limits before it waits. A
 * stream goes on if its sender hears of an error at once; if the message fails
 * later, the stream is over. */
static tmsg_status_t foresee_stream(const tmsg_send_t *send)
{
    bool of_stream = send->call.type == TMSG_STREAM_ITEM ||
                     send->call.type == TMSG_STREAM_END;

    return of_stream && send->endpoint->state == TMSG_EP_OPEN
               ? tmsg_send_foresee(send)
               : TMSG_OK;
}

/* Has a send go by the endpoint that has taken the place of its own while it
 * waited for room. */
static tmsg_status_t follow_heir(tmsg_send_t *send)
{
    tmsg_endpoint_t *heir = tmsg_endpoint_heir(send->endpoint);

    return send->endpoint->state == TMSG_EP_ENDED && heir != send->endpoint &&
                   send->call.type == 0
               ? tmsg_send_move(send, heir)
               : TMSG_OK;
}

/* Posts the send at once if nothing is before it, so that what is wrong with
 * the map is the caller's own error. Lock held; it is let go where the queue is
 * to block. */
static tmsg_status_t start_send(tmsg_send_t *send)
{
    tmsg_status_t status;

    if (send->endpoint->resume != NULL) {
        status = keep_call(send);
        if (status != TMSG_OK) {
            return status;
        }
    }
    for (;;) {
        if (goes_at_once(send)) {
            status = send->endpoint->dialect->prepare(send);
            if (status == TMSG_OK) {
                tmsg_send_post(send);
            }
            if (status != TMSG_IN_PROGRESS) {
                return status;
            }
        }
        status = foresee_stream(send);
        if (status == TMSG_OK) {
            status = keep_call(send);
        }
        if (status == TMSG_OK) {
            status = tmsg_queue_enter(send);
        }
        if (status != TMSG_IN_PROGRESS) {
            return status;
        }
        status = follow_heir(send);
        if (status == TMSG_OK) {
            status = check_state(send->endpoint);
        }
        if (status != TMSG_OK) {
            return status;
        }
    }
}

tmsg_status_t tmsg_send_begin(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_send_params_t *params,
                              tmsg_shared_plan_t *shared_plan,
                              const tmsg_call_send_t *call,
                              tmsg_request_t **request_p)
{
    tmsg_send_t *send = NULL;
    tmsg_status_t status = check_state(endpoint);

    if (status == TMSG_OK) {
        status = create_send(endpoint, map, params, call, &send);
    }
    if (send == NULL) {
        return status;
    }
    if (shared_plan != NULL) {
        send->shared_plan = shared_plan;
        tmsg_shared_plan_hold(shared_plan);
    } else if (call == NULL && endpoint->queue.bounds.window != UINT32_MAX &&
               endpoint->dialect->answers) {
        send->windowed = true;
        send->flags |= TMSG_SEND_ACKED; /* or nobody knows when it is taken */
    }
    tmsg_request_hold_hidden(&send->request);
    tmsg_trace_begun(send);
    status = start_send(send);
    if (status == TMSG_OK) {
        tmsg_send_set_timer(send);
    } else {
        tmsg_trace_failed(send, status);
        send->on_release = NULL; /* nothing was lent */
        endpoint = send->endpoint;
        tmsg_send_give_back(send);
        tmsg_endpoint_return(endpoint);
        tmsg_request_drop_hidden(&send->request);
    }
    if (status == TMSG_OK && request_p != NULL) {
        *request_p = &send->request;
    } else {
        tmsg_request_drop_hidden(&send->request);
    }
    return status;
}

tmsg_status_t tmsg_endpoint_send(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map,
                                 const tmsg_send_params_t *params,
                                 tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    status =
        tmsg_template_send(endpoint, map, params, NULL, request_p)
            ? TMSG_OK
            : tmsg_send_begin(endpoint, map, params, NULL, NULL, request_p);
    tmsg_worker_leave(worker, true);
    return status;
}
