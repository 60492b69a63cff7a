/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/message.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint.h"
#include "core/error.h"
#include "core/log.h"
#include "core/map.h"
#include "memory/domain.h"

uint64_t tmsg_spill_bytes(const tmsg_preamble_t *head)
{
    if (!(head->flags & TMSG_HEADER_SPILLED)) {
        return 0;
    }
    return tmsg_layout_spill(head->body_bytes);
}

void tmsg_message_push(tmsg_message_list_t *list, tmsg_message_t *message)
{
    message->queue.next = NULL;
    message->queue.previous = list->tail;
    if (list->tail == NULL) {
        list->head = message;
    } else {
        list->tail->queue.next = message;
    }
    list->tail = message;
    list->count++;
}

void tmsg_message_unlink(tmsg_message_list_t *list, tmsg_message_t *message)
{
    tmsg_message_links_t *links = &message->queue;

    if (links->previous == NULL) {
        list->head = links->next;
    } else {
        links->previous->queue.next = links->next;
    }
    if (links->next == NULL) {
        list->tail = links->previous;
    } else {
        links->next->queue.previous = links->previous;
    }
    list->count--;
}

static void push_own(tmsg_message_list_t *list, tmsg_message_t *message)
{
    message->own_queue.next = NULL;
    message->own_queue.previous = list->tail;
    if (list->tail == NULL) {
        list->head = message;
    } else {
        list->tail->own_queue.next = message;
    }
    list->tail = message;
    list->count++;
}

/* Messages leave an endpoint's queue from anywhere, since the worker's queue
 * is pulled too. */
static void unlink_own(tmsg_message_list_t *list, tmsg_message_t *message)
{
    tmsg_message_links_t *links = &message->own_queue;

    if (links->previous == NULL) {
        list->head = links->next;
    } else {
        links->previous->own_queue.next = links->next;
    }
    if (links->next == NULL) {
        list->tail = links->previous;
    } else {
        links->next->own_queue.previous = links->previous;
    }
    list->count--;
}

const tmsg_map_t *tmsg_message_map(const tmsg_message_t *message)
{
    return message->map;
}

tmsg_endpoint_t *tmsg_message_endpoint(const tmsg_message_t *message)
{
    return message->endpoint;
}

tmsg_status_t tmsg_message_header(const tmsg_message_t *message,
                                  const void **header_p, size_t *header_bytes_p)
{
    if (message->raw == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "the worker keeps no headers: it was made "
                              "without TMSG_WORKER_CAPTURE");
    }
    *header_p = message->raw;
    *header_bytes_p = (size_t)message->head.bytes + message->head.body_bytes;
    return TMSG_OK;
}

/* Nothing here touches the worker: it may be gone. */
void tmsg_message_destroy(tmsg_message_t *message)
{
    if (message == NULL) {
        return;
    }
    tmsg_map_destroy(message->map);
    if (message->store != NULL) {
        tmsg_store_free(message->store, &message->block);
        tmsg_store_drop(message->store);
    }
    free(message->body);
    free(message->raw);
    tmsg_endpoint_drop(message->endpoint);
    free(message);
}

/* UCX's descriptor goes back; of a rendezvous that was not fetched this would
 * tell the sender Success, so the refusal goes out first. */
static void drop_data(tmsg_message_t *message)
{
    if (message->data != NULL) {
        ucp_am_data_release(message->ucx->ucp, message->data);
        message->data = NULL;
    }
}

static tmsg_status_t create(const tmsg_arrival_t *arrival,
                            tmsg_endpoint_t *endpoint,
                            tmsg_message_t **message_p)
{
    tmsg_message_t *message = calloc(1, sizeof(*message));

    if (message == NULL) {
        return tmsg_error_memory("a message");
    }
    if (tmsg_map_create(&message->map) != TMSG_OK) {
        free(message);
        return TMSG_ERR_NO_MEMORY;
    }
    message->endpoint = endpoint;
    tmsg_endpoint_hold(endpoint);
    message->store = endpoint->worker->store;
    tmsg_store_hold(message->store);
    message->head = arrival->head;
    message->ucx = arrival->ucx;
    *message_p = message;
    return TMSG_OK;
}

