/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/link_ops.h - what earlier rooms ask of the bootstrap socket of an
 * open connection. connect/link.c fills the table. */
#ifndef TMSG_AM_ENDPOINT_LINK_OPS_H
#define TMSG_AM_ENDPOINT_LINK_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"

/* Lock held. May be called inside UCX. */
typedef struct {
    /* Returns whether descriptors may go and come by the socket. False: *why_p
     * tells why not, in words that stay. */
    bool (*passes)(const tmsg_endpoint_t *endpoint, const char **why_p);
    /* Sends a frame. Errors: PEER_LOST (no socket, too) and those of
     * tmsg_frame_queue(). A connection that broke shows in reading. */
    tmsg_status_t (*put)(tmsg_endpoint_t *endpoint, uint8_t frame,
                         const void *data, size_t bytes);
    /* Sends a frame and a descriptor, of which the socket keeps a duplicate.
     * Errors: UNSUPPORTED (descriptors may not go), and those of
     * tmsg_frame_queue_fd(). */
    tmsg_status_t (*put_fd)(tmsg_endpoint_t *endpoint, uint8_t frame,
                            const void *data, size_t bytes, int fd);
    /* Has frames that lie in the socket read soon. A worker that polls looks at
     * its sockets now and then only; a peer that wants its frame read at once
     * sends TMSG_RING_WORD_LOOK behind it. */
    void (*look)(tmsg_endpoint_t *endpoint);
} tmsg_link_ops_t;

extern const tmsg_link_ops_t tmsg_link_ops;

#endif
