/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/session/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/connect/ping.h"
#include "am/connect/redial.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/log.h"
#include "am/endpoint/session.h"
#include "am/endpoint/session_ops.h"
#include "am/listen/listener.h"
#include "am/send/fragments.h"
#include "am/session/told.h"
#include "am/worker/engine.h"
#include "core/shown.h"

#define FIRST_BACKOFF_MS 100
#define MOST_BACKOFF_MS 5000
#define GIVE_UP_MS 60000
#define NS_PER_MS UINT64_C(1000000)

static void copy_words(char *to, size_t bytes, const char *from)
{
    tmsg_shown_format(to, bytes, "%s", from);
}

static tmsg_status_t create_session(tmsg_endpoint_t *endpoint, uint32_t keep_ms)
{
    tmsg_resume_t *resume = calloc(1, sizeof(*resume));

    if (resume == NULL) {
        return tmsg_error_memory("a session");
    }
    resume->endpoint = endpoint;
    resume->keep_ms = keep_ms;
    resume->sessions = 1;
    endpoint->resume = resume;
    return TMSG_OK;
}

void tmsg_resume_free(tmsg_endpoint_t *endpoint)
{
    if (endpoint->resume != NULL) {
        if (endpoint->resume->before != NULL) {
            tmsg_endpoint_drop(endpoint->resume->before);
        }
        free(endpoint->resume->told_spare);
        free(endpoint->resume->asked);
        free(endpoint->resume);
    }
}

static int32_t or_default(int32_t value, int32_t usual)
{
    return value == 0 ? usual : value;
}

tmsg_status_t tmsg_resume_request(tmsg_endpoint_t *endpoint,
                                  const tmsg_reconnect_t *params,
                                  uint32_t flags, int connect_timeout_ms)
{
    int32_t give_up_ms = or_default(params->give_up_ms, GIVE_UP_MS);
    tmsg_resume_t *resume;
    tmsg_status_t status;

    if (params->first_backoff_ms < 0 || params->most_backoff_ms < 0 ||
        give_up_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "reconnect: first_backoff_ms %d, "
                              "most_backoff_ms %d, give_up_ms %d",
                              params->first_backoff_ms, params->most_backoff_ms,
                              params->give_up_ms);
    }
    /* A give_up_ms of -1 keeps the session for ever. */
    status = create_session(endpoint, (uint32_t)give_up_ms);
    if (status != TMSG_OK) {
        return status;
    }
    resume = endpoint->resume;
    resume->first_backoff_ms =
        or_default(params->first_backoff_ms, FIRST_BACKOFF_MS);
    resume->most_backoff_ms =
        or_default(params->most_backoff_ms, MOST_BACKOFF_MS);
    resume->connect_timeout_ms = connect_timeout_ms;
    resume->same_process = (flags & TMSG_ENDPOINT_SAME_PROCESS) != 0;
    return TMSG_OK;
}

void tmsg_resume_hello(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello)
{
    const tmsg_resume_t *resume = endpoint->resume;

    if (resume != NULL) {
        hello->resume_ms = resume->keep_ms;
        hello->resumes = endpoint->dialling && tmsg_resume_goes_on(endpoint);
    }
}

/* Marks the session as over, and tells the peer, who has done nothing wrong, in
 * other words than this side's. Returns PEER_LOST, which the thread's error
 * message explains. */
static tmsg_status_t no_way_back(tmsg_resume_t *resume)
{
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    resume->over = true;
    resume->at_once = true;
    tmsg_handshake_tell(resume->endpoint, TMSG_ERR_CANCELED,
                        "it looked for a session that is not kept here");
    return tmsg_error_set(TMSG_ERR_PEER_LOST, "%s", why);
}

