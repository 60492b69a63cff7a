/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/span.h - calls as spans of a trace that goes through many
 * programs.
 *
 * A worker that traces makes a span of each call, and passes its trace on to
 * the peer. See docs/reference/interceptors.md.
 *
 *     tmsg_worker_trace(worker, &tracer_params); // with on_span
 *     tmsg_trace_context_parse(parent, NULL, &trace);
 *     tmsg_trace_set_current(&trace);
 *     tmsg_endpoint_call(endpoint, "infer", map, NULL, &call); // its child
 */
#ifndef TENSORMSG_SPAN_H
#define TENSORMSG_SPAN_H

#include <stdint.h>

#include <tensormsg/interceptor.h>
#include <tensormsg/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A *trace* is everything that one request has other programs do. Each call in
 * it is a *span*, whose parent is the call that made it. The W3C's Trace
 * Context (a Recommendation of 23 November 2021) says how one program tells the
 * next: by two strings. They travel in the metadata of a call, as
 * TMSG_META_TRACE_PARENT and TMSG_META_TRACE_STATE. tensormsg/trace.h is
 * something else: it tells what happens to single messages. */

enum {
    TMSG_TRACE_ID_BYTES = 16,
    TMSG_SPAN_ID_BYTES = 8,
    TMSG_TRACE_PARENT_TEXT =
        55, /* characters of a traceparent of this library */
    TMSG_TRACE_STATE_MOST = 512 /* of a tracestate */
};

enum { TMSG_TRACE_SAMPLED = 1 << 0 /* its spans are recorded */ };

/* A place in a trace: a span, which others may be children of. */
typedef struct tmsg_trace_context {
    uint8_t trace_id[TMSG_TRACE_ID_BYTES]; /* not all 0 */
    uint8_t span_id[TMSG_SPAN_ID_BYTES];   /* not all 0 */
    uint32_t flags;                        /* TMSG_TRACE_SAMPLED */
    char state[TMSG_TRACE_STATE_MOST + 1]; /* a tracestate; "": none */
} tmsg_trace_context_t;

/* Reads both strings; `state` may be NULL. A version above 00 is read as far as
 * this one knows it (sections 3.2 and 4.1). A malformed state is left out and
 * is no error (3.3). Of a state that is too long some members are left out, the
 * long ones first (3.3.1.5). In case of an error *context_p is untouched. From
 * any thread.
 * Errors:
 *   INVALID_PARAM - a pointer is NULL
 *   MALFORMED - the parent; the error says what is wrong */
TMSG_API tmsg_status_t tmsg_trace_context_parse(
    const char *parent, const char *state, tmsg_trace_context_t *context_p);

/* Writes the traceparent, of version 00, NUL-terminated. */
TMSG_API void
tmsg_trace_context_format(const tmsg_trace_context_t *context,
                          char parent[TMSG_TRACE_PARENT_TEXT + 1]);

/* Put both strings into a map's metadata, or read them there.
 * Errors: those of tmsg_map_set_string(), and:
 *   NOT_FOUND - the map has none
 *   MALFORMED */
TMSG_API tmsg_status_t tmsg_map_set_trace(tmsg_map_t *map,
                                          const tmsg_trace_context_t *context);
TMSG_API tmsg_status_t tmsg_map_get_trace(const tmsg_map_t *map,
                                          tmsg_trace_context_t *context_p);

/* Return and set the context that this thread's calls are children of, unless
 * their own map says it. NULL: each call begins a trace.
 *
 * While a handler runs, it is that call's span, so that calls of the handler
 * need no more. The same holds in the functions of a stream that is served, in
 * tmsg_task_fn, and in the hooks of interceptors except the caller's `begin`.
 * In all other callbacks it is NULL at first, whoever waits on the thread that
 * runs them; afterwards the thread has its own again.
 *
 * The context is not copied: it must live until another is set, or NULL, or the
 * callback returns. tmsg_trace_set_current() returns what was set before. */
TMSG_API const tmsg_trace_context_t *tmsg_trace_current(void);
TMSG_API const tmsg_trace_context_t *
tmsg_trace_set_current(const tmsg_trace_context_t *context);

/* Give the span of a call or stream that is served here, or of a stream that
 * was opened here, to go on with it on another thread.
 * Errors:
 *   NOT_FOUND - this worker does not trace, or the call has no span */
TMSG_API tmsg_status_t tmsg_task_trace(const tmsg_task_t *task,
                                       tmsg_trace_context_t *context_p);
TMSG_API tmsg_status_t tmsg_call_stream_trace(const tmsg_call_stream_t *stream,
                                              tmsg_trace_context_t *context_p);

/* A span that has ended. It and what it points to are valid until the hook
 * returns. Later versions may add fields at its end. */
typedef struct tmsg_span {
    uint8_t trace_id[TMSG_TRACE_ID_BYTES];
    uint8_t span_id[TMSG_SPAN_ID_BYTES];
    uint8_t parent_id[TMSG_SPAN_ID_BYTES]; /* all 0: it began the trace */
    uint64_t begun_ns;                     /* Unix time */
    uint64_t ended_ns;
    uint64_t begun_monotonic_ns; /* the first of CLOCK_MONOTONIC, which is that
                                  * of tmsg_trace_event_t */
    const char *trace_state;     /* "": none */
    const tmsg_intercepted_t *call; /* side, method, peer, status, bytes, ... */
} tmsg_span_t;

/* Receives each sampled span when it has ended, on the threads of an
 * interceptor's `end`. */
typedef void (*tmsg_span_fn)(void *arg, const tmsg_span_t *span);

enum { TMSG_TRACER_PARAM_ON_SPAN = 1 << 0, TMSG_TRACER_PARAM_SAMPLE = 1 << 1 };

typedef struct tmsg_tracer_params {
    uint64_t field_mask;  /* TMSG_TRACER_PARAM_*; unset: defaults */
    tmsg_span_fn on_span; /* default none: contexts are only passed on */
    void *on_span_arg;    /* must live until the worker was destroyed */
    uint32_t millionths;  /* of the traces that begin here are sampled; at most
                           * 1000000, the default. Other traces follow their
                           * parent */
} tmsg_tracer_params_t;

/* Makes a span of each call and stream of a worker, on both sides, from now on,
 * and sends its context with it. A call is a child of what its map says, else
 * of tmsg_trace_current(); else it begins a trace. The tracer is an
 * interceptor, the next one of each side. Its identifiers are random, by
 * getrandom(2). *params (NULL: defaults) is copied.
 *
 * Tracing fails no call. A call goes on without a span if there is no memory or
 * no random bytes for it, or if its metadata would be more than the peer takes.
 * There is one exception. A request to which another interceptor has given a
 * key goes with everything that was given to it, the context included, or fails
 * with LIMIT_EXCEEDED or NO_MEMORY.
 * Errors: those of tmsg_worker_intercept(), and:
 *   INVALID_PARAM - a field
 *   ALREADY_EXISTS - the worker traces already */
TMSG_API tmsg_status_t tmsg_worker_trace(tmsg_worker_t *worker,
                                         const tmsg_tracer_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
