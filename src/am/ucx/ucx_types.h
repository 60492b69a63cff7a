/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_types.h - UCX's objects, into which UCX alone looks, and the
 * functions that UCX calls.
 *
 * These are UCX's own types by names of ours, so that nothing is converted.
 * UCX's headers are for the sources of this room alone. */
#ifndef TMSG_AM_UCX_UCX_TYPES_H
#define TMSG_AM_UCX_UCX_TYPES_H

#include <stddef.h>

#include "am/ucx/ucx_status.h"

typedef struct ucp_config tmsg_ucx_config_t;
typedef struct ucp_context *tmsg_ucx_context_t;
typedef struct ucp_worker *tmsg_ucx_worker_t;
typedef struct ucp_listener *tmsg_ucx_listener_t;
typedef struct ucp_conn_request *tmsg_ucx_caller_t; /* to be answered */
typedef struct ucp_ep *tmsg_ucx_ep_t;

/* What UCX says of an active message beside header and payload (ucx_am.h). */
typedef struct ucp_am_recv_param tmsg_ucx_am_info_t;

/* Each of these is called inside UCX. */

/* What UCX has been given is done with. Calls tmsg_ucx_request_free(). */
typedef void (*tmsg_ucx_sent_t)(void *request, tmsg_ucx_status_t status,
                                void *arg);
typedef void (*tmsg_ucx_received_t)(void *request, tmsg_ucx_status_t status,
                                    size_t bytes, void *arg);

/* An active message. IN_PROGRESS keeps `data`, until tmsg_ucx_am_receive() or
 * tmsg_ucx_am_release(). Only a rendezvous may be answered with an error: UCX
 * aborts on one of an eager message. */
typedef tmsg_ucx_status_t (*tmsg_ucx_arrived_t)(void *arg, const void *header,
                                                size_t header_bytes, void *data,
                                                size_t data_bytes,
                                                const tmsg_ucx_am_info_t *info);

/* An endpoint is lost. */
typedef void (*tmsg_ucx_failed_t)(void *arg, tmsg_ucx_ep_t ep,
                                  tmsg_ucx_status_t status);

/* Somebody connects to a listener of UCX's. */
typedef void (*tmsg_ucx_came_t)(tmsg_ucx_caller_t caller, void *arg);

#endif
