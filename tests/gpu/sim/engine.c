/* SPDX-License-Identifier: BSD-3-Clause */
/* The device: a thread of the process that executes what its streams hold.
 * Streams are independent, but for events and the legacy default stream. */
#include "gpu/sim/inside.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define STREAM_MAGIC 0x53747265u
#define POLL_NS 50000 /* for what this process is not told of */
#define YIELDS 200    /* before that, for a word that the CPU is to write */

static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static stream_t *streams;
static uint64_t orders;
static bool started;
static bool resting;            /* the device has nothing to do */
static unsigned waiters;        /* for something that the device does */
static _Atomic uint64_t copies; /* for SIM_CUDA_FAULT_AT */
_Atomic unsigned sim_delay_us;
_Thread_local bool sim_on_device;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool sim_idle(const stream_t *stream) { return stream->first == NULL; }

uint64_t sim_event_recorded(const event_t *event)
{
    return event->shared != NULL ? atomic_load(&event->shared->recorded)
                                 : event->recorded;
}

bool sim_event_done(const event_t *event, uint64_t ticket)
{
    return (event->shared != NULL ? atomic_load(&event->shared->done)
                                  : event->done) >= ticket;
}

static void finish_event(event_t *event, uint64_t ticket)
{
    if (event->shared == NULL) {
        event->done = event->done > ticket ? event->done : ticket;
    } else {
        uint64_t seen = atomic_load(&event->shared->done);

        while (seen < ticket && !atomic_compare_exchange_weak(
                                    &event->shared->done, &seen, ticket)) {
        }
    }
}

/* A context that has failed does no further work (CUDA_ERROR_ILLEGAL_ADDRESS:
 * "any further CUDA work will return the same error"). */
static void fail(context_t *context) { context->sticky = ILLEGAL_ADDRESS; }

/* "Default stream": the legacy one waits for all blocking streams of its
 * context, and they for it. */
static bool is_behind_legacy(const stream_t *stream, uint64_t order)
{
    for (const stream_t *each = streams; each != NULL; each = each->next) {
        if (each != stream && each->context == stream->context &&
            each->first != NULL && each->first->order < order &&
            ((stream->legacy && each->blocking) ||
             (each->legacy && stream->blocking))) {
            return true;
        }
    }
    return false;
}

/* SOON: the CPU is to write a word. */
typedef enum { LATER, POLLED, SOON, NOW } when_t;

/* "CU_STREAM_WAIT_VALUE_GEQ: wait until (int64_t)(*addr - value) >= 0", "EQ:
 * wait until *addr == value", "AND: wait until (*addr & value) != 0", "NOR:
 * wait until ~(*addr | value) != 0". */
static bool has_value(const op_t *op)
{
    uint64_t word =
        __atomic_load_n((const uint64_t *)(uintptr_t)op->to, __ATOMIC_ACQUIRE);

    switch (op->flags) {
    case 0:
        return (int64_t)(word - op->word) >= 0;
    case 1:
        return word == op->word;
    case 2:
        return (word & op->word) != 0;
    default:
        return ~(word | op->word) != 0;
    }
}

static when_t when(const stream_t *stream, const op_t *op)
{
    if (op->work == AWAIT_VALUE && !has_value(op)) {
        return SOON;
    }
    if (op->work == HOLD && *op->go == 0) {
        return POLLED;
    }
    if (op->work == WAIT && !sim_event_done(op->event, op->ticket)) {
        return op->event->shared != NULL ? POLLED : LATER;
    }
    if (is_behind_legacy(stream, op->order)) {
        return LATER;
    }
    return op->due_ns <= now_ns() ? NOW : POLLED;
}

/* Memory that other work has not got to, or is gone, is an illegal address. */
static bool reach(const op_t *op, char **to, char **from)
{
    block_t *target, *source;

    *from = op->staged;
    if (!sim_reach(op->to, op->bytes, to, &target) ||
        (target != NULL && target->unborn)) {
        return false;
    }
    if (op->staged != NULL || op->work == FILL) {
        return true;
    }
    return sim_reach(op->from, op->bytes, from, &source) &&
           (source == NULL || !source->unborn);
}

