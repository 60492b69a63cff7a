/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/loans.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/endpoint/link_ops.h"
#include "am/net/unwanted.h"
#include "am/path/loans_struct.h"
#include "core/error.h"

#define TICK_MS 1000
#define IDLE_NS 5000000000ULL /* copies that lie idle for so long are freed */

static tmsg_lender_t *lender_of_source(tmsg_source_t *source)
{
    return TMSG_CONTAINER_OF(source, tmsg_lender_t, returned);
}

static void give_all_back(tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        tmsg_loans_chores(endpoint);
    }
}

/* Loans were given back while the worker slept; the step tends to them. */
static void returned_ready(tmsg_source_t *source, uint32_t events)
{
    (void)events;
    tmsg_loop_drain(source->fd);
    (void)tmsg_loans_tend(lender_of_source(source)->worker);
}

unsigned tmsg_loans_tend(tmsg_worker_t *worker)
{
    tmsg_returns_t *returns = worker->paths.lender->returns;

    if (!worker->asleep && !worker->armed &&
        atomic_load_explicit(&returns->asleep, memory_order_relaxed)) {
        atomic_store(&returns->asleep, false);
    }
    if (!atomic_load_explicit(&returns->waiting, memory_order_relaxed)) {
        return 0;
    }
    atomic_store(&returns->waiting, false);
    give_all_back(worker);
    return 1;
}

bool tmsg_loans_wait(const tmsg_worker_t *worker)
{
    return (worker->seldom & TMSG_SELDOM_LOANS) &&
           atomic_load(&worker->paths.lender->returns->waiting);
}

/* Who gives a loan back notes that first, and then looks whether the worker
 * sleeps; the worker does it in the other order. */
bool tmsg_loans_arm(const tmsg_worker_t *worker)
{
    if (worker->seldom & TMSG_SELDOM_LOANS) {
        atomic_store(&worker->paths.lender->returns->asleep, true);
    }
    return !tmsg_loans_wait(worker);
}

static tmsg_returns_t *make_returns(tmsg_lender_t *lender)
{
    tmsg_returns_t *returns = malloc(sizeof(*returns));

    if (returns == NULL) {
        return NULL;
    }
    atomic_init(&returns->waiting, false);
    atomic_init(&returns->asleep, false);
    returns->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lender->returned.ready = returned_ready;
    if (returns->fd < 0 ||
        tmsg_loop_add(&lender->worker->loop, &lender->returned, returns->fd,
                      EPOLLIN) != TMSG_OK) {
        if (returns->fd >= 0) {
            close(returns->fd);
        }
        free(returns);
        return NULL;
    }
    tmsg_refs_init(&returns->refs, 1);
    return returns;
}

void tmsg_returns_drop(tmsg_returns_t *returns)
{
    if (tmsg_refs_drop(&returns->refs)) {
        close(returns->fd);
        free(returns);
    }
}

tmsg_lender_t *tmsg_lender_of(tmsg_worker_t *worker)
{
    tmsg_lender_t *lender = worker->paths.lender;

    if (lender != NULL) {
        return lender;
    }
    lender = calloc(1, sizeof(*lender));
    if (lender == NULL) {
        return NULL;
    }
    lender->worker = worker;
    lender->returned.fd = -1;
    lender->bytes_most = TMSG_COPIES_BYTES_MOST;
    lender->large_bytes_most = TMSG_LARGE_COPIES_BYTES_MOST;
    lender->returns = make_returns(lender);
    if (lender->returns == NULL) {
        free(lender);
        return NULL;
    }
    worker->paths.lender = lender;
    return lender;
}

tmsg_loans_t *tmsg_loans_of(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans = endpoint->paths.loans;

    if (loans == NULL && tmsg_lender_of(endpoint->worker) != NULL) {
        loans = calloc(1, sizeof(*loans));
        if (loans != NULL) {
            loans->number = ++endpoint->worker->paths.lender->connections;
            loans->process = -1;
            endpoint->paths.loans = loans;
        }
    }
    return loans;
}

/* Tells peers of segments that the application has freed, and frees copies that
 * nobody wants. Returns whether there is more to look after. */
static bool look_after_segments(tmsg_lender_t *lender)
{
    tmsg_endpoint_t *endpoint;
    bool more;
    uint32_t i = 0;

    tmsg_copies_trim(lender, IDLE_NS);
    more = lender->copies.count > 0;
    while ((endpoint = tmsg_endpoint_next(lender->worker, NULL, &i)) != NULL) {
        if (endpoint->paths.loans != NULL) {
            tmsg_loans_forget_freed(endpoint, NULL);
            tmsg_loans_look_late(endpoint);
            if (endpoint->paths.loans->out.count > 0) {
                tmsg_loans_watch(endpoint);
            }
            tmsg_loans_chores(endpoint);
            more |= endpoint->paths.loans->offered_count > 0;
        }
    }
    return more;
}

static void ticked(tmsg_timer_t *timer)
{
    tmsg_lender_t *lender = TMSG_CONTAINER_OF(timer, tmsg_lender_t, tick);

    if (look_after_segments(lender)) {
        tmsg_lender_tick(lender);
    }
}

void tmsg_lender_tick(tmsg_lender_t *lender)
{
    if (lender->tick.deadline_ns == 0) {
        lender->tick.expired = ticked;
        tmsg_loop_set_timer(&lender->worker->loop, &lender->tick, TICK_MS);
    }
}

