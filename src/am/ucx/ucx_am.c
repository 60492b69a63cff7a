/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_am.h"

#include <sys/uio.h>
#include <ucp/api/ucp.h>

#include "am/ucx/ucx_pipe.h"
#include "core/error.h"

_Static_assert(sizeof(struct iovec) == sizeof(ucp_dt_iov_t) &&
                   offsetof(struct iovec, iov_base) ==
                       offsetof(ucp_dt_iov_t, buffer) &&
                   offsetof(struct iovec, iov_len) ==
                       offsetof(ucp_dt_iov_t, length),
               "UCX takes a list of struct iovec as it is");

_Static_assert((int)TMSG_UCX_SEND_REPLY == (int)UCP_AM_SEND_FLAG_REPLY &&
                   (int)TMSG_UCX_SEND_EAGER == (int)UCP_AM_SEND_FLAG_EAGER &&
                   (int)TMSG_UCX_SEND_RENDEZVOUS == (int)UCP_AM_SEND_FLAG_RNDV,
               "flags are given to UCX as they are");

_Static_assert(TMSG_UCX_MEMORY_HOST == (int)UCS_MEMORY_TYPE_HOST,
               "likewise a type of memory");

/* Names the datatype field only for a list: UCX is faster with contiguous bytes
 * if the field is not there. */
static inline uint32_t datatype_field(size_t pieces)
{
    return pieces > 0 ? UCP_OP_ATTR_FIELD_DATATYPE : 0;
}

/* Sends by a pipe. */
__attribute__((noinline)) static tmsg_ucx_status_t
send_by_pipe(tmsg_pipe_t *pipe, const tmsg_ucx_send_t *send,
             tmsg_ucx_sent_t sent, void *arg)
{
    const tmsg_pipe_send_t message = {.header = send->header,
                                      .header_bytes = send->header_bytes,
                                      .data = send->data,
                                      .bytes = send->bytes,
                                      .pieces = send->pieces,
                                      .flags = send->flags};

    return tmsg_pipe_send(pipe, &message, sent, arg);
}

__attribute__((noinline)) static ucs_status_ptr_t
send_beside_cuda(tmsg_ucx_ep_t ep, const void *header, size_t header_bytes,
                 const void *data, size_t count,
                 const ucp_request_param_t *param)
{
    int mode = tmsg_ucx_relax();
    ucs_status_ptr_t posted = ucp_am_send_nbx(ep, TMSG_AM_ID, header,
                                              header_bytes, data, count, param);

    tmsg_ucx_restore(mode);
    return posted;
}

/* `count`: bytes, or pieces. */
static inline ucs_status_ptr_t send_by_ucx(tmsg_ucx_ep_t ep, const void *header,
                                           size_t header_bytes,
                                           const void *data, size_t count,
                                           const ucp_request_param_t *param)
{
    return atomic_load_explicit(&tmsg_ucx_beside_cuda, memory_order_relaxed)
               ? send_beside_cuda(ep, header, header_bytes, data, count, param)
               : ucp_am_send_nbx(ep, TMSG_AM_ID, header, header_bytes, data,
                                 count, param);
}

/* This is inline for the link-time optimizer: fields that a caller leaves 0
 * cost nothing. */
inline tmsg_ucx_status_t tmsg_ucx_am_send(tmsg_ucx_ep_t ep,
                                          const tmsg_ucx_send_t *send,
                                          tmsg_ucx_sent_t sent, void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_FLAGS | datatype_field(send->pieces),
        .flags = send->flags,
        .cb.send = sent,
        .user_data = arg,
        .datatype = ucp_dt_make_iov(),
        .memory_type = (ucs_memory_type_t)send->memory_type,
    };
    tmsg_pipe_t *pipe = tmsg_ucx_pipe_of(ep);

    if (pipe != NULL) {
        return send_by_pipe(pipe, send, sent, arg);
    }
    return tmsg_ucx_request_status(
        send_by_ucx(ep, send->header, send->header_bytes, send->data,
                    send->pieces > 0 ? send->pieces : send->bytes, &param));
}

/* If UCX knows other types of memory, it may never send at once what it has not
 * been told to be host memory. */
tmsg_ucx_status_t tmsg_ucx_am_send_now(tmsg_ucx_ep_t ep, const void *header,
                                       size_t header_bytes, const void *payload,
                                       size_t payload_bytes)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };

    return UCS_PTR_RAW_STATUS(
        send_by_ucx(ep, header, header_bytes, payload, payload_bytes, &param));
}

tmsg_status_t tmsg_ucx_am_unsent(tmsg_ucx_ep_t ep, tmsg_ucx_status_t status)
{
    return tmsg_error_set(TMSG_ERR_PEER_LOST, "%s: %s",
                          tmsg_ucx_pipe_of(ep) == NULL
                              ? "ucp_am_send_nbx"
                              : "the stream of messages",
                          tmsg_ucx_status_words(status));
}

tmsg_ucx_status_t tmsg_ucx_am_receive(const tmsg_ucx_t *ucx, void *data,
                                      const tmsg_ucx_place_t *place,
                                      tmsg_ucx_received_t received, void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_MEMORY_TYPE | datatype_field(place->pieces),
        .cb.recv_am = received,
        .user_data = arg,
        .datatype = ucp_dt_make_iov(),
        .memory_type = (ucs_memory_type_t)place->memory_type,
    };
    tmsg_ucx_status_t ucs;
    int mode;

    if (ucx->pipes != NULL) {
        return tmsg_ucx_pipe_fetch(data, place->data, place->bytes,
                                   place->pieces, received, arg);
    }
    mode = tmsg_ucx_relax();
    ucs = tmsg_ucx_request_status(ucp_am_recv_data_nbx(
        ucx->ucp, data, place->data,
        place->pieces > 0 ? place->pieces : place->bytes, &param));
    tmsg_ucx_restore(mode);
    return ucs;
}

/* UCX answers a message that was not fetched. */
__attribute__((noinline)) static void release_beside_cuda(const tmsg_ucx_t *ucx,
                                                          void *data)
{
    int mode = tmsg_ucx_relax();

    ucp_am_data_release(ucx->ucp, data);
    tmsg_ucx_restore(mode);
}

void tmsg_ucx_am_release(const tmsg_ucx_t *ucx, void *data)
{
    if (ucx->pipes != NULL) {
        tmsg_ucx_pipe_release(data);
    } else if (tmsg_ucx_knows_cuda(ucx)) {
        release_beside_cuda(ucx, data);
    } else {
        ucp_am_data_release(ucx->ucp, data);
    }
}

void tmsg_ucx_request_free(void *request)
{
    if (request != NULL) { /* a pipe has none */
        ucp_request_free(request);
    }
}

bool tmsg_ucx_am_is_rendezvous(const tmsg_ucx_am_info_t *info)
{
    return (info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
}

bool tmsg_ucx_am_is_fleeting(const tmsg_ucx_am_info_t *info)
{
    return (info->recv_attr &
            (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV)) == 0 &&
           tmsg_ucx_pipe_of(tmsg_ucx_am_reply_ep(info)) != NULL;
}

tmsg_ucx_ep_t tmsg_ucx_am_reply_ep(const tmsg_ucx_am_info_t *info)
{
    return info->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? info->reply_ep
                                                             : NULL;
}
