/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_ep.h - UCX endpoints; ep_index.h makes those between peers of our
 * own kind.
 *
 * As in ucx_am.h, an operation is over with the status that its function
 * returns. IN_PROGRESS means instead that UCX calls `sent` or `received` at its
 * end. */
#ifndef TMSG_AM_UCX_UCX_EP_H
#define TMSG_AM_UCX_UCX_EP_H

#include <sys/socket.h>

#include "am/ucx/ucx.h"

/* Calls ucp_ep_create(). */
struct ucp_ep_params;
tmsg_ucx_status_t tmsg_ucx_ep_create(const tmsg_ucx_t *ucx,
                                     const struct ucp_ep_params *params,
                                     tmsg_ucx_ep_t *ep_p);

/* Makes an endpoint to another UCX worker of this process. UCX tells nobody
 * when it is lost. */
tmsg_ucx_status_t tmsg_ucx_ep_within(const tmsg_ucx_t *ucx,
                                     const tmsg_ucx_t *other,
                                     tmsg_ucx_ep_t *ep_p);

/* Makes an endpoint to a listener of UCX; UCX itself makes the connection. UCX
 * calls `failed` with `arg` when the endpoint is lost. Errors: UNREACHABLE;
 * *ep_p is NULL then. */
tmsg_status_t tmsg_ucx_ep_dial(const tmsg_ucx_t *ucx,
                               const struct sockaddr *address, socklen_t bytes,
                               tmsg_ucx_failed_t failed, void *arg,
                               tmsg_ucx_ep_t *ep_p);

/* Makes an endpoint to a caller of our UCX listener. UCX takes `caller` back,
 * also on error. `failed` and errors: as tmsg_ucx_ep_dial(). */
tmsg_status_t tmsg_ucx_ep_accept(const tmsg_ucx_t *ucx,
                                 tmsg_ucx_caller_t caller,
                                 tmsg_ucx_failed_t failed, void *arg,
                                 tmsg_ucx_ep_t *ep_p);

/* Waits until all that was sent before is done. The first flush of an endpoint
 * that dialled or was dialled ends when it is connected. */
tmsg_ucx_status_t tmsg_ucx_ep_flush(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg);

/* Closes an endpoint by force: UCX does not wait for the peer. */
tmsg_ucx_status_t tmsg_ucx_ep_close(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg);

/* Closes an endpoint by force, and nobody hears of the end. */
void tmsg_ucx_ep_abandon(tmsg_ucx_ep_t ep);

/* Writes what carries an endpoint in UCX's own words, such as "posix/memory,
 * cma/memory", cut to `size`; of a stream "stream/tcp", "stream/unix" or
 * "stream/tls". */
void tmsg_ucx_transports(tmsg_ucx_ep_t ep, char *text, size_t size);

/* Send and receive on the stream that an endpoint has beside its messages. UCX
 * calls `received` when all the bytes have come. */
tmsg_ucx_status_t tmsg_ucx_stream_send(tmsg_ucx_ep_t ep, const void *data,
                                       size_t bytes, tmsg_ucx_sent_t sent,
                                       void *arg);
tmsg_ucx_status_t tmsg_ucx_stream_receive(tmsg_ucx_ep_t ep, void *data,
                                          size_t bytes,
                                          tmsg_ucx_received_t received,
                                          void *arg);

#endif
