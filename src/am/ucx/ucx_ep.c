/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_ep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/ucx_pipe.h"
#include "core/error.h"

#define TOLD (UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA)

tmsg_ucx_status_t tmsg_ucx_ep_create(const tmsg_ucx_t *ucx,
                                     const struct ucp_ep_params *params,
                                     tmsg_ucx_ep_t *ep_p)
{
    int mode = tmsg_ucx_relax();
    tmsg_ucx_status_t ucs = ucp_ep_create(ucx->ucp, params, ep_p);

    tmsg_ucx_restore(mode);
    return ucs;
}

tmsg_ucx_status_t tmsg_ucx_ep_within(const tmsg_ucx_t *ucx,
                                     const tmsg_ucx_t *other,
                                     tmsg_ucx_ep_t *ep_p)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucs_status_t ucs = ucp_worker_query(other->ucp, &attr);

    if (ucs != UCS_OK) {
        return ucs;
    }
    params.address = attr.address;
    ucs = tmsg_ucx_ep_create(ucx, &params, ep_p);
    ucp_worker_release_address(other->ucp, attr.address);
    return ucs;
}

/* Makes a UCX endpoint to the other end that `params` names. */
static tmsg_status_t connect_ep(const tmsg_ucx_t *ucx, ucp_ep_params_t *params,
                                tmsg_ucx_failed_t failed, void *arg,
                                tmsg_ucx_ep_t *ep_p)
{
    ucs_status_t ucs;

    params->field_mask |=
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = failed;
    params->err_handler.arg = arg;
    ucs = tmsg_ucx_ep_create(ucx, params, ep_p);
    if (ucs != UCS_OK) {
        *ep_p = NULL;
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "UCX does not connect: ucp_ep_create: %s",
                              ucs_status_string(ucs));
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_ucx_ep_dial(const tmsg_ucx_t *ucx,
                               const struct sockaddr *address, socklen_t bytes,
                               tmsg_ucx_failed_t failed, void *arg,
                               tmsg_ucx_ep_t *ep_p)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {.addr = address, .addrlen = bytes},
    };

    return connect_ep(ucx, &params, failed, arg, ep_p);
}

tmsg_status_t tmsg_ucx_ep_accept(const tmsg_ucx_t *ucx,
                                 tmsg_ucx_caller_t caller,
                                 tmsg_ucx_failed_t failed, void *arg,
                                 tmsg_ucx_ep_t *ep_p)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
        .conn_request = caller,
    };

    return connect_ep(ucx, &params, failed, arg, ep_p);
}

tmsg_ucx_status_t tmsg_ucx_ep_flush(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask = TOLD,
        .cb.send = sent,
        .user_data = arg,
    };
    int mode = tmsg_ucx_relax();
    tmsg_ucx_status_t ucs =
        tmsg_ucx_request_status(ucp_ep_flush_nbx(ep, &param));

    tmsg_ucx_restore(mode);
    return ucs;
}

static ucs_status_ptr_t close_ep(tmsg_ucx_ep_t ep,
                                 const ucp_request_param_t *param)
{
    int mode = tmsg_ucx_relax();
    ucs_status_ptr_t request = ucp_ep_close_nbx(ep, param);

    tmsg_ucx_restore(mode);
    return request;
}

tmsg_ucx_status_t tmsg_ucx_ep_close(tmsg_ucx_ep_t ep, tmsg_ucx_sent_t sent,
                                    void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | TOLD,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = sent,
        .user_data = arg,
    };
    tmsg_pipe_t *pipe = tmsg_ucx_pipe_of(ep);

    if (pipe != NULL) {
        tmsg_pipe_close(pipe);
        return TMSG_UCX_OK;
    }
    return tmsg_ucx_request_status(close_ep(ep, &param));
}

void tmsg_ucx_ep_abandon(tmsg_ucx_ep_t ep)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = close_ep(ep, &param);

    if (UCS_PTR_IS_PTR(request)) {
        /* UCX frees the request when the close is done */
        ucp_request_free(request);
    }
}

/* ucp_ep_print_info() names each lane as "lane[0]: 2:posix/memory md[1] ...".
 * No version of UCX that we support has a call that returns it. */
void tmsg_ucx_transports(tmsg_ucx_ep_t ep, char *text, size_t size)
{
    char *report = NULL, *line, *rest;
    size_t length, used = 0;
    FILE *stream;
    int mode;

    if (tmsg_ucx_pipe_of(ep) != NULL) {
        snprintf(text, size, "stream/%s", tmsg_ucx_pipe_kind(ep));
        return;
    }
    stream = open_memstream(&report, &length);
    if (stream == NULL) {
        return; /* the text that was known before stays */
    }
    text[0] = '\0';
    mode = tmsg_ucx_relax();
    ucp_ep_print_info(ep, stream);
    tmsg_ucx_restore(mode);
    fclose(stream);
    for (line = strtok_r(report, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[64];
        const char *lane = strstr(line, "lane[");

        if (lane == NULL || sscanf(lane, "lane[%*d]: %*d:%63s", name) != 1 ||
            strstr(text, name) != NULL || used + strlen(name) + 3 > size) {
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 used == 0 ? "" : ", ", name);
    }
    free(report);
}

tmsg_ucx_status_t tmsg_ucx_stream_send(tmsg_ucx_ep_t ep, const void *data,
                                       size_t bytes, tmsg_ucx_sent_t sent,
                                       void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask = TOLD,
        .cb.send = sent,
        .user_data = arg,
    };
    int mode = tmsg_ucx_relax();
    tmsg_ucx_status_t ucs =
        tmsg_ucx_request_status(ucp_stream_send_nbx(ep, data, bytes, &param));

    tmsg_ucx_restore(mode);
    return ucs;
}

tmsg_ucx_status_t tmsg_ucx_stream_receive(tmsg_ucx_ep_t ep, void *data,
                                          size_t bytes,
                                          tmsg_ucx_received_t received,
                                          void *arg)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | TOLD,
        .flags = UCP_STREAM_RECV_FLAG_WAITALL,
        .cb.recv_stream = received,
        .user_data = arg,
    };
    size_t length;
    int mode = tmsg_ucx_relax();
    tmsg_ucx_status_t ucs = tmsg_ucx_request_status(
        ucp_stream_recv_nbx(ep, data, bytes, &length, &param));

    tmsg_ucx_restore(mode);
    return ucs;
}