static void give_up_session(tmsg_resume_t *resume)
{
    tmsg_endpoint_t *endpoint = resume->endpoint;
    double seconds = (double)(tmsg_now_ns() - resume->broke_ns) / 1e9;
    char why[TMSG_ERROR_BYTES];

    if (endpoint->dialling) {
        snprintf(
            why, sizeof(why), "gave up after %u attempts in %.1f s%s%s: %s",
            resume->attempts, seconds,
            resume->latest[0] == '\0' ? "" : ", the latest: ", resume->latest,
            resume->broke);
    } else {
        snprintf(why, sizeof(why), "it did not come back within %.1f s: %s",
                 seconds, resume->broke);
    }
    resume->over = true;
    resume->final = true;
    tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
}

static void session_over(tmsg_timer_t *timer)
{
    give_up_session(TMSG_CONTAINER_OF(timer, tmsg_resume_t, end));
}

static void set_end(tmsg_resume_t *resume, uint64_t ms)
{
    if (resume->keep_ms != TMSG_RESUME_FOR_EVER) {
        resume->end.expired = session_over;
        tmsg_loop_set_timer(&resume->endpoint->worker->loop, &resume->end, ms);
    }
}

/* Begins the time without a connection. If the last connection stood for a
 * while, the attempts count from 0 again. If connections break again and again,
 * the count goes on, so that they are not dialled ever faster. */
static void begin_absence(tmsg_resume_t *resume, const char *error)
{
    uint64_t now = tmsg_now_ns();
    uint64_t stood = now - resume->opened_ns;

    if (stood > (uint64_t)resume->most_backoff_ms * NS_PER_MS) {
        resume->attempts = 0;
    }
    resume->away = true;
    resume->broke_ns = now;
    resume->latest[0] = '\0';
    copy_words(resume->broke, sizeof(resume->broke), error);
    resume->fetch_failures =
        resume->fetch_failed ? resume->fetch_failures + 1 : 0;
    set_end(resume, resume->keep_ms);
    tmsg_endpoint_log(
        resume->endpoint, TMSG_LOG_AWAY_KIND, TMSG_LOG_WARN, "%s; %s", error,
        resume->endpoint->dialling ? "reconnecting"
                                   : "waiting for it to come back");
    tmsg_session_tell(resume->endpoint, TMSG_SESSION_AWAY, error);
}

/* Stops fragments that have not been handed over, because they belong to this
 * connection. A message that is sent again makes its fragments anew. */
static void stop_fragments(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *next, *node = endpoint->posted.head;

    for (; node != NULL; node = next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        next = node->next;
        if (tmsg_fragments_pending(send)) {
            tmsg_fragments_stop(send);
            tmsg_send_settle(send);
        }
    }
}

static void go_away(tmsg_endpoint_t *endpoint, const char *error)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (!resume->away) {
        begin_absence(resume, error);
    } else if (endpoint->state != TMSG_EP_AWAY) {
        copy_words(resume->latest, sizeof(resume->latest), error);
        tmsg_endpoint_log(endpoint, TMSG_LOG_ATTEMPT_KIND, TMSG_LOG_INFO,
                          "attempt %u: %s", resume->attempts, error);
    }
    resume->asking = false;
    tmsg_ping_lost(endpoint, error);
    tmsg_engine.detach(endpoint, false);
    stop_fragments(endpoint);
    tmsg_worker_changed(endpoint->worker);
    tmsg_worker_chore(endpoint->worker, endpoint);
}

/* Returns whether the reason of a refusal may be over in a moment. */
static bool is_passing(tmsg_status_t status)
{
    return status == TMSG_ERR_BUSY || status == TMSG_ERR_NO_MEMORY ||
           status == TMSG_ERR_IO || status == TMSG_ERR_TIMED_OUT ||
           status == TMSG_ERR_LIMIT_EXCEEDED;
}

/* Returns whether a broken connection ends the endpoint. A dialled side that
 * has said FIN has nothing left to wait for: the dialling side may have closed
 * in order. */
static bool is_final(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    return status != TMSG_ERR_PEER_LOST ||
           (endpoint->fin_sent && !endpoint->dialling);
}

/* Returns whether another attempt may find what this one did not: somebody who
 * listens, and has room. */
