/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/staging/pin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/staging/copy.h"
#include "am/worker/budget.h"
#include "am/worker/worker.h"
#include "core/error.h"
#include "core/refs.h"
#include "memory/aside.h"
#include "memory/domain.h"

#define CLOSE_MS 1000

/* What the thread and the worker have in common. The worker may end while the
 * driver keeps the thread waiting. */
struct tmsg_pins {
    tmsg_refs_t refs;
    pthread_mutex_t lock;
    tmsg_budget_t *budget; /* by which a worker that sleeps is woken */
    tmsg_aside_job_t job;
    tmsg_chunk_t *chunk; /* of the job */
    tmsg_chunks_t *home;
    tmsg_chunk_t *done; /* the same, once the driver has answered */
    bool closed;
    tmsg_status_t status;
    char why[160];
};

static tmsg_aside_t pinning;

void tmsg_chunk_free(tmsg_chunk_t *chunk)
{
    static const tmsg_stream_t none;
    const tmsg_domain_t *domain = chunk->domain;

    if (chunk->pinned) {
        domain->unpin(domain->arg, chunk->data, chunk->capacity);
    }
    if (chunk->on_device) {
        domain->free(domain->arg, chunk->device, chunk->data, chunk->capacity,
                     none);
    } else {
        tmsg_host_free(chunk->data);
    }
    free(chunk);
}

static void drop_pins(tmsg_pins_t *pins)
{
    if (tmsg_refs_drop(&pins->refs)) {
        tmsg_budget_drop(pins->budget);
        pthread_mutex_destroy(&pins->lock);
        free(pins);
    }
}

static void run_pin(tmsg_aside_job_t *job)
{
    tmsg_pins_t *pins = TMSG_CONTAINER_OF(job, tmsg_pins_t, job);
    tmsg_chunk_t *chunk = pins->chunk;
    tmsg_status_t status =
        chunk->domain->pin(chunk->domain->arg, chunk->data, chunk->capacity);
    bool closed;

    chunk->pinned = status == TMSG_OK;
    pthread_mutex_lock(&pins->lock);
    closed = pins->closed;
    pins->status = status;
    snprintf(pins->why, sizeof(pins->why), "%s",
             status == TMSG_OK ? "" : tmsg_error_message());
    pins->done = closed ? NULL : chunk;
    pthread_mutex_unlock(&pins->lock);
    if (closed) {
        tmsg_chunk_free(chunk);
    } else {
        tmsg_budget_signal(pins->budget);
    }
    drop_pins(pins);
}

static tmsg_pins_t *make_pins(tmsg_worker_t *worker)
{
    tmsg_pins_t *pins = calloc(1, sizeof(*pins));

    if (pins != NULL) {
        tmsg_refs_init(&pins->refs, 1);
        pthread_mutex_init(&pins->lock, NULL);
        pins->job.run = run_pin;
        pins->budget = worker->budget;
        tmsg_budget_hold(pins->budget);
        worker->stage.pins = pins;
    }
    return pins;
}

bool tmsg_pin_begin(tmsg_worker_t *worker, tmsg_chunks_t *home,
                    tmsg_chunk_t *chunk)
{
    tmsg_pins_t *pins = worker->stage.pins;

    if (chunk->on_device || chunk->pin_tried || chunk->domain->pin == NULL ||
        worker->stage.pinning) {
        return false;
    }
    if (pins == NULL && (pins = make_pins(worker)) == NULL) {
        return false;
    }
    worker->stage.pinning = true;
    chunk->pin_tried = true;
    pins->chunk = chunk;
    pins->home = home;
    tmsg_refs_take(&pins->refs);
    tmsg_aside(&pinning, &pins->job);
    return true;
}

static void note_unpinned(tmsg_worker_t *worker, const tmsg_pins_t *pins)
{
    tmsg_staging_t *stage = &worker->stage;

    if (pins->status == TMSG_OK || pins->status == TMSG_ERR_ALREADY_EXISTS) {
        return;
    }
    stage->unpinned++;
    snprintf(stage->why_unpinned, sizeof(stage->why_unpinned), "%s", pins->why);
    tmsg_copy_detour(worker, TMSG_DETOUR_UNPINNED, pins->why);
}

void tmsg_pin_poll(tmsg_worker_t *worker)
{
    tmsg_pins_t *pins = worker->stage.pins;
    tmsg_chunk_t *chunk;

    if (!worker->stage.pinning) {
        return;
    }
    pthread_mutex_lock(&pins->lock);
    chunk = pins->done;
    pins->done = NULL;
    pthread_mutex_unlock(&pins->lock);
    if (chunk != NULL) {
        worker->stage.pinning = false;
        note_unpinned(worker, pins);
        tmsg_chunk_give(worker, pins->home, chunk);
    }
}

void tmsg_pin_close(tmsg_worker_t *worker)
{
    tmsg_pins_t *pins = worker->stage.pins;

    if (pins == NULL) {
        return;
    }
    if (worker->stage.pinning) {
        (void)tmsg_aside_wait(&pinning, CLOSE_MS);
        tmsg_pin_poll(worker);
    }
    pthread_mutex_lock(&pins->lock);
    pins->closed = true;
    pthread_mutex_unlock(&pins->lock);
    tmsg_pin_poll(worker); /* it may be done only now */
    worker->stage.pins = NULL;
    worker->stage.pinning = false;
    drop_pins(pins);
}
