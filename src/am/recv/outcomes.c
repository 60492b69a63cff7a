/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/outcomes.h"

#include "am/endpoint/fail.h"
#include "am/endpoint/session.h"

#define FETCHES_MOST 3 /* connections in a row that may break by a fetch */

void tmsg_resume_note(tmsg_channel_t *channel, uint32_t sequence,
                      tmsg_status_t status)
{
    tmsg_resume_t *resume = channel->endpoint->resume;
    tmsg_outcome_t *place;

    if (!tmsg_resume_keeps(channel->endpoint)) {
        return;
    }
    place = &resume->outcomes[resume->outcome_next];
    if (resume->outcome_count == TMSG_RESUME_OUTCOMES) {
        tmsg_channel_find(channel->endpoint, place->channel)->rx_known =
            place->sequence + 1;
    } else {
        resume->outcome_count++;
    }
    resume->outcome_next = (resume->outcome_next + 1) % TMSG_RESUME_OUTCOMES;
    *place = (tmsg_outcome_t){channel->number, sequence, status,
                              channel->received_messages};
}

bool tmsg_resume_fetch_failed(tmsg_endpoint_t *endpoint, bool alive,
                              const char *why)
{
    if (!tmsg_resume_keeps(endpoint) ||
        endpoint->resume->fetch_failures >= FETCHES_MOST) {
        return false;
    }
    endpoint->resume->fetch_failed |= alive;
    tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    return true;
}

void tmsg_resume_fetched(tmsg_endpoint_t *endpoint)
{
    if (endpoint->resume != NULL) {
        endpoint->resume->fetch_failures = 0;
    }
}
