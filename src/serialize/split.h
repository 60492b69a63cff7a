/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/split.h - decides which tensors of a map travel as parts.
 * docs/wire/wire-format.md, "Parts", has the format. */
#ifndef TMSG_SERIALIZE_SPLIT_H
#define TMSG_SERIALIZE_SPLIT_H

#include "serialize/cursor.h"
#include "serialize/header.h"

/* Reads the value of the key into *split, which the caller has zeroed. Errors
 * of the cursor stay in the cursor and return OK. Errors: MALFORMED. */
tmsg_status_t tmsg_split_read(tmsg_cursor_t *cursor, tmsg_split_t *split);

/* Checks that a decoded split fits the tensors of a map, which may be those of
 * a schema. Errors: MALFORMED (the split names more tensors than exist),
 * LIMIT_EXCEEDED (2^32 parts or more). */
tmsg_status_t tmsg_split_check(const tmsg_split_t *split,
                               const tmsg_map_t *map);

/* tmsg_split_names() returns whether tensor `index` is one that travels as
 * parts whatever its size: its sender has it in memory of a device.
 * tmsg_split_has() returns whether tensor `index` travels as parts.
 * tmsg_split_chunk() returns the bytes of a part of such a tensor, and
 * tmsg_split_parts() the number of its parts. tmsg_split_has_none() returns
 * whether no tensor of any size can travel as parts; such a split can still
 * have slices. */
bool tmsg_split_names(const tmsg_split_t *split, size_t index);
bool tmsg_split_has(const tmsg_split_t *split, size_t index, uint64_t bytes);
uint64_t tmsg_split_chunk(const tmsg_split_t *split, size_t index);
uint64_t tmsg_split_parts(const tmsg_split_t *split, size_t index,
                          uint64_t bytes);
bool tmsg_split_has_none(const tmsg_split_t *split);

/* Returns the first tensor, from index `from` on, that travels as parts.
 * Returns the map's size if there is none. */
size_t tmsg_split_next(const tmsg_split_t *split, const tmsg_map_t *map,
                       size_t from);

/* tmsg_split_left_bytes() returns the bytes of the tensors that do not travel
 * as parts, laid out as in a payload. tmsg_split_slices() returns the number of
 * slices in which these bytes travel. */
uint64_t tmsg_split_left_bytes(const tmsg_split_t *split,
                               const tmsg_map_t *map);
uint64_t tmsg_split_slices(const tmsg_split_t *split, uint64_t left);

/* Returns the bytes of tensors that lie in the message itself. With slices this
 * is 0; without slices it is tmsg_split_left_bytes(). */
uint64_t tmsg_split_head_bytes(const tmsg_split_t *split,
                               const tmsg_map_t *map);

/* Places all tensors in one block of memory. Tensors that do not travel as
 * parts lie from `base` on, as in a payload. The others follow, each aligned to
 * 64. Returns the bytes of the block. With base NULL, places nothing. */
uint64_t tmsg_split_place(const tmsg_split_t *split, tmsg_map_t *map,
                          void *base);

#endif
