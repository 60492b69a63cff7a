/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/dispatch.h - finds who handles a message. */
#ifndef TMSG_AM_ENGINE_DISPATCH_H
#define TMSG_AM_ENGINE_DISPATCH_H

#include "am/endpoint/kinds.h"

/* UCX's callback for every AM: checks the preamble and calls the handler of
 * its kind, tmsg_<kind>_arrived() of some header. Handlers run inside UCX, or
 * in the turn of a box, which is the same to them, with the worker's lock held:
 * they take notes and leave the rest to chores. TMSG_UCX_IN_PROGRESS keeps
 * arrival->data. A new kind is a handler and a line of
 * TMSG_KINDS in endpoint/kinds.h. */
tmsg_ucx_status_t tmsg_kinds_arrived(void *arg, const void *header,
                                     size_t header_bytes, void *data,
                                     size_t data_bytes,
                                     const tmsg_ucx_am_info_t *info);

/* A message came by the peer's box: likewise. */
void tmsg_kinds_boxed(tmsg_endpoint_t *endpoint, const tmsg_boxed_t *boxed);

#endif
