/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/move.h"

#include "am/endpoint/consumer.h"
#include "am/endpoint/endpoint.h"
#include "am/send/queue.h"

tmsg_status_t tmsg_send_move(tmsg_send_t *send, tmsg_endpoint_t *heir)
{
    tmsg_endpoint_t *old = send->endpoint;
    tmsg_channel_t *channel;
    tmsg_status_t status =
        tmsg_channel_get(heir, send->channel->number, &channel);

    if (status == TMSG_OK) {
        send->endpoint = heir;
        send->channel = channel;
        tmsg_endpoint_borrow(heir);
        tmsg_endpoint_return(old);
    }
    return status;
}

/* Returns whether the send may go to another process than it was meant for. */
static bool may_move(const tmsg_send_t *send, tmsg_endpoint_t *heir)
{
    const tmsg_endpoint_t *old = send->endpoint;

    if (send->call.type == 0) {
        return true;
    }
    return send->call.type == TMSG_CALL_REQUEST && heir->calls_peer != NULL &&
           tmsg_hub_carry.carried(old->calls_peer, heir->calls_peer,
                                  send->call.id, send->message_id);
}

static size_t move_queue(tmsg_channel_t *channel, tmsg_endpoint_t *heir)
{
    tmsg_node_t *next, *node = channel->queued.head;
    size_t count = 0;

    for (; node != NULL; node = next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);
        tmsg_channel_t *to;

        next = node->next;
        /* Made first: a call is not carried in vain. */
        if (tmsg_channel_get(heir, channel->number, &to) != TMSG_OK ||
            !may_move(send, heir)) {
            continue;
        }
        tmsg_queue_remove(send);
        (void)tmsg_send_move(send, heir);
        tmsg_queue_push(send);
        count++;
    }
    return count;
}

size_t tmsg_sends_move(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    size_t count = 0;

    /* No id is given twice. */
    heir->tx.next_message_id = old->tx.next_message_id;
    for (tmsg_channel_t *channel = &old->channels.zero; channel != NULL;
         channel = channel->next) {
        if (!tmsg_channel_is_stream(channel->number)) {
            count += move_queue(channel, heir);
        }
    }
    return count;
}

size_t tmsg_sends_unanswered(const tmsg_endpoint_t *endpoint)
{
    size_t count = 0;

    for (tmsg_node_t *node = endpoint->posted.head; node != NULL;
         node = node->next) {
        const tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        count += send->call.type == 0 && !send->answered &&
                 (send->flags & TMSG_SEND_ACKED) != 0;
    }
    return count;
}
