/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles UCX workers that have lost a peer of shared memory. All peers write
 * into one queue (the receive FIFO of UCX's mm transports). A process may be
 * killed after it took a place there and before it filled the place. It then
 * leaves a hole at which UCX waits for ever, and with UCX everybody who writes
 * there. A message of our own through the same queue, the probe, finds out
 * whether there is a hole. */
#include "am/engine/retire.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/connect/handshake.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/endpoint/transport.h"
#include "am/engine/endpoint_end.h"
#include "am/engine/progress.h"
#include "am/listen/backlog.h"
#include "am/ucx/linger.h"
#include "am/ucx/ucx_am.h"
#include "am/ucx/ucx_ep.h"
#include "core/log.h"

/* Two looks for the probe are this far apart. */
#define PROBE_MS 50
/* The queue is called blocked after at least this many looks without the
 * probe. */
#define PROBE_LOOKS 20
/* A look tries at most this often to find room in a busy queue. */
#define POST_TRIES 1000
/* Strangers cause a UCX worker to be retired this often at most. */
#define DOUBT_MS UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
/* UCX has this long to report on its own. */
#define GIVE_UP_MS 1000

struct tmsg_probe {
    tmsg_ucx_t *ucx;  /* uses shared memory alone; only progressed here */
    tmsg_ucx_ep_t ep; /* connects to the retired UCX worker */
    uint8_t message[TMSG_PREAMBLE_BYTES + TMSG_TOKEN_BYTES];
    bool posted;
    unsigned looks;
    bool heard;
    /* Tells that there was no look yet, or none since another peer was lost. */
    bool fresh;
    /* Tells that somebody's message came through since the last look. */
    bool passed;
};

void tmsg_probe_close(tmsg_ucx_t *ucx)
{
    if (ucx->probe != NULL) {
        tmsg_ucx_close(ucx->probe->ucx);
        free(ucx->probe);
        ucx->probe = NULL;
    }
}

static void close_retired_ucx(tmsg_worker_t *worker, tmsg_ucx_t *ucx)
{
    tmsg_ucx_t **place = &worker->ucx;

    while (*place != ucx) {
        place = &(*place)->next;
    }
    *place = ucx->next;
    tmsg_loop_remove(&worker->loop, &ucx->source);
    tmsg_loop_clear_timer(&worker->loop, &ucx->watch);
    tmsg_loop_clear_timer(&worker->loop, &ucx->linger);
    tmsg_probe_close(ucx);
    worker->inside = true; /* UCX may report some operations now, or never */
    tmsg_ucx_close(ucx);
    worker->inside = false;
}

static tmsg_ucx_status_t ignore_message(void *arg, const void *header,
                                        size_t header_bytes, void *data,
                                        size_t data_bytes,
                                        const tmsg_ucx_am_info_t *info)
{
    (void)arg;
    (void)header;
    (void)header_bytes;
    (void)data;
    (void)data_bytes;
    return tmsg_ucx_am_is_rendezvous(info) ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
}

/* Connects the probe. UNREACHABLE: the retired UCX worker does not use shared
 * memory at all. */
static tmsg_status_t dial_probe(tmsg_probe_t *probe, const tmsg_ucx_t *retired)
{
    char transports[128] = "";
    tmsg_ucx_status_t ucs = tmsg_ucx_ep_within(probe->ucx, retired, &probe->ep);

    if (ucs == TMSG_UCX_OK) {
        tmsg_ucx_transports(probe->ep, transports, sizeof(transports));
        ucs = tmsg_transport_shares(transports) ? TMSG_UCX_OK
                                                : TMSG_UCX_UNREACHABLE;
    }
    return ucs == TMSG_UCX_OK ? TMSG_OK
                              : tmsg_error_set(ucs == TMSG_UCX_UNREACHABLE
                                                   ? TMSG_ERR_UNREACHABLE
                                                   : TMSG_ERR_INTERNAL,
                                               "a probe of shared memory: %s",
                                               tmsg_ucx_status_words(ucs));
}

static uint8_t *token_of(tmsg_probe_t *probe)
{
    return probe->message + TMSG_PREAMBLE_BYTES;
}

static tmsg_status_t encode_probe(tmsg_probe_t *probe)
{
    const tmsg_preamble_t head = {.kind = TMSG_KIND_PROBE,
                                  .body_bytes = TMSG_TOKEN_BYTES};

    tmsg_preamble_encode(&head, probe->message);
    if (getrandom(token_of(probe), TMSG_TOKEN_BYTES, 0) != TMSG_TOKEN_BYTES) {
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    return TMSG_OK;
}

/* Posts the probe at once, or another look tries again: UCX is not to connect
 * the two workers first. If peers send all the time, even a queue that is not
 * blocked has no room, except for a moment after we have read some of it. */
static void post_probe(tmsg_probe_t *probe, tmsg_ucx_t *retired)
{
    for (int i = 0; i < POST_TRIES && !probe->posted; i++) {
        probe->posted = tmsg_ucx_am_send_now(probe->ep, probe->message,
                                             sizeof(probe->message), NULL,
                                             0) == TMSG_UCX_OK;
        if (!probe->posted) {
            retired->worker->inside = true;
            tmsg_ucx_progress(retired);
            retired->worker->inside = false;
        }
    }
}

static tmsg_status_t open_probe(tmsg_ucx_t *ucx)
{
    const tmsg_ucx_scope_t shm_alone = {.device = ""};
    const tmsg_ucx_owner_t owner = {ucx->worker, ucx->loop, ucx->given};
    tmsg_probe_t *probe = calloc(1, sizeof(*probe));
    tmsg_status_t status;

    if (probe == NULL) {
        return tmsg_error_memory("a probe of shared memory");
    }
    status = tmsg_ucx_open(&owner, &shm_alone, true, &ucx->hello,
                           ignore_message, &probe->ucx);
    if (status != TMSG_OK) {
        free(probe);
        return status;
    }
    ucx->probe = probe;
    probe->fresh = true;
    status = dial_probe(probe, ucx);
    if (status == TMSG_OK) {
        status = encode_probe(probe);
    }
    if (status == TMSG_OK) {
        post_probe(probe, ucx);
    } else {
        tmsg_probe_close(ucx);
    }
    return status;
}

/* Starts the probe again, because one more peer was lost: only a message that
 * is sent from now on is behind what that peer may have left. */
static void begin_again(tmsg_probe_t *probe)
{
    if (probe->heard || probe->passed) {
        probe->looks = 0;
    }
    probe->posted = encode_probe(probe) != TMSG_OK && probe->posted;
    probe->heard = false;
    probe->passed = false;
    probe->fresh = true;
}

tmsg_ucx_status_t tmsg_probe_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_probe_t *probe = arrival->ucx->probe;

    if (probe != NULL && arrival->head.body_bytes == TMSG_TOKEN_BYTES &&
        sodium_memcmp(arrival->body, token_of(probe), TMSG_TOKEN_BYTES) == 0) {
        probe->heard = true;
    }
    return TMSG_UCX_OK;
}

/* Notes a message that came through the queue while it is probed. A look reads
 * everything before a hole. What others write comes through the queue behind
 * that: a queue that is too busy for our message is not blocked. */
void tmsg_probe_note(tmsg_ucx_t *ucx, const void *header, size_t bytes)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t id;

    if (ucx->probe != NULL && tmsg_preamble_names(header, bytes, &id)) {
        endpoint = tmsg_endpoint_by_id(ucx->worker, id);
        ucx->probe->passed |= endpoint != NULL && endpoint->ucx == ucx &&
                              endpoint->transport == TMSG_TRANSPORT_SHM;
    }
}