tmsg_status_t tmsg_loan_frame(tmsg_endpoint_t *endpoint, uint8_t frame,
                              const uint8_t *data, size_t bytes, int fd)
{
    if (frame == TMSG_FRAME_SEGMENT) {
        return tmsg_loans_segment(endpoint, data, bytes, fd);
    }
    if (fd >= 0) {
        tmsg_unwanted_close(fd);
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a descriptor with a frame of type %u", frame);
    }
    switch (frame) {
    case TMSG_FRAME_SEGMENT_TAKEN:
        return tmsg_loans_taken(endpoint, data, bytes);
    case TMSG_FRAME_SEGMENT_REFUSED:
        return tmsg_loans_refused(endpoint, data, bytes);
    case TMSG_FRAME_LOAN_BACK:
        return tmsg_loans_back(endpoint, data, bytes);
    default:
        return tmsg_loans_gone(endpoint, data, bytes);
    }
}

void tmsg_loans_chores(tmsg_endpoint_t *endpoint)
{
    if (endpoint->paths.loans != NULL && !tmsg_endpoint_is_down(endpoint)) {
        tmsg_loans_give_back(endpoint, false);
    }
}

bool tmsg_loans_are_out(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.loans != NULL &&
           endpoint->paths.loans->out.count > 0;
}

void tmsg_loans_last(tmsg_endpoint_t *endpoint)
{
    if (endpoint->paths.loans != NULL && endpoint->link.fd >= 0) {
        if (endpoint->paths.loans->out.count > 0) {
            tmsg_loans_watch(endpoint);
        }
        tmsg_loans_give_back(endpoint, true);
    }
}

void tmsg_loans_end(tmsg_endpoint_t *endpoint)
{
    tmsg_loans_t *loans = endpoint->paths.loans;

    if (loans == NULL) {
        return;
    }
    endpoint->paths.loans = NULL;
    tmsg_loans_end_in(endpoint->worker, loans);
    tmsg_loans_end_out(endpoint, loans);
    free(loans);
}

void tmsg_loans_note(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_loans_t *loans = endpoint->paths.loans;
    const char *obstacle;

    /* What keeps the connection from all loans is known without a note. */
    if (loans == NULL && tmsg_loans_may_lend(endpoint, false, &obstacle)) {
        loans = tmsg_loans_of(endpoint);
    }
    if (loans != NULL) {
        snprintf(loans->noted, sizeof(loans->noted), "%s", why);
    }
}

const char *tmsg_loans_words(const tmsg_endpoint_t *endpoint, char *text,
                             size_t bytes)
{
    const char *why;

    if (tmsg_loans_may_lend(endpoint, false, &why)) {
        const tmsg_loans_t *loans = endpoint->paths.loans;

        if (loans != NULL && loans->noted[0] == '\0' && loans->copied != NULL) {
            snprintf(text, bytes, "lends, the last message as a copy: %s",
                     loans->copied);
            return text;
        }
        if (loans == NULL || loans->noted[0] == '\0') {
            return "lends";
        }
        snprintf(text, bytes, "lends, but not the last message: %s",
                 loans->noted);
        return text;
    }
    snprintf(text, bytes, "none: %s", why);
    return text;
}

uint64_t tmsg_loans_lent_bytes(const tmsg_endpoint_t *endpoint)
{
    const tmsg_loans_t *loans = endpoint->paths.loans;
    uint64_t bytes = 0;

    for (unsigned i = 0; loans != NULL && i < loans->offered_count; i++) {
        if (loans->offered[i].state == TMSG_SEGMENT_TAKEN) {
            bytes += tmsg_shareable_bytes(loans->offered[i].segment);
        }
    }
    return bytes;
}

uint64_t tmsg_loans_borrowed_bytes(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.loans == NULL
               ? 0
               : endpoint->paths.loans->borrowed_bytes;
}

void tmsg_loans_count(tmsg_worker_t *worker, tmsg_loans_counts_t *counts)
{
    const tmsg_lender_t *lender = worker->paths.lender;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    *counts = (tmsg_loans_counts_t){0};
    if (lender == NULL) {
        return;
    }
    counts->copies = lender->copies.count + lender->frozen_count;
    counts->copied_bytes = lender->copies_bytes + lender->frozen_bytes;
    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        counts->loans += endpoint->paths.loans == NULL
                             ? 0
                             : endpoint->paths.loans->out.count;
    }
    for (const tmsg_node_t *node = lender->orphans.head; node != NULL;
         node = node->next) {
        counts->loans += TMSG_CONTAINER_OF((tmsg_node_t *)(uintptr_t)node,
                                           tmsg_orphans_t, node)
                             ->loans.count;
    }
}

void tmsg_loans_finish(tmsg_worker_t *worker)
{
    tmsg_lender_t *lender = worker->paths.lender;

    if (lender == NULL) {
        return;
    }
    tmsg_orphans_end(lender);
    tmsg_copies_trim(lender, 0);
    while (lender->copies.head != NULL) {
        /* A send that UCX has not reported has it. */
        tmsg_list_remove(&lender->copies, lender->copies.head);
    }
    tmsg_loop_clear_timer(&worker->loop, &lender->tick);
    tmsg_loop_remove(&worker->loop, &lender->returned);
    worker->seldom &= (uint8_t)~TMSG_SELDOM_LOANS;
    tmsg_returns_drop(lender->returns);
    worker->paths.lender = NULL;
    free(lender);
}
