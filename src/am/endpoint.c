/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/attach.h"
#include "am/close.h"
#include "am/control.h"
#include "am/listener.h"
#include "am/pair.h"
#include "am/progress.h"
#include "am/receive.h"
#include "am/retire.h"
#include "am/send.h"
#include "core/log.h"

#define SLOT_BITS 20
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define CONNECT_TIMEOUT_MS 10000

#define PARAMS_KNOWN ((uint64_t)TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT)

void tmsg_endpoint_hold(tmsg_endpoint_t *endpoint)
{
    atomic_fetch_add_explicit(&endpoint->refs, 1, memory_order_relaxed);
}

void tmsg_endpoint_drop(tmsg_endpoint_t *endpoint)
{
    if (atomic_fetch_sub_explicit(&endpoint->refs, 1, memory_order_acq_rel) ==
        1) {
        tmsg_life_drop(endpoint->life);
        free(endpoint->peer_address);
        free(endpoint);
    }
}

static tmsg_status_t find_slot(tmsg_worker_t *worker, uint32_t *slot_p)
{
    uint32_t slots = worker->endpoint_slots;
    tmsg_endpoint_t **table;

    for (uint32_t i = 0; i < slots; i++) {
        if (worker->endpoints[i] == NULL) {
            *slot_p = i;
            return TMSG_OK;
        }
    }
    if (slots > SLOT_MASK / 2) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a worker has at most %u endpoints", slots);
    }
    slots = slots == 0 ? 8 : slots * 2;
    table = reallocarray(worker->endpoints, slots, sizeof(*table));
    if (table == NULL) {
        return tmsg_error_memory("the table of endpoints");
    }
    for (uint32_t i = worker->endpoint_slots; i < slots; i++) {
        table[i] = NULL;
    }
    *slot_p = worker->endpoint_slots;
    worker->endpoints = table;
    worker->endpoint_slots = slots;
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_create(tmsg_worker_t *worker,
                                   tmsg_endpoint_t **endpoint_p)
{
    uint32_t slot = 0;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status = find_slot(worker, &slot);

    if (status != TMSG_OK) {
        return status;
    }
    endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return tmsg_error_memory("an endpoint");
    }
    atomic_init(&endpoint->refs, 2);
    endpoint->worker = worker;
    endpoint->life = worker->life;
    tmsg_life_hold(worker->life);
    endpoint->handle = true;
    atomic_init(&endpoint->peer, endpoint->peer_url);
    atomic_init(&endpoint->user, NULL);
    endpoint->link.fd = -1;
    endpoint->link.source.fd = -1;
    endpoint->link.resolve_source.fd = -1;
    endpoint->id = slot | (++worker->generation << SLOT_BITS);
    worker->endpoints[slot] = endpoint;
    *endpoint_p = endpoint;
    return TMSG_OK;
}

tmsg_endpoint_t *tmsg_endpoint_by_id(tmsg_worker_t *worker, uint32_t id)
{
    uint32_t slot = id & SLOT_MASK;
    tmsg_endpoint_t *endpoint =
        slot < worker->endpoint_slots ? worker->endpoints[slot] : NULL;

    return endpoint != NULL && endpoint->id == id ? endpoint : NULL;
}

void tmsg_events_end(tmsg_event_t **list, tmsg_status_t status,
                     const char *error)
{
    while (*list != NULL) {
        tmsg_event_t *event = *list;

        *list = event->next;
        tmsg_request_end(&event->request, status, error);
    }
}

static void free_event(tmsg_request_t *request) { free(request); }

/* Adds a request to a list of an endpoint's; two references, so that it can
 * end before its handle is given out. */
static tmsg_status_t add_event(tmsg_endpoint_t *endpoint, tmsg_event_t **list,
                               tmsg_request_t **request_p)
{
    tmsg_event_t *event = calloc(1, sizeof(*event));

    if (event == NULL) {
        return tmsg_error_memory("a request");
    }
    tmsg_request_init(&event->request, endpoint->worker, free_event);
    tmsg_request_hold(&event->request);
    event->next = *list;
    *list = event;
    *request_p = &event->request;
    return TMSG_OK;
}

