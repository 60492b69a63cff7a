/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/fail.h - a connection has failed: why is noted here, and its end
 * follows in a step of its worker. */
#ifndef TMSG_AM_ENDPOINT_FAIL_H
#define TMSG_AM_ENDPOINT_FAIL_H

#include "am/endpoint/endpoint.h"

/* Notes that the connection has failed, inside UCX as well: the endpoint's next
 * chores end it with this status and these words. */
void tmsg_endpoint_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *error);

/* UCX says that the connection is lost: breaks it, unless the socket says in
 * time why it ended. */
void tmsg_endpoint_lose(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* Its lane is lost: likewise. Not inside UCX. */
void tmsg_endpoint_lose_lane(tmsg_endpoint_t *endpoint, const char *why);

/* UCX did not take a message, whatever the reason: likewise. */
void tmsg_endpoint_unsent(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* The connection is cut: nobody waits for the peer's last words. */
void tmsg_endpoint_forget_loss(tmsg_endpoint_t *endpoint);

#endif
