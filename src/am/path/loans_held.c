/* SPDX-License-Identifier: BSD-3-Clause */
/* What waits until nobody reads the memory of a loan any more: that of maps,
 * and what the peers of connections that have ended did not give back. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/net/peer.h"
#include "am/path/loans_struct.h"
#include "core/map.h"

/* A worker has at most this many records of processes that keep what they were
 * lent by connections that have ended. */
#define ORPHANS_MOST 64

static bool may_come(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

void tmsg_loans_watch(tmsg_endpoint_t *endpoint)
{
    const tmsg_hello_t *theirs = &endpoint->peer_hello;
    tmsg_loans_t *loans = endpoint->paths.loans;
    const tmsg_peer_claim_t claim = {.pid = theirs->pid, .uid = theirs->uid};

    if (loans->watched || endpoint->link.fd < 0) {
        return;
    }
    if (theirs->ns_pid == endpoint->ucx->hello.ns_pid
            ? tmsg_peer_doubt(endpoint->link.fd, &claim) == NULL
            : !endpoint->dialling) {
        loans->process = tmsg_peer_process(endpoint->link.fd, &loans->pid);
        loans->watched = loans->process >= 0 || !may_come(errno);
    } else {
        loans->watched = true;
    }
}

static tmsg_orphans_t *orphans_at(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_orphans_t, node);
}

static void free_orphans(tmsg_orphans_t *orphans)
{
    tmsg_worker_t *worker = orphans->worker;

    tmsg_list_remove(&worker->paths.lender->orphans, &orphans->node);
    tmsg_loop_remove(&worker->loop, &orphans->source);
    while (orphans->loans.head != NULL) {
        tmsg_loan_out_t *loan = TMSG_CONTAINER_OF(
            tmsg_list_pop(&orphans->loans), tmsg_loan_out_t, node);

        tmsg_loan_out_free(loan, false);
    }
    if (orphans->process >= 0) {
        close(orphans->process);
    }
    free(orphans);
}

void tmsg_orphans_end(tmsg_lender_t *lender)
{
    while (lender->orphans.head != NULL) {
        free_orphans(orphans_at(lender->orphans.head));
    }
}

/* The process that had the loans has ended, and nobody reads them any more. */
static void process_ended(tmsg_source_t *source, uint32_t events)
{
    (void)events;
    free_orphans(TMSG_CONTAINER_OF(source, tmsg_orphans_t, source));
}

static bool lives(int process)
{
    struct pollfd ends = {.fd = process, .events = POLLIN};

    return poll(&ends, 1, 0) == 0;
}

/* Returns what the process keeps already; NULL: nothing. A number belongs to
 * one process as long as that lives. All processes that nobody watches are
 * one: what they keep is free with the worker's end. */
static tmsg_orphans_t *find_orphans(const tmsg_lender_t *lender, int process,
                                    uint32_t pid)
{
    for (tmsg_node_t *node = lender->orphans.head; node != NULL;
         node = node->next) {
        tmsg_orphans_t *orphans = orphans_at(node);

        if (process < 0 ? orphans->process < 0
                        : orphans->process >= 0 && pid != 0 &&
                              orphans->pid == pid && lives(orphans->process)) {
            return orphans;
        }
    }
    return NULL;
}

static tmsg_orphans_t *orphans_of(const tmsg_endpoint_t *endpoint)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;

    return find_orphans(endpoint->worker->paths.lender, loans->process,
                        loans->pid);
}

bool tmsg_orphans_have_room(const tmsg_endpoint_t *endpoint)
{
    const tmsg_orphans_t *orphans = orphans_of(endpoint);

    return orphans == NULL
               ? endpoint->worker->paths.lender->orphans.count < ORPHANS_MOST
               : orphans->loans.count < TMSG_LOANS_MOST;
}

void tmsg_orphans_add_copies(const tmsg_endpoint_t *endpoint,
                             tmsg_copies_tally_t *tally)
{
    const tmsg_orphans_t *orphans = orphans_of(endpoint);
    tmsg_node_t *node = orphans == NULL ? NULL : orphans->loans.head;

    for (; node != NULL; node = node->next) {
        const tmsg_copy_segment_t *copy =
            TMSG_CONTAINER_OF(node, tmsg_loan_out_t, node)->lending->copy;

        if (copy != NULL && !copy->frozen) {
            tmsg_copies_add(endpoint->worker->paths.lender, tally,
                            copy->segment);
        }
    }
}

void tmsg_orphans_begin(tmsg_orphans_t *orphans)
{
    tmsg_worker_t *worker = orphans->worker;
    tmsg_orphans_t *others =
        find_orphans(worker->paths.lender, orphans->process, orphans->pid);

    if (others != NULL) {
        while (orphans->loans.head != NULL) {
            tmsg_list_push(&others->loans, tmsg_list_pop(&orphans->loans));
        }
        if (orphans->process >= 0) {
            close(orphans->process);
        }
        free(orphans);
        return;
    }
    tmsg_list_push(&worker->paths.lender->orphans, &orphans->node);
    orphans->source.fd = -1;
    orphans->source.ready = process_ended;
    if (orphans->process >= 0) {
        /* If that fails, the loans last as long as the worker. */
        (void)tmsg_loop_add(&worker->loop, &orphans->source, orphans->process,
                            EPOLLIN);
    }
}

tmsg_loan_hold_t *tmsg_loan_hold_create(tmsg_worker_t *worker)
{
    tmsg_loan_hold_t *hold = calloc(1, sizeof(*hold));

    if (hold != NULL) {
        hold->refs = 1;
        hold->worker = worker;
    }
    return hold;
}

static void run_released(tmsg_due_t *due)
{
    tmsg_loan_hold_t *hold = TMSG_CONTAINER_OF(due, tmsg_loan_hold_t, due);

    if (hold->on_release != NULL) {
        hold->on_release(hold->arg);
    }
    if (hold->map != NULL && tmsg_map_unhold(hold->map)) {
        tmsg_map_free(hold->map);
    }
    free(hold);
}

void tmsg_loan_hold_drop(tmsg_loan_hold_t *hold)
{
    if (--hold->refs > 0) {
        return;
    }
    if (hold->on_release == NULL && hold->map == NULL) {
        free(hold);
        return;
    }
    hold->due.run = run_released;
    tmsg_worker_due(hold->worker, &hold->due);
}

bool tmsg_loan_hold_is_lent(const tmsg_loan_hold_t *hold)
{
    return hold->refs > 1;
}

void tmsg_loan_hold_give(tmsg_loan_hold_t *hold, const tmsg_map_t *map)
{
    hold->map = map;
}

void tmsg_loan_hold_call(tmsg_loan_hold_t *hold, tmsg_release_fn on_release,
                         void *arg)
{
    hold->on_release = on_release;
    hold->arg = arg;
}