/* The tensors must fill the payload exactly. */
static tmsg_status_t check_layout(const tmsg_message_t *message)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    uint64_t bytes;
    tmsg_status_t status = tmsg_layout_bytes(message->map, limits, &bytes);

    if (status == TMSG_OK && bytes + tmsg_spill_bytes(&message->head) !=
                                 message->head.payload_bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the tensors take %llu bytes, the payload %llu",
                              (unsigned long long)bytes,
                              (unsigned long long)message->head.payload_bytes);
    }
    return status;
}

static tmsg_status_t check_head(const tmsg_message_t *message,
                                const tmsg_arrival_t *arrival)
{
    const tmsg_preamble_t *head = &message->head;
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;

    if (head->payload_bytes != arrival->data_bytes ||
        tmsg_spill_bytes(head) > head->payload_bytes) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED, "payload of %zu bytes, the header says %llu",
            arrival->data_bytes, (unsigned long long)head->payload_bytes);
    }
    if (head->payload_bytes > limits->message_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %llu bytes, at most %llu",
                              (unsigned long long)head->payload_bytes,
                              (unsigned long long)limits->message_bytes);
    }
    if (head->body_bytes > limits->header_bytes) {
        return tmsg_error_set(
            TMSG_ERR_LIMIT_EXCEEDED, "header of %u bytes, at most %llu",
            head->body_bytes, (unsigned long long)limits->header_bytes);
    }
    if (!tmsg_store_fits(message->store, head->payload_bytes)) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %llu bytes exceeds held_bytes %llu",
                              (unsigned long long)head->payload_bytes,
                              (unsigned long long)limits->held_bytes);
    }
    return TMSG_OK;
}

/* Tensors of memory that is not ours come to the host, unless the sender was
 * strict about it. */
static tmsg_status_t apply_policy(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);

    for (size_t i = 0; i < tmsg_map_size(message->map); i++) {
        const tmsg_device_t host = {TMSG_DEVICE_CPU, 0};

        if (tmsg_domain_of(entries[i].tensor.device) != NULL) {
            continue;
        }
        if (message->head.policy != TMSG_POLICY_HOST_FALLBACK) {
            return tmsg_error_set(TMSG_ERR_REFUSED,
                                  "tensor '%.256s': no memory of device type "
                                  "%d here, and the policy is strict",
                                  entries[i].name,
                                  entries[i].tensor.device.type);
        }
        tmsg_map_set_device(message->map, i, host);
    }
    return TMSG_OK;
}

/* Keeps the preamble, with room for the body. */
static tmsg_status_t capture(tmsg_message_t *message,
                             const tmsg_arrival_t *arrival)
{
    const tmsg_preamble_t *head = &arrival->head;

    if (!(message->endpoint->worker->flags & TMSG_WORKER_CAPTURE)) {
        return TMSG_OK;
    }
    message->raw = malloc((size_t)head->bytes + head->body_bytes);
    if (message->raw == NULL) {
        return tmsg_error_memory("a captured header");
    }
    memcpy(message->raw, arrival->body - head->bytes, head->bytes);
    return TMSG_OK;
}

static tmsg_status_t decode(tmsg_message_t *message, const uint8_t *body)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    tmsg_status_t status =
        tmsg_body_decode(body, message->head.body_bytes, limits, message->map);

    if (status == TMSG_OK && message->raw != NULL) {
        memcpy(message->raw + message->head.bytes, body,
               message->head.body_bytes);
    }
    if (status == TMSG_OK) {
        status = check_layout(message);
    }
    return status != TMSG_OK ? status : apply_policy(message);
}

/* Files a message by its sequence. False: that number was seen before. */
static bool file_in_order(tmsg_channel_t *channel, tmsg_message_t *message)
{
    tmsg_message_t **place = &channel->rx;
    uint32_t ahead = message->head.sequence - channel->rx_sequence;

    while (*place != NULL &&
           (*place)->head.sequence - channel->rx_sequence < ahead) {
        place = &(*place)->next_in_order;
    }
    if (ahead > INT32_MAX ||
        (*place != NULL && (*place)->head.sequence == message->head.sequence)) {
        return false;
    }
    message->next_in_order = *place;
    *place = message;
    return true;
}

