/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/map_match.h - compares a map that came with the map that it is to be
 * received into, and copies it there.
 *
 * `theirs` is the map that came, `ours` the application's. Tensors match by
 * their names. A tensor of `ours` has no gaps and is not broadcast. A tensor of
 * `theirs` may have gaps or be broadcast, and is written out then. Tensors that
 * only one of the maps has are left as they are. */
#ifndef TMSG_AM_RECV_MAP_MATCH_H
#define TMSG_AM_RECV_MAP_MATCH_H

#include <stdbool.h>

#include "core/map.h"

/* Returns the tensor of `map` with the name of `like`, or NULL. Looks at
 * position `index` first. */
const tmsg_map_entry_t *tmsg_map_match_find(const tmsg_map_t *map, size_t index,
                                            const tmsg_map_entry_t *like);

/* Returns whether `theirs` can be received directly into `ours`. */
bool tmsg_map_match_fits(const tmsg_map_t *theirs, const tmsg_map_t *ours);

/* Checks whether `theirs` can be copied to `ours` once it is whole. Errors:
 * INVALID_PARAM, which names the tensor and how the two differ. */
tmsg_status_t tmsg_map_match_check(const tmsg_map_t *theirs,
                                   const tmsg_map_t *ours);

/* Checks whether `map` can be copied to `ours` from where its tensors lie now.
 * Errors: UNSUPPORTED (only the CPU could write it out). */
tmsg_status_t tmsg_map_match_can_copy(const tmsg_map_t *map,
                                      const tmsg_map_t *ours);

/* Is told of each tensor that was copied: of what it was copied from, and of
 * the place if that has the same bytes now, else NULL. */
typedef tmsg_status_t (*tmsg_map_copied_fn)(const void *arg, size_t index,
                                            const tmsg_map_entry_t *from,
                                            const void *place);

/* Copies the tensors of `map` that `ours` has too to their places in `ours`,
 * and makes `map` point to these places. `copied` may be NULL. Errors:
 * UNSUPPORTED (only the CPU could write it out), those of the drivers and of
 * copied(). */
tmsg_status_t tmsg_map_match_copy(tmsg_map_t *map, const tmsg_map_t *ours,
                                  tmsg_map_copied_fn copied, const void *arg);

#endif
