/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to and from peers that speak UCXX. */
#include "am/ucxx/ucxx.h"

#include <stdio.h>

#include "am/endpoint/fail.h"
#include "am/endpoint/log.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/transport.h"
#include "am/recv/deliver.h"
#include "am/recv/receive.h"
#include "am/worker/engine.h"
#include "core/log.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/ucxx.h"

/* A peer may be at most so many times queue_depth messages ahead of the
 * application, or AHEAD_LEAST. */
#define TIMES_AHEAD 16
#define AHEAD_LEAST ((size_t)1024)

/* Plans the payload of a tensor. UCXX reads elements in C order, so other
 * tensors are packed. */
static tmsg_status_t plan_tensor(tmsg_send_t *send,
                                 const tmsg_map_entry_t *entry)
{
    tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);
    const tmsg_payload_t payload = {.map = send->map,
                                    .spare = send->small_payload,
                                    .spare_bytes = sizeof(send->small_payload)};
    uint64_t bytes = tmsg_tensor_bytes_out(&entry->tensor, entry->bytes);
    tmsg_status_t status;

    send->plan.bytes = bytes;
    if (bytes == 0 || tmsg_tensor_is_contiguous(&entry->tensor)) {
        send->plan.contiguous = entry->tensor.data;
        return tmsg_transport_wants_own(send->endpoint) &&
                       tmsg_map_entry_is_on_host(entry)
                   ? tmsg_plan_own(&send->plan, &payload, pool)
                   : TMSG_OK;
    }
    status = tmsg_pool_take(pool, bytes, &send->plan.staging);
    if (status == TMSG_OK) {
        send->plan.contiguous = send->plan.staging.data;
        status = tmsg_tensor_pack(&entry->tensor, send->plan.staging.data);
    }
    return status;
}

tmsg_status_t tmsg_ucxx_prepare(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    size_t most = endpoint->ucx->max_am_header;
    tmsg_status_t status = tmsg_ucxx_from_map(
        send->map, (uint8_t)send->policy, &send->header, &send->header_bytes);

    if (status == TMSG_OK && send->header_bytes > most) {
        status = tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                "%s: a header of %zu bytes, UCX takes %zu",
                                endpoint->peer, send->header_bytes, most);
    }
    if (status == TMSG_OK) {
        status = plan_tensor(send, &tmsg_map_entries(send->map)[0]);
    }
    if (status == TMSG_OK) {
        send->channel->tx_window++; /* nobody gives credit */
    }
    return status;
}

static bool is_lost(tmsg_ucx_status_t ucs)
{
    return tmsg_ucx_is_loss(ucs) || ucs == TMSG_UCX_UNREACHABLE;
}

/* Answers a send that failed. The peer sends no reason, so UCX's status is all
 * there is. If the endpoint has ended, its own error tells more. */
void tmsg_ucxx_failed(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool over = endpoint->state == TMSG_EP_ENDED;

    if (over) {
        tmsg_send_answer(send, endpoint->status, "%s", endpoint->error);
    } else {
        tmsg_send_answer(
            send, is_lost(ucs) ? TMSG_ERR_PEER_LOST : TMSG_ERR_REFUSED,
            "%s: UCX: %s", endpoint->peer, tmsg_ucx_status_words(ucs));
    }
}

/* Does nothing: a peer hears of a refusal only by what UCX's callback returns,
 * if at all. */
void tmsg_ucxx_answer(tmsg_endpoint_t *endpoint, uint32_t message_id,
                      tmsg_status_t status, const char *error)
{
    (void)endpoint;
    (void)message_id;
    (void)status;
    (void)error;
}

void tmsg_ucxx_credit(tmsg_channel_t *channel) { (void)channel; }

/* Returns the endpoint that a message came by; nothing else says whose the
 * message is. */
static tmsg_endpoint_t *sender_of(const tmsg_ucx_t *ucx,
                                  const tmsg_ucx_am_info_t *info)
{
    tmsg_ucx_ep_t ep = tmsg_ucx_am_reply_ep(info);
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    if (ep == NULL) {
        return NULL;
    }
    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (endpoint->ep == ep) {
            return endpoint->state == TMSG_EP_ENDED ? NULL : endpoint;
        }
    }
    return NULL;
}

static tmsg_status_t decode_ucxx_message(tmsg_message_t *message,
                                         const void *bytes, size_t count)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    tmsg_ucxx_header_t header;
    tmsg_status_t status =
        tmsg_message_check(message, message->head.payload_bytes);

    if (status == TMSG_OK) {
        status = tmsg_ucxx_decode(bytes, count, &header);
    }
    if (status == TMSG_OK && header.memory_type != TMSG_UCXX_HOST &&
        header.policy != TMSG_POLICY_HOST_FALLBACK) {
        status = tmsg_error_set(TMSG_ERR_REFUSED,
                                "no memory of UCX's type %u here, and the "
                                "policy is strict",
                                header.memory_type);
    }
    if (status == TMSG_OK) {
        status = tmsg_ucxx_to_map(&header, message->head.payload_bytes, limits,
                                  message->map);
    }
    if (status == TMSG_OK) {
        status = tmsg_message_note(message, sizeof(*message) +
                                                tmsg_map_memory(message->map));
    }
    if (status != TMSG_OK) {
        tmsg_map_shed(message->map);
    }
    return status;
}

/* Files a message. UCXX does not number its messages, so they are taken in the
 * order in which UCX reports them. */
