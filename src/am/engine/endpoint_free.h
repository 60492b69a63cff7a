/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint_free.h - what an endpoint lets go of, and when. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_FREE_H
#define TMSG_AM_ENGINE_ENDPOINT_FREE_H

#include "am/endpoint/endpoint.h"

/* Its last reference is gone. */
void tmsg_endpoint_free(tmsg_endpoint_t *endpoint);

/* The connection is gone: the next one starts without schemas. */
void tmsg_channels_parted(tmsg_endpoint_t *endpoint);

/* Takes an endpoint out of the table that has ended, has nothing in UCX and is
 * nobody's any more: until then its worker's end finds it there. */
void tmsg_endpoint_forget(tmsg_endpoint_t *endpoint);

#endif
