/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/lead.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "am/worker/engine.h"
#include "am/worker/memory.h"
#include "am/worker/nap.h"
#include "core/error.h"

/* A wait has at most this many turns after its deadline, while things come. */
#define LATE_MOST 64
/* No such turn begins later than this, in nanoseconds, after the first. */
#define LATE_NS 100000
/* A thread yields at most this often to threads that wait for the lock. */
#define GIVE_WAY_MOST 1000
/* A nap lasts at most this long, in nanoseconds, and so may wait what no peer
 * on this host sends. A shorter nap would set a timer, which costs more than
 * the nap: the kernel looks every 4 ms by itself. */
#define NAP_NS 4000000
/* There are no more naps after this many that were ended and brought nothing,
 * or after one that nothing ended. */
#define NAPS_VAIN 16

static _Thread_local const tmsg_callback_t *callbacks;
static _Thread_local const void *thread_context;
static atomic_bool has_contexts; /* some thread has had a context */

/* Returns whether a thread has had a context. Most programs have none, and need
 * not look for the thread's. */
static inline bool has_context(void)
{
    return atomic_load_explicit(&has_contexts, memory_order_relaxed);
}

const void *tmsg_thread_context(void) { return thread_context; }

const void *tmsg_thread_set_context(const void *now)
{
    const void *before = thread_context;

    if (now != NULL && !has_context()) {
        atomic_store_explicit(&has_contexts, true, memory_order_relaxed);
    }
    thread_context = now;
    return before;
}

void tmsg_thread_clear_context(void)
{
    if (has_context()) {
        thread_context = NULL;
    }
}

static bool thread_leads(const tmsg_worker_t *worker)
{
    return worker->lead.taken &&
           pthread_equal(worker->lead.leader, pthread_self());
}

/* Takes the lead if nobody has it. False: another thread leads. */
static bool take_lead(tmsg_worker_t *worker)
{
    if (!worker->lead.taken) {
        worker->lead.taken = true;
        worker->lead.leader = pthread_self();
    }
    return thread_leads(worker);
}

static void give_up_lead(tmsg_worker_t *worker)
{
    if (thread_leads(worker)) {
        worker->lead.taken = false;
        if (worker->lead.waiters > 0) { /* another thread may take the lead */
            pthread_cond_broadcast(&worker->changed);
        }
    }
}

static void count_callbacks(tmsg_worker_t *worker, unsigned more)
{
    unsigned count =
        atomic_load_explicit(&worker->lead.callbacks, memory_order_relaxed);

    atomic_store_explicit(&worker->lead.callbacks, count + more,
                          memory_order_relaxed);
}

void tmsg_callback_enter(tmsg_callback_t *callback, tmsg_worker_t *worker)
{
    give_up_lead(worker);
    count_callbacks(worker, 1);
    callback->worker = worker;
    callback->context = has_context() ? tmsg_thread_set_context(NULL) : NULL;
    if (tmsg_worker_is_shared(worker)) {
        callback->outer = callbacks;
        callbacks = callback;
    }
}

void tmsg_callback_leave(const tmsg_callback_t *callback)
{
    count_callbacks(callback->worker, -1u);
    if (tmsg_worker_is_shared(callback->worker)) {
        callbacks = callback->outer;
    }
    if (has_context()) {
        thread_context = callback->context;
    }
}

bool tmsg_worker_in_callback(const tmsg_worker_t *worker)
{
    const tmsg_callback_t *callback;

    if (atomic_load_explicit(&worker->lead.callbacks, memory_order_relaxed) ==
        0) {
        return false;
    }
    if (!tmsg_worker_is_shared(worker)) {
        return true; /* an unshared worker has one thread only */
    }
    callback = callbacks;
    while (callback != NULL && callback->worker != worker) {
        callback = callback->outer;
    }
    return callback != NULL;
}

/* One thread at a time runs callbacks, so that they run in the order in which
 * they became due. */
