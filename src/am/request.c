/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/request.h"

#include <stdlib.h>
#include <string.h>

#include "am/progress.h"
#include "core/error.h"

void tmsg_request_init(tmsg_request_t *request, tmsg_worker_t *worker,
                       void (*destroy)(tmsg_request_t *request))
{
    atomic_init(&request->refs, 1);
    atomic_init(&request->status, TMSG_IN_PROGRESS);
    request->worker = worker;
    request->destroy = destroy;
}

void tmsg_request_hold(tmsg_request_t *request)
{
    atomic_fetch_add_explicit(&request->refs, 1, memory_order_relaxed);
}

void tmsg_request_drop(tmsg_request_t *request)
{
    if (atomic_fetch_sub_explicit(&request->refs, 1, memory_order_acq_rel) ==
        1) {
        free(request->error);
        request->destroy(request);
    }
}

static void run_callback(tmsg_due_t *due)
{
    tmsg_request_t *request = TMSG_CONTAINER_OF(due, tmsg_request_t, due);

    request->on_done(request->on_done_arg, tmsg_request_test(request),
                     tmsg_request_error(request));
    tmsg_request_drop(request);
}

void tmsg_request_end(tmsg_request_t *request, tmsg_status_t status,
                      const char *error)
{
    tmsg_worker_t *worker = request->worker;

    if (status != TMSG_OK) {
        request->error =
            strdup(error != NULL ? error : tmsg_status_name(status));
    }
    atomic_store_explicit(&request->status, status, memory_order_release);
    tmsg_worker_changed(worker);
    if (request->on_done != NULL) {
        request->due.run = run_callback; /* takes the reference over */
        tmsg_worker_due(worker, &request->due);
    } else {
        tmsg_request_drop(request);
    }
}

tmsg_status_t tmsg_request_test(const tmsg_request_t *request)
{
    return (tmsg_status_t)atomic_load_explicit(&request->status,
                                               memory_order_acquire);
}

static bool has_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

tmsg_status_t tmsg_request_wait(tmsg_request_t *request, int timeout_ms)
{
    tmsg_worker_t *worker = request->worker;
    tmsg_status_t status = TMSG_OK;

    tmsg_request_hold(request); /* a callback may destroy it meanwhile */
    if (!has_ended(request)) {
        tmsg_worker_enter(worker);
        status = tmsg_worker_until(worker, has_ended, request, timeout_ms,
                                   "the operation did not end", "");
        tmsg_worker_leave(worker, false);
    }
    if (has_ended(request)) {
        status = tmsg_request_test(request);
        if (status != TMSG_OK) {
            tmsg_error_set(status, "%s", tmsg_request_error(request));
        }
    }
    tmsg_request_drop(request);
    return status;
}

const char *tmsg_request_error(const tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_test(request);

    if (status == TMSG_OK || status == TMSG_IN_PROGRESS) {
        return "";
    }
    return request->error != NULL ? request->error : tmsg_status_name(status);
}

void tmsg_request_destroy(tmsg_request_t *request)
{
    if (request != NULL) {
        tmsg_request_drop(request);
    }
}
