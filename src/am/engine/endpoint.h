/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/endpoint.h - what the application does with a connection, and what
 * it brings with each step. */
#ifndef TMSG_AM_ENGINE_ENDPOINT_H
#define TMSG_AM_ENGINE_ENDPOINT_H

#include "am/endpoint/endpoint.h"

/* Lock held: the connection stands. */
void tmsg_endpoint_opened(tmsg_endpoint_t *endpoint);

/* Lock held, in progress: does what UCX's callbacks left to do. */
void tmsg_endpoint_chores(tmsg_endpoint_t *endpoint);

#endif
