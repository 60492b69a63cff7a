/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "am/bell/bell.h"
#include "am/endpoint/log.h"
#include "am/recv/posted.h"
#include "am/send/queue.h"
#include "am/send/template_out.h"
#include "am/worker/lead.h"
#include "am/worker/request.h"
#include "core/error.h"
#include "core/map.h"

/* A thread that sleeps looks at the bells at least every so many nanoseconds:
 * about as long as it takes to wake a thread. */
#define NAP_NS 50000

static tmsg_bell_line_t *line_of(const tmsg_bell_t *bell)
{
    return bell->line.host;
}

/* The two halves of the word that streams use; memory/lines.h. */
static uint32_t *lower_half(const tmsg_bell_t *bell) { return bell->line.host; }

static uint32_t *upper_half(const tmsg_bell_t *bell)
{
    return lower_half(bell) + 1;
}

static bool has_failed(const tmsg_bell_t *bell)
{
    return atomic_load_explicit(&bell->status, memory_order_relaxed) != TMSG_OK;
}

static bool is_rung(const tmsg_bell_t *bell)
{
    switch (atomic_load_explicit(&bell->form, memory_order_acquire)) {
    case TMSG_BELL_BY_STREAM:
        return __atomic_load_n(lower_half(bell), __ATOMIC_ACQUIRE) != 0;
    case TMSG_BELL_BY_KERNEL:
        return __atomic_load_n(&line_of(bell)->posted, __ATOMIC_ACQUIRE) +
                   bell->receives >
               bell->begun;
    default:
        return false;
    }
}

void tmsg_bell_fail(tmsg_bell_t *bell, tmsg_status_t status, const char *error)
{
    tmsg_bell_line_t *line = line_of(bell);

    if (has_failed(bell)) {
        return;
    }
    bell->error = strdup(error);
    atomic_store_explicit(&bell->status, (int)status, memory_order_release);
    bell->warming = false;
    __atomic_store_n(&line->status, (int64_t)status, __ATOMIC_RELEASE);
    __atomic_store_n(&line->done, UINT64_MAX, __ATOMIC_RELEASE);
    __atomic_store_n(upper_half(bell), TMSG_LINE_OPEN, __ATOMIC_RELEASE);
    tmsg_worker_changed(bell->worker);
}

static void run_end(tmsg_due_t *due)
{
    tmsg_bell_drop(TMSG_CONTAINER_OF(due, tmsg_bell_t, end_due));
}

static void unlist(tmsg_bell_t *bell)
{
    tmsg_worker_t *worker = bell->worker;

    tmsg_list_remove(&worker->bells.all, &bell->node);
    bell->listed = false;
    if (worker->bells.all.count == 0) {
        worker->seldom &= (uint8_t)~TMSG_SELDOM_BELLS;
    }
}

void tmsg_bell_leave(tmsg_bell_t *bell)
{
    if (bell->listed && bell->ending && !bell->busy) {
        tmsg_bell_fail(bell, TMSG_ERR_CANCELED, "the bell was destroyed");
        unlist(bell);
        bell->end_due.run = run_end;
        tmsg_worker_due(bell->worker, &bell->end_due);
    }
}