unsigned tmsg_worker_dispatch(tmsg_worker_t *worker)
{
    unsigned count = 0;
    tmsg_callback_t callback;

    if (worker->dispatching || worker->due.count == 0) {
        return 0;
    }
    worker->dispatching = true;
    tmsg_callback_enter(&callback, worker);
    while (worker->due.count > 0 && !worker->doomed) {
        tmsg_due_t *due =
            TMSG_CONTAINER_OF(tmsg_list_pop(&worker->due), tmsg_due_t, node);

        tmsg_worker_unlock(worker);
        due->run(due);
        tmsg_thread_clear_context();
        tmsg_worker_lock(worker);
        count++;
    }
    tmsg_callback_leave(&callback);
    worker->dispatching = false;
    return count;
}

void tmsg_worker_enter(tmsg_worker_t *worker)
{
    tmsg_worker_lock(worker);
    worker->lead.entered++;
    if (!tmsg_worker_is_shared(worker)) {
        tmsg_budget_enter(worker->budget);
    }
}

void tmsg_worker_unlock_quietly(tmsg_worker_t *worker)
{
    if (tmsg_worker_is_shared(worker)) {
        tmsg_budget_leave(worker->budget);
        pthread_mutex_unlock(&worker->lock);
    }
}

void tmsg_worker_stay(tmsg_worker_t *worker)
{
    tmsg_worker_enter(worker);
    tmsg_worker_unlock_quietly(worker);
}

/* A worker with a thread of its own is freed by that thread. */
void tmsg_worker_leave(tmsg_worker_t *worker, bool stirred)
{
    bool empty = --worker->lead.entered == 0;
    bool last = empty && worker->doomed && !worker->threaded;

    if (empty && !tmsg_worker_is_shared(worker)) {
        tmsg_budget_leave(worker->budget);
    }
    if (worker->ending) {
        tmsg_worker_changed(worker);
    }
    if (stirred) {
        tmsg_worker_unlock(worker);
    } else {
        tmsg_worker_unlock_quietly(worker);
    }
    if (last) {
        tmsg_engine.finish(worker);
    }
}

static unsigned drive_worker(tmsg_worker_t *worker)
{
    unsigned count = tmsg_engine.step(worker);

    if (count == 0 && worker->due.count == 0) {
        return 0;
    }
    count += tmsg_worker_dispatch(worker);
    if (count > 0) {
        tmsg_worker_changed(worker);
    }
    return count;
}

/* Notes that the calling thread is awake: it does not sleep on what it
 * armed. */
static void note_awake(tmsg_worker_t *worker)
{
    if (worker->armed && pthread_equal(worker->armer, pthread_self())) {
        worker->armed = false;
    }
}

unsigned tmsg_worker_progress(tmsg_worker_t *worker)
{
    unsigned count = 0;
    uint64_t before;

    tmsg_worker_enter(worker);
    before = worker->lead.changes;
    note_awake(worker);
    if (!tmsg_worker_in_callback(worker)) {
        count = drive_worker(worker);
    }
    if (count > 0) {
        tmsg_sharing_moved(&worker->sharing);
    }
    tmsg_worker_leave(worker, worker->lead.changes != before);
    return count;
}

/* Returns whether this core sent the last message that came by a fast box. */
static bool shares_core(const tmsg_worker_t *worker)
{
    int core = atomic_load_explicit(&worker->peer_core, memory_order_relaxed);

    return core != 0 && core - 1 == sched_getcpu();
}

/* Returns whether a wait may poll on. `now` is the time. */
static bool may_poll_on(tmsg_worker_t *worker, uint64_t now)
{
    return tmsg_sharing_pause(&worker->sharing, now, shares_core(worker));
}

int tmsg_worker_pause(tmsg_worker_t *worker)
{
    return may_poll_on(worker, tmsg_now_ns());
}

int tmsg_worker_fd(const tmsg_worker_t *worker)
{
    return worker->loop.epoll_fd;
}

/* This deadline has passed, whatever the time is. A caller that polls in vain
 * then reads one clock only (note_late()), which bounds how long it stays while
 * things come again and again. */
