/* SPDX-License-Identifier: BSD-3-Clause */
/* How a worker is driven: by polling, by its descriptor, by waiting calls or by
 * a thread of its own. */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>

#include "am/endpoint.h"
#include "core/error.h"

#define LOOK_EVERY_QUIET 32  /* progress calls that found nothing */
#define LOOK_EVERY_BUSY 1024 /* or anything */
#define SHARED_NAP_MS 5      /* longest sleep while others wait as well */
#define GIVE_WAY_MOST 1000   /* yields to those who wait for the lock */
#define DRAIN_MOST 10000     /* progress calls to hear a dead peer out */
#define DRAIN_QUIET 16       /* of them without event, to call it silent */

static unsigned do_chores(tmsg_worker_t *worker)
{
    unsigned count = 0;
    tmsg_endpoint_t *endpoint = worker->chores;

    worker->chores = NULL;
    while (endpoint != NULL) {
        tmsg_endpoint_t *next = endpoint->next_chore;

        endpoint->has_chores = false;
        tmsg_endpoint_chores(endpoint);
        tmsg_endpoint_drop(endpoint);
        endpoint = next;
        count++;
    }
    return count;
}

bool tmsg_worker_drain(tmsg_worker_t *worker, tmsg_ucx_t *ucx)
{
    unsigned quiet = 0;

    worker->inside = true;
    for (unsigned i = 0; i < DRAIN_MOST && quiet < DRAIN_QUIET; i++) {
        quiet = ucp_worker_progress(ucx->ucp) == 0 ? quiet + 1 : 0;
    }
    worker->inside = false;
    return quiet >= DRAIN_QUIET;
}

unsigned tmsg_worker_step(tmsg_worker_t *worker)
{
    unsigned count = 0;

    worker->sleeping = false;
    worker->inside = true;
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        count += ucp_worker_progress(ucx->ucp);
    }
    worker->inside = false;
    worker->quiet += count == 0 ? LOOK_EVERY_BUSY / LOOK_EVERY_QUIET : 1;
    if (worker->look || worker->quiet >= LOOK_EVERY_BUSY) {
        worker->look = false;
        worker->quiet = 0;
        count += tmsg_loop_run(&worker->loop);
    }
    if (worker->fetch.head != NULL) {
        count += tmsg_messages_fetch(worker);
    }
    if (worker->chores != NULL) {
        count += do_chores(worker);
    }
    if (worker->has_retired) {
        tmsg_worker_close_retired(worker);
    }
    return count;
}

/* Lock held. One thread at a time runs callbacks, so that their order is the
 * order in which they became due. */
unsigned tmsg_worker_dispatch(tmsg_worker_t *worker)
{
    unsigned count = 0;

    if (worker->dispatching) {
        return 0;
    }
    worker->dispatching = true;
    worker->dispatcher = pthread_self();
    while (worker->due_head != NULL && !worker->doomed) {
        tmsg_due_t *due = worker->due_head;

        worker->due_head = due->next;
        if (worker->due_head == NULL) {
            worker->due_tail = &worker->due_head;
        }
        tmsg_worker_unlock(worker);
        due->run(due);
        tmsg_worker_lock(worker);
        count++;
    }
    worker->dispatching = false;
    return count;
}

bool tmsg_worker_in_callback(const tmsg_worker_t *worker)
{
    return worker->dispatching &&
           pthread_equal(worker->dispatcher, pthread_self());
}

static void enter(tmsg_worker_t *worker)
{
    tmsg_worker_lock(worker);
    worker->entered++;
}

/* Gives the lock back; the last one out ends a worker that was destroyed
 * inside a callback. A worker's own thread ends it in tmsg_worker_run(). */
static void leave(tmsg_worker_t *worker)
{
    bool last = --worker->entered == 0 && worker->doomed &&
                !(worker->flags & TMSG_WORKER_THREAD);

    tmsg_worker_unlock(worker);
    if (last) {
        tmsg_worker_finish(worker);
    }
}

unsigned tmsg_worker_progress(tmsg_worker_t *worker)
{
    unsigned count = 0;

    enter(worker);
    if (!tmsg_worker_in_callback(worker)) {
        count = tmsg_worker_step(worker);
        count += tmsg_worker_dispatch(worker);
    }
    leave(worker);
    return count;
}

int tmsg_worker_fd(const tmsg_worker_t *worker)
{
    return worker->loop.epoll_fd;
}

/* Lock held. Another thread's unlock signals while `sleeping` is set. */
static tmsg_status_t arm(tmsg_worker_t *worker)
{
    if (worker->due_head != NULL || worker->chores != NULL) {
        return TMSG_ERR_BUSY;
    }
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        ucs_status_t ucs = ucp_worker_arm(ucx->ucp);

        if (ucs == UCS_ERR_BUSY) {
            return TMSG_ERR_BUSY;
        }
        if (ucs != UCS_OK) {
            return tmsg_error_set(TMSG_ERR_INTERNAL, "ucp_worker_arm: %s",
                                  ucs_status_string(ucs));
        }
    }
    tmsg_loop_arm(&worker->loop);
    worker->look = true;
    return TMSG_OK;
}

/* Gives the lock back so that whoever takes it next signals. */
static void unlock_asleep(tmsg_worker_t *worker)
{
    if (tmsg_worker_is_shared(worker)) {
        worker->sleeping = true;
        pthread_mutex_unlock(&worker->lock);
    }
}

