/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/intercept.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/shown.h"
#include "rpc/metrics.h"
#include "rpc/stream.h"

tmsg_hooks_t *tmsg_hooks_of(const tmsg_intercepted_t *call)
{
    return ((const tmsg_hook_view_t *)(const void *)call)->hooks;
}

static void free_hooks(tmsg_hooks_t *hooks)
{
    tmsg_map_destroy(hooks->more);
    free(hooks);
}

void tmsg_chains_free(tmsg_hub_t *hub)
{
    void *spare;

    while ((spare = tmsg_list_pop(&hub->spare_hooks)) != NULL) {
        free_hooks(TMSG_CONTAINER_OF(spare, tmsg_hooks_t, node));
    }
    free(atomic_load(&hub->chains[0]));
    free(atomic_load(&hub->chains[1]));
    free(hub->tracer);
}

static void drop_hooks(tmsg_hooks_t *hooks)
{
    tmsg_hub_t *hub = hooks->hub;
    bool full;

    if (!tmsg_refs_drop(&hooks->refs)) {
        return;
    }
    tmsg_hub_lock(hub);
    /* TMSG_RPC_SPARES may be 0: gcc warns of `count >= 0`. */
    full = hub->spare_hooks.count + 1 > TMSG_RPC_SPARES;
    if (!full) {
        tmsg_list_push(&hub->spare_hooks, &hooks->node);
    }
    tmsg_hub_unlock(hub);
    if (full) {
        free_hooks(hooks);
    }
}

/* Drops the reference of `more`, which nobody sends any more. The map is empty
 * again. */
static void recycle_hooks(void *arg) { drop_hooks(arg); }

void tmsg_hooks_drop(tmsg_hooks_t *hooks)
{
    if (hooks == NULL) {
        return;
    }
    if (hooks->has_more && tmsg_map_unhold(hooks->more)) {
        tmsg_map_free(hooks->more);
    }
    drop_hooks(hooks);
}

static tmsg_hooks_t *create_hooks(tmsg_hub_t *hub)
{
    tmsg_node_t *spare;
    tmsg_hooks_t *hooks;
    size_t kept = offsetof(tmsg_hooks_t, call);

    tmsg_hub_lock(hub);
    spare = tmsg_list_pop(&hub->spare_hooks);
    tmsg_hub_unlock(hub);
    hooks = spare == NULL ? calloc(1, sizeof(*hooks))
                          : TMSG_CONTAINER_OF(spare, tmsg_hooks_t, node);
    if (hooks == NULL) {
        tmsg_error_memory("a call that is intercepted");
        return NULL;
    }
    memset((char *)hooks + kept, 0, sizeof(*hooks) - kept);
    tmsg_refs_init(&hooks->refs, 1);
    hooks->hub = hub;
    hooks->begun_ns = tmsg_calls_now_ns();
    hooks->error = hooks->words;
    return hooks;
}

static const tmsg_chain_t *chain_of_hooks(const tmsg_hooks_t *hooks)
{
    return atomic_load(&hooks->hub->chains[hooks->call == NULL]);
}

