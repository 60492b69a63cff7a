/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane_tcp.h - a lane of a second TCP connection, to a peer that UCX
 * reaches by TCP. The kernel reads and writes the parts where they lie. The
 * rules are docs/connection.md, "The lane".
 *
 * The dialling side dials the lane once the endpoint is open, at the listener
 * that it has dialled before. */
#ifndef TMSG_AM_PATH_LANE_TCP_H
#define TMSG_AM_PATH_LANE_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/boot/frame.h"
#include "am/net/loop.h"
#include "am/path/lane.h"

/* Describes a lane of TCP. lane_tcp.c alone changes it. */
typedef struct {
    tmsg_lane_t lane; /* first: the lane's address is this one's */
    tmsg_source_t source;
    int fd;
    tmsg_frame_stream_t stream; /* used until the lane stands */
    bool connected;
    bool writes;       /* the loop tells when the socket is writable */
    size_t segment;    /* bytes of a TCP segment; 0: not known */
    uint64_t measured; /* lane.written when `segment` was asked for */
    int low;           /* least bytes that make it readable; 0: not set, 1 */
    uint64_t ahead;    /* see tmsg_lane_ahead(); 0: not known */
} tmsg_lane_tcp_t;

static inline tmsg_lane_tcp_t *tmsg_lane_tcp_of(const tmsg_lane_t *lane)
{
    return (tmsg_lane_tcp_t *)(uintptr_t)lane;
}

/* Makes an accepted connection, which says that it is a lane, the lane of
 * another one. As an endpoint it ends. If the lane cannot be made here, the
 * other endpoint goes without, which is no error. Errors: MALFORMED, REFUSED
 * (nobody here waits for it). */
tmsg_status_t tmsg_lane_tcp_claim(tmsg_endpoint_t *connection,
                                  const uint8_t *data, size_t bytes);

#endif
