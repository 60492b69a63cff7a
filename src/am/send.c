/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/dialect.h"
#include "am/schemas.h"
#include "core/log.h"
#include "core/map.h"
#include "core/tensor.h"
#include "memory/domain.h"
#include "serialize/checksum.h"

#define FLAGS_KNOWN ((uint32_t)(TMSG_SEND_ACKED | TMSG_SEND_VERIFY))

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |               \
                TMSG_SEND_PARAM_ON_DONE))

static void destroy(tmsg_request_t *request)
{
    free(TMSG_CONTAINER_OF(request, tmsg_send_t, request));
}

static void run_free_map(tmsg_due_t *due)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(due, tmsg_send_t, map_due);

    tmsg_map_free(send->map);
    tmsg_request_drop(&send->request);
}

/* The buffers are the caller's again. A map that is nobody's any more goes
 * where the application's release functions may be called. */
static void give_back(tmsg_send_t *send)
{
    tmsg_plan_free(&send->plan, tmsg_store_pool(send->endpoint->worker->store));
    free(send->header);
    send->header = NULL;
    if (send->holds_map && tmsg_map_unhold(send->map)) {
        send->map_due.run = run_free_map;
        tmsg_request_hold(&send->request);
        tmsg_worker_due(send->endpoint->worker, &send->map_due);
    }
    send->holds_map = false;
}

/* Ends a send that is in no list any more. */
static void end(tmsg_send_t *send, tmsg_status_t status, const char *error)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (status != TMSG_OK && endpoint->state != TMSG_EP_ENDED) {
        tmsg_log(TMSG_LOG_WARN, "%s: message %u failed: %s", endpoint->peer,
                 send->message_id, error);
    }
    give_back(send);
    tmsg_request_end(&send->request, status, error);
    tmsg_endpoint_drop(endpoint);
}

/* Called whenever UCX or the peer has said something about a posted send. */
static void settle(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool over = endpoint->state == TMSG_EP_ENDED;

    if (send->in_ucx) {
        return;
    }
    if (!send->answered && !over &&
        (send->flags & TMSG_SEND_ACKED || send->ucx_status != UCS_OK)) {
        give_back(send); /* the words of the peer are still to come */
        return;
    }
    tmsg_list_remove(&endpoint->posted, &send->node);
    if (send->answered) {
        end(send, send->answer, send->answer_text);
    } else if (!over || (send->ucx_status == UCS_OK &&
                         !(send->flags & TMSG_SEND_ACKED))) {
        end(send, TMSG_OK, NULL);
    } else {
        end(send, endpoint->status, endpoint->error);
    }
    if (!over) {
        tmsg_worker_chore(endpoint->worker, endpoint); /* a close may wait */
    }
}

static void ucx_reported(tmsg_send_t *send, ucs_status_t ucs)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    tmsg_endpoint_hold(endpoint);
    tmsg_op_over(endpoint, &send->op);
    send->in_ucx = false;
    send->ucx_status = ucs;
    if (ucs != UCS_OK && endpoint->dialect->failed != NULL) {
        endpoint->dialect->failed(send, ucs);
    }
    settle(send);
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}

static void forsaken(tmsg_op_t *op)
{
    ucx_reported(TMSG_CONTAINER_OF(op, tmsg_send_t, op), UCS_ERR_CANCELED);
}

static void send_reported(void *request, ucs_status_t ucs, void *arg)
{
    ucp_request_free(request);
    ucx_reported(arg, ucs);
}

static tmsg_send_t *find_posted(const tmsg_endpoint_t *endpoint,
                                uint32_t message_id)
{
    for (tmsg_node_t *node = endpoint->posted.head; node != NULL;
         node = node->next) {
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
    tmsg_send_t *send = find_posted(endpoint, message_id);

    if (send == NULL) {
        if (status != TMSG_OK) {
            tmsg_log(TMSG_LOG_WARN,
                     "%s: message %u was lost after it was "
                     "sent: %s",
                     endpoint->peer, message_id, error);
        }
        return;
    }
    send->answered = true;
    send->answer = status;
    snprintf(send->answer_text, sizeof(send->answer_text), "%.200s: %.300s",
             endpoint->peer, error);
    settle(send);
}

/* Makes room for the checksums that were asked for. */
static tmsg_status_t add_checksums(const tmsg_send_t *send,
                                   tmsg_body_extra_t *extra,
                                   tmsg_payload_t *payload)
{
    uint32_t theirs = send->endpoint->peer_hello.checksums;
    tmsg_status_t status;

    if (!(theirs & 1u << TMSG_CHECKSUM_XXH3)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: this peer cannot check checksums",
                              send->endpoint->peer);
    }
    status = tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra->checksum);
    if (status != TMSG_OK) {
        return status;
    }
    payload->checksums =
        calloc(tmsg_map_size(send->map) + 1, extra->checksum->bytes);
    if (payload->checksums == NULL) {
        return tmsg_error_memory("a message's checksums");
    }
    extra->checksums = payload->checksums;
    return TMSG_OK;
}