tmsg_status_t tmsg_worker_arm(tmsg_worker_t *worker)
{
    tmsg_status_t status;

    tmsg_worker_lock(worker);
    status = arm(worker);
    if (status == TMSG_OK) {
        unlock_asleep(worker);
    } else {
        tmsg_worker_unlock(worker);
    }
    return status;
}

/* Milliseconds until `deadline`, rounded up; -1 for none (0). */
static int left_ms(uint64_t deadline)
{
    uint64_t now = tmsg_now_ns();

    if (deadline == 0) {
        return -1;
    }
    return now >= deadline ? 0 : (int)((deadline - now + 999999) / 1000000);
}

static bool expired(uint64_t deadline)
{
    return deadline != 0 && tmsg_now_ns() >= deadline;
}

static uint64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? 0
                          : tmsg_now_ns() + (uint64_t)timeout_ms * 1000000 + 1;
}

/* A mutex goes to whoever asks first, which is the one that spins: it lets
 * those who sleep on the lock have it. */
static void give_way(tmsg_worker_t *worker)
{
    for (int i = 0; i < GIVE_WAY_MOST && atomic_load(&worker->wanting) > 0;
         i++) {
        sched_yield();
    }
}

/* Spins for a while, then sleeps on a worker that this thread drives. */
static void rest(tmsg_worker_t *worker, uint64_t *quiet_since,
                 uint64_t deadline)
{
    struct pollfd fd = {.fd = worker->loop.epoll_fd, .events = POLLIN};
    int timeout_ms = left_ms(deadline);

    if (*quiet_since == 0) {
        *quiet_since = tmsg_now_ns();
    }
    if (tmsg_now_ns() - *quiet_since < worker->spin_ns) {
        return;
    }
    tmsg_worker_lock(worker);
    if (atomic_load(&worker->stopping) || arm(worker) != TMSG_OK) {
        tmsg_worker_unlock(worker);
        return;
    }
    if (worker->waiters > 1 && (timeout_ms < 0 || timeout_ms > SHARED_NAP_MS)) {
        timeout_ms = SHARED_NAP_MS; /* they may take our wake-up */
    }
    unlock_asleep(worker);
    poll(&fd, 1, timeout_ms);
    tmsg_worker_lock(worker);
    worker->sleeping = false;
    tmsg_worker_unlock(worker);
}

/* Waits for the worker's own thread to get it done. Lock held. */
static void await_thread(tmsg_worker_t *worker, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000ULL),
                             .tv_nsec = (long)(deadline % 1000000000ULL)};

    if (deadline == 0) {
        pthread_cond_wait(&worker->changed, &worker->lock);
    } else {
        pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    }
}

static tmsg_status_t until_thread(tmsg_worker_t *worker,
                                  bool (*done)(void *arg), void *arg,
                                  uint64_t deadline)
{
    while (!done(arg) && !expired(deadline)) {
        await_thread(worker, deadline);
    }
    return done(arg) ? TMSG_OK : TMSG_ERR_TIMED_OUT;
}

/* Lock held on entry and return. */
static tmsg_status_t until_driven(tmsg_worker_t *worker,
                                  bool (*done)(void *arg), void *arg,
                                  uint64_t deadline)
{
    uint64_t quiet_since = 0;

    for (;;) {
        unsigned count = tmsg_worker_step(worker);

        count += tmsg_worker_dispatch(worker);
        worker->changes += count > 0;
        if (done(arg)) {
            return TMSG_OK;
        }
        if (expired(deadline) || worker->doomed) {
            return TMSG_ERR_TIMED_OUT;
        }
        tmsg_worker_unlock(worker);
        if (count == 0) {
            rest(worker, &quiet_since, deadline);
        } else {
            quiet_since = 0;
        }
        give_way(worker);
        tmsg_worker_lock(worker);
    }
}

tmsg_status_t tmsg_worker_until(tmsg_worker_t *worker, bool (*done)(void *arg),
                                void *arg, int timeout_ms)
{
    uint64_t deadline = deadline_of(timeout_ms);
    tmsg_status_t status;

    enter(worker);
    if (done(arg)) {
        leave(worker);
        return TMSG_OK;
    }
    if (tmsg_worker_in_callback(worker) ||
        ((worker->flags & TMSG_WORKER_THREAD) &&
         pthread_equal(worker->thread, pthread_self()))) {
        leave(worker);
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK, "a callback may not wait");
    }
    worker->waiters++;
    status = worker->flags & TMSG_WORKER_THREAD
                 ? until_thread(worker, done, arg, deadline)
                 : until_driven(worker, done, arg, deadline);
    worker->waiters--;
    leave(worker);
    if (status != TMSG_OK) {
        tmsg_error_set(status, "timed out after %d ms", timeout_ms);
    }
    return status;
}

void *tmsg_worker_run(void *arg)
{
    tmsg_worker_t *worker = arg;
    uint64_t quiet_since = 0;

    while (!atomic_load(&worker->stopping)) {
        if (tmsg_worker_progress(worker) > 0) {
            quiet_since = 0;
        } else {
            rest(worker, &quiet_since, 0);
        }
        give_way(worker);
    }
    if (worker->doomed) { /* nobody joins this thread */
        pthread_detach(pthread_self());
        tmsg_worker_finish(worker);
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

    return change->worker->changes != change->changes;
}

tmsg_status_t tmsg_worker_wait(tmsg_worker_t *worker, int timeout_ms)
{
    change_t change = {worker, 0};

    tmsg_worker_lock(worker);
    change.changes = worker->changes;
    tmsg_worker_unlock(worker);
    return tmsg_worker_until(worker, has_changed, &change, timeout_ms);
}