static tmsg_status_t file_message(tmsg_endpoint_t *endpoint, size_t data_bytes,
                                  tmsg_message_t **message_p)
{
    uint32_t number = endpoint->ucxx->arrived;
    const tmsg_preamble_t head = {.kind = TMSG_PREAMBLE_MAP,
                                  .message_id = number,
                                  .sequence = number,
                                  .payload_bytes = data_bytes};
    tmsg_status_t status = tmsg_message_create(
        &head, endpoint->ucx, &endpoint->channels.zero, message_p);

    if (status == TMSG_OK) {
        endpoint->ucxx->arrived++;
        tmsg_message_file(*message_p);
    }
    return status;
}

/* Returns how many messages of a peer the application has not taken, those that
 * wait for memory among them. */
static size_t waiting_messages(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_ENDED
               ? endpoint->ready.count
               : (size_t)(endpoint->ucxx->arrived -
                          endpoint->channels.zero.rx_consumed);
}

/* Returns whether a peer of the UCX worker is too far ahead of the application,
 * and UCX has nothing to do for any of its peers. */
static bool is_ahead(tmsg_ucx_t *ucx)
{
    const tmsg_worker_t *worker = ucx->worker;
    const tmsg_endpoint_t *endpoint;
    bool ahead = false;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(worker, ucx, &i)) != NULL) {
        if (endpoint->ops.count > endpoint->ucxx->hearing) {
            return false;
        }
        ahead = ahead || waiting_messages(endpoint) >= worker->queue_depth;
    }
    ucx->ahead = ahead;
    return ahead;
}

/* Counts an eager payload, which UCX keeps until there is memory for it. */
static void charge_payload(tmsg_message_t *message, size_t data_bytes)
{
    message->endpoint->credit.rx_charged += data_bytes;
    message->charged = data_bytes;
}

/* Returns whether the peer may send one more message. UCXX gives no credit, so
 * a peer that is too far ahead can only be made to wait, by not reading on
 * (tmsg_ucxx_fills()); but UCX has to go on while it has something to do for
 * anybody, which a peer can bring about. A peer that is that far ahead is
 * ended. */
static bool has_credit(tmsg_endpoint_t *endpoint, size_t eager_bytes)
{
    const tmsg_worker_t *worker = endpoint->worker;
    const tmsg_credit_t *credit = &endpoint->credit;
    size_t most = TIMES_AHEAD * (size_t)worker->queue_depth;
    char why[160];

    most = most < AHEAD_LEAST ? AHEAD_LEAST : most;
    if (waiting_messages(endpoint) < most &&
        credit->rx_charged - credit->rx_freed + eager_bytes <=
            worker->context->limits.held_bytes) {
        return true;
    }
    if (endpoint->broken == TMSG_OK) {
        snprintf(why, sizeof(why),
                 "the peer sends on, though %zu of its messages wait, and "
                 "%llu bytes of them for memory",
                 waiting_messages(endpoint),
                 (unsigned long long)(credit->rx_charged - credit->rx_freed));
        tmsg_endpoint_break(endpoint, TMSG_ERR_LIMIT_EXCEEDED, why);
    }
    return false;
}

/* While the UCX worker is full, its descriptor is not watched: it stays
 * readable, and nobody could sleep. */
bool tmsg_ucxx_fills(tmsg_ucx_t *ucx)
{
    tmsg_worker_t *worker = ucx->worker;
    bool full = ucx->ahead && is_ahead(ucx);

    if (full != ucx->full) {
        ucx->full = full;
        tmsg_loop_change(&worker->loop, &ucx->source, full ? 0 : EPOLLIN);
    }
    return full;
}

/* Returns what UCX tells the sender of a rendezvous that is refused. */
static tmsg_ucx_status_t refusal_status(tmsg_status_t status)
{
    return status == TMSG_ERR_NO_MEMORY        ? TMSG_UCX_NO_MEMORY
           : status == TMSG_ERR_LIMIT_EXCEEDED ? TMSG_UCX_EXCEEDS_LIMIT
           : status == TMSG_ERR_REFUSED        ? TMSG_UCX_UNSUPPORTED
                                               : TMSG_UCX_INVALID_PARAM;
}

tmsg_ucx_status_t tmsg_ucxx_arrived(void *arg, const void *header,
                                    size_t header_bytes, void *data,
                                    size_t data_bytes,
                                    const tmsg_ucx_am_info_t *info)
{
    tmsg_ucx_t *ucx = arg;
    bool rendezvous = tmsg_ucx_am_is_rendezvous(info);
    tmsg_endpoint_t *endpoint = sender_of(ucx, info);
    tmsg_message_t *message;
    tmsg_status_t status;

    if (endpoint == NULL) {
        tmsg_log_of(TMSG_LOG_IGNORED_KIND, TMSG_LOG_UNKNOWN, TMSG_LOG_WARN,
                    "a UCXX message without a known sender, or without a reply "
                    "endpoint, is ignored");
        return rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
    }
    if (endpoint->state == TMSG_EP_CONNECTING) {
        tmsg_engine.opened(endpoint);
    }
    if (!has_credit(endpoint, rendezvous ? 0 : data_bytes)) {
        return rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
    }
    status = file_message(endpoint, data_bytes, &message);
    if (status != TMSG_OK) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_NOT_ARRIVED_KIND, TMSG_LOG_WARN,
                          "a message is lost: %s", tmsg_error_message());
        return rendezvous ? refusal_status(status) : TMSG_UCX_OK;
    }
    status = decode_ucxx_message(message, header, header_bytes);
    if (status != TMSG_OK) {
        tmsg_message_refuse(message, status, tmsg_error_message());
        tmsg_messages_deliver(message->channel);
        return rendezvous ? refusal_status(status) : TMSG_UCX_OK;
    }
    ucx->ahead =
        ucx->ahead || waiting_messages(endpoint) >= ucx->worker->queue_depth;
    if (!rendezvous) {
        charge_payload(message, data_bytes);
    }
    return tmsg_message_keep(message, data, data_bytes, rendezvous, false);
}
