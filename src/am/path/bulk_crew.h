/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/bulk_crew.h - gives several subflows of bulk streams their turns at
 * the same time. The worker's thread says what is to be moved, and settles what
 * was; between the two a few threads have the bytes encrypted and copied, and
 * the worker's thread waits for them with the lock held. So all that a fragment
 * lies in stays as it is, and nothing else needs a lock. */
#ifndef TMSG_AM_PATH_BULK_CREW_H
#define TMSG_AM_PATH_BULK_CREW_H

#include "am/path/bulk.h"
#include "core/crew.h"

#define TMSG_BULK_JOB_PLACES 256 /* in each direction */

/* Describes the turn of a subflow. */
typedef struct {
    tmsg_bulk_t *bulk;
    size_t out_count, in_count;
    ssize_t out_moved, in_moved;
    size_t most;
    size_t read; /* bytes */
    struct iovec out[TMSG_BULK_JOB_PLACES], in[TMSG_BULK_JOB_PLACES];
} tmsg_bulk_job_t;

/* Belongs to a worker some of whose bulk streams have several subflows. */
typedef struct tmsg_bulk_crew {
    tmsg_crew_t *threads;
    size_t most; /* subflows that have their turns at the same time */
    tmsg_bulk_job_t jobs[TMSG_BULK_SUBFLOWS_MOST];
} tmsg_bulk_crew_t;

/* Returns the processors that the calling thread may run on. */
unsigned tmsg_bulk_processors(void);

/* Makes the worker's crew, if it has none. Without memory, threads or a second
 * processor the subflows take turns. */
void tmsg_bulk_call_crew(tmsg_worker_t *worker);
void tmsg_bulk_free_crew(tmsg_worker_t *worker);

/* Prepares the turn of a subflow, which moves up to `most` bytes in each
 * direction, and reads only if it `listens`. */
void tmsg_bulk_begin_job(tmsg_bulk_job_t *job, tmsg_bulk_t *bulk, size_t most,
                         bool listens);

/* Moves the bytes of crew->jobs. */
void tmsg_bulk_do_jobs(tmsg_bulk_crew_t *crew, size_t count);

/* Settles a turn. Returns how many bytes were moved; job->read of them were
 * read. */
size_t tmsg_bulk_end_job(tmsg_bulk_job_t *job);

#endif
