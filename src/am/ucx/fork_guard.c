/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/fork_guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "am/shm/first_thread.h"
#include "am/ucx/async_thread.h"
#include "core/error.h"

#define PATIENCE_S 1

/* Shared by all that open or close UCX. fork() has it alone. */
static pthread_rwlock_t moving = PTHREAD_RWLOCK_INITIALIZER;
static _Thread_local bool still; /* fork() in this thread has it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned open;   /* `lock` protects it; 0 where is_child */
static bool is_child;   /* UCX's thread is not here, and UCX thinks it is */
static bool has_hooks;  /* UCX was opened once: its memory hooks stay */
static bool inherits;   /* so it was before a fork() */
static const char *why; /* UCX does not work here; NULL: it does */

static void before_fork(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    still = pthread_rwlock_timedwrlock(&moving, &until) == 0;
}

static void in_parent(void)
{
    if (still) {
        pthread_rwlock_unlock(&moving);
    }
}

static void in_child(void)
{
    /* UCX may be half open, where `open` does not count it. */
    is_child = is_child || open > 0 || !still;
    inherits = inherits || has_hooks || is_child;
    if (is_child && why == NULL) {
        why = still ? tmsg_async_thread_renew()
                    : "another thread was opening or closing a connection";
    }
    open = 0;
    pthread_mutex_init(&lock, NULL);
    pthread_rwlock_init(&moving, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

bool tmsg_fork_guard_inherits(void) { return inherits; }

tmsg_status_t tmsg_fork_guard_check(void)
{
    return why == NULL
               ? TMSG_OK
               : tmsg_error_set(
                     TMSG_ERR_UNSUPPORTED,
                     "this process was forked from one with open connections, "
                     "and cannot replace UCX's thread (ucs/async/thread.c), "
                     "which fork() does not copy: %s. Fork before the first "
                     "connection, or start a new program (Python: "
                     "multiprocessing_context=\"spawn\" or \"forkserver\")",
                     why);
}

tmsg_status_t tmsg_fork_guard_check_start(void)
{
    tmsg_status_t status = tmsg_fork_guard_check();

    return status == TMSG_OK && tmsg_first_thread_has_ended(getpid())
               ? tmsg_error_set(TMSG_ERR_UNSUPPORTED, "UCX does not start: %s",
                                TMSG_FIRST_THREAD_WORDS)
               : status;
}

void tmsg_fork_guard_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_rwlock_rdlock(&moving);
}

void tmsg_fork_guard_end(void) { pthread_rwlock_unlock(&moving); }

tmsg_status_t tmsg_fork_guard_enter(void)
{
    tmsg_status_t status = tmsg_fork_guard_check_start();

    pthread_mutex_lock(&lock);
    has_hooks = true;
    if (status == TMSG_OK && is_child) {
        status = tmsg_async_thread_start();
    } else if (status == TMSG_OK && open++ == 0) {
        tmsg_async_thread_hold();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tmsg_fork_guard_leave(void)
{
    pthread_mutex_lock(&lock);
    if (!is_child && --open == 0) {
        tmsg_async_thread_drop();
    }
    pthread_mutex_unlock(&lock);
}
