/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/session/told.h"

#include <stdlib.h>

#include "am/endpoint/session.h"
#include "am/worker/worker.h"
#include "core/shown.h"

/* An event on its way to the application. */
typedef struct {
    tmsg_due_t due;
    tmsg_endpoint_t *endpoint; /* held */
    tmsg_session_event_t event;
    char words[TMSG_ERROR_BYTES];
} told_t;

/* Keeps the record for an event, or frees it if one is kept. */
static void keep_spare(tmsg_endpoint_t *endpoint, told_t *told)
{
    tmsg_resume_t *resume = endpoint->resume;

    tmsg_worker_lock(endpoint->worker);
    if (resume->told_spare == NULL) {
        resume->told_spare = told;
        told = NULL;
    }
    tmsg_worker_unlock(endpoint->worker);
    free(told);
}

static void run_told(tmsg_due_t *due)
{
    told_t *told = TMSG_CONTAINER_OF(due, told_t, due);
    tmsg_endpoint_t *endpoint = told->endpoint;
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_session_fn on_session;
    void *arg;

    tmsg_worker_lock(worker);
    on_session = endpoint->handle ? endpoint->resume->on_session : NULL;
    arg = endpoint->resume->on_session_arg;
    tmsg_worker_unlock(worker);
    if (on_session != NULL) {
        on_session(arg, endpoint, told->event, told->words);
    }
    keep_spare(endpoint, told);
    tmsg_endpoint_drop(endpoint);
}

void tmsg_session_tell(tmsg_endpoint_t *endpoint, tmsg_session_event_t event,
                       const char *words)
{
    told_t *told;

    endpoint = endpoint->face;
    if (!endpoint->handle || endpoint->resume->on_session == NULL) {
        return;
    }
    told = malloc(sizeof(*told));
    if (told == NULL) {
        told = endpoint->resume->told_spare;
        endpoint->resume->told_spare = NULL;
    }
    if (told == NULL) {
        return; /* the log line tells of it */
    }
    told->due.run = run_told;
    told->endpoint = endpoint;
    told->event = event;
    tmsg_shown_format(told->words, sizeof(told->words), "%s", words);
    tmsg_endpoint_hold(endpoint);
    tmsg_worker_due(endpoint->worker, &told->due);
}

void tmsg_endpoint_on_session(tmsg_endpoint_t *endpoint,
                              tmsg_session_fn on_session, void *arg)
{
    tmsg_resume_t *resume;

    tmsg_worker_lock(endpoint->worker);
    resume = endpoint->resume;
    if (resume != NULL) {
        resume->on_session = on_session;
        resume->on_session_arg = arg;
        if (on_session != NULL && resume->told_spare == NULL) {
            resume->told_spare = malloc(sizeof(told_t));
        }
    }
    tmsg_worker_unlock(endpoint->worker);
}
