/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements the tracer: an interceptor that makes a span of each call. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/params.h"
#include "rpc/intercept.h"
#include "rpc/stream.h"

#define MILLION 1000000u
#define RANDOM_BYTES 240 /* bytes; getrandom() gives up to 256 at once */

typedef struct tmsg_tracer {
    tmsg_hub_t *hub; /* hub that has the tracer */
    tmsg_tracer_params_t params;
    /* The fields below need the hub's lock. */
    size_t left; /* bytes of `random` that are unused */
    uint8_t random[RANDOM_BYTES];
} tmsg_tracer_t;

const tmsg_trace_context_t *tmsg_trace_current(void)
{
    return tmsg_calls_context();
}

const tmsg_trace_context_t *
tmsg_trace_set_current(const tmsg_trace_context_t *context)
{
    return tmsg_calls_set_context(context);
}

const tmsg_trace_context_t *tmsg_hooks_context(const tmsg_hooks_t *hooks)
{
    return hooks != NULL && hooks->traced.begun ? &hooks->traced.context : NULL;
}

/* Gets new random bytes. Returns false if the system has none, or has none yet.
 * Lock held. */
static bool refill(tmsg_tracer_t *tracer)
{
    ssize_t got;

    do {
        got = getrandom(tracer->random, RANDOM_BYTES, GRND_NONBLOCK);
    } while (got < 0 && errno == EINTR);
    tracer->left = got == RANDOM_BYTES ? RANDOM_BYTES : 0;
    return tracer->left > 0;
}

/* Draws random bytes that are not all 0, as an id must not be. Returns false if
 * there are no random bytes. Takes the lock. */
static bool draw(tmsg_tracer_t *tracer, void *to, size_t bytes)
{
    static const uint8_t zeros[TMSG_TRACE_ID_BYTES];
    bool drawn;

    tmsg_hub_lock(tracer->hub);
    do {
        drawn = tracer->left >= bytes || refill(tracer);
        if (drawn) {
            tracer->left -= bytes;
            memcpy(to, tracer->random + tracer->left, bytes);
        }
    } while (drawn && memcmp(to, zeros, bytes) == 0);
    tmsg_hub_unlock(tracer->hub);
    return drawn;
}

/* Begins a new trace: draws its id, and decides whether it is sampled. Returns
 * false if there are no random bytes. */
static bool begin_trace(tmsg_tracer_t *tracer, tmsg_trace_context_t *context)
{
    uint64_t chance;

    if (!draw(tracer, context->trace_id, TMSG_TRACE_ID_BYTES) ||
        !draw(tracer, &chance, sizeof(chance))) {
        return false;
    }
    context->flags =
        chance % MILLION < tracer->params.millionths ? TMSG_TRACE_SAMPLED : 0;
    context->state[0] = '\0';
    return true;
}

/* Returns the value of a key as the next reader of the call sees it; NULL:
 * there is none. A key that interceptors have put in hides the same key of the
 * map. */
static const tmsg_meta_t *find_trace_key(const tmsg_intercepted_t *call,
                                         const char *key)
{
    const tmsg_meta_t *value =
        tmsg_meta_look_up(tmsg_hooks_more(tmsg_hooks_of(call)), key);

    return value == NULL ? tmsg_meta_look_up(call->map, key) : value;
}

/* Stores the context of the parent of the span. Returns false if there is no
 * parent, or its traceparent is malformed. */
static bool find_parent(const tmsg_intercepted_t *call,
                        tmsg_trace_context_t *context)
{
    const tmsg_meta_t *parent = find_trace_key(call, TMSG_META_TRACE_PARENT);
    const tmsg_trace_context_t *current = tmsg_trace_current();

    if (parent != NULL) {
        return tmsg_trace_read(parent,
                               find_trace_key(call, TMSG_META_TRACE_STATE),
                               context) == NULL;
    }
    if (call->side == TMSG_SIDE_CALLER && current != NULL) {
        memcpy(context, current, offsetof(tmsg_trace_context_t, state));
        snprintf(context->state, sizeof(context->state), "%.*s",
                 TMSG_TRACE_STATE_MOST, current->state);
        return true;
    }
    return false;
}

static bool give_string(tmsg_intercepted_t *call, const char *key,
                        const char *text)
{
    const tmsg_meta_t value = {
        .type = TMSG_META_TYPE_STRING, .data = text, .bytes = strlen(text)};

    return tmsg_hooks_give(tmsg_hooks_of(call), key, &value) == TMSG_OK;
}

/* Puts the context into the metadata of the call. Returns false if the
 * traceparent cannot be put there. If only the tracestate cannot, the
 * traceparent goes alone. */
