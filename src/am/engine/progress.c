/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/engine/progress.h"

#include <time.h>

#include "am/bell/bell.h"
#include "am/calls/calls.h"
#include "am/endpoint/endpoint.h"
#include "am/engine/dispatch.h"
#include "am/engine/endpoint.h"
#include "am/engine/retire.h"
#include "am/engine/siblings_tend.h"
#include "am/path/bulk.h"
#include "am/path/fastboxes.h"
#include "am/path/loans.h"
#include "am/recv/fetch.h"
#include "am/recv/fetch_queue.h"
#include "am/staging/copy.h"
#include "am/staging/vital.h"
#include "am/ucx/retained.h"
#include "am/ucx/siblings.h"
#include "am/ucxx/ucxx.h"
#include "am/worker/lead.h"
#include "am/worker/staging.h"
#include "core/error.h"
#include "core/log.h"

/* The loop is looked at after this many progress calls in a row that found
 * nothing. */
#define LOOK_EVERY_QUIET 256
/* The loop is looked at after this many progress calls, and at every tick of
 * the clock. */
#define LOOK_EVERY_BUSY 4096
/* The clock is read in one of this many progress calls in a row that found
 * something. */
#define TICK_EVERY 4
/* Memory that lies unused for longer than this goes back. */
#define TIDY_MS 1000
/* From this many rounds on that found nothing, with no send in between, UCX is
 * asked several times a round. */
#define POLL_FROM 8
/* UCX is asked at most this many times in such a round. */
#define POLL_MOST 4
/* A drain makes at most this many progress calls to read what a dead peer has
 * sent. */
#define DRAIN_MOST 10000
/* UCX is silent after this many progress calls without an event. */
#define DRAIN_QUIET 16

static unsigned do_chores(tmsg_worker_t *worker)
{
    size_t count = worker->chores.count; /* chores added meanwhile wait */

    for (size_t i = 0; i < count; i++) {
        tmsg_endpoint_t *endpoint = tmsg_worker_next_chore(worker);

        tmsg_endpoint_chores(endpoint);
        tmsg_endpoint_drop(endpoint);
    }
    return (unsigned)count;
}

static inline unsigned poll_fastboxes(tmsg_worker_t *worker)
{
    return worker->fastboxes.count > 0 ? tmsg_kinds_poll(worker) : 0;
}

bool tmsg_worker_drain(tmsg_ucx_t *ucx)
{
    tmsg_worker_t *worker = ucx->worker;
    unsigned quiet = 0;

    worker->inside = true;
    for (unsigned i = 0; i < DRAIN_MOST && quiet < DRAIN_QUIET; i++) {
        unsigned found = tmsg_ucx_progress(ucx) + poll_fastboxes(worker);

        quiet = found == 0 ? quiet + 1 : 0;
    }
    worker->inside = false;
    return quiet >= DRAIN_QUIET;
}

/* Returns whether the coarse clock has ticked. The clock costs next to nothing
 * and ticks every 1 to 4 ms. A caller that calls progress() once a frame has
 * the loop looked at in each call. If each call finds messages, it is one call
 * in TICK_EVERY: the messages are not to wait for the loop. */
static bool has_ticked(tmsg_worker_t *worker)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_nsec == worker->pace.tick.tv_nsec &&
        now.tv_sec == worker->pace.tick.tv_sec) {
        return false;
    }
    worker->pace.tick = now;
    return true;
}

static void tidy_pool(tmsg_timer_t *timer)
{
    tmsg_worker_t *worker = TMSG_CONTAINER_OF(timer, tmsg_worker_t, pace.tidy);

    tmsg_pool_trim(tmsg_budget_pool(worker->budget));
}

static void tell_counts(tmsg_timer_t *timer)
{
    (void)timer;
    tmsg_log_tell();
}