/* Gives a message up and tells the sender why; its turn will be skipped. */
static void refuse(tmsg_message_t *message, tmsg_status_t status,
                   const char *why)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    message->state = TMSG_RX_FAILED;
    endpoint->refused_messages++;
    tmsg_log(TMSG_LOG_WARN, "%s: message %u is refused: %s", endpoint->peer,
             message->head.message_id, why);
    tmsg_control_ack(endpoint, message->head.message_id, status, why);
}

/* The application has it: the peer gets its credit back. */
static void taken(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (endpoint->state == TMSG_EP_ENDED) {
        return;
    }
    endpoint->channel.rx_consumed++;
    if (message->head.flags & TMSG_HEADER_ACKED) {
        tmsg_control_ack(endpoint, message->head.message_id, TMSG_OK, "");
    }
    tmsg_control_credit(endpoint);
}

static void run_handler(tmsg_due_t *due)
{
    tmsg_message_t *message = (tmsg_message_t *)due;
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_worker_t *worker = endpoint->worker;
    bool wanted;

    tmsg_worker_lock(worker);
    wanted = endpoint->handle;
    if (wanted) {
        taken(message);
    }
    tmsg_worker_unlock(worker);
    if (wanted) {
        worker->handler(worker->handler_arg, message);
    } else {
        tmsg_message_destroy(message);
    }
}

static void hand_over(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_worker_t *worker = endpoint->worker;

    message->state = TMSG_RX_DELIVERED;
    endpoint->received_messages++;
    endpoint->received_bytes += message->head.payload_bytes;
    if (worker->handler != NULL) {
        message->due.run = run_handler;
        tmsg_worker_due(worker, &message->due);
        return;
    }
    tmsg_message_push(&worker->ready, message);
    push_own(&endpoint->ready, message);
    tmsg_worker_changed(worker);
}

/* Delivers every message whose turn has come. */
static void deliver(tmsg_endpoint_t *endpoint)
{
    tmsg_channel_t *channel = &endpoint->channel;

    while (channel->rx != NULL &&
           channel->rx->head.sequence == channel->rx_sequence &&
           channel->rx->state >= TMSG_RX_WHOLE) {
        tmsg_message_t *message = channel->rx;

        channel->rx = message->next_in_order;
        channel->rx_sequence++;
        if (message->state == TMSG_RX_FAILED) {
            channel->rx_consumed++;
            tmsg_message_destroy(message);
        } else {
            hand_over(message);
        }
    }
    tmsg_worker_chore(endpoint->worker, endpoint); /* credits; the bye */
}

ucs_status_t tmsg_map_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_worker_t *worker = arrival->ucx->worker;
    tmsg_endpoint_t *endpoint =
        tmsg_endpoint_by_id(worker, arrival->head.endpoint_id);
    ucs_status_t ignored = arrival->rendezvous ? UCS_ERR_REJECTED : UCS_OK;
    tmsg_message_t *message = NULL;
    tmsg_status_t status;

    if (endpoint == NULL || endpoint->ucx != arrival->ucx ||
        endpoint->ep == NULL || endpoint->state == TMSG_EP_ENDED) {
        tmsg_log(TMSG_LOG_WARN, "a map for no endpoint is ignored");
        return ignored;
    }
    if (arrival->head.sequence - endpoint->channel.rx_credited >=
        worker->queue_depth) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message beyond the window it was given");
        return ignored;
    }
    status = create(arrival, endpoint, &message);
    if (status != TMSG_OK || !file_in_order(&endpoint->channel, message)) {
        /* Without a record its turn cannot be kept: the order is broken. */
        if (status == TMSG_OK) {
            tmsg_message_destroy(message);
        }
        tmsg_endpoint_break(endpoint,
                            status == TMSG_OK ? TMSG_ERR_MALFORMED : status,
                            status == TMSG_OK ? "a sequence number came twice"
                                              : tmsg_error_message());
        return ignored;
    }
    status = check_head(message, arrival);
    if (status == TMSG_OK) {
        status = capture(message, arrival);
    }
    if (status == TMSG_OK && !(arrival->head.flags & TMSG_HEADER_SPILLED)) {
        status = decode(message, arrival->body);
    }
    if (status != TMSG_OK) {
        refuse(message, status, tmsg_error_message());
        deliver(endpoint);
        return ignored;
    }
    message->rendezvous = arrival->rendezvous;
    message->data =
        arrival->data_bytes == 0 && !arrival->rendezvous ? NULL : arrival->data;
    tmsg_message_push(&worker->fetch, message);
    return message->data == NULL ? UCS_OK : UCS_INPROGRESS;
}