#define AT_ONCE 1

/* Returns the milliseconds until `deadline`, rounded up; -1 if there is none
 * (0). */
static int deadline_left_ms(uint64_t deadline)
{
    uint64_t now = tmsg_now_ns();

    if (deadline == 0) {
        return -1;
    }
    return now >= deadline ? 0 : (int)((deadline - now + 999999) / 1000000);
}

static bool deadline_has_passed(uint64_t deadline)
{
    return deadline != 0 && (deadline == AT_ONCE || tmsg_now_ns() >= deadline);
}

static uint64_t deadline_after(int timeout_ms)
{
    return timeout_ms < 0    ? 0
           : timeout_ms == 0 ? AT_ONCE
                             : tmsg_now_ns() + (uint64_t)timeout_ms * 1000000;
}

/* Yields to threads that sleep on the lock. A mutex goes to the thread that
 * asks first, which is the one that spins. */
static void give_way(tmsg_worker_t *worker)
{
    for (int i = 0; i < GIVE_WAY_MOST && atomic_load(&worker->lead.wanting) > 0;
         i++) {
        sched_yield();
    }
}

/* Tells what the leader waits for, until when, and since when nothing has
 * happened. */
typedef struct {
    bool (*done)(void *arg); /* NULL: the worker's own thread, for ever */
    void *arg;
    uint64_t deadline;
    uint64_t quiet_since;
    unsigned late_turns; /* turns that began after the deadline */
    uint64_t late_since; /* when the first of late_turns began */
    bool slept;
    bool dozes; /* fast boxes were told that it is about to nap */
} lead_t;

/* Notes that something has happened. */
static void end_quiet(lead_t *lead, tmsg_spin_t *spin)
{
    if (lead->slept) {
        tmsg_spin_slept(spin, tmsg_now_ns() - lead->quiet_since);
    } else if (lead->quiet_since != 0) {
        tmsg_spin_polled(spin);
    }
    lead->quiet_since = 0;
    lead->slept = false;
    lead->dozes = false;
}

/* Returns the time until which a nap may last. */
static uint64_t nap_until(const tmsg_worker_t *worker, const lead_t *lead,
                          uint64_t now)
{
    const tmsg_timer_t *timer = worker->loop.timers;
    uint64_t until = now + NAP_NS;

    if (lead->deadline != 0 && lead->deadline < until) {
        until = lead->deadline;
    }
    return timer != NULL && timer->deadline_ns < until ? timer->deadline_ns
                                                       : until;
}

/* Ends a nap. A nap that nothing ended counts as NAPS_VAIN, any other as one: a
 * peer mostly calls late. */
static void end_nap(tmsg_worker_t *worker, lead_t *lead, tmsg_status_t status)
{
    lead->slept = true;
    lead->dozes = false;
    tmsg_worker_lock(worker);
    worker->lead.naps = false;
    worker->lead.naps_vain += status == TMSG_OK ? 1 : NAPS_VAIN;
    worker->lead.no_naps = status == TMSG_ERR_UNSUPPORTED;
    tmsg_worker_nap_end(worker);
    tmsg_worker_unlock_quietly(worker);
}

/* Returns whether the leader may nap. Lock held. */
static bool may_nap(tmsg_worker_t *worker, const lead_t *lead)
{
    return worker->fastboxes.count > 0 && !worker->lead.no_naps &&
           worker->lead.naps_vain < NAPS_VAIN && !worker->ending &&
           take_lead(worker) && tmsg_engine.idle(worker) &&
           (lead->done == NULL || !lead->done(lead->arg));
}

/* Naps if all peers wake a worker that naps. First the peers are told, and the
 * leader looks everywhere once more; the next call naps. False: the worker may
 * not nap. */
