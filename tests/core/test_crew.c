/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/crew.h"

#define JOBS 9
#define ROUNDS 2000

typedef struct {
    int done;
    bool blocks; /* the thread that did it blocks signals */
    pthread_t by;
} job_t;

static void do_job(void *arg)
{
    job_t *job = arg;
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    job->blocks = sigismember(&blocked, SIGTERM) == 1;
    job->by = pthread_self();
    job->done++;
}

static void do_slowly(void *arg)
{
    usleep(20 * 1000);
    do_job(arg);
}

static void run_all(tmsg_crew_t *crew, job_t *jobs)
{
    for (size_t count = 0; count <= JOBS; count++) {
        for (int round = 1; round <= ROUNDS; round++) {
            tmsg_crew_run(crew, do_job, jobs, sizeof(jobs[0]), count);
        }
        for (size_t i = 0; i < JOBS; i++) {
            cr_assert(eq(int, jobs[i].done, i < count ? ROUNDS : 0));
            jobs[i].done = 0;
        }
    }
}

Test(crew, does_each_job_once)
{
    tmsg_crew_t *crew = tmsg_crew_create(3);
    job_t jobs[JOBS] = {{0}};

    cr_assert(ne(ptr, crew, NULL));
    run_all(crew, jobs);
    tmsg_crew_destroy(crew);
}

Test(crew, divides_the_work)
{
    tmsg_crew_t *crew = tmsg_crew_create(1);
    job_t jobs[2] = {{0}};

    cr_assert(ne(ptr, crew, NULL));
    tmsg_crew_run(crew, do_slowly, jobs, sizeof(jobs[0]), 2);
    cr_expect(eq(int, pthread_equal(jobs[0].by, jobs[1].by), 0));
    cr_expect(eq(int, jobs[0].blocks + jobs[1].blocks, 1));
    tmsg_crew_destroy(crew);
}

Test(crew, of_none_leaves_it_to_the_caller)
{
    job_t jobs[JOBS] = {{0}};

    cr_expect(eq(ptr, tmsg_crew_create(0), NULL));
    run_all(NULL, jobs);
    tmsg_crew_destroy(NULL);
}

Test(crew, is_none_in_a_child)
{
    tmsg_crew_t *crew = tmsg_crew_create(3);
    job_t jobs[JOBS] = {{0}};
    int status;
    pid_t child = fork();

    if (child == 0) {
        run_all(crew, jobs);
        tmsg_crew_destroy(crew);
        _exit(0);
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(eq(int, status, 0));
    tmsg_crew_destroy(crew);
}
