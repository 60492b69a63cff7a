/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/scheme.h - what a scheme of URLs does: one table of functions
 * each.
 *
 * A scheme is one file, which defines tmsg_scheme_<name>, in the last of the
 * rooms that it needs (listen/scheme_tcp.c), and one line of TMSG_SCHEMES in
 * net/url.h. */
#ifndef TMSG_AM_ENDPOINT_SCHEME_H
#define TMSG_AM_ENDPOINT_SCHEME_H

#include <stdbool.h>

#include <tensormsg/listener.h>

#include "am/endpoint/endpoint.h"
#include "am/net/sock.h"
#include "am/ucx/ucx_config.h"

/* Functions that may be NULL say what that stands for; `bind` and `listen` may
 * not. */
typedef struct tmsg_scheme {
    /* What may be asked for with such a URL. */
    bool keys;       /* that a peer proves a key */
    bool devices;    /* that UCX uses some devices alone */
    bool sessions;   /* that a broken connection is made anew, by `dial` */
    bool advertises; /* that peers are told another host and port */
    bool ipv4_first; /* of the addresses of a name */
    bool socket;     /* a connection begins with our handshake on a socket,
                      * which stays: its end is the peer's */
    bool network;    /* that socket is the network's, which UCX may use, too;
                      * else the peer is on this host, and UCX uses shared
                      * memory alone */

    /* With the worker's lock. Makes a new endpoint one of this scheme. Errors:
     * NO_MEMORY. NULL: nothing is to be done. */
    tmsg_status_t (*begin)(tmsg_endpoint_t *endpoint);
    /* With the lock. Dials one address, or a path for which that is NULL.
     * Errors: UNREACHABLE, INTERNAL. NULL: nobody is dialled by a URL. */
    tmsg_status_t (*dial)(tmsg_endpoint_t *endpoint,
                          const tmsg_address_t *address);

    /* Takes an address, or a path, and says what UCX is opened for; writes
     * listener->url. Errors: ALREADY_EXISTS, NOT_FOUND, UNREACHABLE, IO. */
    tmsg_status_t (*bind)(tmsg_listener_t *listener, const tmsg_url_t *url,
                          const tmsg_address_t *address,
                          tmsg_ucx_scope_t *scope);
    /* With the lock. Peers are heard from now on. Errors: ALREADY_EXISTS,
     * NOT_FOUND, INTERNAL. */
    tmsg_status_t (*listen)(tmsg_listener_t *listener,
                            const tmsg_ucx_scope_t *scope);
    /* With the lock. The listener does not count any more among the users of
     * listener->ucx, which may be NULL. NULL: nothing is to be done. */
    void (*unlisten)(tmsg_listener_t *listener);

    /* Inside UCX: a message came on a UCX worker that is opened for ucx://
     * alone. NULL for all others. */
    tmsg_ucx_arrived_t arrived;
} tmsg_scheme_t;

#define TMSG_SCHEME_DECLARE(NAME, name, form)                                  \
    extern const tmsg_scheme_t tmsg_scheme_##name;

TMSG_SCHEMES(TMSG_SCHEME_DECLARE)

/* By tmsg_url_kind_t; engine/engine.c fills it. */
extern const tmsg_scheme_t *const tmsg_schemes[TMSG_URL_KINDS];

#endif
