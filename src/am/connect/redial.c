/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/redial.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "am/connect/link.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/log.h"
#include "am/endpoint/scheme.h"
#include "am/endpoint/session.h"
#include "am/path/bulk.h"
#include "am/worker/engine.h"
#include "core/error.h"
#include "core/shown.h"

#define REDIALS_MOST 2 /* most attempts after the first, for a connection */
#define WAIT_MS 10     /* before the first attempt of who had no place */
#define WAIT_MOST_MS 160
#define DOUBLINGS_MOST 20
/* The pauses while nobody listens, and the limit of an attempt if all of them
 * together have none. */
#define NOBODY_MS 10
#define NOBODY_MOST_MS 250
#define ATTEMPT_MS 10000

/* Returns whether UCX alone failed: the peer says so, or UCX failed here and
 * the peer is still there. A fault of the peer itself, such as its silence,
 * ends an endpoint without breaking it first. */
static bool is_by_ucx(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;

    return link->refused || (endpoint->broken == TMSG_ERR_PEER_LOST &&
                             link->source.fd >= 0 && !link->explained);
}

static bool may_be_dialled(const tmsg_endpoint_t *endpoint)
{
    return endpoint->dialling && !tmsg_bulk_took_socket(endpoint) &&
           !endpoint->conn.began_wireup &&
           endpoint->state == TMSG_EP_CONNECTING && endpoint->link.hello_done &&
           !tmsg_resume_is_away(endpoint) &&
           endpoint->conn.redials < REDIALS_MOST &&
           tmsg_schemes[endpoint->link.url.kind]->sessions;
}

static bool dial_anew(tmsg_endpoint_t *endpoint, const char *why)
{
    int left_ms = tmsg_link_left_ms(endpoint);

    if (left_ms == 0) {
        return false;
    }
    if (endpoint->conn.redials == 0) {
        tmsg_shown_format(endpoint->conn.redial_why,
                          sizeof(endpoint->conn.redial_why), "%s", why);
    }
    endpoint->conn.redials++;
    tmsg_endpoint_log(endpoint, TMSG_LOG_ATTEMPT_KIND, TMSG_LOG_INFO,
                      "dialled again: %s", why);
    tmsg_engine.detach(endpoint, true);
    tmsg_link_set_deadline(endpoint, left_ms); /* also the time of being away */
    tmsg_worker_chore(endpoint->worker, endpoint);
    return true;
}

/* Returns whether the listener had no place for this connection, which may be
 * over in a moment. A session has its own attempts. */
static bool had_no_place(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    return status == TMSG_ERR_BUSY && endpoint->link.refused &&
           endpoint->dialling && endpoint->state == TMSG_EP_CONNECTING &&
           !endpoint->conn.began_wireup && !tmsg_bulk_took_socket(endpoint) &&
           !tmsg_resume_is_away(endpoint) &&
           tmsg_schemes[endpoint->link.url.kind]->socket;
}

uint64_t tmsg_redial_pause_ms(uint32_t first_ms, uint32_t most_ms,
                              unsigned attempts)
{
    unsigned doublings = attempts < DOUBLINGS_MOST ? attempts : DOUBLINGS_MOST;
    uint64_t ms = (uint64_t)first_ms << doublings;

    if (ms > most_ms) {
        ms = most_ms;
    }
    return ms - randombytes_uniform((uint32_t)(ms / 2 + 1));
}

static void wait_over(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, conn.again);

    tmsg_worker_chore(endpoint->worker, endpoint);
}

/* Returns how long an endless wait lets an attempt take, else what is left of
 * the time for all attempts. */
static int attempt_ms(const tmsg_endpoint_t *endpoint)
{
    return endpoint->conn.awaited.endless ? ATTEMPT_MS
                                          : tmsg_link_left_ms(endpoint);
}

/* Dials once more after a while, within `left_ms`. */
static void dial_later(tmsg_endpoint_t *endpoint, uint64_t wait_ms, int left_ms,
                       bool alive)
{
    tmsg_endpoint_conn_t *conn = &endpoint->conn;

    tmsg_engine.detach(endpoint, alive);
    if (!conn->awaited.endless) {
        tmsg_link_set_deadline(endpoint, left_ms); /* also of the pause */
    }
    conn->again.expired = wait_over;
    tmsg_loop_set_timer(&endpoint->worker->loop, &conn->again, wait_ms);
}

/* Dials once more after a while, which grows with each attempt. */
static bool wait_for_place(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_conn_t *conn = &endpoint->conn;
    uint64_t wait_ms = tmsg_redial_pause_ms(WAIT_MS, WAIT_MOST_MS, conn->waits);
    int left_ms = attempt_ms(endpoint);

    if (left_ms == 0) {
        return false;
    }
    conn->waits++;
    conn->awaited.attempts = 0; /* somebody listens */
    dial_later(endpoint, wait_ms, left_ms, true);
    return true;
}

bool tmsg_redial_met_nobody(const tmsg_endpoint_t *endpoint,
                            tmsg_status_t status)
{
    const tmsg_link_t *link = &endpoint->link;

    switch (status) {
    case TMSG_ERR_UNREACHABLE:
    case TMSG_ERR_NOT_FOUND:
        return !link->connected;
    case TMSG_ERR_PEER_LOST:
        return !link->refused;
    default:
        return false;
    }
}

int tmsg_redial_await(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_awaited_t *awaited = &endpoint->conn.awaited;

    awaited->asked = true;
    awaited->endless = timeout_ms < 0;
    awaited->since_ns = tmsg_now_ns();
    return awaited->endless ? ATTEMPT_MS : timeout_ms;
}