static void place_tensors(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    uint8_t *base = message->block.data;
    uint64_t offset = 0;

    for (size_t i = 0; base != NULL && i < tmsg_map_size(message->map); i++) {
        offset =
            tmsg_layout_next(offset, entries[i].tensor.dtype, entries[i].bytes);
        tmsg_map_place(message->map, i, base + offset);
        offset += entries[i].bytes;
    }
}

/* The payload is here, in block and body. */
static void arrived_whole(tmsg_message_t *message)
{
    tmsg_status_t status = TMSG_OK;

    if (message->head.flags & TMSG_HEADER_SPILLED) {
        status = decode(message, message->body);
        free(message->body);
        message->body = NULL;
    }
    if (status != TMSG_OK) {
        refuse(message, status, tmsg_error_message());
    } else {
        place_tensors(message);
        message->state = TMSG_RX_WHOLE;
    }
    deliver(message->endpoint);
}

/* What UCX wrote counts only if the connection still stands: a peer that gave
 * us up may have changed its buffer since. */
static void fetched(tmsg_message_t *message, ucs_status_t ucs)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    tmsg_op_over(endpoint, &message->op);
    if (endpoint->state == TMSG_EP_ENDED) {
        tmsg_message_destroy(message);
    } else if (ucs != UCS_OK || !tmsg_link_alive(endpoint)) {
        refuse(message, TMSG_ERR_PEER_LOST,
               ucs != UCS_OK ? ucs_status_string(ucs)
                             : "the sender is gone since");
        deliver(endpoint);
    } else {
        arrived_whole(message);
    }
    tmsg_endpoint_reported(endpoint);
}

static void forsaken(tmsg_op_t *op)
{
    fetched((tmsg_message_t *)((char *)op - offsetof(tmsg_message_t, op)),
            UCS_ERR_CANCELED);
}

static void fetch_reported(void *request, ucs_status_t ucs, size_t length,
                           void *arg)
{
    (void)length;
    ucp_request_free(request);
    fetched(arg, ucs);
}

static void start_rendezvous(tmsg_message_t *message)
{
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = fetch_reported,
        .user_data = message,
        .datatype = ucp_dt_make_contig(1),
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void *buffer = message->block.data;
    size_t count = message->block.bytes;
    void *data = message->data;
    ucs_status_ptr_t request;

    if (message->body != NULL) {
        message->iov[0] =
            (ucp_dt_iov_t){message->body, tmsg_spill_bytes(&message->head)};
        message->iov[1] =
            (ucp_dt_iov_t){message->block.data, message->block.bytes};
        buffer = message->iov;
        count = message->block.bytes == 0 ? 1 : 2;
        param.datatype = ucp_dt_make_iov();
    }
    message->state = TMSG_RX_FETCHING;
    message->data = NULL;
    tmsg_op_begin(message->endpoint, &message->op, forsaken);
    request =
        ucp_am_recv_data_nbx(message->ucx->ucp, data, buffer, count, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        fetched(message, UCS_PTR_STATUS(request));
    }
}

