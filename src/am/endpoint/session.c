/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/session.h"

#include <stdio.h>

#include "am/endpoint/endpoint.h"

bool tmsg_resume_keeps(const tmsg_endpoint_t *endpoint)
{
    const tmsg_resume_t *resume = endpoint->resume;

    return resume != NULL && resume->agreed && !resume->over &&
           endpoint->state != TMSG_EP_ENDED;
}

bool tmsg_resume_is_away(const tmsg_endpoint_t *endpoint)
{
    return endpoint->resume != NULL && endpoint->resume->away;
}

bool tmsg_resume_goes_on(const tmsg_endpoint_t *endpoint)
{
    return tmsg_resume_is_away(endpoint) && !endpoint->resume->beginning;
}

bool tmsg_resume_is_asking(const tmsg_endpoint_t *endpoint)
{
    return endpoint->resume != NULL && endpoint->resume->asking;
}

bool tmsg_resume_has_again(const tmsg_endpoint_t *endpoint)
{
    return endpoint->resume != NULL && endpoint->resume->again_count > 0;
}

const char *tmsg_resume_words(const tmsg_endpoint_t *endpoint)
{
    static _Thread_local char words[TMSG_ERROR_BYTES];
    const tmsg_resume_t *resume = endpoint->resume;

    if (resume == NULL || !resume->away) {
        return "";
    }
    if (endpoint->dialling) {
        snprintf(
            words, sizeof(words),
            "%s: reconnecting, attempt %u; why the connection broke: %s%s%s",
            endpoint->peer,
            resume->attempts + (endpoint->state == TMSG_EP_AWAY), resume->broke,
            resume->latest[0] == '\0' ? "" : "; the last attempt: ",
            resume->latest);
    } else {
        snprintf(words, sizeof(words), "%s: waiting for it to come back: %s",
                 endpoint->peer, resume->broke);
    }
    return words;
}