static void run_closed(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, closed_due);
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_closed_fn on_closed;
    void *arg;

    tmsg_worker_lock(worker);
    on_closed = endpoint->handle ? endpoint->on_closed : NULL;
    arg = endpoint->on_closed_arg;
    tmsg_worker_unlock(worker);
    if (on_closed != NULL) {
        on_closed(arg, endpoint, endpoint->status, endpoint->error);
    }
    tmsg_endpoint_drop(endpoint);
}

static void tell_closed(tmsg_endpoint_t *endpoint)
{
    if (endpoint->handle && endpoint->on_closed != NULL && !endpoint->told) {
        endpoint->told = true;
        endpoint->closed_due.run = run_closed;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &endpoint->closed_due);
    }
}

void tmsg_endpoint_on_closed(tmsg_endpoint_t *endpoint,
                             tmsg_closed_fn on_closed, void *arg)
{
    tmsg_worker_t *worker = endpoint->worker;

    tmsg_worker_lock(worker);
    endpoint->on_closed = on_closed;
    endpoint->on_closed_arg = arg;
    if (endpoint->state == TMSG_EP_ENDED) {
        tell_closed(endpoint);
    }
    tmsg_worker_unlock(worker);
}

static void close_over(tmsg_op_t *op)
{
    tmsg_endpoint_t *endpoint = TMSG_CONTAINER_OF(op, tmsg_endpoint_t, closing);

    tmsg_op_over(endpoint, op);
    tmsg_endpoint_reported(endpoint);
}

static void close_reported(void *request, ucs_status_t ucs, void *arg)
{
    (void)ucs;
    ucp_request_free(request);
    close_over(arg);
}

static void close_ucx(tmsg_endpoint_t *endpoint)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = close_reported,
        .user_data = &endpoint->closing,
    };
    ucs_status_ptr_t request;

    if (endpoint->ep == NULL) {
        return;
    }
    if (!endpoint->dialling && endpoint->reply_ep == NULL) {
        tmsg_pair_keep(endpoint->ucx, endpoint->peer_hello.ucx_id,
                       endpoint->number, endpoint->ep);
        endpoint->ep = NULL;
        return;
    }
    tmsg_op_begin(endpoint, &endpoint->closing, close_over);
    request = ucp_ep_close_nbx(endpoint->ep, &param);
    endpoint->ep = NULL;
    if (!UCS_PTR_IS_PTR(request)) {
        close_over(&endpoint->closing);
    }
}

/* Puts the peer in front of the cause, unless that names it already. */
static void name_error(tmsg_endpoint_t *endpoint, const char *error)
{
    const char *peer = endpoint->peer;
    size_t bytes = sizeof(endpoint->error);
    size_t used = 0;

    if (strncmp(error, peer, strlen(peer)) != 0) {
        used = (size_t)snprintf(endpoint->error, bytes, "%s: ", peer);
    }
    snprintf(endpoint->error + used, bytes - used, "%s", error);
}

