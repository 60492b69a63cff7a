/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/bell/bell.h"
#include "am/boot/hello.h"
#include "am/calls/calls.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/engine/endpoint_end.h"
#include "am/engine/progress.h"
#include "am/engine/retire.h"
#include "am/engine/worker.h"
#include "am/listen/listener.h"
#include "am/path/bulk_crew.h"
#include "am/path/fastboxes.h"
#include "am/path/loans.h"
#include "am/publish/publisher.h"
#include "am/recv/message.h"
#include "am/recv/schemas.h"
#include "am/send/queue.h"
#include "am/send/template_out.h"
#include "am/staging/copy.h"
#include "am/ucx/deferred.h"
#include "am/ucx/fork_guard.h"
#include "am/ucx/linger.h"
#include "am/ucx/siblings.h"
#include "am/worker/lead.h"
#include "am/worker/worker.h"
#include "core/error.h"
#include "core/log.h"
#include "core/params.h"
#include "core/thread.h"

#define QUEUE_DEPTH_DEFAULT 256

#define QUEUE_DEPTH_MAX (1u << 20)

#define SPIN_US_DEFAULT 50

/* UCX has this long to report when a worker ends. */
#define DRAIN_NS 5000000000ULL

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_HANDLER |          \
                TMSG_WORKER_PARAM_QUEUE_DEPTH | TMSG_WORKER_PARAM_ALLOCATOR |  \
                TMSG_WORKER_PARAM_SPIN_US | TMSG_WORKER_PARAM_ON_REFUSED |     \
                TMSG_WORKER_PARAM_SEND_QUEUE | TMSG_WORKER_PARAM_ON_HEADER |   \
                TMSG_WORKER_PARAM_CHANNELS |                                   \
                TMSG_WORKER_PARAM_DEVICE_ALLOCATOR))

#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_WORKER_SHARED | TMSG_WORKER_THREAD |                      \
                TMSG_WORKER_CAPTURE | TMSG_WORKER_HOST_ONLY |                  \
                TMSG_WORKER_BORROW))

static tmsg_status_t read_channels(const tmsg_worker_params_t *params,
                                   tmsg_worker_t *worker)
{
    if (!(params->field_mask & TMSG_WORKER_PARAM_CHANNELS)) {
        return TMSG_OK;
    }
    if (params->channels == 0 || params->channels > TMSG_CHANNELS_MOST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "worker: channels %u is not in 1..%u",
                              params->channels, TMSG_CHANNELS_MOST);
    }
    worker->channels = (uint16_t)params->channels;
    return TMSG_OK;
}

static const tmsg_device_allocator_t *
device_allocator_of(const tmsg_worker_params_t *params)
{
    return params != NULL &&
                   params->field_mask & TMSG_WORKER_PARAM_DEVICE_ALLOCATOR
               ? params->device_allocator
               : NULL;
}

static tmsg_status_t check_device_allocator(const tmsg_worker_params_t *params)
{
    const tmsg_device_allocator_t *allocator = device_allocator_of(params);

    if (allocator != NULL &&
        (allocator->alloc == NULL || allocator->release == NULL)) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "worker: device allocator without alloc or release");
    }
    return TMSG_OK;
}

