/* SPDX-License-Identifier: BSD-3-Clause */
/* unix:///path - a socket file, by which the connection begins. */
#include "am/connect/link.h"
#include "am/endpoint/scheme.h"
#include "am/listen/accept.h"

static tmsg_status_t bind_unix(tmsg_listener_t *listener, const tmsg_url_t *url,
                               const tmsg_address_t *address,
                               tmsg_ucx_scope_t *scope)
{
    (void)scope; /* any device will do: the peer is on this host */
    tmsg_url_format(url, listener->url, sizeof(listener->url));
    return tmsg_sock_listen(url, address, TMSG_BACKLOG, &listener->sock);
}

const tmsg_scheme_t tmsg_scheme_unix = {
    .keys = true,
    .sessions = true,
    .socket = true,
    .dial = tmsg_link_dial_address,
    .bind = bind_unix,
    .listen = tmsg_accept_begin,
};
