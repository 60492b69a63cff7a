/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_ep.h - UCX endpoints; those between peers of ours are made by
 * pair.h.
 *
 * As in ucx_am.h, an operation ends with the status that its function gives or,
 * for IN_PROGRESS, with a call of `sent` or `received`. */
#ifndef TMSG_AM_UCX_UCX_EP_H
#define TMSG_AM_UCX_UCX_EP_H

#include <sys/socket.h>

#include "am/ucx/ucx.h"

/* To a UCX worker of this process, by its address. UCX tells nobody of its
 * end. */
tmsg_ucx_status_t tmsg_ucx_ep_create(const tmsg_ucx_t *ucx, const void *address,
                                     tmsg_ucx_ep_t *ep_p);

/* To a listener of UCX's: the connection is made by UCX itself. `failed` is
 * called with `arg` when it is lost. Errors: UNREACHABLE. */
tmsg_status_t tmsg_ucx_ep_dial(const tmsg_ucx_t *ucx,
                               const struct sockaddr *address, socklen_t bytes,
                               tmsg_ucx_failed_t failed, void *arg,
                               tmsg_ucx_ep_t *ep_p);

/* Likewise, to one that has dialled, which is UCX's whatever comes of it. */
tmsg_status_t tmsg_ucx_ep_accept(const tmsg_ucx_t *ucx,
                                 tmsg_ucx_caller_t caller,
                                 tmsg_ucx_failed_t failed, void *arg,
                                 tmsg_ucx_ep_t *ep_p);

/* Ends when all that was sent before is; the first of an endpoint that dialled
 * or was dialled, when it is connected. */
tmsg_ucx_status_t tmsg_ucx_ep_flush(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg);

/* By force: the peer is not waited for. */
tmsg_ucx_status_t tmsg_ucx_ep_close(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg);

/* The same, of which nobody hears. */
void tmsg_ucx_ep_abandon(tmsg_ucx_ep_t ep);

/* What carries an endpoint: "posix/memory, cma/memory" of UCX's own words, cut
 * to `size`. */
void tmsg_ucx_transports(tmsg_ucx_ep_t ep, char *text, size_t size);

/* Of the stream that an endpoint has beside its messages. `received` is called
 * when all the bytes have come. */
tmsg_ucx_status_t tmsg_ucx_stream_send(tmsg_ucx_ep_t ep, const void *data,
                                       size_t bytes, tmsg_ucx_sent_t sent,
                                       void *arg);
tmsg_ucx_status_t tmsg_ucx_stream_receive(tmsg_ucx_ep_t ep, void *data,
                                          size_t bytes,
                                          tmsg_ucx_received_t received,
                                          void *arg);

#endif
