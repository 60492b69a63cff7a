/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/scheme.h - a scheme of URLs whose connections do not begin with
 * our bootstrap: a table, filled by the room of that scheme, which comes later.
 */
#ifndef TMSG_AM_ENDPOINT_SCHEME_H
#define TMSG_AM_ENDPOINT_SCHEME_H

#include <tensormsg/listener.h>

#include "am/endpoint/endpoint.h"
#include "am/net/sock.h"
#include "am/ucx/ucx_config.h"

/* The worker's lock is held in all of them. */
typedef struct {
    /* Makes a new endpoint one of this scheme. Errors: NO_MEMORY. */
    tmsg_status_t (*begin)(tmsg_endpoint_t *endpoint);
    /* Dials it. Errors: UNREACHABLE, INTERNAL. */
    tmsg_status_t (*dial)(tmsg_endpoint_t *endpoint,
                          const tmsg_address_t *address);

    /* The UCX worker for the address of a listener. Errors: NOT_FOUND,
     * UNREACHABLE, IO. */
    tmsg_status_t (*scope)(const tmsg_address_t *address,
                           tmsg_ucx_scope_t *scope);
    /* Listens on the listener's address, over a UCX worker of its own, which
     * goes with the last of its endpoints when it stops. Errors:
     * ALREADY_EXISTS, NOT_FOUND, INTERNAL. */
    tmsg_status_t (*listen)(tmsg_listener_t *listener,
                            const tmsg_ucx_scope_t *scope);
    void (*unlisten)(tmsg_listener_t *listener);

    /* Inside UCX: a message came on such a UCX worker. */
    ucp_am_recv_callback_t arrived;
} tmsg_scheme_t;

extern const tmsg_scheme_t tmsg_scheme_ucx; /* ucx://: UCXX's peers */

#endif
