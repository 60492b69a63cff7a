/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends endpoints, and tells the peer and the application. */
#include "am/engine/endpoint_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/boot/refusal.h"
#include "am/connect/close.h"
#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/connect/ping.h"
#include "am/connect/redial.h"
#include "am/connect/wireup.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/control.h"
#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/log.h"
#include "am/endpoint/session.h"
#include "am/endpoint/transport.h"
#include "am/engine/endpoint_free.h"
#include "am/engine/retire.h"
#include "am/engine/succession.h"
#include "am/listen/accept.h"
#include "am/listen/presence.h"
#include "am/path/bulk.h"
#include "am/path/fastboxes.h"
#include "am/path/ipc.h"
#include "am/path/loans.h"
#include "am/publish/publisher.h"
#include "am/recv/consumer.h"
#include "am/recv/receive.h"
#include "am/send/send.h"
#include "am/session/heir.h"
#include "am/session/resume.h"
#include "am/ucx/ep_index.h"
#include "am/ucx/ucx_ep.h"
#include "core/log.h"
#include "core/shown.h"

/* The text of an abort has at most this many bytes. */
#define WORDS_BYTES 200

static void run_closed(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, events.closed_due);
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_closed_fn on_closed;
    void *arg;

    tmsg_worker_lock(worker);
    on_closed = endpoint->handle ? endpoint->events.on_closed : NULL;
    arg = endpoint->events.on_closed_arg;
    tmsg_worker_unlock(worker);
    if (on_closed != NULL) {
        on_closed(arg, endpoint, endpoint->status, endpoint->error);
    }
    tmsg_endpoint_drop(endpoint);
}

/* Tells the application of the end of its handle, whose endpoint this is. */
static void tell_closed(tmsg_endpoint_t *endpoint)
{
    if (endpoint->handle && endpoint->events.on_closed != NULL &&
        !endpoint->told) {
        endpoint->told = true;
        endpoint->events.closed_due.run = run_closed;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &endpoint->events.closed_due);
    }
}

void tmsg_endpoint_on_closed(tmsg_endpoint_t *endpoint,
                             tmsg_closed_fn on_closed, void *arg)
{
    tmsg_worker_t *worker = endpoint->worker;

    tmsg_worker_lock(worker);
    endpoint->events.on_closed = on_closed;
    endpoint->events.on_closed_arg = arg;
    if (tmsg_endpoint_now(endpoint)->state == TMSG_EP_ENDED) {
        tell_closed(endpoint);
    }
    tmsg_worker_unlock(worker);
}

static void close_over(tmsg_op_t *op)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(op, tmsg_endpoint_t, events.closing);

    tmsg_op_over(endpoint, op);
    tmsg_endpoint_reported(endpoint);
}

static void close_reported(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    (void)ucs;
    tmsg_ucx_request_free(request);
    close_over(arg);
}

static void close_ucx_ep(tmsg_endpoint_t *endpoint, bool in_order)
{
    tmsg_ucx_status_t ucs;

    if (endpoint->ep == NULL) {
        return;
    }
    if (tmsg_wireup_keep_ep(endpoint)) {
        endpoint->ep = NULL;
        return;
    }
    if (!in_order) {
        tmsg_wireup_cut_sockets(endpoint);
    }
    if (endpoint->ucx->numb) { /* it is closed with its UCX worker */
        endpoint->ep = NULL;
        return;
    }
    tmsg_op_begin(endpoint, &endpoint->events.closing, close_over);
    ucs = tmsg_ucx_ep_close(endpoint->ep, close_reported,
                            &endpoint->events.closing);
    endpoint->ep = NULL;
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        close_over(&endpoint->events.closing);
    }
}

/* Writes the endpoint's error. The peer's name goes in front of the cause,
 * unless that begins with it. If the connection never stood and was dialled
 * anew, the reason for that goes behind the cause. */