/* Returns how many looks are needed. A peer that stands still while it writes,
 * because its machine is busy or it was stopped, has as long as any peer may be
 * silent. */
static unsigned looks_needed(const tmsg_worker_t *worker)
{
    uint32_t looks = tmsg_context_peer_timeout_ms(worker->context) / PROBE_MS;

    return looks < PROBE_LOOKS ? PROBE_LOOKS : looks;
}

/* Returns the next live endpoint that uses shared memory through this UCX
 * worker, from *i on. */
static tmsg_endpoint_t *next_live(const tmsg_ucx_t *ucx, uint32_t *i)
{
    tmsg_endpoint_t *endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);

    while (endpoint != NULL &&
           (tmsg_endpoint_is_down(endpoint) || endpoint->link.net_only)) {
        endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);
    }
    return endpoint;
}

/* Ends the listeners whose blobs hold this UCX worker's address: nobody can
 * come by these blobs any more. */
static void end_listeners(tmsg_ucx_t *ucx, const char *why)
{
    tmsg_listener_t *listener = ucx->worker->listeners;

    for (; listener != NULL; listener = listener->next) {
        if (listener->ucx == ucx) {
            tmsg_log(TMSG_LOG_ERROR,
                     "%s: %s, which ends this listener; make another",
                     listener->url, why);
            tmsg_backlog_free(listener);
            listener->ucx = NULL;
            ucx->users--;
        }
    }
}

