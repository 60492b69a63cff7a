/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/method.h - which way a payload goes. */
#ifndef TMSG_AM_SEND_METHOD_H
#define TMSG_AM_SEND_METHOD_H

#include "am/endpoint/measures.h"
#include "am/worker/way.h"

/* How long a piece is, at most. */
uint64_t tmsg_way_chunk(const tmsg_thresholds_t *thresholds, bool alone);

/* The size from which on a tensor is to be a part, for the measures. */
uint64_t tmsg_way_large(const tmsg_thresholds_t *thresholds, tmsg_wish_t wish);

/* The way for a map of these measures behind a body of `spill` bytes, if that
 * heads the payload, else 0. */
tmsg_way_t tmsg_way_choose(const tmsg_measures_t *measures, uint64_t spill,
                           const tmsg_thresholds_t *thresholds,
                           tmsg_wish_t wish);

#endif
