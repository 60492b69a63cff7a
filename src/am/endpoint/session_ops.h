/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/session_ops.h - what a handshake asks of the room of sessions,
 * which comes later: a table, filled by session/resume.c. Lock held, outside
 * UCX. */
#ifndef TMSG_AM_ENDPOINT_SESSION_OPS_H
#define TMSG_AM_ENDPOINT_SESSION_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"

typedef struct {
    /* Writes what our hello says of the session, if there is one. */
    void (*hello)(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);
    /* Judges by the peer's hello whether it is the one that the session is
     * with. */
    tmsg_status_t (*recognize)(tmsg_endpoint_t *endpoint,
                               const tmsg_hello_t *theirs);
    /* The dialling side asks to go on. */
    tmsg_status_t (*ask)(tmsg_endpoint_t *endpoint);
    /* Frames: the peer asks, or has granted it. */
    tmsg_status_t (*asked)(tmsg_endpoint_t *endpoint, const uint8_t *data,
                           size_t bytes);
    tmsg_status_t (*granted)(tmsg_endpoint_t *endpoint, const uint8_t *data,
                             size_t bytes);
    /* The peer, which has proved who it is, refused the connection. */
    void (*refused)(tmsg_endpoint_t *endpoint, tmsg_status_t status);
} tmsg_session_ops_t;

extern const tmsg_session_ops_t tmsg_session_ops;

#endif