/* Has counts of repeated events written when their interval is over. */
static void await_counts(tmsg_worker_t *worker)
{
    uint64_t due_ns = tmsg_log_due_ns(), now_ns;

    if (due_ns == 0 || worker->pace.counts.deadline_ns != 0) {
        return;
    }
    now_ns = tmsg_now_ns();
    worker->pace.counts.expired = tell_counts;
    tmsg_loop_set_alarm(&worker->loop, &worker->pace.counts,
                        due_ns > now_ns ? due_ns - now_ns : 0);
}

/* Looks at descriptors and timers. That takes system calls, and a message that
 * comes meanwhile has to wait for them. */
__attribute__((noinline)) static unsigned look_at_loop(tmsg_worker_t *worker)
{
    unsigned count;

    worker->pace.look = false;
    worker->pace.quiet = 0;
    worker->pace.steps = 0;
    if (worker->pace.tidy.deadline_ns == 0 &&
        tmsg_pool_hoards(tmsg_budget_pool(worker->budget))) {
        worker->pace.tidy.expired = tidy_pool;
        tmsg_loop_set_timer(&worker->loop, &worker->pace.tidy, TIDY_MS);
    }
    count = tmsg_loop_run(&worker->loop);
    await_counts(worker);
    return count;
}

static bool is_to_look(tmsg_worker_t *worker, unsigned found)
{
    worker->pace.steps++;
    worker->pace.quiet = found == 0 ? worker->pace.quiet + 1 : 0;
    worker->pace.busy = found == 0 ? 0 : worker->pace.busy + 1;
    return worker->pace.look || worker->pace.quiet >= LOOK_EVERY_QUIET ||
           worker->pace.steps >= LOOK_EVERY_BUSY ||
           (worker->pace.busy % TICK_EVERY == 0 && has_ticked(worker));
}

/* Gives UCX its turn. */
static inline unsigned poll_ucx(tmsg_ucx_t *ucx)
{
    return tmsg_ucxx_is_full(ucx) ? 0 : tmsg_ucx_progress(ucx);
}

/* Asks UCX again in a worker that only waits for an answer. Otherwise it would
 * wait during the rest of a call, too, which is longer than UCX's turn if
 * memory is shared. */
__attribute__((noinline)) static unsigned poll_on(tmsg_worker_t *worker)
{
    unsigned count = 0;

    for (unsigned i = 1; i < POLL_MOST && count == 0; i++) {
        for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
            count += poll_ucx(ucx);
        }
        count += poll_fastboxes(worker);
    }
    return count;
}

/* Returns whether tend_rest() has something to do. */
static bool has_rest(const tmsg_worker_t *worker)
{
    return (worker->stage.copies.count | worker->stage.calls.count |
            tmsg_fetch_count(worker) | worker->chores.count |
            worker->bulk_streams.count | worker->seldom) != 0;
}

__attribute__((noinline)) static unsigned tend_rest(tmsg_worker_t *worker,
                                                    bool sibling_gone)
{
    unsigned count = 0;

    if (tmsg_copies_are_busy(&worker->stage)) {
        count += tmsg_copies_poll(worker);
    }
    if (worker->bulk_streams.count > 0) {
        count += tmsg_bulk_turn_all(worker);
    }
    if (tmsg_fetch_count(worker) > 0) {
        count += tmsg_messages_fetch(worker);
    }
    if (worker->chores.count > 0) {
        count += do_chores(worker);
    }
    if (sibling_gone) {
        count += tmsg_siblings_tend(worker);
    }
    if (worker->seldom & TMSG_SELDOM_LOANS) {
        count += tmsg_loans_tend(worker);
    }
    if (worker->seldom & TMSG_SELDOM_BELLS) {
        count += tmsg_bells_poll(worker);
    }
    if (worker->seldom & TMSG_SELDOM_RETIRED) {
        tmsg_worker_close_retired(worker);
    }
    return count;
}

