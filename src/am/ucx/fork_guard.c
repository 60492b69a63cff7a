/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/fork_guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "am/shm/first_thread.h"
#include "core/error.h"

static atomic_uint open;
static bool without_thread;

static void in_child(void)
{
    without_thread = without_thread || atomic_load(&open) > 0;
}

static void set_fork_handler(void) { pthread_atfork(NULL, NULL, in_child); }

tmsg_status_t tmsg_fork_guard_check(void)
{
    return !without_thread
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "this process was forked from one that used "
                                "UCX, whose thread is not in it: fork before "
                                "the first connection, or let the child exec");
}

tmsg_status_t tmsg_fork_guard_check_start(void)
{
    tmsg_status_t status = tmsg_fork_guard_check();

    return status == TMSG_OK && tmsg_first_thread_has_ended(getpid())
               ? tmsg_error_set(TMSG_ERR_UNSUPPORTED, "UCX does not start: %s",
                                TMSG_FIRST_THREAD_WORDS)
               : status;
}

tmsg_status_t tmsg_fork_guard_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsg_status_t status = tmsg_fork_guard_check_start();

    if (status == TMSG_OK) {
        pthread_once(&once, set_fork_handler);
        atomic_fetch_add(&open, 1);
    }
    return status;
}

void tmsg_fork_guard_leave(void) { atomic_fetch_sub(&open, 1); }
