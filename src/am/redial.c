/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/redial.h"

#include "am/resume.h"
#include "core/log.h"

#define REDIALS_MOST 2 /* of a connection */

/* Whether UCX alone failed: the peer said so, or it is there yet. */
static bool is_by_ucx(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    const tmsg_link_t *link = &endpoint->link;

    return status == TMSG_ERR_PEER_LOST && link->hello_done &&
           (link->explained || link->source.fd >= 0) &&
           (link->url.kind == TMSG_URL_TCP || link->url.kind == TMSG_URL_UNIX);
}

bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why)
{
    int left_ms = tmsg_link_left_ms(endpoint);

    if (!endpoint->dialling || endpoint->is_lane ||
        endpoint->state != TMSG_EP_CONNECTING ||
        tmsg_resume_is_away(endpoint) || !is_by_ucx(endpoint, status) ||
        endpoint->redials == REDIALS_MOST || left_ms == 0) {
        return false;
    }
    endpoint->redials++;
    tmsg_log(TMSG_LOG_INFO, "%s: dialled anew: %s", endpoint->peer, why);
    tmsg_endpoint_part(endpoint);
    tmsg_link_set_deadline(endpoint, left_ms); /* of being away, too */
    tmsg_worker_chore(endpoint->worker, endpoint);
    return true;
}

void tmsg_redial(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    endpoint->state = TMSG_EP_CONNECTING;
    status = tmsg_link_redial(endpoint, tmsg_link_left_ms(endpoint));
    if (status != TMSG_OK) {
        tmsg_endpoint_end(endpoint, status, tmsg_error_message());
    }
}
