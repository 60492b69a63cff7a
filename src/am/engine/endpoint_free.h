/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint_free.h - what an endpoint frees, and when. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_FREE_H
#define TMSG_AM_ENGINE_ENDPOINT_FREE_H

#include "am/endpoint/endpoint.h"

/* Frees an endpoint whose last reference is gone. */
void tmsg_endpoint_free(tmsg_endpoint_t *endpoint);

/* Frees what the channels had of a connection that is gone, for
 * tmsg_endpoint_detach(): the next one starts without schemas. Lock held. */
void tmsg_channels_detached(tmsg_endpoint_t *endpoint);

/* Takes an endpoint out of the table if it has ended, has nothing in UCX, and
 * nobody has its handle. Until then the end of its worker finds it in the
 * table. */
void tmsg_endpoint_forget(tmsg_endpoint_t *endpoint);

#endif