static void name_error(tmsg_endpoint_t *endpoint, bool stood,
                       tmsg_status_t status, const char *error)
{
    const char *peer = endpoint->peer;
    size_t bytes = sizeof(endpoint->error);
    size_t used = 0;

    if (strncmp(error, peer, strlen(peer)) != 0) {
        used = (size_t)snprintf(endpoint->error, bytes, "%s: ", peer);
    }
    if (!stood && used < bytes) {
        used += tmsg_redial_lead(endpoint, status, endpoint->error + used,
                                 bytes - used);
    }
    used += (size_t)snprintf(endpoint->error + used, bytes - used, "%s", error);
    if (!stood && used < bytes) {
        tmsg_redial_explain(endpoint, endpoint->error + used, bytes - used);
    }
    (void)tmsg_shown_fit(endpoint->error, bytes, used >= bytes);
}

/* Cuts the connection. The order matters. The lease and the socket go first, so
 * that the peer believes nothing that it fetches from now on; then UCX. Memory
 * goes back when UCX has reported. */
static void cut_connection(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                           bool alive)
{
    bool writes =
        status != TMSG_ERR_CLOSED && tmsg_transport_is_shared(endpoint);
    bool stranger = tmsg_link_is_strange(endpoint);

    tmsg_lease_withdraw(endpoint);
    tmsg_endpoint_forget_loss(endpoint);
    tmsg_link_take_back(endpoint);
    tmsg_loans_take_back(endpoint);
    tmsg_messages_return(endpoint);
    tmsg_loans_last(endpoint);
    tmsg_ipc_last(endpoint);
    tmsg_link_close(endpoint, writes);
    endpoint->dialect->end(endpoint);
    if (status == TMSG_ERR_PEER_LOST && writes && !alive) {
        /* The peer may have died while it wrote. */
        if (stranger) {
            tmsg_ucx_doubt(endpoint->ucx);
        } else {
            tmsg_ucx_retire(endpoint->ucx);
        }
    } else if (endpoint->ucx != NULL && endpoint->ucx->retired) {
        tmsg_ucx_watch(endpoint->ucx);
    }
    close_ucx_ep(endpoint, status == TMSG_ERR_CLOSED);
    tmsg_cma_end(endpoint);
    tmsg_loans_end(endpoint);
    tmsg_ipc_end(endpoint);
    tmsg_messages_abandon(endpoint);
    tmsg_bulk_end(endpoint);
    tmsg_fastboxes_end(endpoint);
    tmsg_credit_close(endpoint);
    tmsg_control_discard(endpoint);
}

void tmsg_endpoint_detach(tmsg_endpoint_t *endpoint, bool alive)
{
    endpoint->in_ucx++;
    endpoint->state = TMSG_EP_AWAY;
    cut_connection(endpoint, TMSG_ERR_PEER_LOST, alive);
    tmsg_endpoint_rename(endpoint);
    tmsg_channels_detached(endpoint);
    tmsg_wireup_forget(endpoint);
    tmsg_transport_forget(endpoint);
    tmsg_lease_forget(endpoint);
    tmsg_bulk_forget(endpoint);
    endpoint->broken = TMSG_OK;
    tmsg_close_forget(endpoint);
    tmsg_endpoint_reported(endpoint);
}

/* Returns whether this side gives up to connect, before or after the peer has
 * said who it is. */
static bool gives_up(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    return endpoint->dialling && endpoint->link.connected &&
           (status == TMSG_ERR_CANCELED || status == TMSG_ERR_TIMED_OUT);
}

/* Returns whether the peer is to be told why the connection ends. Otherwise a
 * peer that lives would take for this side's death what is a judgement or a
 * lack of this side, or a failure of UCX. During a handshake a peer that has
 * said who it is hears of every end. An end after which a session tries again
 * is not told. */
static bool is_to_hear(const tmsg_endpoint_t *endpoint, bool stood,
                       tmsg_status_t status)
{
    const tmsg_link_t *link = &endpoint->link;
    bool hung_up = link->source.fd < 0;

    if (status == TMSG_ERR_CLOSED ||
        (status == TMSG_ERR_CANCELED &&
         (stood || !gives_up(endpoint, status))) ||
        link->fd < 0 || link->explained) {
        return false;
    }
    return stood
               ? status != TMSG_ERR_PEER_LOST || !hung_up
               : (link->hello_done || gives_up(endpoint, status)) && !hung_up &&
                     (!endpoint->admit.proved ||
                      tmsg_admit_is_over(endpoint)) &&
                     !endpoint->peer_hello.resumes &&
                     !tmsg_resume_is_away(endpoint);
}