static int ms_to_deadline(uint64_t deadline_ns)
{
    uint64_t now = tmsg_calls_now_ns();
    uint64_t ms =
        now < deadline_ns ? (deadline_ns - now + 999999) / 1000000 : 0;

    return deadline_ns == 0 ? -1 : ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* show_call() and show_task() fill in what the hooks of a caller and of a
 * server may read. */
static void show_call(const tmsg_call_t *call, tmsg_intercepted_t *seen)
{
    seen->side = TMSG_SIDE_CALLER;
    seen->is_stream = call->stream != NULL;
    seen->method = call->method;
    seen->endpoint = tmsg_calls_face(call->endpoint);
    seen->map = call->hooks->map;
    seen->remaining_ms = ms_to_deadline(call->deadline_ns);
    seen->attempts = call->attempts;
}

static void show_task(const tmsg_task_t *task, tmsg_intercepted_t *seen)
{
    seen->side = TMSG_SIDE_SERVER;
    seen->is_stream = task->stream != NULL;
    seen->method = task->method->name;
    seen->endpoint = tmsg_calls_face(task->endpoint);
    seen->principal = tmsg_task_principal(task);
    seen->map = tmsg_task_map(task);
    seen->remaining_ms = ms_to_deadline(task->deadline_ns);
}

static void fill_view(tmsg_hooks_t *hooks, tmsg_hook_view_t *view)
{
    tmsg_intercepted_t *seen = &view->seen;

    *view = (tmsg_hook_view_t){.hooks = hooks};
    if (hooks->call != NULL) {
        show_call(hooks->call, seen);
    } else {
        show_task(hooks->task, seen);
    }
    tmsg_hub_lock(hooks->hub);
    seen->elapsed_ns =
        hooks->over ? hooks->elapsed_ns : tmsg_calls_now_ns() - hooks->begun_ns;
    seen->sent_bytes = hooks->sent_bytes;
    seen->received_bytes = hooks->received_bytes;
    seen->sent = hooks->sent;
    seen->received = hooks->received;
    seen->status = hooks->over ? hooks->status : TMSG_IN_PROGRESS;
    seen->error = hooks->over && hooks->status != TMSG_OK ? hooks->error : "";
    tmsg_hub_unlock(hooks->hub);
}

/* Makes the span of the call the thread's current one, or none if the call is
 * not traced. Returns the previous one, which the caller restores. */
static const tmsg_trace_context_t *enter_span(const tmsg_hooks_t *hooks)
{
    return tmsg_trace_set_current(tmsg_hooks_context(hooks));
}

static void run_end(tmsg_hooks_t *hooks)
{
    const tmsg_chain_t *chain = chain_of_hooks(hooks);
    const tmsg_trace_context_t *before = enter_span(hooks);
    tmsg_hook_view_t view;

    fill_view(hooks, &view);
    for (unsigned i = hooks->begun; i-- > 0;) {
        view.seen.state = hooks->states[i];
        if (chain->of[i].end != NULL) {
            chain->of[i].end(chain->of[i].arg, &view.seen);
        }
    }
    (void)tmsg_trace_set_current(before);
}

/* Counts a hook that has returned. The last one has the event of the call or
 * task fire, if `end` waits for it. The worker exists: a thread that destroys
 * it waits for the threads inside it. Lock not held. */
static void leave_hook(tmsg_hooks_t *hooks)
{
    tmsg_hub_t *hub = hooks->hub;
    tmsg_rpc_event_t *event =
        hooks->call != NULL ? &hooks->call->event : &hooks->task->event;
    bool waits;

    tmsg_hub_lock(hub);
    waits = --hooks->inside == 0 && hooks->waits;
    if (waits) {
        hooks->waits = false;
        tmsg_hub_tell(hub, event);
    }
    tmsg_hub_unlock(hub);
    if (waits) {
        tmsg_hub_wake(hub);
    }
}

bool tmsg_hooks_over(tmsg_hooks_t *hooks, tmsg_status_t status,
                     const char *error)
{
    bool ends, told;

    if (hooks == NULL) {
        return true;
    }
    tmsg_hub_lock(hooks->hub);
    told = hooks->told;
    ends = hooks->inside == 0 && !told;
    hooks->waits = hooks->inside > 0 && !told;
    hooks->told = told || ends;
    if (!hooks->over) {
        hooks->over = true;
        hooks->status = status;
        hooks->error = error != NULL             ? error
                       : hooks->words[0] != '\0' ? hooks->words
                                                 : tmsg_status_name(status);
        hooks->elapsed_ns = tmsg_calls_now_ns() - hooks->begun_ns;
    }
    tmsg_hub_unlock(hooks->hub);
    if (ends) {
        run_end(hooks);
    }
    return ends || told;
}

void tmsg_hooks_words(tmsg_hooks_t *hooks, const char *words, size_t bytes)
{
    if (hooks != NULL) {
        tmsg_shown_format(hooks->words, sizeof(hooks->words), "%.*s",
                          (int)bytes, words);
    }
}

void tmsg_hooks_unsent(tmsg_hooks_t *hooks, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    if (hooks != NULL) {
        strcpy(why, tmsg_error_message());
        tmsg_hooks_words(hooks, why, strlen(why));
        (void)tmsg_hooks_over(hooks, status, hooks->words);
        tmsg_error_set(status, "%s", why); /* hooks may change it */
    }
}

/* Returns the status of a call that an interceptor's `begin` refused with
 * `status`, and sets the words if the interceptor gave none. A value that is no
 * failure counts as INTERNAL. */
static tmsg_status_t refused_status(tmsg_hooks_t *hooks, tmsg_status_t status)
{
    if (status > 0 || status < TMSG_ERR_APPLICATION) {
        strcpy(hooks->words, "an interceptor returned no failure");
        return TMSG_ERR_INTERNAL;
    }
    if (!hooks->refused) {
        const char *name = tmsg_status_name(status);

        tmsg_hooks_words(hooks, name, strlen(name));
    }
    return status;
}

static tmsg_status_t run_begin(tmsg_hooks_t *hooks)
{
    const tmsg_chain_t *chain = chain_of_hooks(hooks);
    const tmsg_trace_context_t *before = tmsg_trace_current();
    tmsg_status_t status = TMSG_OK;
    unsigned count;
    tmsg_hook_view_t view;

    fill_view(hooks, &view);
    tmsg_hub_lock(hooks->hub);
    count = chain->count;
    tmsg_hub_unlock(hooks->hub);
    hooks->beginning = true;
    for (unsigned i = 0; i < count && status == TMSG_OK; i++) {
        const tmsg_interceptor_t *one = &chain->of[i];

        view.seen.state = NULL;
        if (hooks->task != NULL) { /* an earlier tracer gave it a span */
            (void)enter_span(hooks);
        }
        if (one->begin != NULL) {
            status = one->begin(one->arg, &view.seen);
        }
        hooks->states[i] = view.seen.state;
        if (status == TMSG_OK) {
            tmsg_hub_lock(hooks->hub);
            hooks->begun = i + 1;
            tmsg_hub_unlock(hooks->hub);
        }
    }
    hooks->beginning = false;
    (void)tmsg_trace_set_current(before); /* a hook may leave another */
    return status == TMSG_OK ? status : refused_status(hooks, status);
}

/* Returns whether a call may go on if there is no memory for its record: OK if
 * the tracer is the only interceptor of that side, else NO_MEMORY. */
static tmsg_status_t do_without(tmsg_hub_t *hub, tmsg_side_t side)
{
    const tmsg_chain_t *chain = atomic_load(&hub->chains[side - 1]);
    bool only_traces;

    tmsg_hub_lock(hub);
    only_traces = chain->count == 1 && hub->tracer != NULL &&
                  chain->of[0].arg == hub->tracer;
    tmsg_hub_unlock(hub);
    return only_traces ? TMSG_OK : TMSG_ERR_NO_MEMORY;
}

tmsg_status_t tmsg_hooks_begin_call(tmsg_call_t *call, const tmsg_map_t *map)
{
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_hooks_t *hooks = create_hooks(hub);
    tmsg_status_t status;

    if (hooks == NULL) {
        return do_without(hub, TMSG_SIDE_CALLER);
    }
    call->extras = true;
    call->hooks = hooks;
    hooks->call = call;
    hooks->map = map == NULL ? hub->empty : map;
    status = run_begin(hooks);
    if (status == TMSG_OK && atomic_load(&hub->over)) {
        status = TMSG_ERR_CLOSED;
        strcpy(hooks->words, "its worker was destroyed");
    }
    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        hooks->sent_bytes = tmsg_meter_bytes(hooks->map);
        tmsg_hub_unlock(hub);
    }
    hooks->map = NULL;
    return status == TMSG_OK
               ? status
               : tmsg_error_set(
                     status, "%s: method '%s': %s",
                     tmsg_shown_short(tmsg_calls_name(call->endpoint)).text,
                     call->method, hooks->words);
}