static void take_eager(tmsg_message_t *message)
{
    uint64_t spill = tmsg_spill_bytes(&message->head);
    const uint8_t *data = message->data;

    if (message->body != NULL) {
        memcpy(message->body, data, spill);
    }
    if (message->block.bytes > 0) {
        memcpy(message->block.data, data + spill, message->block.bytes);
    }
    drop_data(message);
    arrived_whole(message);
}

/* Gets the memory a message needs. Lets the lock go meanwhile. */
static tmsg_status_t find_memory(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    uint64_t spill = tmsg_spill_bytes(&message->head);
    uint64_t bytes = message->head.payload_bytes - spill;
    tmsg_status_t status = TMSG_OK;

    tmsg_worker_unlock(worker);
    if (spill > 0 && message->body == NULL) {
        message->body = malloc(spill);
        if (message->body == NULL) {
            status = tmsg_error_memory("a spilled header");
        }
    }
    if (status == TMSG_OK && bytes > 0) {
        status = tmsg_store_alloc(message->store, bytes, &message->block);
    }
    tmsg_worker_lock(worker);
    return status;
}

/* Refuses a message that had been kept: a rendezvous is fetched into nothing
 * else, so its descriptor is released after the sender was told. */
static void refuse_kept(tmsg_message_t *message, tmsg_status_t status)
{
    refuse(message, status, tmsg_error_message());
    drop_data(message);
    deliver(message->endpoint);
}

unsigned tmsg_messages_fetch(tmsg_worker_t *worker)
{
    unsigned count = 0;

    while (worker->fetch.head != NULL) {
        tmsg_message_t *message = worker->fetch.head;
        tmsg_endpoint_t *endpoint;
        tmsg_status_t status;

        tmsg_message_unlink(&worker->fetch, message);
        message->state = TMSG_RX_FETCHING; /* nobody abandons it meanwhile */
        endpoint = message->endpoint;
        endpoint->in_ucx++; /* its UCX worker stays, whatever happens */
        status = find_memory(message);
        if (endpoint->state == TMSG_EP_ENDED) {
            drop_data(message);
            tmsg_endpoint_reported(endpoint);
            tmsg_message_destroy(message);
            continue;
        }
        endpoint->in_ucx--;
        if (status == TMSG_IN_PROGRESS) {
            message->state = TMSG_RX_WAITING;
            message->queue = (tmsg_message_links_t){worker->fetch.head, NULL};
            if (worker->fetch.head == NULL) {
                worker->fetch.tail = message;
            } else {
                worker->fetch.head->queue.previous = message;
            }
            worker->fetch.head = message;
            worker->fetch.count++;
            break;
        }
        if (status != TMSG_OK) {
            refuse_kept(message, status);
        } else if (message->rendezvous) {
            start_rendezvous(message);
        } else {
            take_eager(message);
        }
        count++;
    }
    return count;
}

tmsg_message_t *tmsg_message_pull(tmsg_worker_t *worker,
                                  tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message =
        endpoint == NULL ? worker->ready.head : endpoint->ready.head;

    if (message == NULL) {
        return NULL;
    }
    endpoint = message->endpoint;
    tmsg_message_unlink(&worker->ready, message);
    unlink_own(&endpoint->ready, message);
    taken(message);
    return message;
}

void tmsg_messages_abandon(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_message_t *message = endpoint->channel.rx;

    endpoint->channel.rx = NULL;
    while (message != NULL) {
        tmsg_message_t *next = message->next_in_order;

        if (message->state == TMSG_RX_WAITING) {
            tmsg_message_unlink(&worker->fetch, message);
            drop_data(message);
        }
        /* One that is being fetched is destroyed when that has ended. */
        if (message->state != TMSG_RX_FETCHING) {
            tmsg_message_destroy(message);
        }
        message = next;
    }
}

void tmsg_messages_discard(tmsg_endpoint_t *endpoint)
{
    while (endpoint->ready.head != NULL) {
        tmsg_message_t *message = endpoint->ready.head;

        tmsg_message_unlink(&endpoint->worker->ready, message);
        unlink_own(&endpoint->ready, message);
        tmsg_message_destroy(message);
    }
}
