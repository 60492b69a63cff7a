/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends fragments that wait for the peer's PULL. With it the peer says that it
 * has memory for all fragments of a message, and how they are to come: by the
 * bulk stream, or by UCX. */
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fragments.h"
#include "am/path/bulk.h"
#include "am/send/cancel.h"
#include "am/send/fragments_out_struct.h"
#include "am/staging/copy.h"

static void go_by_bulk(tmsg_fragments_out_t *fragments)
{
    tmsg_endpoint_t *endpoint = fragments->send->endpoint;

    tmsg_fragments_out_unlist(fragments);
    tmsg_fragments_out_enlist(fragments, &endpoint->pulled);
    tmsg_bulk_stir(endpoint);
}

static void go_by_ucx(tmsg_fragments_out_t *fragments)
{
    tmsg_send_count_bulk(fragments->send, false);
    tmsg_fragments_out_grant(fragments);
}

tmsg_ucx_status_t tmsg_pull_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_send_t *send =
        endpoint == NULL ? NULL
                         : tmsg_send_find(endpoint, arrival->head.message_id);
    tmsg_fragments_out_t *fragments = send == NULL ? NULL : send->fragments;

    if (arrival->head.body_bytes < 1 || fragments == NULL ||
        !fragments->awaited) {
        /* The message was given up meanwhile. */
        return TMSG_UCX_OK;
    }
    tmsg_endpoint_hold(endpoint);
    if (arrival->body[0] == TMSG_PULL_BY_BULK && tmsg_bulk_sends(endpoint)) {
        go_by_bulk(fragments);
    } else {
        go_by_ucx(fragments);
    }
    if (endpoint->tx.fragments_queued.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
    return TMSG_UCX_OK;
}

/* Chooses the message whose fragment goes next by the bulk stream, or NULL.
 * Channels take turns, as in fragments_out.c; the peer has memory for all of
 * these messages. */
static tmsg_fragments_out_t *choose_pulled(tmsg_endpoint_t *endpoint)
{
    tmsg_fragments_out_t *chosen = NULL;

    for (tmsg_node_t *node = endpoint->pulled.head; node != NULL;
         node = node->next) {
        tmsg_fragments_out_t *fragments =
            TMSG_CONTAINER_OF(node, tmsg_fragments_out_t, node);

        if (chosen == NULL || fragments->send->channel->last_fragment <
                                  chosen->send->channel->last_fragment) {
            chosen = fragments;
        }
    }
    return chosen;
}

static void run_not_made(tmsg_soon_t *call)
{
    tmsg_fragments_out_t *fragments =
        TMSG_CONTAINER_OF(call, tmsg_fragments_out_t, call);
    const tmsg_fragment_t none = {.slot = fragments->uncopied};

    tmsg_fragments_out_fail(fragments);
    tmsg_fragments_handed(&none, TMSG_UCX_OK);
}

/* Fails the message of a fragment that could not be packed, when nobody is in
 * the middle of other work on the endpoint. Until then the slot keeps the
 * message from ending otherwise. */
static void fail_pulled_soon(tmsg_fragments_slot_t *slot)
{
    tmsg_fragments_out_t *fragments = slot->send->fragments;

    if (fragments->queue != NULL) {
        tmsg_fragments_out_unlist(fragments);
    }
    fragments->uncopied = slot;
    fragments->call.run = run_not_made;
    tmsg_soon(slot->send->endpoint->worker, &fragments->call);
}

/* Makes the next fragment of a message. Returns false if it could not be
 * packed. */
static bool make_fragment(tmsg_fragments_out_t *fragments,
                          tmsg_fragment_t *fragment)
{
    tmsg_endpoint_t *endpoint = fragments->send->endpoint;
    tmsg_fragments_slot_t *slot;
    int memory_type;

    fragments->send->channel->last_fragment = ++endpoint->tx.fragments_handed;
    slot = tmsg_fragments_out_take_slot(fragments);
    *fragment =
        (tmsg_fragment_t){.channel = fragments->send->channel->number,
                          .sequence = fragments->send->sequence,
                          .number = fragments->next.number,
                          .bytes = tmsg_fragments_out_next_bytes(fragments),
                          .slot = slot};
    fragment->data = tmsg_fragments_out_step(fragments, fragment->bytes, slot,
                                             &memory_type, &fragment->count);
    if (tmsg_fragments_out_is_over(fragments)) {
        tmsg_fragments_out_unlist(fragments);
    }
    endpoint->in_ucx++;
    if (fragment->data == NULL) {
        fail_pulled_soon(slot);
    }
    return fragment->data != NULL;
}

bool tmsg_fragments_next(tmsg_endpoint_t *endpoint, tmsg_fragment_t *fragment)
{
    tmsg_fragments_out_t *fragments;
    bool is_made = false;

    while (!is_made && (fragments = choose_pulled(endpoint)) != NULL) {
        is_made = make_fragment(fragments, fragment);
    }
    return is_made;
}

void tmsg_fragments_unreadable(const tmsg_fragment_t *fragment, const void *at)
{
    const tmsg_fragments_slot_t *slot = fragment->slot;
    tmsg_send_t *send = slot->send;
    char why[TMSG_ERROR_BYTES];

    /* Another fragment may have failed it, or its sender have canceled it. */
    if (send->given_up == TMSG_GIVE_UP_NONE) {
        tmsg_plan_say_unreadable(send->fragments->map, at, why, sizeof(why));
        tmsg_send_fail(send, TMSG_ERR_IO, why);
    }
    tmsg_fragments_handed(fragment, TMSG_UCX_OK);
}

void tmsg_fragments_handed(const tmsg_fragment_t *fragment,
                           tmsg_ucx_status_t ucs)
{
    tmsg_fragments_slot_t *slot = fragment->slot;
    tmsg_send_t *send = slot->send;
    tmsg_endpoint_t *endpoint = send->endpoint;

    tmsg_endpoint_hold(endpoint);
    tmsg_fragments_out_give_slot(slot);
    tmsg_send_fragment_reported(send, ucs);
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}
