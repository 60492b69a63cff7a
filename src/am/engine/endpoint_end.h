/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint_end.h - how an endpoint ends, and who hears of it. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_END_H
#define TMSG_AM_ENGINE_ENDPOINT_END_H

#include "am/endpoint/endpoint.h"

/* Lock held, outside UCX: ends it now. Whatever is pending ends with this
 * status; `error` names the cause, the peer is put in front. */
void tmsg_endpoint_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *error);

/* Lock held, outside UCX: takes the connection away from an endpoint that lives
 * on. In order; UCX still has to report. `alive`: the peer is there yet. */
void tmsg_endpoint_part(tmsg_endpoint_t *endpoint, bool alive);

/* Lock held: frees the handle, for the application or a listener. */
void tmsg_endpoint_release(tmsg_endpoint_t *endpoint);

#endif