unsigned tmsg_worker_step(tmsg_worker_t *worker)
{
    unsigned count = 0;
    bool sibling_gone = false;

    if (worker->calls_behind) {
        tmsg_call_catch_up(worker);
    }
    worker->inside = true;
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        sibling_gone |= tmsg_siblings_want_tending(ucx);
        if (atomic_load_explicit(&ucx->lifted, memory_order_relaxed) != NULL) {
            tmsg_ucx_release_lifted(ucx);
        }
        count += poll_ucx(ucx);
    }
    if (worker->fastboxes_unreported) {
        tmsg_fastboxes_moved(worker);
    }
    count += poll_fastboxes(worker); /* also what waited for messages by UCX */
    worker->idle = count == 0 ? worker->idle + 1 : 0;
    if (worker->idle > POLL_FROM && worker->bulk_streams.count == 0) {
        count = poll_on(worker);
        worker->idle = count == 0 ? worker->idle : 0;
    }
    worker->inside = false;
    if (is_to_look(worker, count)) {
        count += look_at_loop(worker);
    }
    if (sibling_gone || has_rest(worker)) {
        count += tend_rest(worker, sibling_gone);
    }
    return count;
}

/* Returns whether there is work. A thread that runs callbacks also runs those
 * that become due meanwhile. A thread that asks for memory also asks for what
 * arrives meanwhile. */
static bool worker_has_work(tmsg_worker_t *worker)
{
    if (worker->calls_behind) {
        tmsg_call_catch_up(worker);
    }
    return (worker->due.count > 0 && !worker->dispatching) ||
           worker->chores.count > 0 ||
           (!worker->fetching && tmsg_fetch_is_due(worker));
}

tmsg_status_t tmsg_progress_arm(tmsg_worker_t *worker)
{
    if (worker_has_work(worker)) {
        return TMSG_ERR_BUSY;
    }
    if (tmsg_copies_are_busy(&worker->stage) && !tmsg_copies_arm(worker)) {
        return TMSG_ERR_BUSY;
    }
    if (worker->stage.vitals.count > 0) {
        tmsg_vital_ask_direct(worker);
        if (worker_has_work(worker)) {
            return TMSG_ERR_BUSY;
        }
    }
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        tmsg_ucx_release_lifted(ucx);
        if (atomic_load(&ucx->sibling_gone)) {
            return TMSG_ERR_BUSY;
        }
    }
    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        tmsg_status_t status =
            tmsg_ucxx_is_full(ucx) ? TMSG_OK : tmsg_ucx_arm(ucx);

        if (status != TMSG_OK) {
            return status;
        }
    }
    if (!tmsg_fastboxes_arm(worker) || !tmsg_bulk_arm_all(worker) ||
        !tmsg_loans_arm(worker) || !tmsg_bells_arm(worker)) {
        return TMSG_ERR_BUSY;
    }
    await_counts(worker);
    tmsg_loop_arm(&worker->loop);
    worker->pace.look = true;
    return TMSG_OK;
}

tmsg_status_t tmsg_worker_arm(tmsg_worker_t *worker)
{
    tmsg_status_t status;

    tmsg_worker_lock(worker);
    tmsg_loop_hear(&worker->loop);
    status = tmsg_progress_arm(worker);
    worker->armed = status == TMSG_OK;
    worker->armer = pthread_self();
    tmsg_worker_unlock_quietly(worker);
    return status;
}

/* Returns whether other threads or workers have left work. Nobody ends a nap
 * for it. */
static bool has_news(const tmsg_worker_t *worker)
{
    bool news = false;

    for (const tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        news = news || atomic_load(&ucx->sibling_gone) ||
               atomic_load(&ucx->lifted) != NULL;
    }
    return news;
}

bool tmsg_progress_is_idle(tmsg_worker_t *worker)
{
    return !worker_has_work(worker) && !tmsg_copies_are_busy(&worker->stage) &&
           worker->bulk_streams.count == 0 && tmsg_fetch_count(worker) == 0 &&
           !has_news(worker) && !tmsg_loans_wait(worker) &&
           !(worker->seldom & TMSG_SELDOM_BELLS) &&
           tmsg_fastboxes_are_quiet(worker);
}
