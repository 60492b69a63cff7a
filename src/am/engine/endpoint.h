/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint.h - what the application does with a connection, and the
 * work that a connection has in each step. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_H
#define TMSG_AM_ENGINE_ENDPOINT_H

#include "am/endpoint/endpoint.h"

/* Opens the endpoint, when the connection stands. Lock held. */
void tmsg_endpoint_opened(tmsg_endpoint_t *endpoint);

/* Does the work that UCX's callbacks left. Called in progress, lock held. */
void tmsg_endpoint_chores(tmsg_endpoint_t *endpoint);

#endif
