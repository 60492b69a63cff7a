/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane_ring.h - a lane of shared memory: a ring for what this side
 * sends, and the peer's. Each side makes its own when it has a large message
 * for the first time, and the other finds it or does not; nothing waits for
 * that. The rules are docs/connection.md, "Rings". */
#ifndef TMSG_AM_PATH_LANE_RING_H
#define TMSG_AM_PATH_LANE_RING_H

#include "am/endpoint/kinds.h"
#include "am/path/lane.h"

/* Whether a message may go by our ring, which is made first, and the peer told
 * of it: it says by PULL whether it has found it. Logs why there is none. */
bool tmsg_lane_ring_make(tmsg_endpoint_t *endpoint);

/* Whether that is to be expected; whether it is there. */
bool tmsg_lane_ring_may_send(const tmsg_endpoint_t *endpoint);
bool tmsg_lane_ring_sends(const tmsg_endpoint_t *endpoint);

/* Whether the peer's is here. */
bool tmsg_lane_ring_receives(const tmsg_endpoint_t *endpoint);

/* The peer tells of its ring, answers that, or has moved bytes by either. */
ucs_status_t tmsg_ring_arrived(const tmsg_arrival_t *arrival);

/* lane_io.c's, of a lane of rings: bytes that were moved; 0: none can be, for
 * now or for ever. Read to no places `most` are thrown away, at most. */
size_t tmsg_lane_ring_write(tmsg_lane_t *lane, const struct iovec *from,
                            size_t count);
size_t tmsg_lane_ring_read(tmsg_lane_t *lane, const struct iovec *into,
                           size_t count, uint64_t most);

/* lane.c's. Whether the peer wakes us for all that the lane waits for; false:
 * there is something to be done. */
bool tmsg_lane_ring_await(tmsg_lane_t *lane);

/* Whether bytes can be moved that are to be. */
bool tmsg_lane_ring_has_work(const tmsg_lane_t *lane);

/* The peer that sleeps is woken for what was moved. */
void tmsg_lane_ring_wake(tmsg_lane_t *lane);

#endif