static tmsg_status_t read_worker_params(const tmsg_worker_params_t *params,
                                        tmsg_worker_t *worker)
{
    tmsg_status_t status;

    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("worker",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    if (params->field_mask & TMSG_WORKER_PARAM_FLAGS) {
        worker->flags = params->flags;
    }
    if (worker->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "worker: unknown flags 0x%x", worker->flags);
    }
    if (params->field_mask & TMSG_WORKER_PARAM_HANDLER) {
        worker->handler = params->handler;
        worker->handler_arg = params->handler_arg;
    }
    if (params->field_mask & TMSG_WORKER_PARAM_QUEUE_DEPTH) {
        worker->queue_depth = params->queue_depth;
    }
    if (worker->queue_depth == 0 || worker->queue_depth > QUEUE_DEPTH_MAX) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "worker: queue_depth %u is not in 1..%u",
                              worker->queue_depth, QUEUE_DEPTH_MAX);
    }
    status = read_channels(params, worker);
    if (status == TMSG_OK &&
        params->field_mask & TMSG_WORKER_PARAM_SEND_QUEUE) {
        status = tmsg_queue_read(&params->send_queue, &worker->send_queue);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (params->field_mask & TMSG_WORKER_PARAM_ON_REFUSED) {
        worker->on_refused = params->on_refused;
        worker->on_refused_arg = params->on_refused_arg;
    }
    if (params->field_mask & TMSG_WORKER_PARAM_ON_HEADER) {
        worker->on_header = params->on_header;
        worker->on_header_arg = params->on_header_arg;
    }
    if (params->field_mask & TMSG_WORKER_PARAM_SPIN_US) {
        worker->spin.spin_ns = params->spin_us * 1000ULL;
    }
    if ((params->field_mask & TMSG_WORKER_PARAM_ALLOCATOR) &&
        params->allocator != NULL &&
        (params->allocator->alloc == NULL ||
         params->allocator->release == NULL)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "worker: allocator without alloc or release");
    }
    return check_device_allocator(params);
}

/* Lock held. */
static tmsg_status_t start_thread(tmsg_worker_t *worker)
{
    int error;

    if (worker->threaded) {
        return TMSG_OK;
    }
    error = tmsg_thread_start(&worker->thread, tmsg_worker_run, worker);
    if (error != 0) {
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO, "a worker's thread");
    }
    worker->threaded = true;
    return TMSG_OK;
}

tmsg_status_t tmsg_worker_start_thread(tmsg_worker_t *worker)
{
    tmsg_status_t status;

    if (!tmsg_worker_is_shared(worker)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "worker: a thread needs TMSG_WORKER_SHARED");
    }
    tmsg_worker_lock(worker);
    status = worker->ending
                 ? tmsg_error_set(TMSG_ERR_CLOSED, "the worker is being ended")
                 : start_thread(worker);
    tmsg_worker_unlock(worker);
    return status;
}

static tmsg_status_t open_loop(tmsg_worker_t *worker)
{
    tmsg_status_t status = tmsg_loop_open(&worker->loop);

    if (status != TMSG_OK) {
        return status;
    }
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0) {
        status = tmsg_error_errno(TMSG_ERR_LIMIT_EXCEEDED, "eventfd");
        tmsg_loop_close(&worker->loop);
    }
    return status;
}

static void close_loop(tmsg_worker_t *worker)
{
    close(worker->wake_fd);
    tmsg_loop_close(&worker->loop);
}

static void init_lock(tmsg_worker_t *worker)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static tmsg_status_t configure_worker(const tmsg_worker_params_t *params,
                                      tmsg_worker_t *worker)
{
    worker->queue_depth = QUEUE_DEPTH_DEFAULT;
    worker->channels = TMSG_CHANNELS_DEFAULT;
    worker->spin.spin_ns = SPIN_US_DEFAULT * 1000ULL;
    worker->send_queue = tmsg_queue_usual;
    return params == NULL ? TMSG_OK : read_worker_params(params, worker);
}