static bool send_context(tmsg_intercepted_t *call,
                         const tmsg_trace_context_t *context)
{
    char parent[TMSG_TRACE_PARENT_TEXT + 1];
    bool given;

    tmsg_trace_context_format(context, parent);
    given = give_string(call, TMSG_META_TRACE_PARENT, parent);
    if (given && (context->state[0] != '\0' ||
                  find_trace_key(call, TMSG_META_TRACE_STATE) != NULL)) {
        (void)give_string(call, TMSG_META_TRACE_STATE, context->state);
    }
    return given;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Serves as `begin` of the tracer. A call goes on without a span if there is no
 * memory or there are no random bytes. */
static tmsg_status_t begin_span(void *arg, tmsg_intercepted_t *call)
{
    tmsg_tracer_t *tracer = arg;
    tmsg_traced_t *traced = &tmsg_hooks_of(call)->traced;
    tmsg_trace_context_t *context = &traced->context;
    bool ready;

    if (find_parent(call, context)) {
        memcpy(traced->parent_id, context->span_id, TMSG_SPAN_ID_BYTES);
        ready = true;
    } else {
        ready = begin_trace(tracer, context);
    }
    ready = ready && draw(tracer, context->span_id, TMSG_SPAN_ID_BYTES);
    if (ready && call->side == TMSG_SIDE_CALLER) {
        ready = send_context(call, context);
    }
    if (ready) {
        traced->begun_ns = clock_ns(CLOCK_REALTIME);
        traced->begun_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
        traced->begun = true;
    }
    return TMSG_OK;
}

/* Serves as `end` of the tracer: gives a sampled span to on_span. */
static void end_span(void *arg, const tmsg_intercepted_t *call)
{
    const tmsg_tracer_t *tracer = arg;
    const tmsg_traced_t *traced = &tmsg_hooks_of(call)->traced;
    tmsg_span_t span = {
        .begun_ns = traced->begun_ns,
        .begun_monotonic_ns = traced->begun_monotonic_ns,
        .trace_state = traced->context.state,
        .call = call,
    };

    if (!traced->begun || !(traced->context.flags & TMSG_TRACE_SAMPLED) ||
        tracer->params.on_span == NULL) {
        return;
    }
    span.ended_ns =
        span.begun_ns + clock_ns(CLOCK_MONOTONIC) - span.begun_monotonic_ns;
    memcpy(span.trace_id, traced->context.trace_id, TMSG_TRACE_ID_BYTES);
    memcpy(span.span_id, traced->context.span_id, TMSG_SPAN_ID_BYTES);
    memcpy(span.parent_id, traced->parent_id, TMSG_SPAN_ID_BYTES);
    tracer->params.on_span(tracer->params.on_span_arg, &span);
}

static tmsg_status_t read_tracer_params(const tmsg_tracer_params_t *params,
                                        tmsg_tracer_params_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAMS(tmsg_tracer_params_t, TMSG_TRACER_PARAM_ON_SPAN, on_span,
                    on_span_arg),
        TMSG_PARAM(tmsg_tracer_params_t, TMSG_TRACER_PARAM_SAMPLE, millionths)};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status;

    *read = (tmsg_tracer_params_t){.millionths = MILLION};
    status = tmsg_params_read("tracer", params, mask, rows,
                              sizeof(rows) / sizeof(rows[0]), read);
    if (status != TMSG_OK) {
        return status;
    }
    return read->millionths <= MILLION
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM, "tracer: %u millionths",
                                read->millionths);
}

/* Makes `tracer` the tracer of the hub, for both sides. On TMSG_OK the hub owns
 * it, and frees it at its end. Lock not held. Errors: ALREADY_EXISTS, those of
 * tmsg_chains_add(). */
static tmsg_status_t install_tracer(tmsg_hub_t *hub, tmsg_tracer_t *tracer)
{
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_END,
        .begin = begin_span,
        .end = end_span,
        .arg = tracer};
    tmsg_status_t status;
    bool first;

    tmsg_hub_lock(hub);
    first = hub->tracer == NULL;
    if (first) {
        hub->tracer = tracer;
    }
    tmsg_hub_unlock(hub);
    if (!first) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                              "tracer: the worker has one already");
    }
    status = tmsg_chains_add(
        hub, 1u << TMSG_SIDE_CALLER | 1u << TMSG_SIDE_SERVER, &interceptor);
    if (status != TMSG_OK) {
        tmsg_hub_lock(hub);
        hub->tracer = NULL;
        tmsg_hub_unlock(hub);
    }
    return status;
}

tmsg_status_t tmsg_worker_trace(tmsg_worker_t *worker,
                                const tmsg_tracer_params_t *params)
{
    tmsg_tracer_params_t read;
    tmsg_tracer_t *tracer = NULL;
    void *hub;
    tmsg_status_t status = read_tracer_params(params, &read);

    if (status == TMSG_OK && worker == NULL) {
        status =
            tmsg_error_set(TMSG_ERR_INVALID_PARAM, "tracer: worker is NULL");
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_start(worker, &tmsg_hub_ops, &hub);
    }
    if (status != TMSG_OK) {
        return status;
    }
    tracer = calloc(1, sizeof(*tracer));
    if (tracer == NULL) {
        return tmsg_error_memory("a tracer");
    }
    tracer->hub = hub;
    tracer->params = read;
    status = install_tracer(hub, tracer);
    if (status != TMSG_OK) {
        free(tracer);
    }
    return status;
}

/* Stores the context of a call that is traced. Errors: NOT_FOUND. */
static tmsg_status_t give_context(const tmsg_hooks_t *hooks,
                                  tmsg_trace_context_t *context_p)
{
    const tmsg_trace_context_t *context = tmsg_hooks_context(hooks);

    if (context == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "nothing traces this call");
    }
    *context_p = *context;
    return TMSG_OK;
}

tmsg_status_t tmsg_task_trace(const tmsg_task_t *task,
                              tmsg_trace_context_t *context_p)
{
    return give_context(task->hooks, context_p);
}

tmsg_status_t tmsg_call_stream_trace(const tmsg_call_stream_t *stream,
                                     tmsg_trace_context_t *context_p)
{
    return give_context(stream->call != NULL ? stream->call->hooks
                                             : stream->task->hooks,
                        context_p);
}
