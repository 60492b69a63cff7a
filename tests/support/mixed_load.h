/* SPDX-License-Identifier: BSD-3-Clause */
/* support/mixed_load.h - everything at once over connections that break:
 * channels, cancels, timeouts, bounds of the send queue, unordered and
 * unacknowledged sends, receiving into a map, both ways. */
#ifndef TMSG_TESTS_MIXED_LOAD_H
#define TMSG_TESTS_MIXED_LOAD_H

#include <stdint.h>

#include "support/peers.h"

/* Sends some hundreds of messages and breaks the connection some times. What
 * became of each is held against what was asked for it: one that was ACKED and
 * ended well came once, none came twice, torn or out of its order, other ends
 * are those that were asked for, and every number is accounted for. `policy` is
 * that of full send queues. Prints the seed. */
void mixed_run(link_t link, drive_t drive, int32_t policy, uint64_t seed);

#endif