tmsg_status_t tmsg_hooks_begin_task(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_hooks_t *hooks = create_hooks(hub);
    tmsg_status_t status;
    bool open;

    if (hooks == NULL) {
        return do_without(hub, TMSG_SIDE_SERVER);
    }
    hooks->task = task;
    hooks->inside = 1;
    hooks->received_bytes = tmsg_meter_bytes(tmsg_task_map(task));
    tmsg_hub_lock(hub);
    open = tmsg_task_is_open(task);
    task->hooks = open ? hooks : NULL;
    tmsg_hub_unlock(hub);
    if (!open) { /* nobody will answer the task */
        tmsg_hooks_drop(hooks);
        return TMSG_OK;
    }
    status = run_begin(hooks);
    leave_hook(hooks);
    return status == TMSG_OK ? status
                             : tmsg_error_set(status, "%s", hooks->words);
}

void tmsg_hooks_count(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map)
{
    if (hooks != NULL && sent) {
        hooks->sent_bytes += tmsg_meter_bytes(map);
    } else if (hooks != NULL) {
        hooks->received_bytes += tmsg_meter_bytes(map);
    }
}

void tmsg_hooks_message(tmsg_hooks_t *hooks, bool sent, const tmsg_map_t *map)
{
    const tmsg_trace_context_t *before;
    const tmsg_chain_t *chain;
    unsigned begun;
    tmsg_hook_view_t view;

    if (hooks == NULL) {
        return;
    }
    chain = chain_of_hooks(hooks);
    tmsg_hub_lock(hooks->hub);
    begun = hooks->over ? 0 : hooks->begun;
    if (begun > 0) {
        hooks->inside++;
        hooks->sent += sent;
        hooks->received += !sent;
        tmsg_hooks_count(hooks, sent, map);
    }
    tmsg_hub_unlock(hooks->hub);
    if (begun == 0) {
        return;
    }
    before = enter_span(hooks);
    fill_view(hooks, &view);
    for (unsigned i = 0; i < begun; i++) {
        unsigned at = sent ? i : begun - 1 - i;

        view.seen.state = hooks->states[at];
        if (chain->of[at].message != NULL) {
            chain->of[at].message(chain->of[at].arg, &view.seen, sent, map);
        }
    }
    (void)tmsg_trace_set_current(before);
    leave_hook(hooks);
}