static void execute_copy(stream_t *stream, const op_t *op)
{
    static int fault_at = -1;
    char *to, *from;

    if (fault_at < 0) {
        fault_at = sim_number("SIM_CUDA_FAULT_AT", 0);
    }
    if ((fault_at > 0 &&
         atomic_fetch_add(&copies, 1) + 1 >= (uint64_t)fault_at) ||
        !reach(op, &to, &from)) {
        fail(stream->context);
        return;
    }
    pthread_mutex_unlock(&sim_lock);
    if (op->work == FILL) {
        memset(to, op->value, op->bytes);
    } else {
        memmove(to, from, op->bytes);
    }
    pthread_mutex_lock(&sim_lock);
}

static void tell(stream_t *stream, const op_t *op)
{
    int status = stream->context->sticky;

    if (op->work == CALL && status != OK) {
        return; /* cuLaunchHostFunc(): not called after an error */
    }
    pthread_mutex_unlock(&sim_lock);
    sim_on_device = true;
    if (op->work == TELL) {
        op->tell(stream->handle, status, op->arg);
    } else {
        op->kernel(op->arg);
    }
    sim_on_device = false;
    pthread_mutex_lock(&sim_lock);
}

/* "By default, the write is ordered after all previous work of the stream, by a
 * memory barrier of the system" (CU_STREAM_WRITE_VALUE_DEFAULT). */
static void write_value(const op_t *op)
{
    if (op->bytes == sizeof(uint32_t)) {
        __atomic_store_n((uint32_t *)(uintptr_t)op->to, (uint32_t)op->word,
                         __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint64_t *)(uintptr_t)op->to, op->word,
                         __ATOMIC_RELEASE);
    }
}

static void execute(stream_t *stream, const op_t *op)
{
    block_t *block;

    switch (op->work) {
    case COPY:
    case FILL:
        execute_copy(stream, op);
        break;
    case FAULT:
        fail(stream->context);
        break;
    case KERNEL:
    case CALL:
    case TELL:
        tell(stream, op);
        break;
    case RECORD:
        finish_event(op->event, op->ticket);
        break;
    case BORN:
    case GIVE:
        block = sim_find(op->to);
        if (block != NULL && op->work == BORN) {
            block->unborn = false;
        } else if (block != NULL) {
            sim_pool_gave(block);
        }
        break;
    case WRITE_VALUE:
        write_value(op);
        break;
    case HOLD:
    case WAIT:
    case AWAIT_VALUE:
        break;
    }
}

static void pop(stream_t *stream)
{
    op_t *op = stream->first;

    stream->first = op->next;
    stream->last = stream->first == NULL ? NULL : stream->last;
    stream->done++;
    if (op->event != NULL) {
        op->event->refs--;
    }
    free(op->staged);
    free(op);
}

/* After an error only callbacks are told. */
static void drop_all(stream_t *stream)
{
    while (stream->first != NULL) {
        if (stream->first->work == TELL) {
            tell(stream, stream->first);
        }
        pop(stream);
    }
}

/* One piece of work. What waits for nothing but time or another process is
 * asked again. */
static when_t turn(stream_t *stream)
{
    when_t due = LATER;

    if (stream->first == NULL || stream->running) {
        return LATER;
    }
    if (stream->context->sticky == OK) {
        due = when(stream, stream->first);
        if (due != NOW) {
            return due;
        }
    }
    stream->running = true;
    if (stream->context->sticky == OK) {
        execute(stream, stream->first);
    }
    if (stream->context->sticky == OK) {
        pop(stream);
    } else {
        drop_all(stream);
    }
    stream->running = false;
    return NOW;
}

static void rest(when_t best)
{
    static unsigned yields; /* in a row */
    struct timespec until;

    yields = best == SOON ? yields + 1 : 0;
    if (best == SOON && yields < YIELDS) {
        pthread_mutex_unlock(&sim_lock);
        sched_yield();
        pthread_mutex_lock(&sim_lock);
        return;
    }
    resting = true;
    if (best == LATER) {
        pthread_cond_wait(&given, &sim_lock);
        resting = false;
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&given, &sim_lock, &until);
    resting = false;
}