/* Finds out what goes into the header, and gets memory for that. */
static tmsg_status_t measure(tmsg_send_t *send, tmsg_preamble_t *head,
                             tmsg_payload_t *payload)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    size_t most = endpoint->ucx->max_am_header;
    size_t needed;
    tmsg_status_t status = tmsg_schema_table_choose(
        tmsg_schemas_table(endpoint), send->map, payload->extra, &needed);

    if (endpoint->peer_hello.max_am_header < most) {
        most = endpoint->peer_hello.max_am_header;
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (needed > endpoint->peer_hello.max_header_bytes) {
        return tmsg_error_set(
            TMSG_ERR_LIMIT_EXCEEDED,
            "%s: names and metadata take %zu bytes, the peer "
            "allows %llu",
            endpoint->peer, needed,
            (unsigned long long)endpoint->peer_hello.max_header_bytes);
    }
    head->body_bytes = (uint32_t)needed;
    send->header_bytes = TMSG_PREAMBLE_BYTES;
    if (TMSG_PREAMBLE_BYTES + needed > most) {
        head->flags |= TMSG_HEADER_SPILLED;
        payload->spill = needed;
    } else {
        send->header_bytes += needed;
    }
    send->header = malloc(send->header_bytes);
    return send->header == NULL ? tmsg_error_memory("a message's header")
                                : TMSG_OK;
}

static tmsg_status_t check_tensors(const tmsg_send_t *send)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    const tmsg_map_entry_t *entries = tmsg_map_entries(send->map);

    for (size_t i = 0; i < tmsg_map_size(send->map); i++) {
        if (entries[i].name_bytes > peer->max_name_bytes) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "%s: the name of tensor %zu has %zu bytes, the peer allows "
                "%llu",
                send->endpoint->peer, i, entries[i].name_bytes,
                (unsigned long long)peer->max_name_bytes);
        }
        if ((uint64_t)entries[i].tensor.ndim > peer->max_ndim) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "%s: tensor '%.256s': ndim %d, the peer allows %llu",
                send->endpoint->peer, entries[i].name, entries[i].tensor.ndim,
                (unsigned long long)peer->max_ndim);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_metadata(const tmsg_send_t *send)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(send->map);
    size_t keys = tmsg_map_meta_size(send->map);
    uint64_t bytes = 0;

    if (keys > peer->max_metadata_keys) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %zu metadata keys, the peer allows %llu",
                              send->endpoint->peer, keys,
                              (unsigned long long)peer->max_metadata_keys);
    }
    for (size_t i = 0; i < keys; i++) {
        bytes += entries[i].key_bytes + entries[i].value.bytes;
        if (entries[i].key_bytes > peer->max_name_bytes) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "%s: a metadata key has %zu bytes, the peer "
                                  "allows %llu",
                                  send->endpoint->peer, entries[i].key_bytes,
                                  (unsigned long long)peer->max_name_bytes);
        }
    }
    if (bytes > peer->max_metadata_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %llu bytes of metadata, the peer allows "
                              "%llu",
                              send->endpoint->peer, (unsigned long long)bytes,
                              (unsigned long long)peer->max_metadata_bytes);
    }
    return TMSG_OK;
}

/* What the peer would refuse is not sent. */
static tmsg_status_t check_limits(const tmsg_send_t *send, uint64_t bytes)
{
    const tmsg_hello_t *peer = &send->endpoint->peer_hello;
    tmsg_status_t status = TMSG_OK;

    if (tmsg_map_size(send->map) > peer->max_tensors) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %zu tensors, the peer allows %llu",
                              send->endpoint->peer, tmsg_map_size(send->map),
                              (unsigned long long)peer->max_tensors);
    }
    if (bytes > peer->max_message_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: payload of %llu bytes, the peer allows %llu",
                              send->endpoint->peer, (unsigned long long)bytes,
                              (unsigned long long)peer->max_message_bytes);
    }
    if (peer->max_name_bytes < TMSG_NAME_BYTES_MAX ||
        peer->max_ndim < TMSG_NDIM_MAX) {
        status = check_tensors(send);
    }
    return status != TMSG_OK ? status : check_metadata(send);
}

