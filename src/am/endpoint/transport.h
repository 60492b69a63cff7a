/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/transport.h - which of UCX's transports carry an endpoint, and
 * why. */
#ifndef TMSG_AM_ENDPOINT_TRANSPORT_H
#define TMSG_AM_ENDPOINT_TRANSPORT_H

#include <stdbool.h>

#include "am/endpoint/endpoint.h"

/* Returns whether the peer may have written to this side's queue in shared
 * memory. */
bool tmsg_transport_is_shared(const tmsg_endpoint_t *endpoint);

/* Returns whether one side may find memory of the other past UCX. Both hellos
 * must have the feature bit `feature`. */
bool tmsg_transport_may_find(const tmsg_endpoint_t *endpoint, uint32_t feature);

/* Returns whether the list `transports`, of tmsg_ucx_transports(), has shared
 * memory in it. */
bool tmsg_transport_shares(const char *transports);

/* Returns the transport whose thresholds hold for a list of
 * tmsg_ucx_transports(). */
tmsg_transport_t tmsg_transport_of(const char *transports);

/* Notes that the endpoint is open, so that tmsg_transport_explain() is to be
 * called for it. */
void tmsg_transport_ask(tmsg_endpoint_t *endpoint);

/* Returns whether tmsg_transport_explain() is to be called now: it was asked
 * for, and there is a UCX endpoint. */
bool tmsg_transport_is_asked(const tmsg_endpoint_t *endpoint);

/* Forgets what carried a connection that is gone. */
void tmsg_transport_forget(tmsg_endpoint_t *endpoint);

/* Asks UCX for the transports, and writes them and the reason into the
 * endpoint. Outside UCX. */
void tmsg_transport_explain(tmsg_endpoint_t *endpoint);

/* Writes the transports that carry the endpoint now, or carried it last: UCX
 * adds lanes to an endpoint while it is used. "cma" is added if the peer may
 * read this side's memory. */
void tmsg_transport_list(const tmsg_endpoint_t *endpoint, char *text,
                         size_t bytes);

/* Returns whether UCX may be given only memory of the library: see
 * tmsg_plan_own(). */
bool tmsg_transport_wants_own(const tmsg_endpoint_t *endpoint);

/* Returns whether the peer reads what is sent with TMSG_HEADER_READ. */
bool tmsg_cma_sends(const tmsg_endpoint_t *endpoint);

/* Returns whether an arrived message occupies a segment of UCX while it is
 * kept. */
bool tmsg_transport_takes_segment(const tmsg_endpoint_t *endpoint,
                                  bool rendezvous, size_t bytes);

#endif
