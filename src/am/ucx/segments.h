/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/segments.h - the segments of shared memory that UCX receives into.
 *
 * UCX takes 512 of them when it opens, half of which lie in its queue, and 512
 * more whenever messages that were not released hold all others. Where
 * /dev/shm has no room for more it drops the messages that come, and tells
 * nobody. So those that we keep are counted: when UCX would need more, and
 * there is no room, messages are copied instead of kept, and a rendezvous,
 * which cannot be copied, is refused. */
#ifndef TMSG_AM_UCX_SEGMENTS_H
#define TMSG_AM_UCX_SEGMENTS_H

#include "am/ucx/ucx.h"

/* Whether one more may be kept. */
bool tmsg_segments_suffice(const tmsg_ucx_t *ucx);

/* Sets NO_MEMORY in words: there are none, and no room for more. */
tmsg_status_t tmsg_segments_missing(const tmsg_ucx_t *ucx);

/* One is kept, or no more. */
void tmsg_segment_keep(tmsg_ucx_t *ucx);
void tmsg_segment_give(tmsg_ucx_t *ucx);

#endif
