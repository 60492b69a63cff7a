/* SPDX-License-Identifier: BSD-3-Clause */
/* A UCX worker that has lost a peer of shared memory. A process that is killed
 * between taking its place in our queue and filling it leaves a hole that UCX
 * waits at for ever, and with it everybody who writes there: whether it did is
 * found out by a message of our own through the same queue. */
#include "am/engine/retire.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/connect/handshake.h"
#include "am/endpoint/carrier.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/engine/endpoint_end.h"
#include "am/engine/progress.h"
#include "am/listen/knocks.h"
#include "am/ucx/linger.h"
#include "am/ucx/ucx_am.h"
#include "am/ucx/ucx_ep.h"
#include "core/log.h"

#define PROBE_MS 50     /* between two looks for the probe */
#define PROBE_LOOKS 20  /* without it, at least, to call the queue blocked */
#define POST_TRIES 1000 /* in one of them, to find room in a busy queue */
#define GIVE_UP_MS 1000 /* for UCX to report on its own */

struct tmsg_probe {
    tmsg_ucx_t *ucx;  /* shared memory alone; only progressed here */
    tmsg_ucx_ep_t ep; /* to the retired one */
    uint8_t message[TMSG_PREAMBLE_BYTES + TMSG_TOKEN_BYTES];
    bool posted;
    unsigned looks;
    bool heard;
    bool fresh;  /* no look yet, or none since another peer was lost */
    bool passed; /* since the last look somebody's message came through */
};

void tmsg_probe_close(tmsg_ucx_t *ucx)
{
    if (ucx->probe != NULL) {
        tmsg_ucx_close(ucx->probe->ucx);
        free(ucx->probe);
        ucx->probe = NULL;
    }
}

static void close_ucx(tmsg_worker_t *worker, tmsg_ucx_t *ucx)
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
    worker->inside = true; /* it may report some now, or never */
    tmsg_ucx_close(ucx);
    worker->inside = false;
}

static tmsg_ucx_status_t ignore(void *arg, const void *header,
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

/* UNREACHABLE: the retired one does not use shared memory at all. */
static tmsg_status_t dial(tmsg_probe_t *probe, const tmsg_ucx_t *retired)
{
    void *address;
    size_t address_bytes;
    char transports[128] = "";
    tmsg_ucx_status_t ucs;
    tmsg_status_t status =
        tmsg_ucx_address(retired, false, &address, &address_bytes);

    if (status != TMSG_OK) {
        return status;
    }
    ucs = tmsg_ucx_ep_create(probe->ucx, address, &probe->ep);
    tmsg_ucx_address_free(address);
    if (ucs == TMSG_UCX_OK) {
        tmsg_ucx_transports(probe->ep, transports, sizeof(transports));
        ucs = tmsg_carrier_shares(transports) ? TMSG_UCX_OK
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

static tmsg_status_t encode(tmsg_probe_t *probe)
{
    const tmsg_preamble_t head = {.kind = TMSG_KIND_PROBE,
                                  .body_bytes = TMSG_TOKEN_BYTES};

    tmsg_preamble_encode(&head, probe->message);
    if (getrandom(token_of(probe), TMSG_TOKEN_BYTES, 0) != TMSG_TOKEN_BYTES) {
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    return TMSG_OK;
}

/* At once, or it is tried again: UCX is not to get the two workers acquainted.
 * Peers that send and send leave no room in a queue that is not blocked, but
 * for the moment after we have read some of it. */
static void post(tmsg_probe_t *probe, tmsg_ucx_t *retired)
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
    status = tmsg_ucx_open(&owner, &shm_alone, true, &ucx->hello, ignore,
                           &probe->ucx);
    if (status != TMSG_OK) {
        free(probe);
        return status;
    }
    ucx->probe = probe;
    probe->fresh = true;
    status = dial(probe, ucx);
    if (status == TMSG_OK) {
        status = encode(probe);
    }
    if (status == TMSG_OK) {
        post(probe, ucx);
    } else {
        tmsg_probe_close(ucx);
    }
    return status;
}

/* One more peer was lost: behind what it may have left only a message is that
 * is sent from now on. */
static void begin_again(tmsg_probe_t *probe)
{
    if (probe->heard || probe->passed) {
        probe->looks = 0;
    }
    probe->posted = encode(probe) != TMSG_OK && probe->posted;
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

/* At a look all has been read that was before a hole. What others write comes
 * through the queue behind that: one that is too busy for our message is none
 * that is blocked. */
void tmsg_probe_note(tmsg_ucx_t *ucx, const void *header, size_t bytes)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t id;

    if (ucx->probe != NULL && tmsg_preamble_names(header, bytes, &id)) {
        endpoint = tmsg_endpoint_by_id(ucx->worker, id);
        ucx->probe->passed |= endpoint != NULL && endpoint->ucx == ucx &&
                              endpoint->carrier == TMSG_CARRIER_SHM;
    }
}

/* One that stands still while it writes, because its machine is busy or it was
 * stopped, has as long as any peer may be silent. */
static unsigned looks_needed(const tmsg_worker_t *worker)
{
    uint32_t looks = tmsg_context_patience_ms(worker->context) / PROBE_MS;

    return looks < PROBE_LOOKS ? PROBE_LOOKS : looks;
}

/* The next endpoint that lives on shared memory through it, from *i on. */
static tmsg_endpoint_t *next_live(const tmsg_ucx_t *ucx, uint32_t *i)
{
    tmsg_endpoint_t *endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);

    while (endpoint != NULL &&
           (tmsg_endpoint_is_down(endpoint) || endpoint->link.net_only)) {
        endpoint = tmsg_endpoint_next(ucx->worker, ucx, i);
    }
    return endpoint;
}

/* Nobody comes by their blobs any more: the address in them is ours. */
static void end_listeners(tmsg_ucx_t *ucx, const char *why)
{
    tmsg_listener_t *listener = ucx->worker->listeners;

    for (; listener != NULL; listener = listener->next) {
        if (listener->ucx == ucx) {
            tmsg_log(TMSG_LOG_ERROR,
                     "%s: %s, which ends this listener; make another",
                     listener->url, why);
            tmsg_knocks_free(listener);
            listener->ucx = NULL;
            ucx->users--;
        }
    }
}

/* Whoever is on it would wait in silence. Who comes back by itself is not told:
 * its session would be over. */
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

/* Whether the queue is known to be read, or has not been for long enough. */
static bool judge(tmsg_ucx_t *ucx)
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

/* True: there is nothing more to find out. */
static bool probe_is_over(tmsg_ucx_t *ucx)
{
    uint32_t first = 0;

    if (next_live(ucx, &first) == NULL && !has_listener(ucx)) {
        return true;
    }
    if (ucx->probe == NULL) {
        tmsg_status_t status = open_probe(ucx);

        if (status != TMSG_OK && status != TMSG_ERR_UNREACHABLE) {
            tmsg_log(TMSG_LOG_WARN, "%s", tmsg_error_message());
        }
        return status != TMSG_OK;
    }
    post(ucx->probe, ucx);
    tmsg_ucx_progress(ucx->probe->ucx);
    tmsg_worker_drain(ucx);
    return judge(ucx);
}

/* Whether it has something to report. */
static bool owes(const tmsg_ucx_t *ucx)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    do {
        endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i);
    } while (endpoint != NULL && endpoint->in_ucx == 0);
    return endpoint != NULL;
}

