/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "rpc/builtin.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"

#define REFUSALS_MOST 1024 /* refusals of a hub that wait to be told */
#define PEERS_MOST                                                             \
    512 /* waiting refusals of one peer, so that others have room */
#define NAME_MOST 255 /* bytes of a name that a head has room for */

/* Describes a refusal that interceptors are still to be told of. */
typedef struct {
    tmsg_rpc_event_t event;
    tmsg_rpc_peer_t *peer; /* peer that was refused; its endpoint is held */
    bool is_stream;
    tmsg_status_t status;
    int32_t left_ms;
    char method[NAME_MOST + 1];
    char words[TMSG_CALL_TEXT_MOST + 1];
} refusal_t;

static const tmsg_chain_t *server_chain(const tmsg_hub_t *hub)
{
    return atomic_load_explicit(&hub->chains[TMSG_SIDE_SERVER - 1],
                                memory_order_acquire);
}

/* Tells the interceptors of the server side of a refusal, the last one first.
 * They run in no span, whatever span the thread has. Lock not held. */
static void tell_refusal(tmsg_hub_t *hub, tmsg_hook_view_t *view)
{
    const tmsg_chain_t *chain = server_chain(hub);
    const tmsg_trace_context_t *before;
    unsigned count;

    if (chain == NULL) {
        return;
    }
    tmsg_hub_lock(hub);
    count = chain->count;
    tmsg_hub_unlock(hub);
    before = tmsg_trace_set_current(NULL);
    for (unsigned i = count; i-- > 0;) {
        if (chain->of[i].refused != NULL) {
            chain->of[i].refused(chain->of[i].arg, &view->seen);
        }
    }
    (void)tmsg_trace_set_current(before);
}

void tmsg_refuse_task(const tmsg_task_t *task, tmsg_status_t status,
                      const char *words)
{
    tmsg_hook_view_t view = {
        .seen = {.side = TMSG_SIDE_SERVER,
                 .is_stream = task->stream != NULL,
                 .method = task->method->name,
                 .endpoint = task->endpoint,
                 .principal = tmsg_task_principal(task),
                 .remaining_ms = tmsg_task_remaining_ms(task),
                 .status = status,
                 .error = words}};

    tell_refusal(task->server->hub, &view);
}

/* Adds `more`, which may be negative, to the numbers of waiting refusals. Lock
 * held. */
static void count_refusals(tmsg_rpc_peer_t *peer, int more)
{
    peer->hub->refusals += (unsigned)more;
    peer->refusals += (unsigned)more;
}

/* Serves as `fire` of a refusal: tells interceptors of it, and frees it. Lock
 * not held. */
static void fire_refusal(tmsg_rpc_event_t *event)
{
    refusal_t *refusal = TMSG_CONTAINER_OF(event, refusal_t, event);
    tmsg_endpoint_t *endpoint = refusal->peer->endpoint;
    tmsg_hub_t *hub = refusal->peer->hub;
    tmsg_hook_view_t view = {
        .seen = {.side = TMSG_SIDE_SERVER,
                 .is_stream = refusal->is_stream,
                 .method = refusal->method,
                 .endpoint = endpoint,
                 .principal = tmsg_endpoint_principal(endpoint),
                 .remaining_ms = refusal->left_ms,
                 .status = refusal->status,
                 .error = refusal->words}};

    tmsg_hub_lock(hub);
    count_refusals(refusal->peer, -1);
    tmsg_hub_unlock(hub);
    tell_refusal(hub, &view);
    tmsg_calls_drop(endpoint);
    free(refusal);
}

/* Makes a refusal, which holds the endpoint of the peer; NULL: no memory. */
static refusal_t *make_refusal(tmsg_rpc_peer_t *peer,
                               const tmsg_call_head_t *head,
                               tmsg_status_t status, const char *words)
{
    uint64_t ms = head->left_us / 1000 + (head->left_us % 1000 > 0);
    refusal_t *refusal = malloc(sizeof(*refusal));

    if (refusal == NULL) {
        return NULL;
    }
    refusal->event.fire = fire_refusal;
    refusal->peer = peer;
    refusal->is_stream = head->type == TMSG_STREAM_OPEN;
    refusal->status = status;
    refusal->left_ms = ms == 0 ? -1 : ms < INT32_MAX ? (int32_t)ms : INT32_MAX;
    memcpy(refusal->method, head->text, head->text_bytes);
    refusal->method[head->text_bytes] = '\0';
    tmsg_shown_format(refusal->words, sizeof(refusal->words), "%s", words);
    tmsg_calls_hold(peer->endpoint);
    return refusal;
}

/* Returns the length of the name in the head if there is such a method.
 * Returns 0 otherwise, so that a peer cannot have a meter made for each name
 * that it invents. Lock held. */
static size_t known_bytes(const tmsg_hub_t *hub, const tmsg_call_head_t *head)
{
    return tmsg_hub_method(hub, head->text, head->text_bytes) != NULL
               ? head->text_bytes
               : 0;
}

/* Returns whether interceptors are to be told of one more refusal: one of them
 * wants that, and the bounds allow it. Lock held. */
static bool is_watched(const tmsg_rpc_peer_t *peer)
{
    const tmsg_hub_t *hub = peer->hub;
    const tmsg_chain_t *chain = server_chain(hub);
    bool watched = false;

    for (unsigned i = 0; chain != NULL && i < chain->count; i++) {
        watched = watched || chain->of[i].refused != NULL;
    }
    return watched && hub->refusals < REFUSALS_MOST &&
           peer->refusals < PEERS_MOST;
}

bool tmsg_refuse(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_status_t status, const char *words)
{
    tmsg_hub_t *hub = peer->hub;
    refusal_t *refusal = NULL;
    bool watched;

    tmsg_hub_lock(hub);
    tmsg_meter_reject(hub, head->text, known_bytes(hub, head), status);
    watched = is_watched(peer);
    count_refusals(peer, watched);
    tmsg_hub_unlock(hub);
    if (!watched) {
        return false;
    }
    refusal = make_refusal(peer, head, status, words);
    tmsg_hub_lock(hub);
    if (refusal != NULL) {
        tmsg_hub_tell(hub, &refusal->event);
    } else {
        count_refusals(peer, -1);
    }
    tmsg_hub_unlock(hub);
    return refusal != NULL;
}