/* Returns the level of the log line. If a connection became a bulk stream, that
 * is an end for this library only. */
static tmsg_log_level_t level_of(const tmsg_endpoint_t *endpoint,
                                 tmsg_status_t status)
{
    if (tmsg_bulk_was_claimed(endpoint)) {
        return TMSG_LOG_DEBUG;
    }
    return status == TMSG_ERR_CLOSED || status == TMSG_ERR_CANCELED
               ? TMSG_LOG_INFO
               : TMSG_LOG_WARN;
}

/* Returns the kind of the log line about the end of a stranger: of a
 * connection that a listener has accepted and that did not get in. */
static tmsg_log_kind_t kind_of_stranger(const tmsg_endpoint_t *endpoint,
                                        tmsg_status_t status)
{
    static const tmsg_log_kind_t kinds[TMSG_TURNED_COUNT] = {
        [TMSG_TURNED_OTHERWISE] = TMSG_LOG_TURNED_AWAY_KIND,
        [TMSG_TURNED_NO_KEY] = TMSG_LOG_NO_KEY_KIND,
        [TMSG_TURNED_WRONG_KEY] = TMSG_LOG_WRONG_KEY_KIND,
        [TMSG_TURNED_OLDER] = TMSG_LOG_OLDER_KIND,
        [TMSG_TURNED_TOO_MANY] = TMSG_LOG_GAVE_WAY_KIND,
    };

    if (endpoint->admit.turned == TMSG_TURNED_OTHERWISE) {
        switch (status) {
        case TMSG_ERR_TIMED_OUT:
            return TMSG_LOG_UNFINISHED_KIND;
        case TMSG_ERR_LIMIT_EXCEEDED:
            return TMSG_LOG_TOO_LONG_KIND;
        case TMSG_ERR_PEER_LOST:
            return TMSG_LOG_HUNG_UP_KIND;
        case TMSG_ERR_MALFORMED:
            return endpoint->link.hello_done ? TMSG_LOG_TURNED_AWAY_KIND
                                             : TMSG_LOG_FOREIGN_KIND;
        default:
            break;
        }
    }
    return kinds[endpoint->admit.turned];
}

static tmsg_log_kind_t kind_of_end(const tmsg_endpoint_t *endpoint, bool stood,
                                   tmsg_status_t status)
{
    if (status == TMSG_ERR_CLOSED || status == TMSG_ERR_CANCELED) {
        return TMSG_LOG_CLOSED_KIND;
    }
    if (!stood && endpoint->link.listener != NULL) {
        return kind_of_stranger(endpoint, status);
    }
    return !stood && endpoint->dialling ? TMSG_LOG_DIALLED_KIND
                                        : TMSG_LOG_BROKEN_KIND;
}

static void copy_end(tmsg_endpoint_t *face, const tmsg_endpoint_t *heir)
{
    face->status = heir->status;
    memcpy(face->error, heir->error, sizeof(face->error));
}

/* Gives the end of the last endpoint of a handle to its face, and tells the
 * application of it. */
static void end_face(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_t *face = endpoint->face;

    if (tmsg_endpoint_now(face) != endpoint) {
        return; /* it does not stand for the handle, or not any more */
    }
    if (face != endpoint) {
        copy_end(face, endpoint);
    }
    tell_closed(face);
}

/* Notes why the endpoint ends. What is under way with a session that is over
 * may have been taken. */
static void note_end(tmsg_endpoint_t *endpoint, bool stood,
                     tmsg_status_t status, const char *error, bool goes_on)
{
    char whom[TMSG_LOG_WHOM_BYTES], words[TMSG_ERROR_BYTES];

    endpoint->state = TMSG_EP_ENDED;
    if (goes_on) {
        endpoint->status = TMSG_ERR_PEER_LOST;
        snprintf(words, sizeof(words),
                 "what was under way with the old session may have been taken "
                 "or not: %s",
                 error);
        name_error(endpoint, true, TMSG_ERR_PEER_LOST, words);
        return;
    }
    endpoint->status = status;
    name_error(endpoint, stood, status, error);
    tmsg_log_of(kind_of_end(endpoint, stood, status),
                tmsg_endpoint_whom(endpoint, whom), level_of(endpoint, status),
                "%s", endpoint->error);
}