/* The preamble, and the body where the payload does not have it. */
static tmsg_status_t write_header(tmsg_send_t *send, tmsg_preamble_t *head,
                                  const tmsg_payload_t *payload)
{
    size_t needed;

    head->payload_bytes = send->plan.bytes;
    tmsg_preamble_encode(head, send->header);
    if (payload->spill > 0) {
        return TMSG_OK;
    }
    return tmsg_body_encode(send->map, payload->extra,
                            send->header + TMSG_PREAMBLE_BYTES,
                            head->body_bytes, &needed);
}

/* From here on the message is sure to be handed over. */
static void note_schema(tmsg_endpoint_t *endpoint, const tmsg_schema_use_t *use)
{
    if (use->form != TMSG_SCHEMA_NONE) {
        tmsg_schema_table_sent(endpoint->channel.tx_schemas, use);
    }
    endpoint->sent_by_schema += use->form == TMSG_SCHEMA_REFERS;
}

tmsg_status_t tmsg_send_prepare(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_preamble_t head = {
        .kind = TMSG_KIND_MAP,
        .flags = send->flags & TMSG_SEND_ACKED ? TMSG_HEADER_ACKED : 0,
        .message_id = send->message_id,
        .endpoint_id = endpoint->peer_id,
        .sequence = endpoint->channel.tx_sequence,
        .policy = (uint8_t)send->policy,
    };
    tmsg_body_extra_t extra = {0};
    tmsg_payload_t payload = {.map = send->map, .extra = &extra};
    tmsg_status_t status = TMSG_OK;

    if (send->flags & TMSG_SEND_VERIFY) {
        status = add_checksums(send, &extra, &payload);
    }
    if (status == TMSG_OK) {
        status = measure(send, &head, &payload);
    }
    if (status == TMSG_OK) {
        status = tmsg_plan_measure(send->map, payload.spill, &send->plan.bytes);
    }
    if (status == TMSG_OK) {
        status = check_limits(send, send->plan.bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_plan_make(
            &payload, tmsg_store_pool(endpoint->worker->store), &send->plan);
    }
    if (status == TMSG_OK) {
        status = write_header(send, &head, &payload);
    }
    free(payload.checksums);
    if (status == TMSG_OK) {
        note_schema(endpoint, &extra.schema);
    }
    return status;
}

/* Hands a prepared send to UCX; from here on it has its number. */
static void post(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_plan_t *plan = &send->plan;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = endpoint->dialect->send_flags,
        .cb.send = send_reported,
        .user_data = send,
        .datatype =
            plan->iov_count > 0 ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t request;

    tmsg_list_push(&endpoint->posted, &send->node);
    endpoint->channel.tx_sequence++;
    endpoint->sent_messages++;
    endpoint->sent_bytes += plan->bytes;
    tmsg_op_begin(endpoint, &send->op, forsaken);
    send->in_ucx = true;
    request = ucp_am_send_nbx(
        endpoint->ep, TMSG_AM_ID, send->header, send->header_bytes,
        plan->iov_count > 0 ? (const void *)plan->iov : plan->contiguous,
        plan->iov_count > 0 ? plan->iov_count : plan->bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        ucx_reported(send, UCS_PTR_STATUS(request));
    }
    if (UCS_PTR_IS_ERR(request)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                            ucs_status_string(UCS_PTR_STATUS(request)));
    }
}

static bool has_credit(const tmsg_endpoint_t *endpoint)
{
    const tmsg_channel_t *channel = &endpoint->channel;

    return (int32_t)(channel->tx_window - channel->tx_sequence) > 0;
}

static tmsg_send_t *pop_queued(tmsg_endpoint_t *endpoint)
{
    return TMSG_CONTAINER_OF(tmsg_list_pop(&endpoint->queued), tmsg_send_t,
                             node);
}

void tmsg_sends_flush(tmsg_endpoint_t *endpoint)
{
    while (endpoint->queued.count > 0 && has_credit(endpoint)) {
        tmsg_send_t *send = pop_queued(endpoint);
        tmsg_status_t status = endpoint->dialect->prepare(send);

        if (status == TMSG_OK) {
            post(send);
        } else {
            end(send, status, tmsg_error_message());
        }
    }
}

