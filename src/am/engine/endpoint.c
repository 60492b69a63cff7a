/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "am/connect/admit.h"
#include "am/connect/carrier.h"
#include "am/connect/close.h"
#include "am/connect/dialect.h"
#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/connect/liveness.h"
#include "am/connect/redial.h"
#include "am/connect/wireup.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/scheme.h"
#include "am/endpoint/session.h"
#include "am/endpoint/transport.h"
#include "am/engine/endpoint.h"
#include "am/engine/endpoint_end.h"
#include "am/listen/accept.h"
#include "am/path/bulk.h"
#include "am/path/fastboxes.h"
#include "am/path/loans.h"
#include "am/publish/publisher.h"
#include "am/recv/deliver.h"
#include "am/recv/fragments_in.h"
#include "am/recv/message.h"
#include "am/send/fragments.h"
#include "am/send/queue.h"
#include "am/session/resume.h"
#include "am/worker/lead.h"
#include "am/worker/reach.h"
#include "am/worker/worker.h"
#include "core/error.h"
#include "core/params.h"

#define CONNECT_TIMEOUT_MS 10000
#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_ENDPOINT_WAIT | TMSG_ENDPOINT_SAME_PROCESS))

void tmsg_endpoint_opened(tmsg_endpoint_t *endpoint)
{
    bool again = tmsg_resume_goes_on(endpoint);

    endpoint->state = TMSG_EP_OPEN;
    /* When the peer comes back, it says what credit there is. */
    if (!again) {
        tmsg_channels_opened(endpoint);
    }
    tmsg_credit_opened(endpoint);
    tmsg_resume_opened(endpoint);
    tmsg_redial_over(endpoint);
    tmsg_loop_clear_timer(&endpoint->worker->loop, &endpoint->link.deadline);
    tmsg_liveness_opened(endpoint);
    tmsg_transport_ask(endpoint);
    tmsg_events_end(&endpoint->events.ready, TMSG_OK, NULL);
    tmsg_worker_changed(endpoint->worker);
    if (!again) {
        tmsg_accept_connected(endpoint);
    }
    tmsg_worker_chore(endpoint->worker, endpoint); /* sends what was queued */
}

void tmsg_endpoint_chores(tmsg_endpoint_t *endpoint)
{
    if (endpoint->broken == TMSG_ERR_PEER_LOST) {
        tmsg_link_last_words(endpoint);
    }
    if (endpoint->broken == TMSG_ERR_PEER_LOST &&
        tmsg_close_is_over(endpoint)) {
        /* The peer had its end in order, and UCX told of it as well. */
        tmsg_endpoint_end(endpoint, TMSG_ERR_CLOSED, "closed");
    } else if (endpoint->broken != TMSG_OK) {
        tmsg_endpoint_end(endpoint, endpoint->broken, endpoint->broken_why);
    }
    tmsg_cma_chores(endpoint);
    tmsg_link_read_on(endpoint);
    tmsg_resume_settled(endpoint);
    tmsg_resume_look(endpoint);
    if (endpoint->state == TMSG_EP_CONNECTING) {
        tmsg_status_t status = endpoint->dialect->advance(endpoint);

        if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
            tmsg_link_refuse(endpoint, status);
        }
    }
    if (tmsg_transport_is_asked(endpoint)) {
        tmsg_transport_explain(endpoint);
        tmsg_cma_begin(endpoint);
        tmsg_bulk_begin(endpoint);
    }
    if (endpoint->state == TMSG_EP_OPEN || endpoint->state == TMSG_EP_CLOSING) {
        tmsg_control_flush(endpoint);
        tmsg_loans_chores(endpoint);
        for (tmsg_channel_t *channel = &endpoint->channels.zero;
             channel != NULL; channel = channel->next) {
            endpoint->dialect->credit(channel);
        }
        tmsg_sends_flush(endpoint);
        tmsg_subscribers_flush(endpoint);
        tmsg_fragments_flush(endpoint);
        tmsg_fragments_chores(endpoint);
        endpoint->dialect->close(endpoint);
    }
}

