/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/thread.h"

#define CREW_MOST 16

struct tmsg_crew {
    pthread_mutex_t lock;
    pthread_cond_t called;   /* there are jobs, or the crew ends */
    pthread_cond_t finished; /* the last job is done */
    void (*work)(void *job);
    uint8_t *jobs; /* the next one */
    size_t bytes;
    size_t left;  /* nobody has begun them */
    size_t begun; /* and not done */
    bool ends;
    pid_t owner; /* a child has none of the threads */
    unsigned count;
    pthread_t threads[CREW_MOST];
};

/* Does jobs until none is left that nobody has begun. Lock held, but not during
 * a job. */
static void do_jobs(tmsg_crew_t *crew)
{
    while (crew->left > 0) {
        void *job = crew->jobs;

        crew->jobs += crew->bytes;
        crew->left--;
        crew->begun++;
        pthread_mutex_unlock(&crew->lock);
        crew->work(job);
        pthread_mutex_lock(&crew->lock);
        crew->begun--;
    }
    if (crew->begun == 0) {
        pthread_cond_signal(&crew->finished);
    }
}

static void *serve_crew(void *arg)
{
    tmsg_crew_t *crew = arg;

    pthread_mutex_lock(&crew->lock);
    while (!crew->ends) {
        if (crew->left > 0) {
            do_jobs(crew);
        } else {
            pthread_cond_wait(&crew->called, &crew->lock);
        }
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void start_threads(tmsg_crew_t *crew, unsigned count)
{
    while (crew->count < count && crew->count < CREW_MOST &&
           tmsg_thread_start(&crew->threads[crew->count], serve_crew, crew) ==
               0) {
        crew->count++;
    }
}

tmsg_crew_t *tmsg_crew_create(unsigned count)
{
    tmsg_crew_t *crew = calloc(1, sizeof(*crew));

    if (crew == NULL) {
        return NULL;
    }
    crew->owner = getpid();
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->called, NULL);
    pthread_cond_init(&crew->finished, NULL);
    start_threads(crew, count);
    if (crew->count == 0) {
        tmsg_crew_destroy(crew);
        return NULL;
    }
    return crew;
}

void tmsg_crew_run(tmsg_crew_t *crew, void (*work)(void *job), void *jobs,
                   size_t bytes, size_t count)
{
    uint8_t *job = jobs;

    if (crew == NULL || count < 2 || crew->owner != getpid()) {
        for (; count > 0; count--, job += bytes) {
            work(job);
        }
        return;
    }
    pthread_mutex_lock(&crew->lock);
    crew->work = work;
    crew->jobs = job;
    crew->bytes = bytes;
    crew->left = count;
    for (size_t i = 1; i < count && i <= crew->count; i++) {
        pthread_cond_signal(&crew->called);
    }
    do_jobs(crew);
    while (crew->begun > 0) {
        pthread_cond_wait(&crew->finished, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
}

void tmsg_crew_destroy(tmsg_crew_t *crew)
{
    if (crew == NULL) {
        return;
    }
    if (crew->owner == getpid()) {
        pthread_mutex_lock(&crew->lock);
        crew->ends = true;
        pthread_cond_broadcast(&crew->called);
        pthread_mutex_unlock(&crew->lock);
        for (unsigned i = 0; i < crew->count; i++) {
            pthread_join(crew->threads[i], NULL);
        }
        pthread_cond_destroy(&crew->finished);
        pthread_cond_destroy(&crew->called);
        pthread_mutex_destroy(&crew->lock);
    }
    free(crew);
}
