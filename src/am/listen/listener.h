/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/listener.h - listeners as the room sees them. */
#ifndef TMSG_AM_LISTEN_LISTENER_H
#define TMSG_AM_LISTEN_LISTENER_H

#include <tensormsg/listener.h>

#include "am/connect/admit.h"
#include "am/endpoint/conn.h"
#include "am/net/sock.h"
#include "am/worker/worker.h"

#define TMSG_BACKLOG 1024 /* connections that a kernel keeps to be accepted */

struct tmsg_listener {
    tmsg_listener_t *next; /* in its worker's list */
    tmsg_worker_t *worker;
    const struct tmsg_scheme *scheme;
    tmsg_accept_fn on_accept; /* NULL: the listener keeps its endpoints */
    void *on_accept_arg;
    int handshake_timeout_ms;
    uint32_t max_handshakes;
    uint32_t handshakes; /* under way */
    uint32_t resume_ms;  /* that a broken session is kept */
    uint32_t max_handshake_bytes;
    tmsg_keyring_t *keyring; /* NULL: no key is asked for */
    tmsg_list_t knocks;      /* by blob, that wait for a place */
    size_t knock_bytes;
    tmsg_timer_t knock_timer; /* they are to be heard */
    uint64_t accepted, connected;
    uint64_t turned[TMSG_TURNED_COUNT]; /* away, and why */
    uint64_t timed_out, too_long;
    tmsg_source_t source;
    tmsg_timer_t retry; /* out of descriptors: look again */
    tmsg_sock_listener_t sock;
    char url[TMSG_URL_TEXT_BYTES];
    char advertised[TMSG_URL_TEXT_BYTES]; /* "": url */
    char devices[TMSG_DEVICES_BYTES];     /* "": the one of the address */
    void *blob;                           /* of a blob:// listener */
    size_t blob_bytes;
    struct tmsg_proved *proved; /* the same, with a keyring */
    uint8_t token[TMSG_TOKEN_BYTES];
    tmsg_ucx_t *ucx;        /* of a blob:// or ucx:// listener */
    tmsg_address_t address; /* of a ucx:// listener */
};

/* Takes all of them but the URL's and the addresses, or the defaults; holds the
 * keyring. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_listener_read_params(const tmsg_listener_params_t *params,
                                        tmsg_listener_t *listener);

/* Lock held: frees the listener with all it keeps. */
void tmsg_listener_release(tmsg_listener_t *listener);

/* Lock held: the blob listener that a token belongs to, or NULL. */
tmsg_listener_t *tmsg_listener_by_token(tmsg_worker_t *worker,
                                        const tmsg_ucx_t *ucx,
                                        const uint8_t *token);

/* Whether it may be reached by others than this machine's: they have to prove a
 * key, or the application wants them. */
bool tmsg_listener_is_open(const tmsg_listener_t *listener,
                           const tmsg_listener_params_t *params);

/* Takes the URL that peers are told, with the bound port where it has none;
 * NULL is none. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_listener_advertise(tmsg_listener_t *listener,
                                      const char *text, tmsg_url_kind_t kind);

/* Takes the devices, which open UCX's door to more. Errors: as above, and
 * INSECURE. */
tmsg_status_t tmsg_listener_name_devices(const tmsg_listener_params_t *params,
                                         tmsg_url_kind_t kind,
                                         tmsg_listener_t *listener);

#endif