/* Gives the worker its life, its loop and its budget. */
static tmsg_status_t open_worker(const tmsg_context_t *context,
                                 const tmsg_worker_params_t *params,
                                 tmsg_worker_t *worker)
{
    const tmsg_allocator_t *allocator =
        params != NULL && params->field_mask & TMSG_WORKER_PARAM_ALLOCATOR
            ? params->allocator
            : NULL;
    tmsg_status_t status;

    worker->life = calloc(1, sizeof(*worker->life));
    if (worker->life == NULL) {
        return tmsg_error_memory("a worker");
    }
    tmsg_refs_init(&worker->life->refs, 1);
    worker->life->schemas.limit = TMSG_SCHEMA_WORKER_BYTES;
    status = open_loop(worker);
    if (status != TMSG_OK) {
        goto err_life;
    }
    status = tmsg_budget_create(allocator, context->limits.held_bytes,
                                worker->loop.event_fd, tmsg_message_free_spare,
                                tmsg_send_free_spare, tmsg_control_free_spare,
                                &worker->budget);
    if (status != TMSG_OK) {
        goto err_loop;
    }
    tmsg_budget_pool(worker->budget)->huge_least = context->huge_page_bytes;
    tmsg_budget_set_devices(worker->budget, device_allocator_of(params));
    if (tmsg_worker_is_shared(worker)) {
        tmsg_budget_share(worker->budget);
    }
    return TMSG_OK;

err_loop:
    close_loop(worker);
err_life:
    free(worker->life);
    return status;
}

static tmsg_status_t create_worker(tmsg_context_t *context,
                                   const tmsg_worker_params_t *params,
                                   tmsg_worker_t **worker_p)
{
    tmsg_worker_t *worker = calloc(1, sizeof(*worker));
    tmsg_status_t status;

    if (worker == NULL) {
        return tmsg_error_memory("a worker");
    }
    status = tmsg_fork_guard_check_start();
    if (status == TMSG_OK) {
        status = configure_worker(params, worker);
    }
    if (status == TMSG_OK) {
        status = open_worker(context, params, worker);
    }
    if (status != TMSG_OK) {
        goto err_free;
    }
    worker->pid = getpid();
    worker->context = context;
    tmsg_context_hold(context);
    init_lock(worker);
    if (worker->flags & TMSG_WORKER_THREAD) {
        status = tmsg_worker_start_thread(worker);
        if (status != TMSG_OK) {
            goto err_close;
        }
    }
    *worker_p = worker;
    return TMSG_OK;

err_close:
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    tmsg_context_destroy(context);
    tmsg_budget_drop(worker->budget);
    close_loop(worker);
    free(worker->life);
err_free:
    free(worker);
    return status;
}

tmsg_status_t tmsg_worker_create(tmsg_context_t *context,
                                 const tmsg_worker_params_t *params,
                                 tmsg_worker_t **worker_p)
{
    tmsg_context_t *own = NULL;
    tmsg_status_t status = TMSG_OK;

    if (context == NULL) {
        status = tmsg_context_create(NULL, &own);
    }
    if (status == TMSG_OK) {
        status =
            create_worker(context != NULL ? context : own, params, worker_p);
    }
    tmsg_context_destroy(own); /* the worker holds it */
    return status;
}

static bool has_ready(void *arg)
{
    return ((tmsg_worker_t *)arg)->ready.count > 0;
}

tmsg_status_t tmsg_worker_recv(tmsg_worker_t *worker, int timeout_ms,
                               tmsg_message_t **message_p)
{
    tmsg_status_t status;

    if (worker->handler != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the worker has a message handler, which gets "
                              "all messages: there is nothing to receive");
    }
    tmsg_worker_enter(worker);
    status = tmsg_worker_until(worker, has_ready, worker, timeout_ms,
                               "no message from any peer", "");
    if (status == TMSG_OK) {
        *message_p = tmsg_message_pull(worker, NULL);
    }
    tmsg_worker_leave(worker, status == TMSG_OK);
    return status;
}

static bool all_reported(const tmsg_worker_t *worker)
{
    uint32_t i = 0;

    return tmsg_endpoint_next(worker, NULL, &i) == NULL;
}

/* Ends every endpoint and listener. Lock held. */
static void end_all(tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while (worker->listeners != NULL) {
        tmsg_listener_release(worker->listeners);
    }
    while (worker->publishers != NULL) {
        tmsg_publisher_release(worker->publishers);
    }
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        tmsg_ucx_retire(ucx);
    }
    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        tmsg_endpoint_hold(endpoint);
        if (endpoint->handle) {
            tmsg_endpoint_release(endpoint);
        }
        tmsg_endpoint_drop(endpoint);
    }
}

