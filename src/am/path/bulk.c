/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/bulk.h"

#include <stdio.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/log.h"
#include "am/path/bulk_crew.h"
#include "am/worker/engine.h"
#include "core/log.h"

#define QUIET_MOST 256  /* turns without bytes, before the loop alone looks */
#define LISTEN_EVERY 16 /* turns between reads, while nothing is heard */
/* All bulk streams of a worker together move about this much in a round. */
#define TURNS_BYTES ((size_t)1024 * 1024)

#define MOVER_ADDRESS(name) &tmsg_mover_##name,

static const tmsg_mover_t *const movers[] = {TMSG_MOVERS(MOVER_ADDRESS)};

#define MOVER_COUNT (sizeof(movers) / sizeof(movers[0]))

static bool bulk_stands(const tmsg_bulk_t *bulk)
{
    return bulk != NULL && bulk->stands && !bulk->lost;
}

bool tmsg_bulk_sends(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;

    return bulk_stands(bulk) &&
           (bulk->mover->sends == NULL || bulk->mover->sends(bulk));
}

bool tmsg_bulk_receives(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;

    return bulk_stands(bulk) &&
           (bulk->mover->receives == NULL || bulk->mover->receives(bulk));
}

uint64_t tmsg_bulk_ahead(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;
    uint64_t ahead = bulk == NULL ? 0 : bulk->mover->ahead(bulk);

    return ahead > 0 ? ahead : TMSG_BULK_AHEAD_MOST;
}

/* Returns the mover that a large message may be meant for, or NULL. */
static const tmsg_mover_t *find_mover(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;
    bool may;

    if (bulk != NULL) {
        may = bulk->mover->may_send == NULL
                  ? bulk_stands(bulk)
                  : !bulk->lost && bulk->mover->may_send(endpoint);
        return may ? bulk->mover : NULL;
    }
    for (size_t i = 0; i < MOVER_COUNT; i++) {
        if (movers[i]->may_send != NULL && movers[i]->may_send(endpoint)) {
            return movers[i];
        }
    }
    return NULL;
}

bool tmsg_bulk_may_send(const tmsg_endpoint_t *endpoint)
{
    return find_mover(endpoint) != NULL;
}

bool tmsg_bulk_make(tmsg_endpoint_t *endpoint)
{
    const tmsg_mover_t *mover = find_mover(endpoint);

    return mover != NULL && (mover->make == NULL || mover->make(endpoint));
}

const char *tmsg_bulk_words(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;
    const tmsg_mover_t *mover = find_mover(endpoint);

    return mover != NULL                         ? mover->ready
           : endpoint->paths.bulk_why[0] != '\0' ? endpoint->paths.bulk_why
           : bulk == NULL                        ? "none"
           : bulk->lost                          ? "lost"
                                                 : bulk->mover->unready;
}

void tmsg_bulk_begin(tmsg_endpoint_t *endpoint)
{
    for (size_t i = 0; i < MOVER_COUNT && endpoint->paths.bulk == NULL; i++) {
        if (movers[i]->begin != NULL) {
            movers[i]->begin(endpoint);
        }
    }
}

void tmsg_bulk_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why)
{
    snprintf(endpoint->paths.bulk_why, sizeof(endpoint->paths.bulk_why),
             "none: %s", why);
    tmsg_endpoint_log(endpoint, TMSG_LOG_WITHOUT_KIND, TMSG_LOG_INFO,
                      "large payloads go by UCX, because there is no %s: %s",
                      what, why);
}

void tmsg_bulk_adopt(tmsg_bulk_t *bulk, const tmsg_mover_t *mover,
                     tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_t **last = &endpoint->paths.bulk;

    while (*last != NULL) {
        last = &(*last)->next;
    }
    bulk->mover = mover;
    bulk->maker = mover;
    bulk->endpoint = endpoint;
    *last = bulk;
}

unsigned tmsg_bulk_subflows(const tmsg_endpoint_t *endpoint)
{
    unsigned count = 0;

    for (const tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        count += bulk_stands(bulk) && bulk->mover->socket != NULL;
    }
    return count;
}

/* Returns whether the endpoint may go on without the bulk stream. Only the
 * dialled side may: if the dialling side has not heard that the bulk stream
 * stands, it goes without, too, and asks for nothing by it. If it has heard, it
 * loses the bulk stream as well, and ends the connection itself. */
static bool may_go_without(const tmsg_bulk_t *bulk)
{
    bool is_further = bulk != bulk->endpoint->paths.bulk;

    return !bulk->endpoint->dialling && !bulk->used && !bulk->out.busy &&
           (is_further || bulk->endpoint->pulled.count == 0);
}