/* Ends the endpoints that a blocked queue would leave waiting in silence. A
 * peer that comes back by itself is not told: its session would be over. */
static void end_blocked(tmsg_ucx_t *ucx)
{
    static const char why[] =
        "another peer was killed while it wrote to shared memory, which blocks "
        "it for this one as well; connect again";
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = next_live(ucx, &i)) != NULL) {
        if (endpoint->link.fd >= 0 && endpoint->link.connected &&
            !endpoint->link.explained && !tmsg_resume_keeps(endpoint)) {
            tmsg_handshake_tell(endpoint, TMSG_ERR_PEER_LOST, why);
        }
        tmsg_endpoint_end(endpoint, TMSG_ERR_PEER_LOST, why);
    }
    end_listeners(ucx, "a peer was killed while it wrote to shared memory");
}

static bool has_listener(const tmsg_ucx_t *ucx)
{
    const tmsg_listener_t *listener = ucx->worker->listeners;

    while (listener != NULL && listener->ucx != ucx) {
        listener = listener->next;
    }
    return listener != NULL;
}

/* Returns whether the probing is over: the queue is known to be read, or was
 * not read for long enough. */
static bool judge_probe(tmsg_ucx_t *ucx)
{
    tmsg_probe_t *probe = ucx->probe;
    bool passed = probe->passed && !probe->fresh;

    probe->passed = false;
    probe->fresh = false;
    if (probe->heard || passed) {
        return true;
    }
    if (++probe->looks < looks_needed(ucx->worker)) {
        return false;
    }
    end_blocked(ucx);
    return true;
}

/* Makes one look for the probe. True: there is nothing more to find out. */
static bool probe_is_over(tmsg_ucx_t *ucx)
{
    uint32_t first = 0;

    if (next_live(ucx, &first) == NULL && !has_listener(ucx)) {
        return true;
    }
    if (ucx->probe == NULL) {
        tmsg_status_t status = open_probe(ucx);

        if (status != TMSG_OK && status != TMSG_ERR_UNREACHABLE) {
            tmsg_log_of(TMSG_LOG_UCX_KIND, "a look at a dead peer's queue",
                        TMSG_LOG_WARN, "%s", tmsg_error_message());
        }
        return status != TMSG_OK;
    }
    post_probe(ucx->probe, ucx);
    tmsg_ucx_progress(ucx->probe->ucx);
    tmsg_worker_drain(ucx);
    return judge_probe(ucx);
}

/* Returns whether UCX has an operation to report. */
static bool ucx_owes_report(const tmsg_ucx_t *ucx)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    do {
        endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i);
    } while (endpoint != NULL && endpoint->in_ucx == 0);
    return endpoint != NULL;
}

/* Returns whether all endpoints that use the UCX worker have ended and wait for
 * UCX to report. If others may come by a blob, it is given up only for what UCX
 * has yet to report. */
static bool is_deserted(const tmsg_ucx_t *ucx)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (!tmsg_endpoint_is_down(endpoint)) {
            return false;
        }
    }
    return ucx_owes_report(ucx) || !has_listener(ucx);
}

/* Gives up a UCX worker. Up to 1.16, UCX reports nothing more about an endpoint
 * whose shared-memory queue was full when its peer died. Once the UCX worker is
 * closed, nothing is read any more. It is not closed while a thread that asks
 * the application for memory has a message of it in hand. False: there is more
 * to find out. */
