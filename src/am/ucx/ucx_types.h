/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_types.h - UCX's objects, into which UCX alone looks, and the
 * functions that UCX calls.
 *
 * These are UCX's own types under our names, so that nothing is converted. Only
 * the sources of this room include UCX's headers. */
#ifndef TMSG_AM_UCX_UCX_TYPES_H
#define TMSG_AM_UCX_UCX_TYPES_H

#include <stddef.h>

#include "am/ucx/ucx_status.h"

typedef struct ucp_config tmsg_ucx_config_t;
typedef struct ucp_context *tmsg_ucx_context_t;
typedef struct ucp_worker *tmsg_ucx_worker_t;
typedef struct ucp_listener *tmsg_ucx_listener_t;
/* Waits to be accepted or rejected. */
typedef struct ucp_conn_request *tmsg_ucx_caller_t;
typedef struct ucp_ep *tmsg_ucx_ep_t;

/* Holds what UCX says of an active message beside header and payload
 * (ucx_am.h). */
typedef struct ucp_am_recv_param tmsg_ucx_am_info_t;

/* UCX calls each of the functions below inside UCX. */

/* UCX calls this function when an operation has ended. The function calls
 * tmsg_ucx_request_free(). */
typedef void (*tmsg_ucx_sent_t)(void *request, tmsg_ucx_status_t status,
                                void *arg);
typedef void (*tmsg_ucx_received_t)(void *request, tmsg_ucx_status_t status,
                                    size_t bytes, void *arg);

/* UCX calls this function for an active message. If the function returns
 * IN_PROGRESS, `data` is kept until tmsg_ucx_am_receive() or
 * tmsg_ucx_am_release(). The function may return an error only for a
 * rendezvous: UCX aborts on an error for an eager message. */
typedef tmsg_ucx_status_t (*tmsg_ucx_arrived_t)(void *arg, const void *header,
                                                size_t header_bytes, void *data,
                                                size_t data_bytes,
                                                const tmsg_ucx_am_info_t *info);

/* UCX calls this function when an endpoint is lost. */
typedef void (*tmsg_ucx_failed_t)(void *arg, tmsg_ucx_ep_t ep,
                                  tmsg_ucx_status_t status);

/* UCX calls this function when somebody connects to a listener of UCX. */
typedef void (*tmsg_ucx_came_t)(tmsg_ucx_caller_t caller, void *arg);

#endif