/* Whether all that use it have ended, and wait for UCX to report. A blob that
 * others may come by is given up only for what UCX owes us. */
static bool is_deserted(const tmsg_ucx_t *ucx)
{
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (!tmsg_endpoint_is_down(endpoint)) {
            return false;
        }
    }
    return owes(ucx) || !has_listener(ucx);
}

/* Up to 1.16 UCX reports nothing more of an endpoint whose shared-memory queue
 * was full when its peer died. Without its worker nothing is read any more.
 * Not while a thread has a message of it in hand, which asks the application
 * for memory. False: there is more to find out. */
static bool give_up(tmsg_ucx_t *ucx)
{
    tmsg_worker_t *worker = ucx->worker;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    if (!is_deserted(ucx)) {
        return true; /* until the next one ends */
    }
    if (worker->fetching || !tmsg_linger_over(ucx) || !tmsg_worker_drain(ucx)) {
        return false;
    }
    if (!is_deserted(ucx)) {
        return true;
    }
    end_listeners(ucx, "UCX does not report the end of a peer");
    ucx->owes = owes(ucx);
    close_ucx(worker, ucx);
    while ((endpoint = tmsg_endpoint_next(worker, ucx, &i)) != NULL) {
        endpoint->ucx = NULL;
        tmsg_ops_forsake(endpoint);
    }
    return true;
}

static void watch(tmsg_timer_t *timer)
{
    tmsg_ucx_t *ucx = TMSG_CONTAINER_OF(timer, tmsg_ucx_t, watch);

    if (!ucx->suspect) {
        if (!give_up(ucx)) {
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
        ucx->watch.expired = watch;
        tmsg_loop_set_timer(&ucx->worker->loop, &ucx->watch, GIVE_UP_MS);
    }
}

void tmsg_ucx_retire(tmsg_ucx_t *ucx)
{
    if (!ucx->suspect) {
        ucx->suspect = true;
        ucx->watch.expired = watch;
        tmsg_loop_set_timer(&ucx->worker->loop, &ucx->watch, PROBE_MS);
    } else if (ucx->probe != NULL) {
        begin_again(ucx->probe);
    }
    ucx->retired = true;
    ucx->worker->has_retired = true;
}

/* One that is behind a blob is the only one without as long as it is there. */
void tmsg_ucx_supersede(tmsg_ucx_t *ucx)
{
    if (!has_listener(ucx)) {
        ucx->retired = true;
        ucx->worker->has_retired = true;
    }
}

void tmsg_worker_close_retired(tmsg_worker_t *worker)
{
    tmsg_ucx_t *next;

    worker->has_retired = false;
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = next) {
        next = ucx->next;
        if (ucx->retired && ucx->users == 0 && tmsg_linger_over(ucx)) {
            tmsg_worker_drain(ucx);
            close_ucx(worker, ucx);
        } else {
            worker->has_retired |= ucx->retired;
        }
    }
}