static tmsg_status_t take_endpoint_params(tmsg_endpoint_t *endpoint,
                                          const tmsg_endpoint_params_t *read)
{
    endpoint->dialling = true;
    tmsg_handshake_subscribe(endpoint, read->subscribe);
    tmsg_admit_begin(endpoint, read->keyring, NULL);
    return read->devices == NULL
               ? TMSG_OK
               : tmsg_devices_read(read->devices, endpoint->devices);
}

/* Reads the parameters. On success every field of *read is set, by the caller
 * or by default; its field_mask says by whom. */
static tmsg_status_t read_endpoint_params(const tmsg_worker_t *worker,
                                          const tmsg_endpoint_params_t *params,
                                          tmsg_endpoint_params_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
                   connect_timeout_ms),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_RECONNECT,
                   reconnect),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_DEVICES,
                   devices),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_SUBSCRIBE,
                   subscribe),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_KEYRING,
                   keyring),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_FLAGS, flags),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_CARRIER,
                   carrier),
        TMSG_PARAM(tmsg_endpoint_params_t, TMSG_ENDPOINT_PARAM_TLS, tls)};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status;

    *read = (tmsg_endpoint_params_t){.field_mask = mask,
                                     .connect_timeout_ms = CONNECT_TIMEOUT_MS,
                                     .keyring = worker->context->keyring};
    status = tmsg_params_read("endpoint", params, mask, rows,
                              sizeof(rows) / sizeof(rows[0]), read);
    if (status != TMSG_OK) {
        return status;
    }
    if (read->connect_timeout_ms <= 0 &&
        !(read->connect_timeout_ms == -1 && read->flags & TMSG_ENDPOINT_WAIT)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "endpoint: connect_timeout_ms %d is not positive",
                              read->connect_timeout_ms);
    }
    if (read->subscribe & ~(uint32_t)TMSG_SUBSCRIBE_NEWEST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "endpoint: unknown subscribe bits 0x%x",
                              read->subscribe);
    }
    if (read->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "endpoint: unknown flags 0x%x", read->flags);
    }
    return TMSG_OK;
}

/* Tells where an endpoint is dialled: at a URL, or by a blob. */
typedef struct {
    bool by_blob;
    const char *url; /* NULL: by blob, or the application gave none */
    const void *blob;
    size_t blob_bytes;
} target_t;

/* Checks that the scheme of the URL offers what is asked for. No URL finds the
 * peer of a blob. */
static tmsg_status_t check_target_scheme(const tmsg_endpoint_t *endpoint,
                                         const target_t *target, bool again)
{
    tmsg_url_kind_t kind = endpoint->link.url.kind;
    const tmsg_scheme_t *scheme = tmsg_schemes[kind];

    if (again && !scheme->sessions) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "reconnect: a %s:// peer cannot be found again",
                              tmsg_url_scheme(kind));
    }
    if (scheme->dial == NULL && !target->by_blob) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "'%s': connect to a blob listener by its blob, not by its URL",
            target->url);
    }
    if (endpoint->devices[0] != '\0' && !scheme->devices) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "endpoint: devices cannot be named for %s://",
                              tmsg_url_scheme(kind));
    }
    if (endpoint->admit.keyring != NULL && !scheme->keys) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "a %s:// peer cannot prove a key: connect to it "
                              "with a NULL keyring, or not at all",
                              tmsg_url_scheme(kind));
    }
    return TMSG_OK;
}

static tmsg_status_t take_target(tmsg_endpoint_t *endpoint,
                                 const target_t *target)
{
    if (target->by_blob) {
        endpoint->link.url.kind = TMSG_URL_BLOB;
        return TMSG_OK;
    }
    return tmsg_url_parse(target->url, &endpoint->link.url);
}

static tmsg_status_t ask_carrier(tmsg_endpoint_t *endpoint,
                                 const tmsg_endpoint_params_t *read)
{
    tmsg_url_kind_t kind = endpoint->link.url.kind;
    bool named = read->field_mask & TMSG_ENDPOINT_PARAM_CARRIER;
    int32_t carrier = named ? read->carrier
                            : tmsg_carrier_usual(endpoint->worker->context,
                                                 kind, endpoint->devices);

    tmsg_carrier_ask(endpoint, carrier);
    return tmsg_carrier_check("endpoint", carrier, kind, endpoint->devices);
}

