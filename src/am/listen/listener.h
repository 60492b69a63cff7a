/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/listener.h - listeners as the room sees them. */
#ifndef TMSG_AM_LISTEN_LISTENER_H
#define TMSG_AM_LISTEN_LISTENER_H

#include <tensormsg/listener.h>

#include "am/connect/admit.h"
#include "am/endpoint/conn.h"
#include "am/net/sock.h"
#include "am/worker/worker.h"

#define TMSG_BACKLOG 1024 /* length of the kernel's accept queue */

struct tmsg_listener {
    tmsg_listener_t *next; /* in its worker's list */
    tmsg_worker_t *worker;
    const struct tmsg_scheme *scheme;
    tmsg_accept_fn on_accept; /* NULL: the listener keeps its endpoints */
    void *on_accept_arg;
    tmsg_peer_fn on_peer; /* NULL: nobody asked; as on_lost */
    tmsg_closed_fn on_lost;
    void *on_peer_arg;
    tmsg_list_t told; /* endpoints that it tells of; presence.h */
    int handshake_timeout_ms;
    uint32_t max_handshakes;
    uint32_t handshakes;          /* number of those under way */
    uint32_t wanting_ucx;         /* number of these that will need UCX */
    tmsg_stream_counts_t streams; /* and of those by a stream */
    /* The endpoints that hold places, oldest first, and where they are from;
     * places.h. */
    tmsg_list_t places, origins;
    uint32_t resume_ms; /* how long a broken session is kept */
    uint32_t subscribe; /* TMSG_SUBSCRIBE_*, for the hellos of this side */
    uint32_t max_handshake_bytes;
    tmsg_keyring_t *keyring; /* NULL: no key is asked for, or TLS does */
    tmsg_tls_t *tls;         /* of tls://; else NULL */
    tmsg_list_t backlog;     /* connect requests by blob that wait; backlog.h */
    size_t backlog_bytes;
    tmsg_timer_t backlog_timer; /* when to handle those of the backlog */
    uint64_t accepted, connected;
    /* Peers that were turned away, by reason. */
    uint64_t turned[TMSG_TURNED_COUNT];
    uint64_t timed_out, too_long;
    tmsg_source_t source;
    tmsg_timer_t retry; /* when to accept again */
    tmsg_sock_listener_t sock;
    char url[TMSG_URL_TEXT_BYTES];
    char advertised[TMSG_URL_TEXT_BYTES]; /* what peers are told; "": url */
    int32_t carrier;                      /* TMSG_CARRIER_* */
    char devices[TMSG_DEVICES_BYTES];     /* "": the device of the address */
    void *blob; /* of a blob:// listener, without proofs */
    size_t blob_bytes;
    /* The blob with proofs, if it is a blob:// listener with a keyring. */
    struct tmsg_proved *proved;
    uint8_t token[TMSG_TOKEN_BYTES];
    /* The UCX worker of a blob:// or ucx:// listener; NULL: a peer that died
     * ended it. */
    tmsg_ucx_t *ucx;
    tmsg_address_t address; /* of a ucx:// listener */
};

/* Takes all parameters but the URL's and the addresses, or the defaults. Holds
 * the keyring. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_listener_read_params(const tmsg_listener_params_t *params,
                                        tmsg_listener_t *listener);

/* Frees the listener with all that it keeps. Lock held. */
void tmsg_listener_release(tmsg_listener_t *listener);

/* Returns the blob listener that a token belongs to, or NULL. Lock held. */
tmsg_listener_t *tmsg_listener_by_token(tmsg_worker_t *worker,
                                        const tmsg_ucx_t *ucx,
                                        const uint8_t *token);

/* Returns whether peers from other machines may reach the listener: they have
 * to prove a key, or the application allows them without one. */
bool tmsg_listener_is_open(const tmsg_listener_t *listener,
                           const tmsg_listener_params_t *params);

/* Takes the URL that peers are told. If it has no port, it gets the bound one.
 * NULL: there is none. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_listener_advertise(tmsg_listener_t *listener,
                                      const char *text, tmsg_url_kind_t kind);

/* Takes the devices on which UCX accepts connections. Errors: INVALID_PARAM,
 * INSECURE. */
tmsg_status_t tmsg_listener_name_devices(const tmsg_listener_params_t *params,
                                         tmsg_url_kind_t kind,
                                         tmsg_listener_t *listener);

#endif
