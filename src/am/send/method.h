/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/method.h - chooses the way of a payload. */
#ifndef TMSG_AM_SEND_METHOD_H
#define TMSG_AM_SEND_METHOD_H

#include "am/endpoint/measures.h"
#include "am/worker/way.h"

/* Returns the most bytes of one fragment. `alone`: no small messages pass, so
 * that fragments may be longer. */
uint64_t tmsg_way_chunk(const tmsg_thresholds_t *thresholds, bool alone);

/* Returns the size from which a tensor is to travel in fragments, for the
 * measures; TMSG_WAY_NO_FRAGMENTS if none is. */
uint64_t tmsg_way_large(const tmsg_thresholds_t *thresholds, tmsg_wish_t wish);

/* Returns the way for a map of these measures. `spill` is the number of bytes
 * of a body that heads the payload, else 0. */
tmsg_way_t tmsg_way_choose(const tmsg_measures_t *measures, uint64_t spill,
                           const tmsg_thresholds_t *thresholds,
                           tmsg_wish_t wish);

#endif
