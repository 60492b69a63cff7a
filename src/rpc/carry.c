/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that go on by the endpoint which takes the place of theirs. */
#include <string.h>

#include "rpc/caller.h"

void tmsg_call_carry(tmsg_call_t *call, tmsg_rpc_peer_t *heir)
{
    tmsg_rpc_peer_t *before = call->current;

    if (call->indexed) {
        tmsg_table_remove(&before->calls_by_message, &call->by_message);
        call->indexed = false;
    }
    tmsg_list_remove(&before->calls, &call->node);
    tmsg_list_push(&heir->calls, &call->node);
    call->current = heir;
    call->extras = true; /* tmsg_call_drop_current() is one of these */
    tmsg_calls_hold(heir->endpoint);
    if (before != call->peer) {
        tmsg_calls_drop(before->endpoint); /* not the last */
    }
}

void tmsg_call_drop_current(tmsg_call_t *call)
{
    if (call->current != call->peer) {
        tmsg_calls_drop(call->current->endpoint);
    }
}

tmsg_endpoint_t *tmsg_call_hold_current(tmsg_call_t *call)
{
    tmsg_endpoint_t *endpoint;

    tmsg_hub_lock(call->peer->hub);
    endpoint = call->current->endpoint;
    tmsg_calls_hold(endpoint);
    tmsg_hub_unlock(call->peer->hub);
    return endpoint;
}

void tmsg_call_uncall(tmsg_call_t *call, uint64_t id)
{
    tmsg_endpoint_t *endpoint = tmsg_call_hold_current(call);

    tmsg_calls_cancel(endpoint, id);
    tmsg_calls_drop(endpoint);
}

static bool carried(void *arg, void *heir, uint64_t id, uint64_t number)
{
    const tmsg_rpc_peer_t *peer = arg;
    tmsg_call_t *call;

    tmsg_hub_lock(peer->hub);
    call = tmsg_call_find(peer, id);
    if (call != NULL) {
        tmsg_call_carry(call, heir);
        call->number = number;
        tmsg_call_index(call);
    }
    tmsg_hub_unlock(peer->hub);
    return call != NULL;
}

/* Calls without an id wait for their next attempt: they go on. Lock held. */
static size_t count_under_way(tmsg_rpc_peer_t *peer)
{
    size_t count = 0;

    for (tmsg_node_t *node = peer->calls.head; node != NULL;
         node = node->next) {
        count += TMSG_CONTAINER_OF(node, tmsg_call_t, node)->id != 0;
    }
    return count;
}

static size_t left(void *arg, void *heir_arg)
{
    tmsg_rpc_peer_t *peer = arg, *heir = heir_arg;
    size_t count;

    tmsg_hub_lock(peer->hub);
    peer->heir = heir;
    heir->budget = peer->budget;
    memcpy(heir->safe, peer->safe, sizeof(heir->safe));
    heir->safe_count = peer->safe_count;
    count = count_under_way(peer);
    tmsg_hub_unlock(peer->hub);
    return count;
}

const tmsg_carry_ops_t tmsg_hub_carry = {.carried = carried, .left = left};
