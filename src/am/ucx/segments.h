/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/segments.h - the segments of shared memory that UCX receives into.
 *
 * UCX takes 512 of them when it opens; half of these lie in its queue. It takes
 * 512 more whenever messages that were not released hold all others. If
 * /dev/shm has no room for more, UCX drops arriving messages and tells nobody.
 * So the segments that we keep are counted. If UCX would need more and there is
 * no room, messages are copied instead of kept. A rendezvous cannot be copied,
 * and is refused. */
#ifndef TMSG_AM_UCX_SEGMENTS_H
#define TMSG_AM_UCX_SEGMENTS_H

#include "am/ucx/ucx.h"

/* Returns whether one more segment may be kept. */
bool tmsg_segments_suffice(const tmsg_ucx_t *ucx);

/* Sets and returns the error NO_MEMORY: all segments are kept, and there is no
 * room for more. */
tmsg_status_t tmsg_segments_missing(const tmsg_ucx_t *ucx);

/* Counts a segment that is kept, or that is given back. */
void tmsg_segment_keep(tmsg_ucx_t *ucx);
void tmsg_segment_give(tmsg_ucx_t *ucx);

#endif