static void tell_waiters(void)
{
    if (waiters > 0) {
        pthread_cond_broadcast(&done);
    }
}

/* What was destroyed and is done stays, so that a later use is told. */
static void bury(void)
{
    static stream_t *buried;

    for (stream_t **at = &streams; *at != NULL;) {
        stream_t *each = *at;

        if (each->dead && each->first == NULL) {
            *at = each->next;
            each->next = buried;
            buried = each;
        } else {
            at = &each->next;
        }
    }
}

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&sim_lock);
    for (;;) {
        when_t best = LATER;

        for (stream_t *each = streams; each != NULL; each = each->next) {
            when_t due = turn(each);

            best = due > best ? due : best;
        }
        bury();
        tell_waiters();
        if (best != NOW) {
            rest(best);
        }
    }
    return NULL;
}

stream_t *sim_stream_new(context_t *context, bool blocking, bool legacy)
{
    stream_t *stream = calloc(1, sizeof(*stream));

    if (stream != NULL) {
        *stream = (stream_t){.magic = STREAM_MAGIC,
                             .context = context,
                             .context_id = context->id,
                             .blocking = blocking,
                             .legacy = legacy,
                             .handle = stream,
                             .next = streams};
        streams = stream;
    }
    return stream;
}

void sim_submit(stream_t *stream, const op_t *from)
{
    op_t *op = malloc(sizeof(*op));
    pthread_t thread;

    if (!started) {
        started = pthread_create(&thread, NULL, run, NULL) == 0 &&
                  pthread_detach(thread) == 0;
    }
    if (op == NULL || !started) {
        abort();
    }
    *op = *from;
    op->next = NULL;
    op->order = ++orders;
    op->due_ns = sim_delay_us == 0 ? 0 : now_ns() + 1000ull * sim_delay_us;
    if (op->event != NULL) {
        op->event->refs++;
    }
    if (stream->last == NULL) {
        stream->first = op;
    } else {
        stream->last->next = op;
    }
    stream->last = op;
    stream->given++;
    if (resting) {
        pthread_cond_signal(&given);
    }
}

void sim_pause(void)
{
    waiters++;
    pthread_cond_wait(&done, &sim_lock);
    waiters--;
}

/* Who waits does the work, which spares a change of threads. */
int sim_wait(stream_t *stream)
{
    context_t *context = stream->context;
    uint64_t until = stream->given, id = stream->context_id;

    while (stream->done < until && sim_is_alive(context, id)) {
        if (turn(stream) == NOW) {
            tell_waiters();
            if (resting) { /* it passed by what was under way here */
                pthread_cond_signal(&given);
            }
        } else {
            sim_pause();
        }
    }
    return sim_is_alive(context, id) ? context->sticky : CONTEXT_IS_DESTROYED;
}

int sim_wait_context(context_t *context)
{
    for (stream_t *each = streams; each != NULL; each = each->next) {
        if (each->context == context && each->context_id == context->id) {
            sim_wait(each);
        }
    }
    return context->sticky;
}

static bool is_held(const stream_t *stream)
{
    return stream->first != NULL && stream->first->work == HOLD &&
           *stream->first->go == 0;
}

void sim_finish(void)
{
    pthread_mutex_lock(&sim_lock);
    for (stream_t *each = streams; each != NULL;) {
        if (each->first == NULL || is_held(each)) {
            each = each->next;
        } else {
            sim_pause();
            each = streams;
        }
    }
    pthread_mutex_unlock(&sim_lock);
}

void sim_end_capture(capture_t *capture)
{
    for (stream_t *each = streams; each != NULL; each = each->next) {
        if (each->capture == capture) {
            each->capture = NULL;
        }
    }
}

/* Work that waits for something is dropped as well. */
void sim_end_context(context_t *context)
{
    for (stream_t *each = streams; each != NULL; each = each->next) {
        if (each->context != context) {
            continue;
        }
        while (each->running) {
            sim_pause();
        }
        while (each->first != NULL) {
            pop(each);
        }
        each->dead = true;
    }
}
