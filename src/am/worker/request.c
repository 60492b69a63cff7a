/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/request.h"

#include <stdlib.h>
#include <string.h>

#include "am/worker/lead.h"
#include "core/error.h"

void tmsg_request_init(tmsg_request_t *request, tmsg_worker_t *worker,
                       void (*destroy)(tmsg_request_t *request),
                       void (*cancel)(tmsg_request_t *request))
{
    tmsg_refs_init(&request->refs, 1);
    atomic_init(&request->status, TMSG_IN_PROGRESS);
    request->worker = worker;
    request->error = NULL;
    request->on_done = NULL;
    request->on_done_arg = NULL;
    request->destroy = destroy;
    request->cancel = cancel;
}

void tmsg_request_hold(tmsg_request_t *request)
{
    tmsg_refs_take(&request->refs);
}

static void end_record(tmsg_request_t *request)
{
    free(request->error);
    request->destroy(request);
}

void tmsg_request_drop(tmsg_request_t *request)
{
    if (tmsg_refs_drop(&request->refs)) {
        end_record(request);
    }
}

void tmsg_request_hold_hidden(tmsg_request_t *request)
{
    tmsg_refs_take_alone(&request->refs);
}

void tmsg_request_drop_hidden(tmsg_request_t *request)
{
    if (tmsg_refs_drop_alone(&request->refs)) {
        end_record(request);
    }
}

static void run_callback(tmsg_due_t *due)
{
    tmsg_request_t *request = TMSG_CONTAINER_OF(due, tmsg_request_t, due);

    request->on_done(request->on_done_arg, tmsg_request_test(request),
                     tmsg_request_error(request));
    tmsg_request_drop(request);
}

/* Returns whether the operation is over or given up. Threads may be reading its
 * error text, which must not change any more. */
static bool request_is_over(const tmsg_request_t *request)
{
    return tmsg_request_test(request) != TMSG_IN_PROGRESS;
}

void tmsg_request_pend(tmsg_request_t *request, const char *error)
{
    request->error = strdup(error);
    atomic_store_explicit(&request->status, TMSG_CANCEL_PENDING,
                          memory_order_release);
    tmsg_worker_changed(request->worker);
}

void tmsg_request_end(tmsg_request_t *request, tmsg_status_t status,
                      const char *error)
{
    tmsg_worker_t *worker = request->worker;

    if (status != TMSG_OK && request->error == NULL &&
        !request_is_over(request)) {
        request->error =
            strdup(error != NULL ? error : tmsg_status_name(status));
    }
    atomic_store_explicit(&request->status, status, memory_order_release);
    tmsg_worker_changed(worker);
    if (request->on_done != NULL) {
        /* The callback takes the reference over. */
        request->due.run = run_callback;
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

static bool request_wait_is_over(void *arg) { return request_is_over(arg); }

static bool is_released(void *arg)
{
    return request_is_over(arg) &&
           tmsg_request_test(arg) != TMSG_CANCEL_PENDING;
}

static tmsg_status_t await_request(tmsg_request_t *request,
                                   bool (*done)(void *arg), int timeout_ms,
                                   const char *missing)
{
    tmsg_worker_t *worker = request->worker;
    tmsg_status_t status = TMSG_OK;

    tmsg_request_hold(request); /* a callback may destroy it meanwhile */
    if (!done(request)) {
        tmsg_worker_enter(worker);
        status =
            tmsg_worker_until(worker, done, request, timeout_ms, missing, "");
        tmsg_worker_leave(worker, false);
    }
    if (done(request)) {
        status = tmsg_request_test(request);
        if (status != TMSG_OK) {
            tmsg_error_set(status, "%s", tmsg_request_error(request));
        }
    }
    tmsg_request_drop(request);
    return status;
}

tmsg_status_t tmsg_request_wait(tmsg_request_t *request, int timeout_ms)
{
    return await_request(request, request_wait_is_over, timeout_ms,
                         "the operation did not end");
}

tmsg_status_t tmsg_request_wait_released(tmsg_request_t *request,
                                         int timeout_ms)
{
    return await_request(request, is_released, timeout_ms,
                         "the memory of the operation did not become free");
}

tmsg_status_t tmsg_request_cancel(tmsg_request_t *request)
{
    /* The worker of an operation that is over may be gone. */
    if (!request_is_over(request)) {
        tmsg_worker_t *worker = request->worker;

        tmsg_worker_lock(worker);
        if (!request_is_over(request) && request->cancel != NULL) {
            request->cancel(request);
        }
        tmsg_worker_unlock(worker);
    }
    return tmsg_request_test(request);
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
