/* SPDX-License-Identifier: BSD-3-Clause */
/* The orderly end. Each side, when it has sent all it will, says BYE with the
 * number of messages it sent, and FIN when it has received all that the peer's
 * BYE counted. With both FINs seen nothing is under way in either direction. */
#include "am/close.h"

#include "am/control.h"
#include "am/message.h"
#include "am/silence.h"

static void say(tmsg_endpoint_t *endpoint, uint8_t kind, uint32_t sequence)
{
    tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id,
                            .sequence = sequence};
    tmsg_status_t status;

    if (endpoint->link.fd >= 0) {
        tmsg_link_send(endpoint, kind, sequence);
        return;
    }
    status = tmsg_control_post(endpoint, kind, &head, NULL, 0, NULL, 0);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
    }
}

static bool sends_are_over(const tmsg_endpoint_t *endpoint)
{
    return endpoint->channels.queued == 0 && endpoint->posted.count == 0 &&
           endpoint->controls.count == 0;
}

static bool all_received(const tmsg_endpoint_t *endpoint)
{
    return endpoint->bye_received &&
           endpoint->channels.zero.rx_sequence == endpoint->bye_sequence;
}

bool tmsg_close_waits(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_CLOSING ||
           (endpoint->state == TMSG_EP_OPEN &&
            (endpoint->close_wanted || endpoint->bye_received));
}

void tmsg_close_advance(tmsg_endpoint_t *endpoint)
{
    if ((endpoint->close_wanted || endpoint->bye_received) &&
        endpoint->state == TMSG_EP_OPEN) {
        endpoint->state = TMSG_EP_CLOSING;
    }
    if (endpoint->state != TMSG_EP_CLOSING) {
        return;
    }
    if (!endpoint->bye_sent && sends_are_over(endpoint)) {
        endpoint->bye_sent = true;
        say(endpoint, TMSG_KIND_BYE, endpoint->channels.zero.tx_sequence);
    }
    if (!endpoint->fin_sent && endpoint->bye_sent && all_received(endpoint)) {
        endpoint->fin_sent = true;
        tmsg_silence_after_fin(endpoint);
        say(endpoint, TMSG_KIND_FIN, 0);
    }
    /* The side that waits for the other's socket to end has lost nothing; the
     * one that was asked to close ends it. Without a socket UCX still has to
     * deliver our FIN. */
    if (endpoint->fin_sent && endpoint->fin_received &&
        (endpoint->link.fd >= 0 || endpoint->in_ucx == 0)) {
        tmsg_endpoint_end(endpoint, TMSG_ERR_CLOSED, "closed");
    }
}

/* What is wrong with a BYE; NULL if nothing is. It counts at least what has
 * come, and at most what was allowed. */
static const char *judge_bye(const tmsg_endpoint_t *endpoint, uint32_t sequence)
{
    const tmsg_channel_t *channel = &endpoint->channels.zero;
    const tmsg_message_t *message = channel->rx;

    if (endpoint->bye_received && sequence != endpoint->bye_sequence) {
        return "a second end that counts other messages";
    }
    if ((int32_t)(sequence - channel->rx_sequence) < 0 ||
        sequence - channel->rx_credited > endpoint->worker->queue_depth) {
        return "an end that counts messages which cannot be";
    }
    for (; message != NULL; message = message->next_in_order) {
        if ((int32_t)(message->head.sequence - sequence) >= 0) {
            return "an end before a message that came";
        }
    }
    return NULL;
}

void tmsg_close_bye(tmsg_endpoint_t *endpoint, uint32_t sequence)
{
    const char *wrong = judge_bye(endpoint, sequence);

    if (wrong != NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return;
    }
    endpoint->bye_received = true;
    endpoint->bye_sequence = sequence;
    tmsg_worker_chore(endpoint->worker, endpoint);
}

void tmsg_close_fin(tmsg_endpoint_t *endpoint)
{
    if (!endpoint->bye_sent) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "all is received, says the peer, before the end "
                            "was told it");
        return;
    }
    endpoint->fin_received = true;
    tmsg_worker_chore(endpoint->worker, endpoint);
}
