/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/into.h - a map that came, and the map of the application's that it is
 * to lie in.
 *
 * Tensors go together by their names. A tensor of ours has no gaps and is not
 * broadcast; theirs may be either, and is written out then. What only one of
 * the maps has is left as it is. */
#ifndef TMSG_AM_RECV_INTO_H
#define TMSG_AM_RECV_INTO_H

#include <stdbool.h>

#include "core/map.h"

/* The tensor of `map` that is called as one at `index` elsewhere, which is
 * where it is looked for first; NULL: none. */
const tmsg_map_entry_t *tmsg_into_find(const tmsg_map_t *map, size_t index,
                                       const tmsg_map_entry_t *like);

/* Whether theirs can be received there as it comes. */
bool tmsg_into_fits(const tmsg_map_t *theirs, const tmsg_map_t *ours);

/* Whether it can be copied there when it is whole. Errors: INVALID_PARAM,
 * which names the tensor and how the two differ. */
tmsg_status_t tmsg_into_check(const tmsg_map_t *theirs, const tmsg_map_t *ours);

/* Whether it can be from where it lies by now. Errors: UNSUPPORTED (what only
 * the CPU could write out). */
tmsg_status_t tmsg_into_can_copy(const tmsg_map_t *map, const tmsg_map_t *ours);

/* Gives those tensors of a message that `ours` has, too, the places that they
 * have there, and the data that they have. Errors: UNSUPPORTED (what only the
 * CPU could write out), the drivers'. */
tmsg_status_t tmsg_into_copy(tmsg_map_t *map, const tmsg_map_t *ours);

#endif
