/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_pipe.h - pipes (pipe/pipe.h) in the place of UCX.
 *
 * A tmsg_ucx_t that holds pipes has no UCX worker, no port and no shared
 * memory. Its endpoints are pipes: a tmsg_ucx_ep_t of it is a pipe with its
 * lowest bit set, and the functions of ucx.h, ucx_am.h and ucx_ep.h look at
 * that. So whoever sends and receives need not know what carries a message. */
#ifndef TMSG_AM_UCX_UCX_PIPE_H
#define TMSG_AM_UCX_UCX_PIPE_H

#include "am/pipe/pipe.h"
#include "am/ucx/ucx.h"

/* Opens a tmsg_ucx_t that holds pipes, otherwise as tmsg_ucx_open() does.
 * Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_ucx_open_pipes(const tmsg_ucx_owner_t *owner, bool dialling,
                                  const tmsg_hello_t *hello,
                                  tmsg_ucx_arrived_t handler,
                                  tmsg_ucx_t **ucx_p);

/* Frees the pipes, when the tmsg_ucx_t is freed. */
void tmsg_ucx_free_pipes(tmsg_ucx_t *ucx);

/* Makes an endpoint of a connected socket, whose bytes `io` moves (NULL: the
 * socket itself). `come` are bytes that were read from it already. On error the
 * socket is the caller's. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_ucx_pipe_ep(tmsg_ucx_t *ucx, int fd, const tmsg_io_t *io,
                               void *io_arg, const void *come,
                               size_t come_bytes, tmsg_ucx_ep_t *ep_p);

/* Returns the pipe that an endpoint is. NULL: it is UCX's. */
static inline tmsg_pipe_t *tmsg_ucx_pipe_of(tmsg_ucx_ep_t ep)
{
    uintptr_t at = (uintptr_t)ep;

    return at & 1 ? (tmsg_pipe_t *)(at - 1) : NULL;
}

/* Returns whether a pipe goes over the network. */
bool tmsg_ucx_pipe_is_tcp(tmsg_ucx_ep_t ep);

/* Returns what a pipe goes over: "tcp", "unix" or "tls". */
const char *tmsg_ucx_pipe_kind(tmsg_ucx_ep_t ep);

/* Fetches, or gives back, what came as `data` by a pipe. */
tmsg_ucx_status_t tmsg_ucx_pipe_fetch(void *data, void *into, size_t bytes,
                                      size_t pieces,
                                      tmsg_ucx_received_t received, void *arg);
void tmsg_ucx_pipe_release(void *data);

#endif
