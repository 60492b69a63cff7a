/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/split.h - which tensors of a map travel as parts. The format is
 * docs/wire-format.md, "Parts". */
#ifndef TMSG_SERIALIZE_SPLIT_H
#define TMSG_SERIALIZE_SPLIT_H

#include "serialize/cursor.h"
#include "serialize/header.h"

/* Reads the value of the key into *split, which is all zero. What the cursor
 * does not find is its own error. Errors: MALFORMED. */
tmsg_status_t tmsg_split_read(tmsg_cursor_t *cursor, tmsg_split_t *split);

/* Whether a split that was decoded fits the tensors that it is of, which may be
 * those of a schema. Errors: MALFORMED (names more than there are),
 * LIMIT_EXCEEDED (2^32 parts or more). */
tmsg_status_t tmsg_split_check(const tmsg_split_t *split,
                               const tmsg_map_t *map);

/* Whether a tensor travels as parts, and then as how many; and whether none
 * can, whatever its length: then there may be slices alone. */
bool tmsg_split_has(const tmsg_split_t *split, size_t index, uint64_t bytes);
uint64_t tmsg_split_parts(const tmsg_split_t *split, uint64_t bytes);
bool tmsg_split_has_none(const tmsg_split_t *split);

/* The first tensor from `from` on that travels as parts; the map's size: there
 * is none. */
size_t tmsg_split_next(const tmsg_split_t *split, const tmsg_map_t *map,
                       size_t from);

/* Bytes of the tensors that do not, one behind the other as in a payload, and
 * in how many slices these travel. */
uint64_t tmsg_split_left_bytes(const tmsg_split_t *split,
                               const tmsg_map_t *map);
uint64_t tmsg_split_slices(const tmsg_split_t *split, uint64_t left);

/* Those that lie in the message itself: all or none. */
uint64_t tmsg_split_head_bytes(const tmsg_split_t *split,
                               const tmsg_map_t *map);

/* Places the tensors in memory for all of them: those of the message itself
 * from `base` on as they lie in it, then the others, each aligned to 64. With
 * base NULL only says how many bytes that takes. */
uint64_t tmsg_split_place(const tmsg_split_t *split, tmsg_map_t *map,
                          void *base);

#endif
