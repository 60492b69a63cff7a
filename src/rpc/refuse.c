/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"

#define REFUSALS_MOST 1024 /* that wait to be told of */
#define PEERS_MOST 512     /* of a peer's, which is not to silence others */
#define NAME_MOST 255      /* bytes that a head has room for */

/* One that interceptors are to be told of. */
typedef struct {
    tmsg_rpc_event_t event;
    tmsg_rpc_peer_t *peer; /* its endpoint is held */
    bool is_stream;
    tmsg_status_t status;
    int32_t left_ms;
    char method[NAME_MOST + 1];
    char words[TMSG_CALL_TEXT_MOST + 1];
} refusal_t;

static const tmsg_chain_t *chain_of(const tmsg_hub_t *hub)
{
    return atomic_load_explicit(&hub->chains[TMSG_SIDE_SERVER - 1],
                                memory_order_acquire);
}

/* In no span, whatever that of the thread is. */
static void tell(tmsg_hub_t *hub, tmsg_hook_view_t *view)
{
    const tmsg_chain_t *chain = chain_of(hub);
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

    tell(task->server->hub, &view);
}

/* Lock held. */
static void add(tmsg_rpc_peer_t *peer, int more)
{
    peer->hub->refusals += (unsigned)more;
    peer->refusals += (unsigned)more;
}

static void fire(tmsg_rpc_event_t *event)
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
    add(refusal->peer, -1);
    tmsg_hub_unlock(hub);
    tell(hub, &view);
    tmsg_calls_drop(endpoint);
    free(refusal);
}

static refusal_t *note(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                       tmsg_status_t status, const char *words)
{
    uint64_t ms = head->left_us / 1000 + (head->left_us % 1000 > 0);
    refusal_t *refusal = malloc(sizeof(*refusal));

    if (refusal == NULL) {
        return NULL;
    }
    refusal->event.fire = fire;
    refusal->peer = peer;
    refusal->is_stream = head->type == TMSG_STREAM_OPEN;
    refusal->status = status;
    refusal->left_ms = ms == 0 ? -1 : ms < INT32_MAX ? (int32_t)ms : INT32_MAX;
    memcpy(refusal->method, head->text, head->text_bytes);
    refusal->method[head->text_bytes] = '\0';
    snprintf(refusal->words, sizeof(refusal->words), "%s", words);
    tmsg_utf8_scrub(refusal->words); /* whose last character may be cut */
    tmsg_calls_hold(peer->endpoint);
    return refusal;
}

/* Bytes of the name of a method that there is; else none, so that a peer
 * cannot have counts made for whatever it says. */
static size_t known_bytes(const tmsg_server_t *server,
                          const tmsg_call_head_t *head)
{
    return server != NULL && tmsg_method_find(server, head->text,
                                              head->text_bytes) != NULL
               ? head->text_bytes
               : 0;
}

/* Lock held: whether one more is to be told. */
static bool is_watched(const tmsg_rpc_peer_t *peer)
{
    const tmsg_hub_t *hub = peer->hub;
    const tmsg_chain_t *chain = chain_of(hub);
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
    tmsg_meter_reject(hub, head->text, known_bytes(hub->server, head), status);
    watched = is_watched(peer);
    add(peer, watched);
    tmsg_hub_unlock(hub);
    if (!watched) {
        return false;
    }
    refusal = note(peer, head, status, words);
    tmsg_hub_lock(hub);
    if (refusal != NULL) {
        tmsg_hub_tell(hub, &refusal->event);
    } else {
        add(peer, -1);
    }
    tmsg_hub_unlock(hub);
    return refusal != NULL;
}
