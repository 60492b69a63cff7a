/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/contents.h - makes the bytes that --verify sends, and checks whether
 * they arrived unchanged. */
#ifndef TMSG_MEASURE_CONTENTS_H
#define TMSG_MEASURE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/tensormsg.h>

/* A map that can be checked has these metadata: the seed of its bytes, and a
 * hash of its names, dtypes and shapes. */
#define CONTENTS_SEED "perf.seed"
#define CONTENTS_LAYOUT "perf.layout"

#define CONTENTS_WHY_BYTES 300

/* Fills the tensor at position `tensor` of its map. The bytes depend on the
 * seed, on the tensor and on their position. */
void contents_fill(void *data, size_t bytes, uint64_t seed, size_t tensor);

/* Puts seed and layout into a map. The map must have all its tensors
 * already. */
tmsg_status_t contents_mark(tmsg_map_t *map, uint64_t seed);

/* Tells whether a map is as it was when it was marked. If not, `why` tells what
 * differs. */
bool contents_check(const tmsg_map_t *map, char why[CONTENTS_WHY_BYTES]);

#endif
