/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/intercept.h - hooks of the application's around calls and streams.
 *
 * A call that is intercepted has a record of its own, which others do without.
 * Hooks run without a lock; the record counts those that are inside, and where
 * the call ends meanwhile the last to leave has its event fire again. */
#ifndef TMSG_RPC_INTERCEPT_H
#define TMSG_RPC_INTERCEPT_H

#include <tensormsg/span.h>

#include "core/refs.h"
#include "rpc/caller.h"
#include "rpc/server.h"

struct tmsg_hooks;

/* What a hook is given; the library's own part is behind what it may read. */
typedef struct {
    tmsg_intercepted_t seen;  /* first */
    struct tmsg_hooks *hooks; /* NULL: no `begin` has seen it */
} tmsg_hook_view_t;

/* Those of one side of a worker. Never taken away. */
typedef struct tmsg_chain {
    unsigned count;
    tmsg_interceptor_t of[TMSG_INTERCEPTORS_MOST];
} tmsg_chain_t;

typedef struct {
    tmsg_trace_context_t context; /* its own */
    uint8_t parent_id[TMSG_SPAN_ID_BYTES];
    uint64_t begun_ns, begun_monotonic_ns;
    bool begun;
} tmsg_traced_t;

typedef struct tmsg_hooks {
    tmsg_node_t node; /* of the hub's spares */
    tmsg_refs_t refs; /* the call's, or task's, and `more`'s */
    tmsg_hub_t *hub;
    tmsg_map_t *more; /* NULL: none was made */
    /* The rest is zeroed for each call. */
    tmsg_call_t *call; /* that it is of; or */
    tmsg_task_t *task;
    const tmsg_map_t *map; /* at a caller, while it begins */
    bool has_more;         /* some key is in `more`, which has a reference */
    bool beginning;
    bool refused;
    bool asked; /* somebody but the tracer has put a key in `more` */
    uint64_t begun_ns;
    void *states[TMSG_INTERCEPTORS_MOST];
    tmsg_traced_t traced;
    char words[TMSG_CALL_TEXT_MOST + 1]; /* it was refused, or failed, with */
    /* With the hub's lock: */
    unsigned begun;  /* so many of the chain have seen it begin */
    unsigned inside; /* hooks that run */
    bool over;
    bool told;            /* `end` was called, or is about to be; or */
    bool waits;           /* that waits for those inside */
    tmsg_status_t status; /* that it ended with, */
    const char *error;    /* and words of the call's, or ours */
    uint64_t elapsed_ns;
    uint64_t sent_bytes, received_bytes, sent, received;
} tmsg_hooks_t;

/* Whether anybody looks. */
static inline bool tmsg_is_intercepted(const tmsg_hub_t *hub, tmsg_side_t side)
{
    return atomic_load_explicit(&hub->chains[side - 1], memory_order_acquire) !=
           NULL;
}

/* A call, or stream, is about to be sent, with that map (NULL: an empty one).
 * Errors: it is not to be. Without a lock, here and below. */
tmsg_status_t tmsg_hooks_begin_call(tmsg_call_t *call, const tmsg_map_t *map);

/* It was not sent, with tmsg_error_message(). */
void tmsg_hooks_unsent(tmsg_hooks_t *hooks, tmsg_status_t status);

/* The same of a task whose message is here. Errors: likewise; the words are in
 * its record, too. */
tmsg_status_t tmsg_hooks_begin_task(tmsg_task_t *task);

/* It has ended; `error` lives as long as that, or is NULL: `words`. `hooks` may
 * be NULL, here and below. False: other hooks of it run; then its call's, or
 * task's, event fires when they do not any more, which is to say this again. */
bool tmsg_hooks_over(tmsg_hooks_t *hooks, tmsg_status_t status,
                     const char *error);

/* A message of its stream. */
void tmsg_hooks_message(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map);

/* A failure's words, of a task that is about to be over. */
void tmsg_hooks_words(tmsg_hooks_t *hooks, const char *words, size_t bytes);

/* Lock held: a map of so many bytes goes, or came, beside those. */
void tmsg_hooks_count(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map);

/* Its call, or task, is gone. */
void tmsg_hooks_drop(tmsg_hooks_t *hooks);

/* Metadata that is to be sent with it, or NULL. */
const tmsg_map_t *tmsg_hooks_more(const tmsg_hooks_t *hooks);

/* Whether it goes without these, where they are too much. */
bool tmsg_hooks_spare_more(const tmsg_hooks_t *hooks);

/* In a caller's `begin`: puts a key there. */
tmsg_status_t tmsg_hooks_give(tmsg_hooks_t *hooks, const char *key,
                              const tmsg_meta_t *value);

/* What of a hub's chains, and spare records, is to be freed with it. */
void tmsg_chains_free(tmsg_hub_t *hub);

/* Adds to some sides, 1 << tmsg_side_t each, or to none. Errors:
 * LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_chains_add(tmsg_hub_t *hub, unsigned sides,
                              const tmsg_interceptor_t *interceptor);

/* The record of what a hook is given. */
tmsg_hooks_t *tmsg_hooks_of(const tmsg_intercepted_t *call);

/* The value of a key, or NULL; says no error. */
const tmsg_meta_t *tmsg_meta_look_up(const tmsg_map_t *map, const char *key);

/* span.c: the context of one that is traced, or NULL. */
const tmsg_trace_context_t *tmsg_hooks_context(const tmsg_hooks_t *hooks);

/* trace_context.c: reads a traceparent; NULL, or what is wrong with it. */
const char *tmsg_trace_read_parent(const char *text, size_t bytes,
                                   tmsg_trace_context_t *context);

/* Reads a tracestate; one that is malformed is "". */
void tmsg_trace_read_state(const char *text, size_t bytes,
                           char state[TMSG_TRACE_STATE_MOST + 1]);

/* Reads both from metadata; `state` may be NULL. NULL, or what is wrong. */
const char *tmsg_trace_read(const tmsg_meta_t *parent, const tmsg_meta_t *state,
                            tmsg_trace_context_t *context);

#endif