static bool may_try_again(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    const tmsg_resume_t *resume = endpoint->resume;

    return resume != NULL && resume->beginning && !resume->over &&
           (status == TMSG_ERR_UNREACHABLE || status == TMSG_ERR_NOT_FOUND ||
            status == TMSG_ERR_PEER_LOST || status == TMSG_ERR_UNAVAILABLE ||
            is_passing(status));
}

bool tmsg_resume_catches(tmsg_endpoint_t *endpoint, tmsg_status_t *status_p,
                         const char *why)
{
    tmsg_resume_t *resume = endpoint->resume;
    char error[TMSG_ERROR_BYTES];

    if (may_try_again(endpoint, *status_p)) {
        copy_words(error, sizeof(error), why);
        go_away(endpoint, error);
        return true;
    }
    if (resume == NULL || !resume->agreed || *status_p == TMSG_ERR_CANCELED ||
        *status_p == TMSG_ERR_CLOSED) {
        return false;
    }
    /* Junk instead of a hello or a proof may be anybody's. After both, it is
     * the peer's. */
    resume->over |= *status_p == TMSG_ERR_MALFORMED &&
                    endpoint->link.hello_done && tmsg_admit_is_over(endpoint);
    if (resume->over) {
        *status_p = resume->away ? TMSG_ERR_PEER_LOST : *status_p;
        return false;
    }
    if (!resume->away && is_final(endpoint, *status_p)) {
        resume->over = true;
        return false;
    }
    copy_words(error, sizeof(error), why); /* `why` may lie in the endpoint */
    go_away(endpoint, error);
    return true;
}

void tmsg_resume_forgo(tmsg_endpoint_t *endpoint)
{
    if (tmsg_resume_is_away(endpoint)) {
        endpoint->resume->agreed = false;
        endpoint->resume->over = true;
    }
}

void tmsg_resume_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                     const char *error)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (resume == NULL) {
        return;
    }
    if (status == TMSG_ERR_MALFORMED) {
        tmsg_resume_disown(endpoint, error);
    }
    tmsg_loop_clear_timer(&endpoint->worker->loop, &resume->again);
    tmsg_loop_clear_timer(&endpoint->worker->loop, &resume->end);
    if (resume->agreed && status != TMSG_ERR_CLOSED && endpoint->link.fd >= 0 &&
        endpoint->link.connected && !endpoint->link.explained) {
        tmsg_handshake_tell(endpoint, TMSG_ERR_PEER_LOST,
                            status == TMSG_ERR_CANCELED
                                ? "its application closed it at once"
                                : error);
    }
    resume->over = true;
}

static void try_again(tmsg_timer_t *timer)
{
    tmsg_resume_t *resume = TMSG_CONTAINER_OF(timer, tmsg_resume_t, again);
    tmsg_endpoint_t *endpoint = resume->endpoint;
    tmsg_status_t status;

    resume->attempts++;
    endpoint->state = TMSG_EP_CONNECTING;
    status = tmsg_link_redial(endpoint, resume->connect_timeout_ms);
    if (status != TMSG_OK) {
        tmsg_engine.end(endpoint, status, tmsg_error_message());
    }
}

static uint64_t backoff_ms(tmsg_resume_t *resume)
{
    if (resume->at_once) {
        resume->at_once = false;
        return 0;
    }
    return tmsg_redial_pause_ms((uint32_t)resume->first_backoff_ms,
                                (uint32_t)resume->most_backoff_ms,
                                resume->attempts);
}

/* Has all connections looked at again that wait for a session or its end. */
static void call_waiting(const tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        if (endpoint->resume != NULL && endpoint->resume->asked != NULL) {
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
    }
}

/* Lets go of the endpoint whose place this one takes, when UCX has nothing of
 * it any more. Returns false as long as it has. */
