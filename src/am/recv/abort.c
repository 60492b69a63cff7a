/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX cannot take an active message back. So a message that is given up comes
 * all the same, before its ABORT or after it. Its number is accounted for in
 * either case, and nothing stalls behind it. */
#include "am/recv/abort.h"

#include <stdio.h>
#include <stdlib.h>

#include "am/boot/refusal.h"
#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/recv/deliver.h"
#include "am/recv/receive.h"
#include "core/bytes.h"
#include "core/shown.h"

/* Keeps an ABORT that came before its message. */
typedef struct {
    tmsg_node_t node; /* of the channel's list, by number */
    uint32_t sequence;
    tmsg_status_t status;
    char why[320];
} note_t;

/* Returns the last note whose number is `sequence` or less. A peer mostly gives
 * up messages in their order. */
static note_t *find_note(const tmsg_channel_t *channel, uint32_t sequence)
{
    tmsg_node_t *node = channel->aborts.tail;

    while (node != NULL) {
        note_t *note = TMSG_CONTAINER_OF(node, note_t, node);

        if ((int32_t)(note->sequence - sequence) <= 0) {
            return note;
        }
        node = node->previous;
    }
    return NULL;
}

/* Returns the note of a message that has come, which mostly is the first. */
static note_t *note_of(const tmsg_channel_t *channel, uint32_t sequence)
{
    for (tmsg_node_t *node = channel->aborts.head; node != NULL;
         node = node->next) {
        note_t *note = TMSG_CONTAINER_OF(node, note_t, node);

        if (note->sequence == sequence) {
            return note;
        }
        if ((int32_t)(note->sequence - sequence) > 0) {
            break;
        }
    }
    return NULL;
}

/* Keeps an ABORT until its message comes. Without memory the message is
 * delivered, since nobody promised that it would not be. */
static void keep_abort(tmsg_channel_t *channel, const note_t *abort)
{
    note_t *before = find_note(channel, abort->sequence);
    note_t *kept;

    if (before != NULL && before->sequence == abort->sequence) {
        return;
    }
    kept = malloc(sizeof(*kept));
    if (kept != NULL) {
        *kept = *abort;
        tmsg_list_insert(&channel->aborts,
                         before == NULL ? NULL : &before->node, &kept->node);
        channel->endpoint->rx.aborts++;
    }
}

void tmsg_abort_recall(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_channel_t *channel = message->channel;
    note_t *found;

    if (endpoint->rx.aborts == 0) {
        return;
    }
    found = note_of(channel, message->head.sequence);
    if (found != NULL) {
        tmsg_list_remove(&channel->aborts, &found->node);
        endpoint->rx.aborts--;
        /* The message is in no fetch list yet, so its state must not be
         * WAITING. */
        message->state = TMSG_RX_FETCHING;
        tmsg_message_abort(message, found->status, found->why);
        free(found);
    }
}

void tmsg_aborts_free(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        tmsg_node_t *node;

        while ((node = tmsg_list_pop(&channel->aborts)) != NULL) {
            free(TMSG_CONTAINER_OF(node, note_t, node));
        }
    }
    endpoint->rx.aborts = 0;
}

/* Applies an ABORT to a message whose turn has not come. */
static void apply_abort(tmsg_channel_t *channel, const note_t *abort)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    tmsg_message_t *message;

    if (abort->sequence - channel->rx_credited >=
        endpoint->worker->queue_depth) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an abort of a message beyond the window");
        return;
    }
    message = tmsg_message_find(channel, abort->sequence);
    if (message == NULL) {
        keep_abort(channel, abort);
        return;
    }
    tmsg_message_abort(message, abort->status, abort->why);
    tmsg_messages_deliver(channel);
}

tmsg_ucx_status_t tmsg_abort_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    const tmsg_preamble_t *head = &arrival->head;
    note_t abort = {.sequence = head->sequence};
    tmsg_channel_t *channel =
        endpoint == NULL ? NULL : tmsg_channel_of(endpoint, head->channel);
    tmsg_message_t *message;

    if (channel == NULL || head->body_bytes < 4) {
        return TMSG_UCX_OK;
    }
    abort.status = tmsg_control_failure((int32_t)tmsg_get_le(arrival->body, 4));
    tmsg_shown_format(
        abort.why, sizeof(abort.why), "given up by its sender: %.*s",
        (int)(head->body_bytes - 4), (const char *)arrival->body + 4);
    if ((int32_t)(head->sequence - channel->rx_sequence) >= 0 &&
        !tmsg_channel_overtook(channel, head->sequence)) {
        apply_abort(channel, &abort);
        return TMSG_UCX_OK;
    }
    message = tmsg_message_withdraw(channel, head->sequence);
    if (message != NULL) {
        tmsg_message_abort(message, abort.status, abort.why);
    }
    return TMSG_UCX_OK;
}
