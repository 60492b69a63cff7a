/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on a thread beside the caller's. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/list.h"
#include "memory/aside.h"
#include "support/must.h"

#define JOBS 5

typedef struct {
    tmsg_aside_job_t job;
    int number;
} numbered_t;

static tmsg_aside_t row;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_int done;
static int order[JOBS + 1]; /* the child of a fork has one more */
static pthread_t maker;

static void run(tmsg_aside_job_t *job)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    maker = pthread_self();
    order[done++] = TMSG_CONTAINER_OF(job, numbered_t, job)->number;
}

static void add_all(numbered_t *jobs)
{
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (numbered_t){{.run = run}, i};
        tmsg_aside(&row, &jobs[i].job);
    }
}

Test(aside, makes_calls_in_their_order_and_has_nobody_wait)
{
    static numbered_t jobs[JOBS];

    pthread_mutex_lock(&gate);
    add_all(jobs);
    must_eq(done, 0);
    must_true(!tmsg_aside_wait(&row, 1));
    pthread_mutex_unlock(&gate);
    must_true(tmsg_aside_wait(&row, 20000));
    must_eq(done, JOBS);
    for (int i = 0; i < JOBS; i++) {
        must_eq(order[i], i);
    }
    must_true(!pthread_equal(maker, pthread_self()));
}

/* A fork() leaves the thread behind, with what it had not called. */
Test(aside, goes_on_in_the_child_of_a_fork)
{
    static numbered_t jobs[JOBS], last = {{.run = run}, 9};
    int status;
    pid_t child;

    pthread_mutex_lock(&gate);
    add_all(jobs);
    child = fork();
    pthread_mutex_unlock(&gate);
    if (child == 0) {
        tmsg_aside(&row, &last.job);
        _exit(tmsg_aside_wait(&row, 20000) && order[done - 1] == 9 ? 0 : 1);
    }
    must_true(tmsg_aside_wait(&row, 20000));
    must_true(waitpid(child, &status, 0) == child);
    must_eq(status, 0);
}
