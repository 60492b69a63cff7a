/* SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static void *run_job(void *arg)
{
    job_t *job = arg;

    if (digest_map(job->map, job->sums, &job->digest) != TMSG_OK) {
        digest_map(job->map, false, &job->digest);
    }
    job->ok =
        job->store->dir == NULL || store_save(job->store, job->map, &job->path,
                                              job->error, sizeof(job->error));
    eventfd_write(job->done_fd, 1);
    return NULL;
}

bool job_start(job_t *job)
{
    sigset_t all, before;
    int error;

    /* A signal is to interrupt what the main thread waits for. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&job->thread, NULL, run_job, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        snprintf(job->error, sizeof(job->error), "no thread: %s",
                 strerror(error));
    }
    return error == 0;
}

void job_finish(job_t *job)
{
    eventfd_t value;

    pthread_join(job->thread, NULL);
    eventfd_read(job->done_fd, &value);
}

void job_clear(job_t *job)
{
    free(job->digest.sums);
    free(job->path);
    job->digest = (digest_t){0};
    job->path = NULL;
    job->map = NULL;
}