const tmsg_map_t *tmsg_hooks_more(const tmsg_hooks_t *hooks)
{
    return hooks != NULL && hooks->has_more ? hooks->more : NULL;
}

bool tmsg_hooks_spare_more(const tmsg_hooks_t *hooks)
{
    return hooks != NULL && !hooks->asked;
}

tmsg_status_t tmsg_hooks_give(tmsg_hooks_t *hooks, const char *key,
                              const tmsg_meta_t *value)
{
    tmsg_status_t status = TMSG_OK;

    if (hooks->more == NULL) {
        status = tmsg_map_create(&hooks->more);
    }
    if (status == TMSG_OK && !hooks->has_more) {
        tmsg_map_recycle(hooks->more, recycle_hooks, hooks);
        tmsg_refs_take(&hooks->refs);
        hooks->has_more = true;
    }
    return status == TMSG_OK ? tmsg_map_set_meta(hooks->more, key, value)
                             : status;
}

tmsg_status_t tmsg_intercepted_set_meta(tmsg_intercepted_t *call,
                                        const char *key,
                                        const tmsg_meta_t *value)
{
    tmsg_hooks_t *hooks = call == NULL ? NULL : tmsg_hooks_of(call);

    if (hooks == NULL || hooks->call == NULL || !hooks->beginning) {
        return tmsg_error_set(call == NULL ? TMSG_ERR_INVALID_PARAM
                                           : TMSG_ERR_UNSUPPORTED,
                              "interceptor: metadata can only be added in "
                              "begin() of a call that this side makes");
    }
    hooks->asked = true;
    return tmsg_hooks_give(hooks, key, value);
}

tmsg_status_t tmsg_intercepted_set_string(tmsg_intercepted_t *call,
                                          const char *key, const char *text)
{
    const tmsg_meta_t value = {.type = TMSG_META_TYPE_STRING,
                               .data = text,
                               .bytes = text == NULL ? 1 : strlen(text)};

    return tmsg_intercepted_set_meta(call, key, &value);
}

const tmsg_meta_t *tmsg_meta_look_up(const tmsg_map_t *map, const char *key)
{
    const tmsg_map_meta_entry_t *entries =
        map == NULL ? NULL : tmsg_map_meta_entries(map);
    size_t bytes = strlen(key);

    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        if (entries[i].key_bytes == bytes &&
            memcmp(entries[i].key, key, bytes) == 0) {
            return &entries[i].value;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_intercepted_get_meta(const tmsg_intercepted_t *call,
                                        const char *key, tmsg_meta_t *value_p)
{
    const tmsg_meta_t *value;

    if (call == NULL || key == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "interceptor: a pointer is NULL");
    }
    value = tmsg_meta_look_up(tmsg_hooks_more(tmsg_hooks_of(call)), key);
    if (value == NULL) {
        value = tmsg_meta_look_up(call->map, key);
    }
    if (value == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "no key '%s' in the metadata",
                              tmsg_error_name(key, strlen(key)).text);
    }
    if (value_p != NULL) {
        *value_p = *value;
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_intercepted_refuse(tmsg_intercepted_t *call,
                                      tmsg_status_t status, const char *words)
{
    tmsg_hooks_t *hooks = tmsg_hooks_of(call);
    size_t bytes = 0;

    if (words != NULL && words[0] != '\0' && hooks != NULL &&
        hooks->beginning && tmsg_task_words(words, &bytes) == TMSG_OK) {
        tmsg_hooks_words(hooks, words, bytes);
        hooks->refused = true;
    }
    return status;
}