/* Ends the operation that is under way. */
static void answer(tmsg_bell_t *bell, tmsg_status_t status, const char *error)
{
    bell->busy = false;
    if (status != TMSG_OK) {
        tmsg_bell_fail(bell, status, error);
    } else if (bell->warming) {
        bell->warming = false;
        bell->warm = true;
        tmsg_worker_changed(bell->worker);
    } else if (atomic_load_explicit(&bell->form, memory_order_relaxed) ==
               TMSG_BELL_BY_STREAM) {
        __atomic_store_n(lower_half(bell), 0, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(&line_of(bell)->done, bell->begun, __ATOMIC_RELEASE);
    }
    tmsg_bell_leave(bell);
}

/* A send that the queue's policy has dropped let go of the memory, too. */
static void bell_sent(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_bell_t *bell = arg;
    tmsg_worker_t *worker = bell->worker;
    tmsg_request_t *request;

    tmsg_worker_lock(worker);
    request = bell->request;
    bell->request = NULL;
    answer(bell, status == TMSG_ERR_DROPPED ? TMSG_OK : status, error);
    tmsg_worker_unlock(worker);
    tmsg_request_destroy(request);
}

static tmsg_status_t begin_send(tmsg_bell_t *bell)
{
    tmsg_endpoint_t *endpoint = tmsg_endpoint_now(bell->endpoint);
    tmsg_send_params_t params = bell->params;

    params.field_mask |= TMSG_SEND_PARAM_ON_DONE;
    params.on_done = bell_sent;
    params.on_done_arg = bell;
    return tmsg_template_send(endpoint, bell->map, &params, NULL,
                              &bell->request)
               ? TMSG_OK
               : tmsg_send_begin(endpoint, bell->map, &params, NULL, NULL,
                                 &bell->request);
}

/* Posts the map, and takes the message once there is one. Without the lock,
 * because what it lets go of may be the application's. Other threads drive the
 * worker meanwhile: it is due until it has ended. */
static void run_receive(tmsg_due_t *due)
{
    tmsg_bell_t *bell = TMSG_CONTAINER_OF(due, tmsg_bell_t, due);
    const tmsg_map_t *spent = NULL, *stale = NULL;
    tmsg_worker_t *worker = bell->worker;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_OK;

    tmsg_worker_lock(worker);
    if (!bell->posted && bell->ending) {
        status = TMSG_ERR_CANCELED;
    } else if (!bell->posted) {
        status = tmsg_posted_post(bell->endpoint, bell->map, &stale);
        bell->posted = status == TMSG_OK;
    }
    if (bell->posted &&
        (bell->ending || tmsg_posted_is_settled(bell->endpoint))) {
        status = tmsg_posted_settle(bell->endpoint, bell->map,
                                    bell->ending ? TMSG_ERR_CANCELED : TMSG_OK,
                                    false, &message, &spent);
        bell->posted = status == TMSG_CANCEL_PENDING;
    } else if (status == TMSG_OK) {
        status = TMSG_IN_PROGRESS;
    }
    bell->is_due = status <= TMSG_OK;
    tmsg_worker_unlock(worker);
    if (status == TMSG_OK) {
        status = tmsg_line_flush(&bell->line);
    }
    /* The map is the bell's again before the next receive. */
    tmsg_message_destroy(message);
    tmsg_posted_let_go(spent);
    tmsg_posted_let_go(stale);
    if (status <= TMSG_OK) {
        tmsg_worker_lock(worker);
        bell->is_due = false;
        answer(bell, status, tmsg_error_message());
        tmsg_worker_unlock(worker);
    }
}

static void make_due(tmsg_bell_t *bell)
{
    bell->is_due = true;
    bell->due.run = run_receive;
    tmsg_worker_due(bell->worker, &bell->due);
}

static bool has_news(const tmsg_bell_t *bell)
{
    if (bell->busy) {
        return bell->posted && !bell->is_due &&
               (bell->ending || tmsg_posted_is_settled(bell->endpoint));
    }
    return !has_failed(bell) && (bell->warming || is_rung(bell)) &&
           (bell->receives ||
            tmsg_queue_takes(tmsg_endpoint_now(bell->endpoint), bell->map));
}

static void begin(tmsg_bell_t *bell)
{
    tmsg_status_t status;

    bell->busy = true;
    bell->begun += !bell->warming;
    if (bell->receives) {
        make_due(bell);
        return;
    }
    status = begin_send(bell);
    if (status != TMSG_OK) {
        answer(bell, status, tmsg_error_message());
    }
}

unsigned tmsg_bells_poll(tmsg_worker_t *worker)
{
    tmsg_node_t *next;
    unsigned count = 0;

    for (tmsg_node_t *node = worker->bells.all.head; node != NULL;
         node = next) {
        tmsg_bell_t *bell = TMSG_CONTAINER_OF(node, tmsg_bell_t, node);

        next = node->next;
        if (!has_news(bell)) {
            continue;
        }
        count++;
        if (bell->busy) {
            make_due(bell);
        } else {
            begin(bell);
        }
    }
    return count;
}

bool tmsg_bells_arm(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->bells.all.head; node != NULL;
         node = node->next) {
        if (has_news(TMSG_CONTAINER_OF(node, tmsg_bell_t, node))) {
            return false;
        }
    }
    if (worker->bells.all.count > 0) {
        tmsg_loop_wake_after(&worker->loop, NAP_NS);
    }
    return true;
}

void tmsg_bells_finish(tmsg_worker_t *worker, bool drained)
{
    tmsg_node_t *node;

    while ((node = worker->bells.all.head) != NULL) {
        tmsg_bell_t *bell = TMSG_CONTAINER_OF(node, tmsg_bell_t, node);
        const tmsg_map_t *spent = NULL;
        tmsg_message_t *message = NULL;

        if (bell->posted) {
            (void)tmsg_posted_settle(bell->endpoint, bell->map,
                                     TMSG_ERR_CANCELED, false, &message,
                                     &spent);
        }
        tmsg_bell_fail(bell, TMSG_ERR_CANCELED, "the worker was destroyed");
        unlist(bell);
        tmsg_message_destroy(message);
        tmsg_posted_let_go(spent);
        if (drained) {
            tmsg_bell_drop(bell);
        }
    }
}
