/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/session_ops.h - what a handshake asks of the room session, which
 * comes later. session/resume.c fills the table. */
#ifndef TMSG_AM_ENDPOINT_SESSION_OPS_H
#define TMSG_AM_ENDPOINT_SESSION_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"

/* The room connect calls these entries, with the worker's lock held and outside
 * UCX. A status other than OK and IN_PROGRESS refuses the connection, with the
 * thread's error message. Entries may end the endpoint by tmsg_engine.end(). */
typedef struct {
    /* Writes into our hello what the endpoint's session needs, if there is a
     * session. Called before the hello is sent. */
    void (*hello)(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);
    /* Checks, when the peer's hello has come, that the peer is the one that the
     * session is with. Errors: PEER_LOST (it is another process). */
    tmsg_status_t (*recognize)(tmsg_endpoint_t *endpoint,
                               const tmsg_hello_t *theirs);
    /* Sends RESUME. Called on the dialling side, after both hellos. */
    tmsg_status_t (*ask)(tmsg_endpoint_t *endpoint);
    /* A frame RESUME (`asked`) or RESUMED (`granted`) has come. */
    tmsg_status_t (*asked)(tmsg_endpoint_t *endpoint, const uint8_t *data,
                           size_t bytes);
    tmsg_status_t (*granted)(tmsg_endpoint_t *endpoint, const uint8_t *data,
                             size_t bytes);
    /* The peer, which has proved who it is, has refused the connection with
     * this status. The session may have to end. */
    void (*refused)(tmsg_endpoint_t *endpoint, tmsg_status_t status);
} tmsg_session_ops_t;

extern const tmsg_session_ops_t tmsg_session_ops;

#endif