static bool follow(const tmsg_endpoint_t *endpoint)
{
    tmsg_resume_t *resume = endpoint->resume;
    tmsg_endpoint_t *before = resume == NULL ? NULL : resume->before;

    if (before == NULL) {
        return true;
    }
    if (before->in_ucx > 0) {
        return false;
    }
    if (before->ucx != NULL) {
        before->ucx->users--;
        before->ucx = NULL;
    }
    resume->before = NULL;
    tmsg_endpoint_drop(before);
    return true;
}

void tmsg_resume_settled(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = endpoint->worker;

    if (endpoint->state != TMSG_EP_AWAY || endpoint->in_ucx > 0) {
        return;
    }
    tmsg_credit_reset(endpoint);
    if (endpoint->ucx != NULL) {
        endpoint->ucx->users--;
        endpoint->ucx = NULL;
    }
    if (!follow(endpoint)) {
        return;
    }
    if (!tmsg_resume_is_away(endpoint)) {
        tmsg_redial_settled(endpoint);
    } else if (!endpoint->dialling) {
        call_waiting(worker);
    } else if (endpoint->resume->again.deadline_ns == 0) {
        endpoint->resume->again.expired = try_again;
        tmsg_loop_set_timer(&worker->loop, &endpoint->resume->again,
                            backoff_ms(endpoint->resume));
    }
}

static void begin_session(tmsg_endpoint_t *endpoint)
{
    tmsg_resume_t *resume = endpoint->resume;

    resume->opened_ns = tmsg_now_ns();
    if (endpoint->peer_hello.resume_ms == 0) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_WITHOUT_KIND, TMSG_LOG_INFO,
                          "the peer keeps no session: if the connection "
                          "breaks, that is the end");
        return;
    }
    resume->agreed = true;
    memcpy(resume->id, endpoint->token, sizeof(resume->id));
    memcpy(resume->peer, endpoint->peer_hello.instance_id,
           sizeof(resume->peer));
}

/* Begins the session of an endpoint that has taken another's place. */
static void begin_anew(tmsg_endpoint_t *endpoint)
{
    tmsg_resume_t *resume = endpoint->resume;
    bool other = memcmp(resume->peer, endpoint->peer_hello.instance_id,
                        sizeof(resume->peer)) != 0;
    char words[TMSG_ERROR_BYTES];

    tmsg_loop_clear_timer(&endpoint->worker->loop, &resume->end);
    resume->away = false;
    resume->beginning = false;
    resume->sessions++;
    begin_session(endpoint);
    snprintf(words, sizeof(words),
             "%sa new session with pid %u on %s; %zu sends and %zu calls ended "
             "with the old one, %zu went over",
             other ? "restarted: " : "", endpoint->peer_hello.pid,
             endpoint->peer_hello.host, resume->lost.sends, resume->lost.calls,
             resume->lost.moved);
    tmsg_endpoint_log(endpoint, TMSG_LOG_CONNECTED_KIND, TMSG_LOG_WARN, "%s",
                      words);
    tmsg_session_tell(endpoint, TMSG_SESSION_NEW, words);
}

tmsg_status_t tmsg_resume_inherit(tmsg_endpoint_t *heir, tmsg_endpoint_t *old,
                                  const char *error)
{
    const tmsg_resume_t *from = old->resume;
    uint64_t now = tmsg_now_ns();
    tmsg_resume_t *resume;
    uint64_t gone_ms;
    tmsg_status_t status = create_session(heir, from->keep_ms);

    if (status != TMSG_OK) {
        return status;
    }
    resume = heir->resume;
    resume->first_backoff_ms = from->first_backoff_ms;
    resume->most_backoff_ms = from->most_backoff_ms;
    resume->connect_timeout_ms = from->connect_timeout_ms;
    resume->sessions = from->sessions;
    memcpy(resume->peer, old->peer_hello.instance_id, sizeof(resume->peer));
    resume->beginning = true;
    if (!from->away) {
        begin_absence(resume, error);
        resume->attempts = now - from->opened_ns > // a crash loop
                                   (uint64_t)from->most_backoff_ms * NS_PER_MS
                               ? 0
                               : from->attempts;
    } else {
        gone_ms = (now - from->broke_ns) / NS_PER_MS;
        resume->away = true;
        resume->broke_ns = from->broke_ns;
        resume->attempts = from->attempts;
        copy_words(resume->broke, sizeof(resume->broke), from->broke);
        copy_words(resume->latest, sizeof(resume->latest), error);
        set_end(resume, gone_ms < from->keep_ms ? from->keep_ms - gone_ms : 0);
    }
    resume->at_once = from->at_once;
    resume->before = old;
    tmsg_endpoint_hold(old);
    heir->state = TMSG_EP_AWAY;
    tmsg_worker_chore(heir->worker, heir);
    return TMSG_OK;
}