static bool nap_on_fastboxes(tmsg_worker_t *worker, lead_t *lead, uint64_t now)
{
    tmsg_nap_t nap;
    uint64_t until;
    bool may;

    tmsg_worker_lock(worker);
    may = may_nap(worker, lead);
    if (!may && lead->dozes) {
        tmsg_worker_nap_end(worker);
    }
    if (!may || !lead->dozes) {
        lead->dozes = may && tmsg_worker_nap_begin(worker);
        tmsg_worker_unlock_quietly(worker);
        return lead->dozes;
    }
    tmsg_worker_nap_words(worker, &nap);
    until = nap_until(worker, lead, now);
    worker->lead.naps = true;
    tmsg_worker_unlock_quietly(worker);
    end_nap(worker, lead, tmsg_fastbox_nap(&nap, until));
    return true;
}

/* Spins for a while, then sleeps. Once other threads see that the leader
 * sleeps, what it waits for is looked at again. */
static void rest_leader(tmsg_worker_t *worker, lead_t *lead)
{
    struct pollfd fds[] = {{worker->loop.epoll_fd, POLLIN, 0},
                           {worker->wake_fd, POLLIN, 0}};
    uint64_t now;

    if (lead->deadline == AT_ONCE) {
        lead->quiet_since = 1; /* any value but 0: nobody asks for how long */
        return;
    }
    now = tmsg_now_ns();
    if (lead->quiet_since == 0) {
        lead->quiet_since = now;
    }
    if (now - lead->quiet_since < tmsg_spin_ns(&worker->spin) &&
        may_poll_on(worker, now)) {
        return;
    }
    if (nap_on_fastboxes(worker, lead, now)) {
        return;
    }
    tmsg_worker_lock(worker);
    /* If the descriptor is armed, the signal is for the thread that armed
     * it. */
    if (!worker->armed) {
        tmsg_loop_hear(&worker->loop);
    }
    if (worker->ending || !take_lead(worker) ||
        (lead->done != NULL && lead->done(lead->arg)) ||
        tmsg_engine.arm(worker) != TMSG_OK) {
        tmsg_worker_unlock_quietly(worker);
        return;
    }
    worker->asleep = true;
    lead->slept = true;
    tmsg_worker_unlock_quietly(worker);
    poll(fds, 2, deadline_left_ms(lead->deadline));
    tmsg_worker_lock(worker);
    /* The thread that woke this one has signalled wake_fd. */
    if (!worker->asleep) {
        tmsg_loop_drain(worker->wake_fd);
    }
    worker->asleep = false;
    tmsg_worker_unlock_quietly(worker);
}

/* Takes one turn of the leader. Lock held; it is released meanwhile. */
static void take_turn(tmsg_worker_t *worker, lead_t *lead)
{
    uint64_t before = worker->lead.changes;
    bool quiet = drive_worker(worker) == 0;

    if (!quiet) {
        worker->lead.naps_vain = 0;
        if (lead->dozes) {
            tmsg_worker_nap_end(worker);
        }
    }
    if (worker->lead.changes != before) {
        tmsg_worker_unlock(worker);
    } else {
        tmsg_worker_unlock_quietly(worker);
    }
    if (quiet) {
        rest_leader(worker, lead);
    } else {
        end_quiet(lead, &worker->spin);
        tmsg_sharing_moved(&worker->sharing);
    }
    give_way(worker);
    tmsg_worker_lock(worker);
}

/* Sleeps until something has changed. Lock held; it is released meanwhile. */
static void await_change(tmsg_worker_t *worker, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000ULL),
                             .tv_nsec = (long)(deadline % 1000000000ULL)};

    worker->lead.waiters++;
    tmsg_budget_leave(worker->budget);
    if (deadline == 0) {
        pthread_cond_wait(&worker->changed, &worker->lock);
    } else {
        pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    }
    tmsg_budget_enter(worker->budget);
    worker->lead.waiters--;
}

void tmsg_worker_await_leaving(tmsg_worker_t *worker)
{
    while (worker->lead.entered > 0) {
        await_change(worker, 0);
    }
}

/* Returns whether the wait is over time. A turn may last: what came meanwhile
 * is looked at at least once before the time is up. What a bulk stream brings
 * may go on for ever, and is therefore bounded. */
