/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_pipe.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include "am/ucx/siblings.h"
#include "am/ucx/ucx_am.h"
#include "am/ucx/ucx_events.h"
#include "core/error.h"

#define IS(ours, its) _Static_assert((int)(ours) == (int)(its), #ours)

IS(TMSG_PIPE_IN_PROGRESS, UCS_INPROGRESS);
IS(TMSG_PIPE_OK, UCS_OK);
IS(TMSG_PIPE_NO_MEMORY, UCS_ERR_NO_MEMORY);
IS(TMSG_PIPE_INVALID_PARAM, UCS_ERR_INVALID_PARAM);
IS(TMSG_PIPE_UNREADABLE, UCS_ERR_INVALID_ADDR);
IS(TMSG_PIPE_CANCELED, UCS_ERR_CANCELED);
IS(TMSG_PIPE_REJECTED, UCS_ERR_REJECTED);
IS(TMSG_PIPE_LOST, UCS_ERR_CONNECTION_RESET);
IS(TMSG_PIPE_EAGER, TMSG_UCX_SEND_EAGER);
IS(TMSG_PIPE_OFFERED, TMSG_UCX_SEND_RENDEZVOUS);

static tmsg_ucx_ep_t ep_of(const tmsg_pipe_t *pipe)
{
    return (tmsg_ucx_ep_t)((uintptr_t)pipe + 1);
}

/* An offer is told from memory by its lowest bit. */
static void *data_of(const tmsg_pipe_offer_t *offer)
{
    return (void *)((uintptr_t)offer + 1);
}

/* Says of a message of a pipe what UCX would say of its own. */
static tmsg_pipe_status_t message_arrived(void *arg,
                                          const tmsg_pipe_message_t *message)
{
    tmsg_ucx_t *ucx = arg;
    ucp_am_recv_param_t info = {.recv_attr = UCP_AM_RECV_ATTR_FIELD_REPLY_EP,
                                .reply_ep = ep_of(message->pipe)};
    void *data = message->data;

    if (message->offer != NULL) {
        info.recv_attr |= UCP_AM_RECV_ATTR_FLAG_RNDV;
        data = data_of(message->offer);
    } else if (!message->fleeting) {
        info.recv_attr |= UCP_AM_RECV_ATTR_FLAG_DATA;
    }
    return ucx->handler(ucx, message->header, message->header_bytes, data,
                        message->bytes, &info);
}

static void pipe_ended(void *arg, tmsg_pipe_t *pipe, tmsg_status_t status,
                       const char *why)
{
    tmsg_ucx_t *ucx = arg;

    if (ucx->worker != NULL) {
        tmsg_ucx_events.ended(ucx, ep_of(pipe), status, why);
    }
}

static void fill_hello(tmsg_ucx_t *ucx)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    ucx->hello.ucx_major = (uint16_t)version.major;
    ucx->hello.ucx_minor = (uint16_t)version.minor;
    ucx->hello.ucx_patch = (uint16_t)version.patch;
    ucx->hello.max_am_header = TMSG_PIPE_HEADER_MOST;
}

tmsg_status_t tmsg_ucx_open_pipes(const tmsg_ucx_owner_t *owner, bool dialling,
                                  const tmsg_hello_t *hello,
                                  tmsg_ucx_arrived_t handler,
                                  tmsg_ucx_t **ucx_p)
{
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsg_pipes_t *pipes;
    tmsg_ucx_t *ucx;

    ucx = calloc(1, sizeof(*ucx));
    pipes = calloc(1, sizeof(*pipes));
    if (ucx == NULL || pipes == NULL) {
        tmsg_error_memory("pipes");
        goto err;
    }
    *pipes = (tmsg_pipes_t){
        .arrived = message_arrived, .ended = pipe_ended, .arg = ucx};
    status = tmsg_pipes_init(pipes);
    if (status != TMSG_OK) {
        goto err;
    }
    ucx->worker = owner->worker;
    ucx->loop = owner->loop;
    ucx->given = owner->given;
    tmsg_refs_init(&ucx->holders, 1);
    ucx->source.fd = -1;
    ucx->fd = pipes->fd;
    ucx->scope.pipes = true;
    ucx->dialling = dialling;
    ucx->hello = *hello;
    ucx->pipes = pipes;
    ucx->handler = handler;
    ucx->max_am_header = TMSG_PIPE_HEADER_MOST;
    ucx->memory_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    fill_hello(ucx);
    tmsg_siblings_enter(ucx);
    *ucx_p = ucx;
    return TMSG_OK;

err:
    free(pipes);
    free(ucx);
    return status;
}

void tmsg_ucx_free_pipes(tmsg_ucx_t *ucx)
{
    tmsg_pipes_free(ucx->pipes);
    free(ucx->pipes);
}

tmsg_status_t tmsg_ucx_pipe_ep(tmsg_ucx_t *ucx, int fd, const tmsg_io_t *io,
                               void *io_arg, const void *come,
                               size_t come_bytes, tmsg_ucx_ep_t *ep_p)
{
    tmsg_pipe_t *pipe;
    tmsg_status_t status = tmsg_pipe_open(
        ucx->pipes, fd, io != NULL ? io : &tmsg_pipe_plain_io,
        io != NULL ? io_arg : tmsg_pipe_socket(fd), come, come_bytes, &pipe);

    if (status == TMSG_OK) {
        *ep_p = ep_of(pipe);
    }
    return status;
}

bool tmsg_ucx_pipe_is_tcp(tmsg_ucx_ep_t ep)
{
    int domain = AF_UNIX;
    socklen_t bytes = sizeof(domain);

    getsockopt(tmsg_pipe_fd(tmsg_ucx_pipe_of(ep)), SOL_SOCKET, SO_DOMAIN,
               &domain, &bytes);
    return domain != AF_UNIX;
}

const char *tmsg_ucx_pipe_kind(tmsg_ucx_ep_t ep)
{
    return !tmsg_pipe_is_plain(tmsg_ucx_pipe_of(ep)) ? "tls"
           : tmsg_ucx_pipe_is_tcp(ep)                ? "tcp"
                                                     : "unix";
}

tmsg_ucx_status_t tmsg_ucx_pipe_fetch(void *data, void *into, size_t bytes,
                                      size_t pieces,
                                      tmsg_ucx_received_t received, void *arg)
{
    return tmsg_pipe_fetch((tmsg_pipe_offer_t *)((uintptr_t)data - 1), into,
                           bytes, pieces, received, arg);
}

void tmsg_ucx_pipe_release(void *data)
{
    if ((uintptr_t)data & 1) {
        tmsg_pipe_drop((tmsg_pipe_offer_t *)((uintptr_t)data - 1));
    } else {
        free(data);
    }
}