static tmsg_status_t dial_target(tmsg_endpoint_t *endpoint,
                                 const target_t *target,
                                 const tmsg_endpoint_params_t *read)
{
    int timeout_ms = read->connect_timeout_ms;
    bool waits = read->flags & TMSG_ENDPOINT_WAIT;
    bool again = read->field_mask & TMSG_ENDPOINT_PARAM_RECONNECT;
    tmsg_status_t status = take_endpoint_params(endpoint, read);

    if (status == TMSG_OK && target->url == NULL && !target->by_blob) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM, "url is NULL");
    }
    if (status == TMSG_OK) {
        status = take_target(endpoint, target);
    }
    if (status == TMSG_OK) {
        status = check_target_scheme(endpoint, target, again);
    }
    if (status == TMSG_OK) {
        status =
            tmsg_admit_choose("endpoint", endpoint->link.url.kind, read->tls,
                              &endpoint->admit.keyring, &endpoint->admit.tls);
    }
    if (status == TMSG_OK) {
        status = ask_carrier(endpoint, read);
    }
    if (status == TMSG_OK && waits &&
        !tmsg_schemes[endpoint->link.url.kind]->socket) {
        status = tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "a %s:// peer cannot be waited for: tcp://, unix:// and tls:// can",
            tmsg_url_scheme(endpoint->link.url.kind));
    }
    /* Later attempts, of a session, are for a peer that was there. */
    if (status == TMSG_OK && again) {
        status = tmsg_resume_request(endpoint, &read->reconnect, read->flags,
                                     waits ? CONNECT_TIMEOUT_MS : timeout_ms);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (waits) {
        timeout_ms = tmsg_redial_await(endpoint, timeout_ms);
    }
    return target->by_blob ? tmsg_wireup_blob(endpoint, target->blob,
                                              target->blob_bytes, timeout_ms)
                           : tmsg_link_dial(endpoint, timeout_ms);
}

