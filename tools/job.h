/* SPDX-License-Identifier: BSD-3-Clause */
/* job.h - computes the digest of one map and saves it, on a thread of its own,
 * so that the receiver goes on answering in the meantime. */
#ifndef TMSG_JOB_H
#define TMSG_JOB_H

#include <pthread.h>

#include "show.h"
#include "store.h"

typedef struct {
    const tmsg_map_t *map; /* the caller keeps it until job_finish() */
    store_t *store;
    bool sums;
    int done_fd; /* an eventfd that becomes readable when the job has ended */
    pthread_t thread;
    bool ok;
    char error[640]; /* the reason if `ok` is false */
    digest_t digest;
    char *path; /* path of the saved file, or NULL */
} job_t;

/* Starts the job. Returns false if no thread could be created; `error` tells
 * why. */
bool job_start(job_t *job);

/* Waits for the job. Afterwards the results belong to the caller, who releases
 * them with job_clear(). */
void job_finish(job_t *job);

void job_clear(job_t *job);

#endif
