/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/scheme.h - what a scheme of URLs does: a table of functions for
 * each.
 *
 * A scheme is one file and one line of TMSG_SCHEMES in net/url.h. The file
 * defines tmsg_scheme_<name>, and is in the last of the rooms that it needs
 * (listen/scheme_tcp.c). */
#ifndef TMSG_AM_ENDPOINT_SCHEME_H
#define TMSG_AM_ENDPOINT_SCHEME_H

#include <stdbool.h>

#include <tensormsg/listener.h>

#include "am/endpoint/endpoint.h"
#include "am/net/sock.h"
#include "am/ucx/config.h"

/* Holds the functions of a scheme. If an entry may be NULL, its comment says
 * what that means. `bind` and `listen` may not be NULL. */
typedef struct tmsg_scheme {
    /* The next fields tell what may be asked for with such a URL. */
    bool keys;       /* a peer may have to prove a key */
    bool devices;    /* UCX may be limited to some devices */
    bool sessions;   /* `dial` may make a broken connection anew */
    bool advertises; /* peers may be told another host and port */
    bool ipv4_first; /* IPv4 comes first among the addresses of a name */
    /* Tells that a connection begins with our handshake on a socket. The socket
     * stays, and its end is the end of the peer. */
    bool socket;
    /* Tells that the socket belongs to the network, which UCX may use, too.
     * Otherwise the peer is on this host, and UCX uses shared memory alone. */
    bool network;
    /* Tells that TLS encrypts all connections (tls/tls.h). */
    bool secure;

    /* Makes a new endpoint one of this scheme. Lock held. Errors: NO_MEMORY.
     * NULL: nothing is to be done. */
    tmsg_status_t (*begin)(tmsg_endpoint_t *endpoint);
    /* Dials one address, or a path if `address` is NULL. Lock held. Errors:
     * UNREACHABLE, INTERNAL. NULL: nobody is dialled by a URL. */
    tmsg_status_t (*dial)(tmsg_endpoint_t *endpoint,
                          const tmsg_address_t *address);

    /* Takes an address or a path, and tells by *scope what UCX is opened for.
     * Writes listener->url. Errors: ALREADY_EXISTS, NOT_FOUND, UNREACHABLE,
     * IO. */
    tmsg_status_t (*bind)(tmsg_listener_t *listener, const tmsg_url_t *url,
                          const tmsg_address_t *address,
                          tmsg_ucx_scope_t *scope);
    /* Starts to hear peers. Lock held. Errors: ALREADY_EXISTS, NOT_FOUND,
     * INTERNAL. */
    tmsg_status_t (*listen)(tmsg_listener_t *listener,
                            const tmsg_ucx_scope_t *scope);
    /* Ends a listener, which no longer counts among the users of listener->ucx.
     * That may be NULL. Lock held. NULL: nothing is to be done. */
    void (*unlisten)(tmsg_listener_t *listener);

    /* A message came on a UCX worker that is opened for ucx:// alone. Inside
     * UCX. NULL for all other schemes. */
    tmsg_ucx_arrived_t arrived;
} tmsg_scheme_t;

#define TMSG_SCHEME_DECLARE(NAME, name, form)                                  \
    extern const tmsg_scheme_t tmsg_scheme_##name;

TMSG_SCHEMES(TMSG_SCHEME_DECLARE)

/* Holds the schemes by tmsg_url_kind_t. engine/engine.c fills the table. */
extern const tmsg_scheme_t *const tmsg_schemes[TMSG_URL_KINDS];

#endif