static tmsg_status_t connect_to(tmsg_worker_t *worker, const target_t *target,
                                const tmsg_endpoint_params_t *params,
                                tmsg_endpoint_t **endpoint_p)
{
    tmsg_endpoint_t *endpoint;
    tmsg_endpoint_params_t read;
    tmsg_status_t status = tmsg_worker_check_process(worker);

    if (status == TMSG_OK) {
        status = read_endpoint_params(worker, params, &read);
    }
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    status = tmsg_worker_check(worker);
    if (status == TMSG_OK) {
        status = tmsg_endpoint_create(worker, &tmsg_dialect_own, &endpoint);
    }
    if (status == TMSG_OK) {
        status = dial_target(endpoint, target, &read);
        if (status == TMSG_OK) {
            *endpoint_p = endpoint;
        } else {
            tmsg_endpoint_release(endpoint);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_status_t tmsg_endpoint_connect(tmsg_worker_t *worker, const char *url,
                                    const tmsg_endpoint_params_t *params,
                                    tmsg_endpoint_t **endpoint_p)
{
    const target_t target = {.url = url};

    return connect_to(worker, &target, params, endpoint_p);
}

tmsg_status_t tmsg_endpoint_connect_blob(tmsg_worker_t *worker,
                                         const void *blob, size_t blob_bytes,
                                         const tmsg_endpoint_params_t *params,
                                         tmsg_endpoint_t **endpoint_p)
{
    const target_t target = {
        .by_blob = true, .blob = blob, .blob_bytes = blob_bytes};

    return connect_to(worker, &target, params, endpoint_p);
}

tmsg_status_t tmsg_endpoint_ready(tmsg_endpoint_t *endpoint,
                                  tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_event_t *ended = NULL;
    bool connecting;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    connecting = endpoint->state == TMSG_EP_CONNECTING ||
                 endpoint->state == TMSG_EP_AWAY;
    status = tmsg_events_add(connecting ? &endpoint->events.ready : &ended,
                             worker, endpoint, request_p);
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
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    over = endpoint->state == TMSG_EP_ENDED;
    status = tmsg_events_add(over ? &ended : &endpoint->events.close, worker,
                             endpoint, &request);
    if (status == TMSG_OK) {
        tmsg_events_end(&ended,
                        endpoint->status == TMSG_ERR_CLOSED ? TMSG_OK
                                                            : endpoint->status,
                        endpoint->error);
        tmsg_endpoint_close_begin(endpoint);
        if (request_p != NULL) {
            *request_p = request;
        } else {
            tmsg_request_drop(request);
        }
    }
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_status_t tmsg_endpoint_discard(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = tmsg_endpoint_check_pull(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(endpoint->worker);
    tmsg_messages_refuse(endpoint->face);
    tmsg_worker_unlock(endpoint->worker);
    return TMSG_OK;
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
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->ready.count > 0 ||
           tmsg_endpoint_now(endpoint)->state == TMSG_EP_ENDED;
}

int tmsg_endpoint_readable(const tmsg_endpoint_t *endpoint)
{
    bool readable;

    if (atomic_load(&endpoint->life->over)) {
        return 1;
    }
    tmsg_worker_lock(endpoint->worker);
    readable = endpoint->ready.count > 0 ||
               tmsg_endpoint_now(endpoint)->state == TMSG_EP_ENDED;
    tmsg_worker_unlock(endpoint->worker);
    return readable;
}

size_t tmsg_endpoint_waiting(const tmsg_endpoint_t *endpoint)
{
    size_t count;

    if (atomic_load(&endpoint->life->over)) {
        return 0;
    }
    tmsg_worker_lock(endpoint->worker);
    count = endpoint->ready.count;
    tmsg_worker_unlock(endpoint->worker);
    return count;
}

tmsg_status_t tmsg_endpoint_recv(tmsg_endpoint_t *endpoint, int timeout_ms,
                                 tmsg_message_t **message_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = tmsg_endpoint_check_pull(endpoint);

    if (status != TMSG_OK) {
        return status;
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
    switch (tmsg_endpoint_now(endpoint)->state) {
    case TMSG_EP_CONNECTING:
    case TMSG_EP_AWAY:
        status = TMSG_IN_PROGRESS;
        break;
    case TMSG_EP_ENDED:
        status = endpoint->status; /* the last of them has left it here */
        break;
    default:
        status = TMSG_OK;
    }
    tmsg_worker_unlock(endpoint->worker);
    return status;
}

const char *tmsg_endpoint_error(const tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = tmsg_endpoint_status(endpoint);
    const tmsg_endpoint_t *now;
    const char *words = "";

    if (status < 0) {
        return endpoint->error;
    }
    if (status == TMSG_IN_PROGRESS) {
        tmsg_worker_lock(endpoint->worker);
        now = tmsg_endpoint_now(endpoint);
        words = tmsg_resume_words(now);
        if (words[0] == '\0') {
            words = tmsg_redial_words(now);
        }
        tmsg_worker_unlock(endpoint->worker);
    }
    return words;
}

/* The name of an heir lives no longer than that. */
const char *tmsg_endpoint_peer(const tmsg_endpoint_t *endpoint)
{
    static _Thread_local char words[sizeof(endpoint->peer_name)];

    if (tmsg_endpoint_now(endpoint) == endpoint ||
        atomic_load(&endpoint->life->over)) {
        return atomic_load(&endpoint->peer);
    }
    tmsg_worker_lock(endpoint->worker);
    snprintf(words, sizeof(words), "%s", tmsg_endpoint_now(endpoint)->peer);
    tmsg_worker_unlock(endpoint->worker);
    return words;
}

void tmsg_endpoint_set_user(tmsg_endpoint_t *endpoint, void *user)
{
    endpoint->user = user;
}

void *tmsg_endpoint_user(const tmsg_endpoint_t *endpoint)
{
    return endpoint->user;
}