void tmsg_resume_opened(tmsg_endpoint_t *endpoint)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (resume == NULL) {
        return;
    }
    resume->stood = true;
    if (!resume->away) {
        begin_session(endpoint);
        return;
    }
    if (resume->beginning) {
        begin_anew(endpoint);
        return;
    }
    tmsg_loop_clear_timer(&endpoint->worker->loop, &resume->end);
    resume->away = false;
    resume->opened_ns = tmsg_now_ns();
    resume->fetch_failed = false;
    resume->times++;
    tmsg_endpoint_log(endpoint, TMSG_LOG_CONNECTED_KIND, TMSG_LOG_INFO,
                      "connected again, %zu messages are sent again",
                      resume->again_count);
    tmsg_session_tell(endpoint, TMSG_SESSION_BACK, "connected again");
}

void tmsg_resume_refused(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (resume != NULL && resume->agreed &&
        !(resume->away && is_passing(status))) {
        resume->over = true;
        resume->final =
            status != TMSG_ERR_PEER_LOST && status != TMSG_ERR_UNAVAILABLE;
        resume->at_once = resume->away && status == TMSG_ERR_PEER_LOST;
    }
}

/* Checks that the process that has come after the old one is of the same
 * principal. */
static tmsg_status_t check_principal(const tmsg_endpoint_t *endpoint)
{
    const char *old = endpoint->face->admit.principal;
    const char *new = endpoint->admit.principal;

    if (old == NULL || (new != NULL &&strcmp(old, new) == 0)) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INSECURE,
                          "the peer was restarted: it was '%s', and has proved "
                          "to be '%s'",
                          old, new == NULL ? "nobody" : new);
}

static tmsg_status_t recognize_dialled(tmsg_endpoint_t *endpoint,
                                       const tmsg_hello_t *theirs)
{
    tmsg_resume_t *resume = endpoint->resume;

    if (resume == NULL || !resume->away) {
        return TMSG_OK;
    }
    if (resume->beginning) {
        return check_principal(endpoint);
    }
    if (memcmp(theirs->instance_id, resume->peer, sizeof(resume->peer)) != 0) {
        tmsg_error_set(TMSG_ERR_PEER_LOST,
                       "the peer was restarted: now pid %u on %s answers",
                       theirs->pid, theirs->host);
        return no_way_back(resume);
    }
    if (theirs->resume_ms == 0) {
        tmsg_error_set(TMSG_ERR_PEER_LOST,
                       "the peer's listener keeps no sessions any more");
        return no_way_back(resume);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_resume_recognize(tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs)
{
    uint32_t keep_ms;

    if (endpoint->dialling) {
        return recognize_dialled(endpoint, theirs);
    }
    keep_ms = endpoint->link.listener->resume_ms;
    return theirs->resumes || (keep_ms != 0 && theirs->resume_ms != 0)
               ? create_session(endpoint, keep_ms)
               : TMSG_OK;
}

const tmsg_session_ops_t tmsg_session_ops = {
    .hello = tmsg_resume_hello,
    .recognize = tmsg_resume_recognize,
    .ask = tmsg_resume_ask,
    .asked = tmsg_resume_asked,
    .granted = tmsg_resume_granted,
    .refused = tmsg_resume_refused,
};
