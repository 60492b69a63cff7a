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

/* A *trace* is all that one thing asked for had others do; each call in it is a
 * *span*, whose parent is that which made it. The W3C's Trace Context (a
 * Recommendation of 23 November 2021) says how one program tells the next: two
 * strings, which travel in the metadata of a call as TMSG_META_TRACE_PARENT and
 * TMSG_META_TRACE_STATE. What happens to single messages is another thing:
 * tensormsg/trace.h. See docs/reference/interceptors.md. */

enum {
    TMSG_TRACE_ID_BYTES = 16,
    TMSG_SPAN_ID_BYTES = 8,
    TMSG_TRACE_PARENT_TEXT = 55, /* characters of a traceparent of ours */
    TMSG_TRACE_STATE_MOST = 512  /* of a tracestate */
};

enum { TMSG_TRACE_SAMPLED = 1 << 0 /* its spans are recorded */ };

/* Where in a trace one is: a span, which others may be children of. */
typedef struct tmsg_trace_context {
    uint8_t trace_id[TMSG_TRACE_ID_BYTES]; /* not all 0 */
    uint8_t span_id[TMSG_SPAN_ID_BYTES];   /* not all 0 */
    uint32_t flags;                        /* TMSG_TRACE_SAMPLED */
    char state[TMSG_TRACE_STATE_MOST + 1]; /* a tracestate; "": none */
} tmsg_trace_context_t;

/* Reads both strings; `state` may be NULL. A version above 00 is read as far as
 * this one knows it (sections 3.2 and 4.1). A state that is malformed is left
 * out and is no error (3.3); of one that is too long members are, the long ones
 * first (3.3.1.5). Any thread. Errors: INVALID_PARAM (a NULL), MALFORMED, with
 * what is wrong; *context_p is untouched then. */
TMSG_API tmsg_status_t tmsg_trace_context_parse(
    const char *parent, const char *state, tmsg_trace_context_t *context_p);

/* Writes the traceparent, of version 00, with a NUL behind. */
TMSG_API void
tmsg_trace_context_format(const tmsg_trace_context_t *context,
                          char parent[TMSG_TRACE_PARENT_TEXT + 1]);

/* Puts both into a map's metadata, or reads them there. Errors: those of
 * tmsg_map_set_string(); NOT_FOUND, MALFORMED. */
TMSG_API tmsg_status_t tmsg_map_set_trace(tmsg_map_t *map,
                                          const tmsg_trace_context_t *context);
TMSG_API tmsg_status_t tmsg_map_get_trace(const tmsg_map_t *map,
                                          tmsg_trace_context_t *context_p);

/* What the calls of this thread are children of, unless their own map says it;
 * NULL: of nobody, each begins a trace. While a handler runs it is that call's
 * span, so that what it calls from there needs no more; likewise in the events
 * of a stream that is served, in tmsg_task_fn, and in the hooks of interceptors
 * but the caller's `begin`. In all other callbacks it is NULL at first, whoever
 * waits on the thread that runs them, and afterwards that one's as before. What
 * is set is looked at where it is, and must stay until another is set, or NULL,
 * or the callback returns; what was set before is returned. */
TMSG_API const tmsg_trace_context_t *tmsg_trace_current(void);
TMSG_API const tmsg_trace_context_t *
tmsg_trace_set_current(const tmsg_trace_context_t *context);

/* The span of a call, or a stream, that is served here (or, of a stream, that
 * was opened here): for those who go on with it on another thread. Errors:
 * NOT_FOUND (no tracing on this worker; no span was made of it). */
TMSG_API tmsg_status_t tmsg_task_trace(const tmsg_task_t *task,
                                       tmsg_trace_context_t *context_p);
TMSG_API tmsg_status_t tmsg_call_stream_trace(const tmsg_call_stream_t *stream,
                                              tmsg_trace_context_t *context_p);

/* A span that has ended. It, and what it points to, is valid until the hook
 * returns. It may grow at its end. */
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

/* Receives each span that is sampled, when it has ended: as `end` of an
 * interceptor. */
typedef void (*tmsg_span_fn)(void *arg, const tmsg_span_t *span);

enum { TMSG_TRACER_PARAM_ON_SPAN = 1 << 0, TMSG_TRACER_PARAM_SAMPLE = 1 << 1 };

typedef struct tmsg_tracer_params {
    uint64_t field_mask;  /* TMSG_TRACER_PARAM_*; unset: defaults */
    tmsg_span_fn on_span; /* default none: contexts are passed on, no more */
    void *on_span_arg;    /* must be there until the worker was destroyed */
    uint32_t millionths;  /* of the traces that begin here are sampled; at most
                           * 1000000, the default. Others are as their parent
                           * says */
} tmsg_tracer_params_t;

/* Has each call and stream of a worker, on both sides, be a span from now on,
 * and its context travel with it: as a child of what its map says, else of
 * tmsg_trace_current(), else it begins a trace. It is an interceptor, the next
 * of each side. Its identifiers are random, by getrandom(2). It fails no call:
 * one of which no span can be made, for want of memory or of random bytes, or
 * whose metadata would be more than the peer takes, goes on without it. But a
 * request to which another interceptor has given a key goes with all that was
 * given to it, the context too, or fails: LIMIT_EXCEEDED, NO_MEMORY. *params
 * (NULL: defaults) is copied. Errors: those of tmsg_worker_intercept();
 * INVALID_PARAM (a field), ALREADY_EXISTS. */
TMSG_API tmsg_status_t tmsg_worker_trace(tmsg_worker_t *worker,
                                         const tmsg_tracer_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
