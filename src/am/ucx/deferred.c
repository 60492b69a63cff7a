/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/deferred.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "am/ucx/linger.h"
#include "core/log.h"
#include "core/thread.h"

#define UCX_MOST 16
#define PEERS_MOST 64 /* peers that do not hang up: each has a socket */
/* UCX workers whose peers have time left: as many as a program may give up at
 * once, and have descriptors for. */
#define YOUNG_MOST 64
/* Most peers that run hang up within this time. */
#define PATIENCE_NS 5000000ULL
/* exit() and fork() wait at most this long: the time that peers have, and some
 * for a busy machine. */
#define SETTLE_NS 1000000000ULL
#define NAP_FIRST_NS 500000ULL
#define NAP_MOST_NS 16000000ULL
#define NS_PER_S 1000000000ULL

static _Atomic(tmsg_ucx_t *) deferred;
static atomic_uint count;
static atomic_uint young; /* how many of them have peers with time left */

static atomic_bool leaving; /* the process exits */

/* Held by whoever looks at the list. */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

/* Protects what follows. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stirred; /* the thread is to look, or has ended */
static atomic_bool running;    /* the thread is there */

static void push_deferred(tmsg_ucx_t *ucx)
{
    ucx->next = atomic_load(&deferred);
    while (!atomic_compare_exchange_weak(&deferred, &ucx->next, ucx)) {
    }
}

/* Looks at one. Returns whether it stays. `tally` NULL: another one counts it,
 * and so finds out that its peers have had their time. */
static bool look_at(tmsg_ucx_t *ucx, tmsg_linger_tally_t *tally)
{
    bool stays = tmsg_linger_look(ucx);

    if (ucx->young && (!stays || (tally != NULL && tmsg_linger_over(ucx)))) {
        ucx->young = false;
        atomic_fetch_sub(&young, 1);
    }
    if (tally != NULL && !ucx->young && stays) {
        tmsg_linger_tell(ucx, tally);
    }
    return stays;
}

/* Closes those whose peers have hung up, unless the process exits: then the
 * kernel closes them faster. `looking` held. */
static void look_at_all(tmsg_linger_tally_t *tally)
{
    tmsg_ucx_t *ucx, *next;

    for (ucx = atomic_exchange(&deferred, NULL); ucx != NULL; ucx = next) {
        next = ucx->next;
        if (look_at(ucx, tally) || atomic_load(&leaving)) {
            push_deferred(ucx);
        } else {
            atomic_fetch_sub(&count, 1);
            tmsg_ucx_let_go(ucx);
        }
    }
}

static struct timespec in_time(uint64_t ns)
{
    uint64_t at = tmsg_now_ns() + ns;

    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S),
                             .tv_nsec = (long)(at % NS_PER_S)};
}

static void *look_after(void *arg)
{
    tmsg_linger_tally_t tally = {.count = 0};
    uint64_t nap_ns = NAP_FIRST_NS;
    unsigned before = 0;
    struct timespec until;

    for (;;) {
        unsigned left;

        pthread_mutex_lock(&looking);
        look_at_all(&tally);
        left = atomic_load(&young);
        pthread_mutex_unlock(&looking);
        if (left == 0) {
            if (atomic_load(&leaving)) {
                tmsg_log_outlives();
            }
            tmsg_linger_log(&tally);
        }
        nap_ns = left > before           ? NAP_FIRST_NS
                 : nap_ns >= NAP_MOST_NS ? NAP_MOST_NS
                                         : 2 * nap_ns;
        before = left;
        pthread_mutex_lock(&lock);
        if (left == 0 && atomic_load(&young) == 0) {
            break; /* all has been told */
        }
        until = in_time(nap_ns);
        if (atomic_load(&young) > 0) {
            pthread_cond_timedwait(&stirred, &lock, &until);
        }
        pthread_mutex_unlock(&lock);
    }
    atomic_store(&running, false);
    pthread_cond_broadcast(&stirred);
    pthread_mutex_unlock(&lock);
    return arg;
}

