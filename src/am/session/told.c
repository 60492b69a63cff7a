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
    tmsg_endpoint_drop(endpoint);
    free(told);
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
    tmsg_worker_lock(endpoint->worker);
    if (endpoint->resume != NULL) {
        endpoint->resume->on_session = on_session;
        endpoint->resume->on_session_arg = arg;
    }
    tmsg_worker_unlock(endpoint->worker);
}