void tmsg_endpoint_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *error)
{
    bool stood =
        endpoint->state == TMSG_EP_OPEN || endpoint->state == TMSG_EP_CLOSING;
    tmsg_endpoint_t *heir;

    if (endpoint->state == TMSG_EP_ENDED ||
        tmsg_resume_catches(endpoint, &status, error) ||
        tmsg_redial_catches(endpoint, status, error)) {
        return;
    }
    endpoint->in_ucx++; /* keeps it in the table until this has ended */
    heir = tmsg_heir_create(endpoint, status, error);
    note_end(endpoint, stood, status, error, heir != NULL);
    status = endpoint->status;
    if (is_to_hear(endpoint, stood, status)) {
        tmsg_handshake_tell(
            endpoint, status,
            status == TMSG_ERR_CANCELED ? "it gave up connecting" : error);
    }
    tmsg_resume_end(endpoint, status, error);
    cut_connection(endpoint, status, false);
    if (heir != NULL) {
        tmsg_succession(heir, endpoint);
    }
    tmsg_sends_end(endpoint);
    tmsg_events_end(&endpoint->events.ready, status, endpoint->error);
    tmsg_ping_end(endpoint, status, endpoint->error);
    tmsg_events_end(&endpoint->events.close,
                    status == TMSG_ERR_CLOSED ? TMSG_OK : status,
                    endpoint->error);
    tmsg_call_ended(endpoint);
    tmsg_presence_ended(endpoint);
    if (heir == NULL) {
        end_face(endpoint);
    }
    tmsg_worker_arrived(endpoint->worker);
    tmsg_accept_ended(endpoint);
    tmsg_subscribers_ended(endpoint);
    tmsg_endpoint_reported(endpoint);
}

/* Ends the endpoint that stands for a handle which is given back. Who waits by
 * the handle sees its end. */
static void release_heir(tmsg_endpoint_t *face, tmsg_endpoint_t *heir)
{
    tmsg_endpoint_hold(heir);
    tmsg_endpoint_release(heir);
    copy_end(face, heir);
    tmsg_endpoint_drop(heir);
}

void tmsg_endpoint_release(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_t *heir = tmsg_endpoint_now(endpoint);

    endpoint->handle = false;
    endpoint->keeper = NULL;
    tmsg_messages_discard(endpoint); /* loans go back by the heir's socket */
    if (heir != endpoint) {
        release_heir(endpoint, heir);
    } else if (tmsg_endpoint_heir(endpoint) == endpoint) {
        endpoint->face->now = endpoint->face;
    }
    tmsg_endpoint_end(endpoint, TMSG_ERR_CANCELED, "closed by this side");
    tmsg_endpoint_forget(endpoint);
    tmsg_endpoint_drop(endpoint);
}

tmsg_status_t tmsg_endpoint_abort(tmsg_endpoint_t *endpoint,
                                  tmsg_status_t status, const char *why)
{
    tmsg_worker_t *worker = endpoint->worker;
    char words[WORDS_BYTES + 1], error[WORDS_BYTES + 64];
    tmsg_status_t gone;

    if (tmsg_control_failure(status) != status || why == NULL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            why == NULL
                ? "abort: why is NULL"
                : "abort: status %d is not a failure that a peer can be told",
            status);
    }
    gone = tmsg_endpoint_check_worker(endpoint);
    if (gone != TMSG_OK) {
        return gone;
    }
    tmsg_shown_format(words, sizeof(words), "%s", why);
    snprintf(error, sizeof(error), "closed at once by this side: %s", words);
    tmsg_worker_lock(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    if (endpoint->state != TMSG_EP_ENDED) {
        endpoint->face->told = true; /* our side knows already */
        if (endpoint->link.fd >= 0 && endpoint->link.connected) {
            tmsg_handshake_tell(endpoint, status, words);
        }
        tmsg_endpoint_end(endpoint, TMSG_ERR_CANCELED, error);
    }
    tmsg_worker_unlock(worker);
    return TMSG_OK;
}
