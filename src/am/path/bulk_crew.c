/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/bulk_crew.h"

#include <sched.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "core/log.h"

unsigned tmsg_bulk_processors(void)
{
    cpu_set_t allowed;

    return sched_getaffinity(0, sizeof(allowed), &allowed) == 0
               ? (unsigned)CPU_COUNT(&allowed)
               : 1;
}

void tmsg_bulk_call_crew(tmsg_worker_t *worker)
{
    unsigned processors = tmsg_bulk_processors();
    unsigned count =
        (processors < TMSG_BULK_SUBFLOWS_MOST ? processors
                                              : TMSG_BULK_SUBFLOWS_MOST) -
        1;
    tmsg_bulk_crew_t *crew;

    if (worker->paths.crew != NULL || count == 0) {
        return;
    }
    crew = calloc(1, sizeof(*crew));
    if (crew != NULL) {
        crew->threads = tmsg_crew_create(count);
    }
    if (crew == NULL || crew->threads == NULL) {
        free(crew);
        tmsg_log_of(TMSG_LOG_WITHOUT_KIND, "several subflows", TMSG_LOG_INFO,
                    "the connections of bulk streams take turns: there are no "
                    "threads for them");
        return;
    }
    crew->most = count + 1;
    worker->paths.crew = crew;
}

void tmsg_bulk_free_crew(tmsg_worker_t *worker)
{
    if (worker->paths.crew != NULL) {
        tmsg_crew_destroy(worker->paths.crew->threads);
        free(worker->paths.crew);
        worker->paths.crew = NULL;
    }
}

void tmsg_bulk_begin_job(tmsg_bulk_job_t *job, tmsg_bulk_t *bulk, size_t most,
                         bool listens)
{
    job->bulk = bulk;
    job->most = most;
    job->read = 0;
    job->in_count = 0;
    job->out_count =
        tmsg_bulk_begin_write(bulk, most, true, job->out, TMSG_BULK_JOB_PLACES);
    if (listens) {
        job->in_count = tmsg_bulk_begin_read(bulk, most, job->in,
                                             TMSG_BULK_JOB_PLACES, &job->read);
    }
}

/* Runs on any thread. */
static void do_job(void *arg)
{
    tmsg_bulk_job_t *job = arg;
    const tmsg_mover_t *mover = job->bulk->mover;

    if (job->out_count > 0) {
        job->out_moved = mover->write(job->bulk, job->out, job->out_count);
    }
    if (job->in_count > 0) {
        job->in_moved =
            mover->read(job->bulk, job->in, job->in_count, job->most);
    }
}

void tmsg_bulk_do_jobs(tmsg_bulk_crew_t *crew, size_t count)
{
    tmsg_crew_run(crew->threads, do_job, crew->jobs, sizeof(crew->jobs[0]),
                  count);
}

size_t tmsg_bulk_end_job(tmsg_bulk_job_t *job)
{
    tmsg_bulk_t *bulk = job->bulk;
    size_t written = 0;

    if (job->out_count > 0 && !bulk->lost) {
        written =
            tmsg_bulk_end_write(bulk, job->out, job->out_count, job->out_moved);
    }
    if (job->in_count > 0 && !bulk->lost) {
        job->read += tmsg_bulk_end_read(bulk, job->in_moved);
    }
    tmsg_bulk_expect(bulk, job->most);
    return written + job->read;
}
