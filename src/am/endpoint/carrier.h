/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/carrier.h - which of UCX's transports carry an endpoint, and why.
 */
#ifndef TMSG_AM_ENDPOINT_CARRIER_H
#define TMSG_AM_ENDPOINT_CARRIER_H

#include <stdbool.h>

#include "am/endpoint/endpoint.h"

/* Whether the peer may have written to our queue of shared memory. */
bool tmsg_carrier_is_shared(const tmsg_endpoint_t *endpoint);

/* Whether the peer may find memory of ours, past UCX, or we its: for what both
 * hellos have a feature. */
bool tmsg_carrier_may_find(const tmsg_endpoint_t *endpoint, uint32_t feature);

/* Whether some of tmsg_ucx_transports() are shared memory. */
bool tmsg_carrier_shares(const char *transports);

/* Whose thresholds hold where these of tmsg_ucx_transports() are. */
tmsg_carrier_t tmsg_carrier_of(const char *transports);

/* The endpoint is open: tmsg_carrier_explain() is to be called for it. */
void tmsg_carrier_ask(tmsg_endpoint_t *endpoint);

/* Whether it is to be called, and UCX has an endpoint that it can ask about. */
bool tmsg_carrier_is_asked(const tmsg_endpoint_t *endpoint);

/* The connection is gone, and what carried it is not known any more. */
void tmsg_carrier_forget(tmsg_endpoint_t *endpoint);

/* Asks UCX, outside it, and fills in the endpoint's transports and why. */
void tmsg_carrier_explain(tmsg_endpoint_t *endpoint);

/* What carries it now, or did last: UCX adds lanes while it is used, and the
 * peer may read our memory ("cma"). */
void tmsg_carrier_list(const tmsg_endpoint_t *endpoint, char *text,
                       size_t bytes);

/* Whether UCX may be given memory of ours alone: see tmsg_plan_own(). */
bool tmsg_carrier_wants_own(const tmsg_endpoint_t *endpoint);

/* Whether the peer reads what is sent with TMSG_HEADER_READ. */
bool tmsg_cma_sends(const tmsg_endpoint_t *endpoint);

/* Whether what came to an endpoint takes a segment if it is kept. */
bool tmsg_carrier_takes_segment(const tmsg_endpoint_t *endpoint,
                                bool rendezvous, size_t bytes);

#endif
