/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp://host:port - a socket at an address, by which the connection begins.
 * tls://host:port - the same, and all connections are encrypted. */
#include <stdio.h>

#include "am/connect/link.h"
#include "am/endpoint/scheme.h"
#include "am/listen/accept.h"
#include "am/net/netif.h"
#include "am/worker/reach.h"

/* Finds the network device that UCX will need. For an unspecified address,
 * loopback's is tried. */
static tmsg_status_t find_tcp_device(const tmsg_address_t *address,
                                     tmsg_ucx_scope_t *scope)
{
    if (!tmsg_netif_is_any(&address->sa.any)) {
        return tmsg_scope_of_address(&address->sa.any, scope);
    }
    snprintf(scope->device, sizeof(scope->device), "lo");
    return TMSG_OK;
}

/* Binds the socket. *local_p is where it is. */
static tmsg_status_t bind_socket(tmsg_listener_t *listener,
                                 const tmsg_url_t *url,
                                 const tmsg_address_t *address,
                                 tmsg_address_t *local_p)
{
    tmsg_status_t status =
        tmsg_sock_listen(url, address, TMSG_BACKLOG, &listener->sock);

    if (status == TMSG_OK) {
        status = tmsg_sock_local(listener->sock.fd, local_p);
    }
    if (status == TMSG_OK) {
        tmsg_url_format_sockaddr(&local_p->sa.any, local_p->bytes,
                                 listener->url, sizeof(listener->url));
    }
    return status;
}

static tmsg_status_t bind_tcp(tmsg_listener_t *listener, const tmsg_url_t *url,
                              const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_address_t local;
    tmsg_status_t status = bind_socket(listener, url, address, &local);

    return status == TMSG_OK ? find_tcp_device(&local, scope) : status;
}

static tmsg_status_t bind_tls(tmsg_listener_t *listener, const tmsg_url_t *url,
                              const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_address_t local;
    tmsg_status_t status = bind_socket(listener, url, address, &local);

    scope->pipes = true;
    tmsg_url_rename(listener->url, sizeof(listener->url), TMSG_URL_TLS);
    return status;
}

const tmsg_scheme_t tmsg_scheme_tcp = {
    .keys = true,
    .devices = true,
    .sessions = true,
    .socket = true,
    .advertises = true,
    .network = true,
    .dial = tmsg_link_dial_address,
    .bind = bind_tcp,
    .listen = tmsg_accept_begin,
};

const tmsg_scheme_t tmsg_scheme_tls = {
    .keys = true,
    .sessions = true,
    .socket = true,
    .advertises = true,
    .network = true,
    .secure = true,
    .dial = tmsg_link_dial_address,
    .bind = bind_tls,
    .listen = tmsg_accept_begin,
};