/* Names of transports as UCX begins them. */
static bool carries_shared(const char *transports)
{
    static const char *const shared[] = {"posix", "sysv", "xpmem", "cma"};

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
        if (strstr(transports, shared[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether the peer may have written to our queue of shared memory. What
 * carries an endpoint is known once it is open. */
static bool shared_memory(const tmsg_endpoint_t *endpoint)
{
    return (endpoint->ep != NULL || endpoint->link.address_sent) &&
           !endpoint->link.net_only &&
           (endpoint->transports[0] == '\0' ||
            carries_shared(endpoint->transports));
}

/* The order matters: first the socket, so that the peer believes nothing that
 * it fetches from now on; then UCX; memory goes back when UCX has reported. */
void tmsg_endpoint_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *error)
{
    bool writes;

    if (endpoint->state == TMSG_EP_ENDED) {
        return;
    }
    writes = status != TMSG_ERR_CLOSED && shared_memory(endpoint);
    endpoint->in_ucx++; /* keeps it in the table until the end of this */
    endpoint->state = TMSG_EP_ENDED;
    endpoint->status = status;
    name_error(endpoint, error);
    tmsg_log(status == TMSG_ERR_CLOSED || status == TMSG_ERR_CANCELED
                 ? TMSG_LOG_INFO
                 : TMSG_LOG_WARN,
             "%s", endpoint->error);
    tmsg_link_close(endpoint, writes);
    tmsg_attach_end(endpoint);
    if (status == TMSG_ERR_PEER_LOST && writes) {
        tmsg_ucx_retire(endpoint->ucx); /* it may have died amid that */
    } else if (endpoint->ucx != NULL && endpoint->ucx->retired) {
        tmsg_ucx_watch(endpoint->ucx);
    }
    close_ucx(endpoint);
    tmsg_messages_abandon(endpoint);
    tmsg_control_discard(endpoint);
    tmsg_sends_end(endpoint);
    tmsg_events_end(&endpoint->ready_events, status, endpoint->error);
    tmsg_events_end(&endpoint->close_events,
                    status == TMSG_ERR_CLOSED ? TMSG_OK : status,
                    endpoint->error);
    tell_closed(endpoint);
    tmsg_worker_changed(endpoint->worker);
    tmsg_listener_ended(endpoint);
    tmsg_endpoint_reported(endpoint);
}

void tmsg_endpoint_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *error)
{
    /* Once it has our FIN the peer may end, and UCX may be the first to tell:
     * whether that was in order is said by the socket. */
    if (status == TMSG_ERR_PEER_LOST && endpoint->fin_sent &&
        endpoint->link.source.fd >= 0) {
        return;
    }
    if (endpoint->broken == TMSG_OK) {
        endpoint->broken = status;
        snprintf(endpoint->broken_why, sizeof(endpoint->broken_why), "%s",
                 error);
    }
    tmsg_worker_chore(endpoint->worker, endpoint);
}

void tmsg_endpoint_forget(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_t **slot =
        &endpoint->worker->endpoints[endpoint->id & SLOT_MASK];

    if (endpoint->state == TMSG_EP_ENDED && endpoint->in_ucx == 0 &&
        !endpoint->handle && *slot == endpoint) {
        *slot = NULL;
        if (endpoint->ucx != NULL) {
            endpoint->ucx->users--;
            endpoint->ucx = NULL;
        }
        tmsg_endpoint_drop(endpoint);
    }
}

void tmsg_endpoint_reported(tmsg_endpoint_t *endpoint)
{
    endpoint->in_ucx--;
    tmsg_endpoint_forget(endpoint);
}

void tmsg_endpoint_release(tmsg_endpoint_t *endpoint)
{
    endpoint->handle = false;
    endpoint->keeper = NULL;
    tmsg_endpoint_end(endpoint, TMSG_ERR_CANCELED, "closed by this side");
    tmsg_messages_discard(endpoint);
    tmsg_endpoint_forget(endpoint);
    tmsg_endpoint_drop(endpoint);
}

/* Where shared memory was possible, says why it is not what carries it. */
static void explain_network(tmsg_endpoint_t *endpoint)
{
    const tmsg_ucx_key_t *tls =
        tmsg_ucx_config_key(&endpoint->ucx->keys, "UCX_TLS");

    if (endpoint->link.net_only || endpoint->transports[0] == '\0' ||
        carries_shared(endpoint->transports)) {
        return;
    }
    if (tls != NULL && tls->origin != TMSG_ORIGIN_DEFAULT) {
        snprintf(endpoint->why, sizeof(endpoint->why),
                 "same machine, but UCX_TLS=%.100s (%s)", tls->value,
                 tmsg_ucx_origin_name(tls->origin));
    } else {
        snprintf(endpoint->why, sizeof(endpoint->why),
                 "same machine, but UCX found no shared memory to use "
                 "(UCX_TLS of the peer, /dev/shm)");
    }
}

/* Outside UCX, which is asked. */
static void explain(tmsg_endpoint_t *endpoint)
{
    endpoint->unexplained = false;
    tmsg_ucx_transports(endpoint->ep, endpoint->transports,
                        sizeof(endpoint->transports));
    explain_network(endpoint);
    tmsg_log(TMSG_LOG_INFO, "%s: connected by %s (%s)", endpoint->peer,
             endpoint->transports, endpoint->why);
}

void tmsg_endpoint_name_peer(tmsg_endpoint_t *endpoint, const char *url)
{
    snprintf(endpoint->peer_name, sizeof(endpoint->peer_name),
             "%s (pid %u on %s)", url, endpoint->peer_hello.pid,
             endpoint->peer_hello.host);
    endpoint->peer = endpoint->peer_name;
}

void tmsg_endpoint_opened(tmsg_endpoint_t *endpoint)
{
    endpoint->state = TMSG_EP_OPEN;
    endpoint->channel.tx_window = endpoint->peer_hello.queue_depth;
    tmsg_loop_clear_timer(&endpoint->worker->loop, &endpoint->link.deadline);
    endpoint->unexplained = true;
    tmsg_events_end(&endpoint->ready_events, TMSG_OK, NULL);
    tmsg_worker_changed(endpoint->worker);
    tmsg_listener_connected(endpoint);
    tmsg_worker_chore(endpoint->worker, endpoint); /* what was queued */
}

void tmsg_endpoint_chores(tmsg_endpoint_t *endpoint)
{
    if (endpoint->broken == TMSG_ERR_PEER_LOST && endpoint->fin_sent &&
        endpoint->fin_received) {
        /* The peer had its end in order, and UCX told of it as well. */
        tmsg_endpoint_end(endpoint, TMSG_ERR_CLOSED, "closed");
    } else if (endpoint->broken != TMSG_OK) {
        tmsg_endpoint_end(endpoint, endpoint->broken, endpoint->broken_why);
    }
    tmsg_link_read_on(endpoint);
    if (endpoint->state == TMSG_EP_CONNECTING) {
        tmsg_status_t status = tmsg_attach_advance(endpoint);

        if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
            tmsg_link_refuse(endpoint, status);
        }
    }
    if (endpoint->unexplained && endpoint->ep != NULL) {
        explain(endpoint);
    }
    if (endpoint->state == TMSG_EP_OPEN || endpoint->state == TMSG_EP_CLOSING) {
        tmsg_control_flush(endpoint);
        tmsg_control_credit(endpoint);
        tmsg_sends_flush(endpoint);
        tmsg_close_advance(endpoint);
    }
}

static tmsg_status_t check_params(const tmsg_endpoint_params_t *params,
                                  int *timeout_ms)
{
    *timeout_ms = CONNECT_TIMEOUT_MS;
    if (params == NULL) {
        return TMSG_OK;
    }
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "endpoint: unknown field_mask bits 0x%llx",
            (unsigned long long)(params->field_mask & ~PARAMS_KNOWN));
    }
    if (params->field_mask & TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT) {
        *timeout_ms = params->connect_timeout_ms;
        if (*timeout_ms <= 0) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "endpoint: connect_timeout_ms %d is not "
                                  "positive",
                                  *timeout_ms);
        }
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_connect(tmsg_worker_t *worker, const char *url,
                                    const tmsg_endpoint_params_t *params,
                                    tmsg_endpoint_t **endpoint_p)
{
    tmsg_endpoint_t *endpoint;
    int timeout_ms;
    tmsg_status_t status = check_params(params, &timeout_ms);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    status = tmsg_worker_check(worker);
    if (status == TMSG_OK) {
        status = tmsg_endpoint_create(worker, &endpoint);
    }
    if (status == TMSG_OK) {
        endpoint->dialling = true;
        status = tmsg_link_dial(endpoint, url, timeout_ms);
        if (status == TMSG_OK) {
            *endpoint_p = endpoint;
        } else {
            tmsg_endpoint_release(endpoint);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_status_t tmsg_endpoint_connect_blob(tmsg_worker_t *worker,
                                         const void *blob, size_t blob_bytes,
                                         const tmsg_endpoint_params_t *params,
                                         tmsg_endpoint_t **endpoint_p)
{
    tmsg_endpoint_t *endpoint;
    int timeout_ms;
    tmsg_status_t status = check_params(params, &timeout_ms);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    status = tmsg_worker_check(worker);
    if (status == TMSG_OK) {
        status = tmsg_endpoint_create(worker, &endpoint);
    }
    if (status == TMSG_OK) {
        endpoint->dialling = true;
        status = tmsg_attach_blob(endpoint, blob, blob_bytes, timeout_ms);
        if (status == TMSG_OK) {
            *endpoint_p = endpoint;
        } else {
            tmsg_endpoint_release(endpoint);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}

/* A message may keep an endpoint beyond its worker: to be asked first. */
static tmsg_status_t check_worker(const tmsg_endpoint_t *endpoint)
{
    if (atomic_load(&endpoint->life->over)) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: its worker is gone",
                              endpoint->peer);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_ready(tmsg_endpoint_t *endpoint,
                                  tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_event_t *ended = NULL;
    bool connecting;
    tmsg_status_t status = check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    connecting = endpoint->state == TMSG_EP_CONNECTING;
    status = add_event(endpoint, connecting ? &endpoint->ready_events : &ended,
                       request_p);
    tmsg_events_end(
        &ended, endpoint->state == TMSG_EP_ENDED ? endpoint->status : TMSG_OK,
        endpoint->error);
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_status_t tmsg_endpoint_close(tmsg_endpoint_t *endpoint,
                                  tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_request_t *request = NULL;
    tmsg_event_t *ended = NULL;
    bool over;
    tmsg_status_t status = check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    over = endpoint->state == TMSG_EP_ENDED;
    status =
        add_event(endpoint, over ? &ended : &endpoint->close_events, &request);
    if (status == TMSG_OK) {
        endpoint->told = true; /* this side knows */
        tmsg_events_end(&ended,
                        endpoint->status == TMSG_ERR_CLOSED ? TMSG_OK
                                                            : endpoint->status,
                        endpoint->error);
        if (endpoint->state == TMSG_EP_OPEN) {
            endpoint->state = TMSG_EP_CLOSING;
        }
        endpoint->close_wanted = true;
        tmsg_worker_chore(worker, endpoint);
        if (request_p != NULL) {
            *request_p = request;
        } else {
            tmsg_request_drop(request);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}

void tmsg_endpoint_destroy(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker;

    if (endpoint == NULL) {
        return;
    }
    worker = endpoint->worker;
    tmsg_worker_lock(worker);
    tmsg_endpoint_release(endpoint);
    tmsg_worker_unlock(worker);
}

static bool has_message(void *arg)
{
    tmsg_endpoint_t *endpoint = arg;

    return endpoint->ready.count > 0 || endpoint->state == TMSG_EP_ENDED;
}

tmsg_status_t tmsg_endpoint_recv(tmsg_endpoint_t *endpoint, int timeout_ms,
                                 tmsg_message_t **message_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    if (worker->handler != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the worker has a message handler: there is "
                              "nothing to pull");
    }
    tmsg_worker_enter(worker);
    tmsg_endpoint_hold(endpoint); /* a callback may destroy it meanwhile */
    status = tmsg_worker_until(worker, has_message, endpoint, timeout_ms,
                               "no message from ", endpoint->peer);
    if (status == TMSG_OK) {
        message = tmsg_message_pull(worker, endpoint);
    }
    if (message != NULL) {
        *message_p = message;
    } else if (status == TMSG_OK) {
        status = tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    tmsg_worker_leave(worker, message != NULL);
    tmsg_endpoint_drop(endpoint);
    return status;
}

tmsg_status_t tmsg_endpoint_status(const tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    if (atomic_load(&endpoint->life->over)) {
        return TMSG_ERR_CLOSED;
    }
    tmsg_worker_lock(endpoint->worker);
    status = endpoint->state == TMSG_EP_CONNECTING ? TMSG_IN_PROGRESS
             : endpoint->state == TMSG_EP_ENDED    ? endpoint->status
                                                   : TMSG_OK;
    tmsg_worker_unlock(endpoint->worker);
    return status;
}

const char *tmsg_endpoint_error(const tmsg_endpoint_t *endpoint)
{
    return tmsg_endpoint_status(endpoint) < 0 ? endpoint->error : "";
}

const char *tmsg_endpoint_peer(const tmsg_endpoint_t *endpoint)
{
    return atomic_load(&endpoint->peer);
}

void tmsg_endpoint_set_user(tmsg_endpoint_t *endpoint, void *user)
{
    endpoint->user = user;
}

void *tmsg_endpoint_user(const tmsg_endpoint_t *endpoint)
{
    return endpoint->user;
}
