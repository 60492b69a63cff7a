/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/worker.h"

#include <stdlib.h>
#include <unistd.h>

#include "am/worker/nap.h"
#include "core/error.h"

void tmsg_worker_lock_shared(tmsg_worker_t *worker)
{
    if (pthread_mutex_trylock(&worker->lock) != 0) {
        atomic_fetch_add(&worker->lead.wanting, 1);
        pthread_mutex_lock(&worker->lock);
        atomic_fetch_sub(&worker->lead.wanting, 1);
    }
    tmsg_budget_enter(worker->budget);
}

void tmsg_worker_unlock_shared(tmsg_worker_t *worker)
{
    if (worker->asleep) {
        worker->asleep = false;
        tmsg_loop_signal(worker->wake_fd);
    }
    tmsg_worker_rouse(worker);
    if (worker->armed) {
        tmsg_loop_signal(worker->loop.event_fd);
    }
    tmsg_budget_leave(worker->budget);
    pthread_mutex_unlock(&worker->lock);
}

tmsg_status_t tmsg_worker_check(const tmsg_worker_t *worker)
{
    return worker->ending ? tmsg_error_set(TMSG_ERR_CLOSED,
                                           "the worker is being destroyed")
                          : TMSG_OK;
}

tmsg_status_t tmsg_worker_check_process(const tmsg_worker_t *worker)
{
    return worker->pid == getpid()
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "the worker belongs to the process that forked "
                                "this one; make another, with a context of its "
                                "own");
}

void tmsg_life_hold(tmsg_life_t *life) { tmsg_refs_take(&life->refs); }

void tmsg_life_drop(tmsg_life_t *life)
{
    if (tmsg_refs_drop(&life->refs)) {
        free(life);
    }
}

void tmsg_worker_due(tmsg_worker_t *worker, tmsg_due_t *due)
{
    tmsg_list_push(&worker->due, &due->node);
}

void tmsg_worker_arrived(tmsg_worker_t *worker)
{
    atomic_fetch_add_explicit(&worker->lead.arrivals, 1, memory_order_release);
    tmsg_worker_changed(worker);
}

uint64_t tmsg_worker_arrivals(const tmsg_worker_t *worker)
{
    return atomic_load_explicit(&worker->lead.arrivals, memory_order_acquire);
}

void tmsg_worker_changed(tmsg_worker_t *worker)
{
    worker->lead.changes++;
    if (worker->lead.waiters > 0) {
        pthread_cond_broadcast(&worker->changed);
    }
}