/* Waits until the thread has ended. `lock` held. */
static void await_end(void)
{
    struct timespec until = in_time(SETTLE_NS);
    int error = 0;

    while (atomic_load(&running) && error == 0) {
        error = pthread_cond_timedwait(&stirred, &lock, &until);
    }
}

static void init_condition(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&stirred, &attr);
    pthread_condattr_destroy(&attr);
}

static void settle_at_exit(void)
{
    atomic_store(&leaving, true);
    pthread_mutex_lock(&lock);
    await_end();
    pthread_mutex_unlock(&lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    await_end();
}

static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The thread is not in the child, and the UCX workers are the parent's.
 * `of_parent` keeps them reachable for leak checkers. */
static void in_child(void)
{
    static tmsg_ucx_t *of_parent;

    of_parent = atomic_exchange(&deferred, NULL);
    (void)of_parent;
    atomic_store(&count, 0);
    atomic_store(&young, 0);
    atomic_store(&running, false);
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&looking, NULL);
    init_condition();
}

static void set_up(void)
{
    init_condition();
    pthread_atfork(before_fork, in_parent, in_child);
    atexit(settle_at_exit);
}

/* Starts the thread. `lock` held. */
static bool start(void)
{
    atomic_store(&running, true);
    if (tmsg_thread_detach(look_after, NULL) != 0) {
        atomic_store(&running, false);
    }
    return atomic_load(&running);
}

/* Returns whether the thread looks after them. */
static bool is_looked_after(void)
{
    bool there;

    pthread_mutex_lock(&lock);
    there = atomic_load(&running) || (!atomic_load(&leaving) && start());
    pthread_cond_broadcast(&stirred);
    pthread_mutex_unlock(&lock);
    return there;
}

void tmsg_deferred_take(tmsg_ucx_t *ucx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsg_linger_tally_t tally = {.count = 0};
    bool waits = !tmsg_linger_over(ucx);

    pthread_once(&once, set_up);
    ucx->young = waits;
    if (!waits) {
        tmsg_linger_tell(ucx, &tally);
        tmsg_linger_log(&tally);
        if (ucx->abandoned && ucx->late.count == 0) {
            tmsg_log_of(TMSG_LOG_LEFT_KIND, "peers that stay", TMSG_LOG_WARN,
                        "there was no memory to see when a peer hangs up: "
                        "shared memory that it may write to is left behind");
        }
    }
    atomic_fetch_add(&count, 1);
    atomic_fetch_add(&young, waits);
    push_deferred(ucx);
    if (waits) {
        (void)is_looked_after(); /* otherwise sweeps look */
    }
}

uint64_t tmsg_deferred_patience_ns(void)
{
    unsigned waiting = atomic_load(&young);

    return waiting >= YOUNG_MOST ? UINT64_MAX : waiting > 0 ? 0 : PATIENCE_NS;
}

/* The thread tells of all peers in one line; where it could not be started,
 * this tells. */
void tmsg_deferred_sweep(void)
{
    tmsg_linger_tally_t tally = {.count = 0};

    if (atomic_load(&count) > 0 && pthread_mutex_trylock(&looking) == 0) {
        look_at_all(atomic_load(&running) ? NULL : &tally);
        pthread_mutex_unlock(&looking);
        tmsg_linger_log(&tally);
    }
}

bool tmsg_deferred_is_waiting(void) { return atomic_load(&young) > 0; }

bool tmsg_deferred_is_full(const tmsg_ucx_t *first)
{
    unsigned coming = 0;

    tmsg_deferred_sweep();
    for (const tmsg_ucx_t *ucx = first; ucx != NULL; ucx = ucx->next) {
        coming += ucx->retired && ucx->lingering.count + ucx->late.count > 0;
    }
    /* In this order: what is young no more is counted. */
    return atomic_load(&count) + coming >= UCX_MOST + atomic_load(&young) ||
           tmsg_linger_count_late() >= PEERS_MOST;
}
