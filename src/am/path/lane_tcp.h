/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane_tcp.h - a lane of a second TCP connection to a peer that UCX
 * reaches by TCP: the kernel reads and writes the parts where they lie. The
 * rules are docs/connection.md, "The lane".
 *
 * The dialling side dials it once the endpoint is open, at the listener that it
 * has dialled before. */
#ifndef TMSG_AM_PATH_LANE_TCP_H
#define TMSG_AM_PATH_LANE_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/boot/frame.h"
#include "am/net/loop.h"
#include "am/path/lane.h"

/* lane_tcp.c alone changes it. */
typedef struct {
    tmsg_lane_t lane; /* first: the lane's address is this one's */
    tmsg_source_t source;
    int fd;
    tmsg_frame_stream_t stream; /* until it stands */
    bool connected;
    bool writes;       /* the loop tells when it can be written to */
    size_t segment;    /* bytes of one of the connection; 0: not known */
    uint64_t measured; /* when so many bytes had been written */
    int low;           /* bytes from which on it counts as readable; 0: 1 */
    uint64_t ahead;    /* 0: not known */
} tmsg_lane_tcp_t;

static inline tmsg_lane_tcp_t *tmsg_lane_tcp_of(const tmsg_lane_t *lane)
{
    return (tmsg_lane_tcp_t *)(uintptr_t)lane;
}

/* A connection that was accepted says that it is another's lane, which it then
 * is: it ends as an endpoint. Errors: MALFORMED, REFUSED (nobody here waits for
 * it), NO_MEMORY, IO. */
tmsg_status_t tmsg_lane_tcp_claim(tmsg_endpoint_t *connection,
                                  const uint8_t *data, size_t bytes);

#endif