static void shut_bulk(tmsg_bulk_t *bulk)
{
    bulk->lost = true;
    if (bulk->listed) {
        tmsg_list_remove(&bulk->endpoint->worker->bulk_streams, &bulk->node);
        bulk->listed = false;
    }
    bulk->mover->shut(bulk);
}

/* Without its first subflow there is no bulk stream. */
static void go_on_without(tmsg_bulk_t *bulk, const char *why)
{
    if (bulk == bulk->endpoint->paths.bulk) {
        tmsg_bulk_go_without(bulk->endpoint, "bulk stream", why);
    } else {
        tmsg_log(TMSG_LOG_DEBUG, "%s: a subflow of the bulk stream ended: %s",
                 bulk->endpoint->peer, why);
    }
}

void tmsg_bulk_lose(tmsg_bulk_t *bulk, tmsg_status_t status, const char *why)
{
    shut_bulk(bulk);
    if (status == TMSG_ERR_PEER_LOST && may_go_without(bulk)) {
        go_on_without(bulk, why);
    } else if (status == TMSG_ERR_PEER_LOST) {
        tmsg_endpoint_lose_bulk(bulk->endpoint, why);
    } else {
        tmsg_endpoint_break(bulk->endpoint, status, why);
    }
}

/* Returns the socket of a subflow that stands; < 0: there is none. */
static int socket_of_bulk(const tmsg_bulk_t *bulk)
{
    return bulk_stands(bulk) && bulk->mover->socket != NULL
               ? bulk->mover->socket(bulk)
               : -1;
}

unsigned tmsg_bulk_sockets(const tmsg_endpoint_t *endpoint,
                           tmsg_bulk_path_t paths[TMSG_BULK_SUBFLOWS_MOST])
{
    unsigned count = 0;

    for (tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        int fd = socket_of_bulk(bulk);

        if (fd >= 0) {
            paths[count++] = (tmsg_bulk_path_t){bulk, fd};
        }
    }
    return count;
}

void tmsg_bulk_look(const tmsg_endpoint_t *endpoint)
{
    for (tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        if (bulk->mover->look != NULL) {
            bulk->mover->look(bulk);
        }
    }
}

bool tmsg_bulk_is_intact(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;

    return bulk == NULL || bulk->mover->is_intact == NULL ||
           bulk->mover->is_intact(bulk);
}

