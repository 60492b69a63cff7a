/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/succession.h - what an endpoint leaves to the one that takes its
 * place. */
#ifndef TMSG_AM_ENGINE_SUCCESSION_H
#define TMSG_AM_ENGINE_SUCCESSION_H

#include "am/endpoint/endpoint.h"

/* Gives the heir what waits at the old endpoint, which has ended, and what
 * stays with the handle. Lock held, outside UCX. */
void tmsg_succession(tmsg_endpoint_t *heir, tmsg_endpoint_t *old);

#endif