static bool give_up_ucx(tmsg_ucx_t *ucx)
{
    tmsg_worker_t *worker = ucx->worker;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    if (!is_deserted(ucx)) {
        /* The next endpoint that ends starts the watch again. */
        return true;
    }
    if (worker->fetching || !tmsg_linger_over(ucx) || !tmsg_worker_drain(ucx)) {
        return false;
    }
    if (!is_deserted(ucx)) {
        return true;
    }
    end_listeners(ucx, "UCX does not report the end of a peer");
    ucx->unreported = ucx_owes_report(ucx);
    close_retired_ucx(worker, ucx);
    while ((endpoint = tmsg_endpoint_next(worker, ucx, &i)) != NULL) {
        endpoint->ucx = NULL;
        tmsg_ops_abandon(endpoint);
    }
    return true;
}

static void watch_ucx(tmsg_timer_t *timer)
{
    tmsg_ucx_t *ucx = TMSG_CONTAINER_OF(timer, tmsg_ucx_t, watch);

    if (!ucx->suspect) {
        if (!give_up_ucx(ucx)) {
            tmsg_ucx_watch(ucx);
        }
        return;
    }
    ucx->suspect = !probe_is_over(ucx);
    if (!ucx->suspect) {
        tmsg_probe_close(ucx);
    }
    tmsg_loop_set_timer(&ucx->worker->loop, timer,
                        ucx->suspect ? PROBE_MS : GIVE_UP_MS);
}

void tmsg_ucx_watch(tmsg_ucx_t *ucx)
{
    if (ucx->watch.deadline_ns == 0) {
        ucx->watch.expired = watch_ucx;
        tmsg_loop_set_timer(&ucx->worker->loop, &ucx->watch, GIVE_UP_MS);
    }
}

void tmsg_ucx_retire(tmsg_ucx_t *ucx)
{
    if (ucx->pipes != NULL) {
        /* Nothing is shared that could be blocked. */
    } else if (!ucx->suspect) {
        ucx->suspect = true;
        ucx->watch.expired = watch_ucx;
        tmsg_loop_set_timer(&ucx->worker->loop, &ucx->watch, PROBE_MS);
    } else if (ucx->probe != NULL) {
        begin_again(ucx->probe);
    }
    ucx->retired = true;
    ucx->worker->seldom |= TMSG_SELDOM_RETIRED;
}

static void retire_doubted(tmsg_timer_t *timer)
{
    tmsg_ucx_t *ucx = TMSG_CONTAINER_OF(timer, tmsg_ucx_t, watch);

    ucx->worker->past.doubted_ns = tmsg_now_ns();
    tmsg_ucx_retire(ucx);
}

void tmsg_ucx_doubt(tmsg_ucx_t *ucx)
{
    tmsg_worker_past_t *past = &ucx->worker->past;
    uint64_t now = tmsg_now_ns();

    if (ucx->retired || past->doubted_ns == 0 ||
        now - past->doubted_ns >= DOUBT_MS * NS_PER_MS) {
        past->doubted_ns = now;
        tmsg_ucx_retire(ucx);
    } else if (ucx->watch.deadline_ns == 0) {
        ucx->watch.expired = retire_doubted;
        tmsg_loop_set_alarm(&ucx->worker->loop, &ucx->watch,
                            past->doubted_ns + DOUBT_MS * NS_PER_MS - now);
    }
}

/* Does not retire a UCX worker whose address is in a blob: it stays the only
 * one without shared memory as long as the blob is there. */
void tmsg_ucx_supersede(tmsg_ucx_t *ucx)
{
    if (!has_listener(ucx)) {
        ucx->retired = true;
        ucx->worker->seldom |= TMSG_SELDOM_RETIRED;
    }
}

void tmsg_worker_close_retired(tmsg_worker_t *worker)
{
    tmsg_ucx_t *next;

    worker->seldom &= (uint8_t)~TMSG_SELDOM_RETIRED;
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = next) {
        next = ucx->next;
        if (ucx->retired && ucx->users == 0 && tmsg_linger_over(ucx) &&
            !tmsg_linger_is_asked(ucx)) {
            tmsg_worker_drain(ucx);
            close_retired_ucx(worker, ucx);
        } else if (ucx->retired) {
            worker->seldom |= TMSG_SELDOM_RETIRED;
        }
    }
}
