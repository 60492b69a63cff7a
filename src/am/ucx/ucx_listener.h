/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_listener.h - UCX's own listener, of a ucx:// address. */
#ifndef TMSG_AM_UCX_UCX_LISTENER_H
#define TMSG_AM_UCX_UCX_LISTENER_H

#include <sys/socket.h>

#include "am/ucx/ucx.h"

/* Opens UCX's listener at an address, as ucx->cm_listener. *bound_p gets the
 * address that it has. UCX calls `came` with `ucx` for each caller. On error
 * ucx->cm_listener may be set all the same. */
tmsg_ucx_status_t tmsg_ucx_listen(tmsg_ucx_t *ucx,
                                  const struct sockaddr *address,
                                  socklen_t bytes, tmsg_ucx_came_t came,
                                  struct sockaddr_storage *bound_p);

/* Returns the address that a caller comes from. False: UCX does not say. */
bool tmsg_ucx_caller_address(tmsg_ucx_caller_t caller,
                             struct sockaddr_storage *address_p);

void tmsg_ucx_caller_reject(const tmsg_ucx_t *ucx, tmsg_ucx_caller_t caller);

#endif