static bool leader_is_late(const lead_t *lead)
{
    return lead->late_turns >= LATE_MOST ||
           (lead->late_turns > 0 &&
            (lead->quiet_since != 0 ||
             tmsg_now_ns() - lead->late_since > LATE_NS));
}

static void note_late(lead_t *lead)
{
    if (deadline_has_passed(lead->deadline) && lead->late_turns++ == 0) {
        lead->late_since = tmsg_now_ns();
    }
}

/* Makes the error of a wait that timed out. A caller that polls gets it all the
 * time, so that it has to be cheap. */
static tmsg_status_t timed_out(const tmsg_worker_t *worker, int timeout_ms,
                               const char *missing, const char *of)
{
    char number[16] = "0", why[200];
    const char *const texts[] = {missing, of, " in ", number, " ms", why};

    if (timeout_ms != 0) {
        snprintf(number, sizeof(number), "%d", timeout_ms);
    }
    tmsg_worker_is_starving(worker, why, sizeof(why));
    return tmsg_error_join(TMSG_ERR_TIMED_OUT, texts,
                           sizeof(texts) / sizeof(texts[0]));
}

tmsg_status_t tmsg_worker_until(tmsg_worker_t *worker, bool (*done)(void *arg),
                                void *arg, int timeout_ms, const char *missing,
                                const char *of)
{
    lead_t lead = {
        .done = done, .arg = arg, .deadline = deadline_after(timeout_ms)};
    tmsg_status_t status = TMSG_IN_PROGRESS;

    note_awake(worker);
    while (status == TMSG_IN_PROGRESS) {
        bool follows = worker->lead.taken && !thread_leads(worker);

        if (worker->ending) {
            status = tmsg_error_set(TMSG_ERR_CLOSED,
                                    "the worker was destroyed meanwhile");
        } else if (done(arg)) {
            status = TMSG_OK;
        } else if (tmsg_worker_in_callback(worker)) {
            status = tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                                    "a callback must not wait");
        } else if ((follows || leader_is_late(&lead)) &&
                   deadline_has_passed(lead.deadline)) {
            status = timed_out(worker, timeout_ms, missing, of);
            if (timeout_ms != 0) { /* the wait had the time to sleep */
                tmsg_spin_gave_up(&worker->spin);
            }
        } else if (follows) {
            await_change(worker, lead.deadline);
        } else {
            note_late(&lead);
            take_lead(worker);
            take_turn(worker, &lead);
        }
    }
    if (lead.dozes) {
        tmsg_worker_nap_end(worker);
    }
    give_up_lead(worker);
    return status;
}

void *tmsg_worker_run(void *arg)
{
    tmsg_worker_t *worker = arg;
    lead_t lead = {.done = NULL};
    bool doomed;

    tmsg_worker_enter(worker);
    while (!worker->ending) {
        if (take_lead(worker)) {
            take_turn(worker, &lead);
        } else {
            await_change(worker, 0);
        }
    }
    give_up_lead(worker);
    doomed = worker->doomed;
    tmsg_worker_leave(worker, false);
    if (doomed) { /* nobody joins this thread */
        pthread_detach(pthread_self());
        tmsg_worker_lock(worker);
        tmsg_worker_await_leaving(worker);
        tmsg_worker_unlock(worker);
        tmsg_engine.finish(worker);
    }
    return NULL;
}

typedef struct {
    const tmsg_worker_t *worker;
    uint64_t changes;
} change_t;

static bool has_changed(void *arg)
{
    const change_t *change = arg;

    return change->worker->lead.changes != change->changes;
}

tmsg_status_t tmsg_worker_wait(tmsg_worker_t *worker, int timeout_ms)
{
    change_t change = {worker, 0};
    tmsg_status_t status;

    tmsg_worker_enter(worker);
    change.changes = worker->lead.changes;
    status = tmsg_worker_until(worker, has_changed, &change, timeout_ms,
                               "nothing happened", "");
    tmsg_worker_leave(worker, false);
    return status;
}