void tmsg_bulk_give_up(tmsg_bulk_t *bulk, const char *why)
{
    shut_bulk(bulk);
    if (may_go_without(bulk)) {
        go_on_without(bulk, why);
    } else {
        tmsg_engine.end(bulk->endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_bulk_free_subflow(tmsg_bulk_t *bulk)
{
    tmsg_bulk_t **at = &bulk->endpoint->paths.bulk;

    while (*at != bulk) {
        at = &(*at)->next;
    }
    *at = bulk->next;
    shut_bulk(bulk);
    tmsg_bulk_drop(bulk);
    bulk->mover->free(bulk);
}

void tmsg_bulk_end(tmsg_endpoint_t *endpoint)
{
    while (endpoint->paths.bulk != NULL) {
        tmsg_bulk_free_subflow(endpoint->paths.bulk);
    }
}

void tmsg_bulk_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->paths.ringless = false;
    endpoint->paths.ring_offered = false;
    endpoint->paths.shares = false;
    endpoint->paths.unsealed = false;
    endpoint->paths.bulk_why[0] = '\0';
}

bool tmsg_bulk_took_socket(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.is_bulk;
}

bool tmsg_bulk_was_claimed(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.is_bulk || endpoint->paths.late_bulk;
}

static void enlist_bulk(tmsg_bulk_t *bulk)
{
    if (!bulk->listed) {
        tmsg_list_push(&bulk->endpoint->worker->bulk_streams, &bulk->node);
        bulk->listed = true;
    }
}

void tmsg_bulk_stir_subflow(tmsg_bulk_t *bulk)
{
    if (bulk_stands(bulk)) {
        bulk->quiet = 0;
        bulk->silent = 0;
        enlist_bulk(bulk);
    }
}

void tmsg_bulk_stir(tmsg_endpoint_t *endpoint)
{
    for (tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        tmsg_bulk_stir_subflow(bulk);
    }
}

void tmsg_bulk_ponged(tmsg_endpoint_t *endpoint)
{
    for (tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        if (bulk->out.waits) {
            tmsg_bulk_stir_subflow(bulk);
        }
    }
}

/* Notes what a turn has moved, `moved` bytes in all. A subflow that has been
 * still for a while is left to the loop. */
static void settle_turn(tmsg_bulk_t *bulk, size_t moved, size_t read)
{
    bulk->silent = read > 0 ? 0 : bulk->silent + 1;
    bulk->quiet = moved > 0 ? 0 : bulk->quiet + 1;
    if (!bulk->lost && bulk->mover->moved != NULL && moved > 0) {
        bulk->mover->moved(bulk);
    }
    if (!bulk->lost &&
        (bulk->quiet < QUIET_MOST || !bulk->mover->await(bulk))) {
        enlist_bulk(bulk);
    }
}

static bool listens(const tmsg_bulk_t *bulk)
{
    return !bulk->lost &&
           (bulk->silent < QUIET_MOST || bulk->silent % LISTEN_EVERY == 0);
}

/* Gives a subflow its turn, and returns the bytes that were moved. */
static size_t turn_bulk(tmsg_bulk_t *bulk)
{
    size_t most = tmsg_bulk_turn_bytes(bulk);
    size_t written = tmsg_bulk_write(bulk, most);
    size_t read = listens(bulk) ? tmsg_bulk_read(bulk, most) : 0;

    settle_turn(bulk, written + read, read);
    return written + read;
}

static tmsg_bulk_t *pop_bulk(tmsg_worker_t *worker)
{
    tmsg_bulk_t *bulk = TMSG_CONTAINER_OF(tmsg_list_pop(&worker->bulk_streams),
                                          tmsg_bulk_t, node);

    bulk->listed = false;
    tmsg_endpoint_hold(bulk->endpoint);
    return bulk;
}

/* Ends a turn that was begun. Returns whether it moved bytes. */
static bool settle_job(tmsg_bulk_job_t *job)
{
    tmsg_endpoint_t *endpoint = job->bulk->endpoint;
    size_t moved = tmsg_bulk_end_job(job);

    settle_turn(job->bulk, moved, job->read);
    tmsg_endpoint_drop(endpoint);
    return moved > 0;
}

/* Gives several subflows their turns, side by side. Nobody is woken for those
 * that have nothing to be moved. What is read while the turns are prepared is
 * TURNS_BYTES together, too. */
static unsigned turn_together(tmsg_worker_t *worker)
{
    tmsg_bulk_crew_t *crew = worker->paths.crew;
    size_t left = worker->bulk_streams.count, count = 0, read = 0;
    unsigned busy = 0;

    for (; left > 0 && worker->bulk_streams.count > 0 && count < crew->most &&
           read < TURNS_BYTES;
         left--) {
        tmsg_bulk_job_t *job = &crew->jobs[count];
        tmsg_bulk_t *bulk = pop_bulk(worker);

        tmsg_bulk_begin_job(job, bulk, tmsg_bulk_turn_bytes(bulk),
                            listens(bulk));
        read += job->read;
        if (job->out_count + job->in_count > 0) {
            count++;
        } else {
            busy += settle_job(job);
        }
    }
    tmsg_bulk_do_jobs(crew, count);
    for (size_t i = 0; i < count; i++) {
        busy += settle_job(&crew->jobs[i]);
    }
    return busy;
}

/* All of them together move about as much as one would, TURNS_BYTES; the others
 * have their turns in the next round. */
unsigned tmsg_bulk_turn_all(tmsg_worker_t *worker)
{
    size_t count = worker->bulk_streams.count, moved = 0;
    unsigned busy = 0;

    if (worker->paths.crew != NULL && count > 1) {
        return turn_together(worker);
    }
    for (; count > 0 && worker->bulk_streams.count > 0 && moved < TURNS_BYTES;
         count--) {
        tmsg_bulk_t *bulk = pop_bulk(worker);
        tmsg_endpoint_t *endpoint = bulk->endpoint;
        size_t bytes = turn_bulk(bulk);

        tmsg_endpoint_drop(endpoint);
        busy += bytes > 0;
        moved += bytes;
    }
    return busy;
}

bool tmsg_bulk_arm_all(tmsg_worker_t *worker)
{
    bool all = true;

    for (tmsg_node_t *node = worker->bulk_streams.head; node != NULL;
         node = node->next) {
        tmsg_bulk_t *bulk = TMSG_CONTAINER_OF(node, tmsg_bulk_t, node);

        all = bulk->mover->await(bulk) && all;
    }
    return all;
}
