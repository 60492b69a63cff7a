/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/aside.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER;
static unsigned forks; /* that led to this process */

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The threads are not in the child. */
static void in_child(void)
{
    forks++;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void *make_calls(void *arg)
{
    tmsg_aside_t *aside = arg;
    tmsg_aside_job_t *job;

    (void)prctl(PR_SET_NAME, TMSG_ASIDE_NAME, 0, 0, 0);
    pthread_mutex_lock(&lock);
    while ((job = aside->first) != NULL) {
        aside->first = job->next;
        pthread_mutex_unlock(&lock);
        job->run(job);
        pthread_mutex_lock(&lock);
    }
    aside->running = false;
    pthread_cond_broadcast(&emptied);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Lock held. The calls of a thread that a fork() has left behind are made by
 * the next one. */
static bool is_running(const tmsg_aside_t *aside)
{
    return aside->running && aside->forks == forks;
}

void tmsg_aside(tmsg_aside_t *aside, tmsg_aside_job_t *job)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool taken;

    pthread_once(&once, watch_forks);
    job->next = NULL;
    pthread_mutex_lock(&lock);
    if (!is_running(aside)) {
        aside->forks = forks;
        aside->running = tmsg_thread_detach(make_calls, aside) == 0;
    }
    taken = aside->running;
    if (taken) {
        if (aside->first == NULL) {
            aside->first = job;
        } else {
            aside->last->next = job;
        }
        aside->last = job;
    }
    pthread_mutex_unlock(&lock);
    if (!taken) {
        job->run(job);
    }
}

bool tmsg_aside_wait(tmsg_aside_t *aside, uint64_t ms)
{
    struct timespec until;
    bool empty;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    while (is_running(aside) &&
           pthread_cond_timedwait(&emptied, &lock, &until) == 0) {
    }
    empty = !is_running(aside);
    pthread_mutex_unlock(&lock);
    return empty;
}
