/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h - the connection of a command to who listens. */
#ifndef TMSG_TOOLS_CONNECT_H
#define TMSG_TOOLS_CONNECT_H

#include "tool.h"

/* Connects, and waits until that is done or has failed, which it tells. Returns
 * an exit code; the caller destroys what is in *endpoint_p unless it is NULL.
 */
int connect_to(tmsg_worker_t *worker, const char *url, int32_t timeout_ms,
               tmsg_endpoint_t **endpoint_p);

/* Tells what a listener could not be made for, which is the thread's error, and
 * returns an exit code. */
int listen_failed(tmsg_status_t status);

#endif
