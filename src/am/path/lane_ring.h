/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane_ring.h - a lane of shared memory: a ring for what this side
 * sends, and the peer's ring. Each side makes its own ring when it has a large
 * message for the first time, and the other side finds it or does not; nothing
 * waits for that. The rules are docs/connection.md, "Rings". */
#ifndef TMSG_AM_PATH_LANE_RING_H
#define TMSG_AM_PATH_LANE_RING_H

#include "am/endpoint/kinds.h"
#include "am/path/lane.h"
#include "am/shm/ring.h"

/* Describes a lane of rings. lane_ring.c alone changes it. */
typedef struct {
    tmsg_lane_t lane;      /* first: the lane's address is this one's */
    tmsg_ring_t *out, *in; /* NULL: there is none */
} tmsg_lane_ring_t;

static inline tmsg_lane_ring_t *tmsg_lane_ring_of(const tmsg_lane_t *lane)
{
    return (tmsg_lane_ring_t *)(uintptr_t)lane;
}

#endif
