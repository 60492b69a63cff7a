/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/contents.h - the bytes that --verify sends, and whether they arrived.
 */
#ifndef TMSG_MEASURE_CONTENTS_H
#define TMSG_MEASURE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/tensormsg.h>

/* Metadata of a map that can be checked: what its bytes were made of, and a
 * hash of names, dtypes and shapes. */
#define CONTENTS_SEED "perf.seed"
#define CONTENTS_LAYOUT "perf.layout"

#define CONTENTS_WHY_BYTES 300

/* Fills a tensor, the nth of its map. Any other seed, place or tensor has other
 * bytes. */
void contents_fill(void *data, size_t bytes, uint64_t seed, size_t tensor);

/* Puts seed and layout into a map that has all its tensors. */
tmsg_status_t contents_mark(tmsg_map_t *map, uint64_t seed);

/* Whether a map is as it was when it was marked; `why` says what is not. */
bool contents_check(const tmsg_map_t *map, char why[CONTENTS_WHY_BYTES]);

#endif
