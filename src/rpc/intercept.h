/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/intercept.h - hooks of the application around calls and streams.
 *
 * Each intercepted call has a record, tmsg_hooks_t. Hooks run without a lock.
 * The record counts the hooks that run. If the call ends meanwhile, the last
 * hook to return has the call's event fire again. The lock below is the hub's.
 */
#ifndef TMSG_RPC_INTERCEPT_H
#define TMSG_RPC_INTERCEPT_H

#include <tensormsg/span.h>

#include "core/refs.h"
#include "rpc/caller.h"
#include "rpc/server.h"

struct tmsg_hooks;

/* The view that a hook is given. The library's own part follows what the hook
 * may read. */
typedef struct {
    tmsg_intercepted_t seen;  /* must be first */
    struct tmsg_hooks *hooks; /* NULL: no `begin` has seen the call */
} tmsg_hook_view_t;

/* The interceptors of one side of a worker, which are never taken away. */
typedef struct tmsg_chain {
    unsigned count;
    tmsg_interceptor_t of[TMSG_INTERCEPTORS_MOST];
} tmsg_chain_t;

typedef struct {
    tmsg_trace_context_t context; /* context of the call's own span */
    uint8_t parent_id[TMSG_SPAN_ID_BYTES];
    uint64_t begun_ns, begun_monotonic_ns;
    bool begun;
} tmsg_traced_t;

typedef struct tmsg_hooks {
    tmsg_node_t node; /* in the hub's spare records */
    tmsg_refs_t refs; /* of the call or task, and of `more` */
    tmsg_hub_t *hub;
    tmsg_map_t *more; /* NULL: none was made */
    /* The fields below are zeroed for each call. */
    tmsg_call_t *call; /* the call, at a caller; else NULL */
    tmsg_task_t *task;
    const tmsg_map_t *map; /* request map, at a caller, while the call begins */
    bool has_more;         /* `more` has some key, and a reference */
    bool beginning;
    bool refused;
    bool asked; /* an interceptor other than the tracer has put a key into
                   `more` */
    uint64_t begun_ns;
    void *states[TMSG_INTERCEPTORS_MOST];
    tmsg_traced_t traced;
    char words[TMSG_CALL_TEXT_MOST + 1]; /* words of the refusal or failure */
    /* The fields below need the hub's lock. */
    unsigned begun;  /* how many of the chain have seen the call begin */
    unsigned inside; /* number of hooks that run */
    bool over;
    bool told;            /* `end` was called, or is about to be */
    bool waits;           /* `end` waits for the hooks that run */
    tmsg_status_t status; /* status that the call ended with */
    const char *error;    /* words of that end: the call's, or `words` */
    uint64_t elapsed_ns;
    uint64_t sent_bytes, received_bytes, sent, received;
} tmsg_hooks_t;

/* Returns whether interceptors look at that side. */
static inline bool tmsg_is_intercepted(const tmsg_hub_t *hub, tmsg_side_t side)
{
    return atomic_load_explicit(&hub->chains[side - 1], memory_order_acquire) !=
           NULL;
}

/* Tells interceptors that a call or stream is about to be sent with `map`
 * (NULL: an empty one). Lock not held, here and below unless a comment says so.
 * Errors: the call must not be sent. */
tmsg_status_t tmsg_hooks_begin_call(tmsg_call_t *call, const tmsg_map_t *map);

/* Tells interceptors that the call was not sent; tmsg_error_message() says why.
 */
void tmsg_hooks_unsent(tmsg_hooks_t *hooks, tmsg_status_t status);

/* Tells interceptors of a task whose message is here. Errors: the task must not
 * run; tmsg_error_message() and the record have the words. */
tmsg_status_t tmsg_hooks_begin_task(tmsg_task_t *task);

/* Tells interceptors that the call or task has ended. `error` lives as long as
 * the call or task; NULL stands for `words`. `hooks` may be NULL, here and
 * below. Returns false if other hooks of the call run. The event of the call or
 * task then fires when they have returned, and calls this function again. */
bool tmsg_hooks_over(tmsg_hooks_t *hooks, tmsg_status_t status,
                     const char *error);

/* Tells interceptors of a message of the stream. */
void tmsg_hooks_message(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map);

/* Keeps the words of a failure, for a task that is about to be over. */
void tmsg_hooks_words(tmsg_hooks_t *hooks, const char *words, size_t bytes);

/* Counts the bytes of a map that is sent or received with the call. Lock held.
 */
void tmsg_hooks_count(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map);

/* Drops the record, because its call or task is gone. */
void tmsg_hooks_drop(tmsg_hooks_t *hooks);

/* Returns the metadata to send with the call, or NULL. */
const tmsg_map_t *tmsg_hooks_more(const tmsg_hooks_t *hooks);

/* Returns whether the call may go without that metadata if it is too large. */
bool tmsg_hooks_spare_more(const tmsg_hooks_t *hooks);

/* Puts a key into that metadata, in a caller's `begin`. */
tmsg_status_t tmsg_hooks_give(tmsg_hooks_t *hooks, const char *key,
                              const tmsg_meta_t *value);

/* Frees the chains and spare records of a hub. */
void tmsg_chains_free(tmsg_hub_t *hub);

/* Adds an interceptor to the sides in `sides` (1 << tmsg_side_t each), to all
 * or to none. Takes the lock. Errors: LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_chains_add(tmsg_hub_t *hub, unsigned sides,
                              const tmsg_interceptor_t *interceptor);

/* Returns the record behind a view that a hook was given. */
tmsg_hooks_t *tmsg_hooks_of(const tmsg_intercepted_t *call);

/* Returns the value of a key, or NULL; sets no error. */
const tmsg_meta_t *tmsg_meta_look_up(const tmsg_map_t *map, const char *key);

/* Returns the trace context of a call that is traced, or NULL (span.c). */
const tmsg_trace_context_t *tmsg_hooks_context(const tmsg_hooks_t *hooks);

/* Reads a traceparent (trace_context.c). Returns NULL, or what is wrong with
 * it. */
const char *tmsg_trace_read_parent(const char *text, size_t bytes,
                                   tmsg_trace_context_t *context);

/* Reads a tracestate; a malformed one becomes "". */
void tmsg_trace_read_state(const char *text, size_t bytes,
                           char state[TMSG_TRACE_STATE_MOST + 1]);

/* Reads both from metadata; `state` may be NULL. Returns NULL, or what is
 * wrong. */
const char *tmsg_trace_read(const tmsg_meta_t *parent, const tmsg_meta_t *state,
                            tmsg_trace_context_t *context);

#endif
