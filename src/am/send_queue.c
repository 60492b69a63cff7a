/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send_queue.h"

#include "am/dialect.h"

tmsg_send_t *tmsg_queue_pop(tmsg_channel_t *channel)
{
    return TMSG_CONTAINER_OF(tmsg_channel_pop(channel), tmsg_send_t, node);
}

static void flush(tmsg_channel_t *channel)
{
    while (channel->queued.count > 0 && tmsg_channel_has_credit(channel)) {
        tmsg_send_t *send = tmsg_queue_pop(channel);
        tmsg_status_t status = send->endpoint->dialect->prepare(send);

        if (status == TMSG_OK) {
            tmsg_send_post(send);
        } else {
            tmsg_send_end(send, status, tmsg_error_message());
        }
    }
}

void tmsg_sends_flush(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        flush(channel);
    }
}
