/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listener.h - listeners as the room sees them. */
#ifndef TMSG_AM_LISTENER_H
#define TMSG_AM_LISTENER_H

#include <tensormsg/listener.h>

#include "am/sock.h"
#include "am/worker.h"

struct tmsg_listener {
    tmsg_listener_t *next; /* in its worker's list */
    tmsg_worker_t *worker;
    tmsg_accept_fn on_accept; /* NULL: the listener keeps its endpoints */
    void *on_accept_arg;
    int handshake_timeout_ms;
    uint32_t max_handshakes;
    uint32_t handshakes; /* under way */
    uint32_t resume_ms;  /* that a broken session is kept */
    tmsg_source_t source;
    tmsg_timer_t retry; /* out of descriptors: look again */
    tmsg_sock_listener_t sock;
    char url[TMSG_URL_TEXT_BYTES];
    char advertised[TMSG_URL_TEXT_BYTES]; /* "": url */
    char devices[TMSG_DEVICES_BYTES];     /* "": the one of the address */
    void *blob;                           /* of a blob:// listener */
    size_t blob_bytes;
    uint8_t token[TMSG_TOKEN_BYTES];
    tmsg_ucx_t *ucx;        /* of a blob:// or ucx:// listener */
    tmsg_address_t address; /* of a ucx:// listener */
};

/* Lock held: frees the listener with all it keeps. */
void tmsg_listener_release(tmsg_listener_t *listener);

/* Lock held: an endpoint that it accepted has connected, or ended. */
void tmsg_listener_connected(tmsg_endpoint_t *endpoint);
void tmsg_listener_ended(tmsg_endpoint_t *endpoint);

/* Lock held: the blob listener that a token belongs to, or NULL. */
tmsg_listener_t *tmsg_listener_by_token(tmsg_worker_t *worker,
                                        const tmsg_ucx_t *ucx,
                                        const uint8_t *token);

#endif