void tmsg_sends_end(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->posted.head;

    while (node != NULL) {
        tmsg_node_t *next = node->next;

        /* Those with UCX stay until it reports. */
        settle(TMSG_CONTAINER_OF(node, tmsg_send_t, node));
        node = next;
    }
    while (endpoint->queued.count > 0) {
        end(pop_queued(endpoint), endpoint->status, endpoint->error);
    }
}

static tmsg_status_t read_params(const tmsg_send_params_t *params,
                                 tmsg_send_t *send)
{
    if (params == NULL) {
        return TMSG_OK;
    }
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "send: unknown field_mask bits 0x%llx",
            (unsigned long long)(params->field_mask & ~PARAMS_KNOWN));
    }
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
    if (send->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "send: unknown flags 0x%x", send->flags);
    }
    if (send->flags & TMSG_SEND_VERIFY) {
        send->flags |= TMSG_SEND_ACKED; /* else nobody learned of a mismatch */
    }
    if (send->policy != TMSG_POLICY_HOST_FALLBACK &&
        send->policy != TMSG_POLICY_STRICT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "send: unknown policy %d",
                              send->policy);
    }
    return TMSG_OK;
}

/* UCX would read memory that it does not know, and crash. */
static tmsg_status_t check_memory(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "send: map is NULL");
    }
    entries = tmsg_map_entries(map);
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (tmsg_domain_of(entries[i].tensor.device) != &tmsg_domain_host) {
            return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                  "tensor '%s': device type %d cannot be sent "
                                  "by this build",
                                  entries[i].name,
                                  entries[i].tensor.device.type);
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

static tmsg_status_t create(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                            const tmsg_send_params_t *params,
                            tmsg_send_t **send_p)
{
    tmsg_send_t *send = calloc(1, sizeof(*send));
    tmsg_status_t status;

    if (send == NULL) {
        return tmsg_error_memory("a send");
    }
    tmsg_request_init(&send->request, endpoint->worker, destroy);
    status = read_params(params, send);
    if (status == TMSG_OK) {
        status = check_answers(send, endpoint);
    }
    if (status == TMSG_OK) {
        status = check_memory(map);
    }
    if (status != TMSG_OK) {
        free(send);
        return status;
    }
    send->endpoint = endpoint;
    tmsg_endpoint_hold(endpoint);
    send->map = map;
    tmsg_map_hold(map);
    send->holds_map = true;
    send->message_id = endpoint->next_message_id++;
    *send_p = send;
    return TMSG_OK;
}

/* Posts it at once if nothing is before it, so that what is wrong with the map
 * is the caller's own error. Lock held. */
static tmsg_status_t start(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_status_t status;

    if (endpoint->state != TMSG_EP_OPEN || endpoint->queued.count > 0 ||
        endpoint->worker->inside || !has_credit(endpoint)) {
        tmsg_list_push(&endpoint->queued, &send->node);
        return TMSG_OK;
    }
    status = endpoint->dialect->prepare(send);
    if (status == TMSG_OK) {
        post(send);
    }
    return status;
}

static tmsg_status_t check_state(const tmsg_endpoint_t *endpoint)
{
    if (endpoint->state == TMSG_EP_ENDED &&
        endpoint->status != TMSG_ERR_CANCELED) {
        return tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    if (endpoint->state == TMSG_EP_ENDED ||
        endpoint->state == TMSG_EP_CLOSING || endpoint->close_wanted) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: the endpoint is closed",
                              endpoint->peer);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_send(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map,
                                 const tmsg_send_params_t *params,
                                 tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_send_t *send = NULL;
    tmsg_status_t status;

    if (atomic_load(&endpoint->life->over)) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: its worker is gone",
                              endpoint->peer);
    }
    tmsg_worker_lock(worker);
    status = check_state(endpoint);
    if (status == TMSG_OK) {
        status = create(endpoint, map, params, &send);
    }
    if (status == TMSG_OK) {
        tmsg_request_hold(&send->request);
        status = start(send);
        if (status != TMSG_OK) {
            give_back(send);
            tmsg_endpoint_drop(endpoint);
            tmsg_request_drop(&send->request);
        }
        if (status == TMSG_OK && request_p != NULL) {
            *request_p = &send->request;
        } else {
            tmsg_request_drop(&send->request);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}
