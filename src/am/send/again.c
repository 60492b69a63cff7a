/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/again.h"

#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/session.h"
#include "am/send/queue.h"

/* If a message cannot be sent any more, its place in the order stays empty. The
 * peer skips it when this side comes back once more. */
void tmsg_resume_send_again(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *next, *node = endpoint->posted.head;

    for (; tmsg_resume_has_again(endpoint) && endpoint->broken == TMSG_OK;
         node = next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);
        tmsg_status_t status;

        next = node->next;
        if (!send->again) {
            continue;
        }
        endpoint->resume->again_count--;
        status = endpoint->dialect->prepare(send);
        /* The messages behind it wait, too. */
        if (status == TMSG_IN_PROGRESS) {
            endpoint->resume->again_count++;
            return;
        }
        if (status == TMSG_OK) {
            tmsg_send_post(send);
        } else {
            tmsg_list_remove(&endpoint->posted, node);
            tmsg_queue_landed(send);
            tmsg_send_end(send, status, tmsg_error_message());
            tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                                "a message could not be sent again");
        }
    }
}

void tmsg_resume_dropped(const tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (send->again) {
        endpoint->resume->again_count--;
    }
    if (send->again ||
        (tmsg_resume_is_away(endpoint) && endpoint->state != TMSG_EP_AWAY)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                            "a message that had to be sent again was given up");
    }
}
