/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint_end.h - how an endpoint ends, and who hears of it. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_END_H
#define TMSG_AM_ENGINE_ENDPOINT_END_H

#include "am/endpoint/endpoint.h"

/* Ends the endpoint now. Everything that is pending ends with this status.
 * `error` names the cause; the function puts the peer's name in front. Lock
 * held, outside UCX. */
void tmsg_endpoint_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *error);

/* Parts an endpoint that lives on from its connection. UCX still has to report
 * the connection's operations. `alive`: the peer is still there. Lock held,
 * outside UCX. */
void tmsg_endpoint_detach(tmsg_endpoint_t *endpoint, bool alive);

/* Gives back the handle, for the application or a listener, and ends the
 * endpoint. Lock held. */
void tmsg_endpoint_release(tmsg_endpoint_t *endpoint);

#endif