static double seconds_awaited(const tmsg_awaited_t *awaited)
{
    return (double)(tmsg_now_ns() - awaited->since_ns) / 1e9;
}

/* Returns whether the wait for a listener goes on after an attempt that ends
 * so. */
static bool is_awaited(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    const tmsg_awaited_t *awaited = &endpoint->conn.awaited;

    return awaited->asked && endpoint->state == TMSG_EP_CONNECTING &&
           (tmsg_redial_met_nobody(endpoint, status) ||
            (awaited->endless &&
             (status == TMSG_ERR_TIMED_OUT || status == TMSG_ERR_BUSY)));
}

static bool wait_for_somebody(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                              const char *why)
{
    tmsg_endpoint_conn_t *conn = &endpoint->conn;
    tmsg_awaited_t *awaited = &conn->awaited;
    int left_ms = attempt_ms(endpoint);

    if (left_ms == 0) {
        return false;
    }
    if (awaited->attempts == 0 || awaited->status != status) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_ATTEMPT_KIND, TMSG_LOG_INFO,
                          "waiting until somebody listens: %s", why);
    }
    awaited->status = status;
    tmsg_shown_format(awaited->why, sizeof(awaited->why), "%s", why);
    dial_later(
        endpoint,
        tmsg_redial_pause_ms(NOBODY_MS, NOBODY_MOST_MS, awaited->attempts),
        left_ms, status != TMSG_ERR_PEER_LOST);
    awaited->attempts++;
    conn->redials = 0; /* it may be another process that listens then */
    conn->waits = 0;
    tmsg_worker_changed(endpoint->worker);
    return true;
}

bool tmsg_redial_waited_in_vain(tmsg_endpoint_t *endpoint)
{
    const tmsg_awaited_t *awaited = &endpoint->conn.awaited;
    char why[sizeof(awaited->why)];

    if (awaited->attempts == 0 || awaited->endless ||
        endpoint->link.connected) {
        return false;
    }
    memcpy(why, awaited->why, sizeof(why));
    tmsg_engine.end(endpoint, awaited->status, why);
    return true;
}

const char *tmsg_redial_words(const tmsg_endpoint_t *endpoint)
{
    static _Thread_local char words[TMSG_ERROR_BYTES];
    const tmsg_awaited_t *awaited = &endpoint->conn.awaited;

    if (awaited->attempts == 0 || endpoint->state == TMSG_EP_ENDED) {
        return "";
    }
    tmsg_shown_format(words, sizeof(words),
                      "%s: nobody has listened for %.1f s: %s", endpoint->peer,
                      seconds_awaited(awaited), awaited->why);
    return words;
}

void tmsg_redial_over(tmsg_endpoint_t *endpoint)
{
    endpoint->conn.awaited = (tmsg_awaited_t){.asked = false};
}

size_t tmsg_redial_lead(const tmsg_endpoint_t *endpoint, tmsg_status_t status,
                        char *text, size_t bytes)
{
    const tmsg_awaited_t *awaited = &endpoint->conn.awaited;

    if (awaited->attempts == 0 || !tmsg_redial_met_nobody(endpoint, status)) {
        return 0;
    }
    return (size_t)snprintf(
        text, bytes, "nobody listened for %.1f s: ", seconds_awaited(awaited));
}

bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why)
{
    if (had_no_place(endpoint, status)) {
        return wait_for_place(endpoint);
    }
    if (status == TMSG_ERR_PEER_LOST && may_be_dialled(endpoint) &&
        is_by_ucx(endpoint) && dial_anew(endpoint, why)) {
        return true;
    }
    return is_awaited(endpoint, status) &&
           wait_for_somebody(endpoint, status, why);
}

bool tmsg_redial_found_no_place(const tmsg_endpoint_t *endpoint)
{
    return endpoint->conn.waits > 0 && !endpoint->link.hello_done &&
           !tmsg_resume_is_away(endpoint);
}

bool tmsg_redial_halfway(tmsg_endpoint_t *endpoint, const char *why)
{
    return endpoint->conn.redials == 0 && endpoint->link.address_done &&
           may_be_dialled(endpoint) && dial_anew(endpoint, why);
}

void tmsg_redial_settled(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    if (endpoint->conn.again.deadline_ns != 0) {
        return; /* its time has not come */
    }
    endpoint->state = TMSG_EP_CONNECTING;
    status = tmsg_link_redial(endpoint, attempt_ms(endpoint));
    if (status != TMSG_OK) {
        tmsg_engine.end(endpoint, status, tmsg_error_message());
    }
}

tmsg_status_t tmsg_redial_recognize(const tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs)
{
    if (endpoint->conn.redials > 0 && !endpoint->conn.awaited.asked &&
        memcmp(theirs->instance_id, endpoint->peer_hello.instance_id,
               sizeof(theirs->instance_id)) != 0) {
        return tmsg_error_set(TMSG_ERR_PEER_LOST,
                              "another process answers: pid %u on %s",
                              theirs->pid, theirs->host);
    }
    return TMSG_OK;
}

void tmsg_redial_explain(const tmsg_endpoint_t *endpoint, char *text,
                         size_t bytes)
{
    if (endpoint->conn.redials > 0) {
        snprintf(text, bytes, " (attempt %u; the first: %s)",
                 endpoint->conn.redials + 1u, endpoint->conn.redial_why);
    } else if (endpoint->conn.waits > 0) {
        snprintf(text, bytes,
                 " (the listener had no free place for it %u times)",
                 endpoint->conn.waits);
    }
}