/* Waits until UCX has reported every operation: only then is borrowed memory
 * free. If UCX never reports, its worker is left behind on purpose: destroying
 * it could write into memory that was given back. False: UCX has not reported
 * all. Lock held. */
static bool await_reports(tmsg_worker_t *worker)
{
    uint64_t deadline = tmsg_now_ns() + DRAIN_NS;

    while (!all_reported(worker)) {
        tmsg_worker_step(worker);
        if (tmsg_now_ns() > deadline) {
            return false;
        }
    }
    return true;
}

/* Drops the chores that nobody is left to do. */
static void drop_chores(tmsg_worker_t *worker)
{
    while (worker->chores.count > 0) {
        tmsg_endpoint_drop(tmsg_worker_next_chore(worker));
    }
}

/* Returns how long to wait for peers that were given up. If the library may
 * have a thread, that waits for them. */
static uint64_t patience_ns(const tmsg_worker_t *worker)
{
    return worker->context->flags & TMSG_CONTEXT_NO_THREAD
               ? UINT64_MAX
               : tmsg_deferred_patience_ns();
}

void tmsg_worker_finish(tmsg_worker_t *worker)
{
    tmsg_message_t *message;
    bool drained;

    tmsg_worker_lock(worker);
    worker->doomed = false; /* the due callbacks are ends of operations */
    end_all(worker);
    drained = await_reports(worker);
    if (!drained) {
        tmsg_log(TMSG_LOG_ERROR, "UCX or a device's driver does not report all "
                                 "its operations; memory is left behind");
    }
    tmsg_loans_finish(worker);
    tmsg_worker_dispatch(worker);
    drop_chores(worker);
    tmsg_worker_unlock(worker);
    tmsg_bells_finish(worker, drained);
    while ((message = tmsg_message_pull(worker, NULL)) != NULL) {
        tmsg_message_destroy(message);
    }
    while (worker->ucx != NULL) {
        tmsg_ucx_t *ucx = worker->ucx;

        worker->ucx = ucx->next;
        tmsg_loop_remove(&worker->loop, &ucx->source);
        tmsg_linger_await(ucx, patience_ns(worker));
        tmsg_probe_close(ucx);
        if (drained) {
            tmsg_worker_drain(ucx);
            /* The drain may set this timer anew. */
            tmsg_loop_clear_timer(&worker->loop, &ucx->linger);
            tmsg_loop_clear_timer(&worker->loop, &ucx->watch);
            tmsg_ucx_close(ucx);
        } else {
            tmsg_siblings_leave(ucx);
        }
    }
    tmsg_call_over(worker);
    if (drained) {
        tmsg_copies_close(worker);
    }
    tmsg_bulk_free_crew(worker);
    tmsg_log_flush(); /* while the application's function is still there */
    tmsg_loop_close(&worker->loop);
    close(worker->wake_fd);
    tmsg_template_close(worker);
    tmsg_map_destroy(worker->layout);
    tmsg_budget_close(worker->budget);
    tmsg_context_destroy(worker->context);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    free(worker->endpoints);
    atomic_store(&worker->life->over, true);
    tmsg_life_drop(worker->life);
    free(worker);
}

void tmsg_worker_destroy(tmsg_worker_t *worker)
{
    bool threaded;

    if (worker == NULL) {
        return;
    }
    tmsg_worker_lock(worker);
    worker->ending = true;
    worker->doomed = tmsg_worker_in_callback(worker);
    tmsg_worker_changed(worker);
    if (worker->doomed) {
        tmsg_worker_unlock(worker);
        return; /* the last call that leaves finishes it */
    }
    threaded = worker->threaded;
    tmsg_worker_unlock(worker);
    if (threaded) {
        pthread_join(worker->thread, NULL);
    }
    tmsg_worker_lock(worker);
    tmsg_worker_await_leaving(worker);
    tmsg_worker_unlock(worker);
    tmsg_worker_finish(worker);
}
