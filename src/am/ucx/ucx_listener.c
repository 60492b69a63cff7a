/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_listener.h"

#include <ucp/api/ucp.h>

tmsg_ucx_status_t tmsg_ucx_listen(tmsg_ucx_t *ucx,
                                  const struct sockaddr *address,
                                  socklen_t bytes, tmsg_ucx_came_t came,
                                  struct sockaddr_storage *bound_p)
{
    const ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = address, .addrlen = bytes},
        .conn_handler = {.cb = came, .arg = ucx},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t ucs =
        ucp_listener_create(ucx->ucp, &params, &ucx->cm_listener);

    if (ucs != UCS_OK) {
        ucx->cm_listener = NULL;
        return ucs;
    }
    ucs = ucp_listener_query(ucx->cm_listener, &attr);
    if (ucs == UCS_OK) {
        *bound_p = attr.sockaddr;
    }
    return ucs;
}

bool tmsg_ucx_caller_address(tmsg_ucx_caller_t caller,
                             struct sockaddr_storage *address_p)
{
    ucp_conn_request_attr_t attr = {
        .field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};

    if (ucp_conn_request_query(caller, &attr) != UCS_OK) {
        return false;
    }
    *address_p = attr.client_address;
    return true;
}

void tmsg_ucx_caller_reject(const tmsg_ucx_t *ucx, tmsg_ucx_caller_t caller)
{
    ucp_listener_reject(ucx->cm_listener, caller);
}
