/* SPDX-License-Identifier: BSD-3-Clause */
/* job.h - what a receiver does with one map, on a thread of its own, so that
 * it goes on answering meanwhile. */
#ifndef TMSG_JOB_H
#define TMSG_JOB_H

#include <pthread.h>

#include "show.h"
#include "store.h"

typedef struct {
    const tmsg_map_t *map; /* to be kept until job_finish() */
    store_t *store;
    bool sums;
    int done_fd; /* an eventfd, readable when the job is done */
    pthread_t thread;
    bool ok;
    char error[640]; /* not ok: why */
    digest_t digest;
    char *path; /* where it was kept, or NULL */
} job_t;

/* False: no thread could be made; `error` says so. */
bool job_start(job_t *job);

/* Waits for it. What is in the job is then the caller's. */
void job_finish(job_t *job);

void job_clear(job_t *job);

#endif
