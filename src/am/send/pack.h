/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/pack.h - packs tensors with gaps a part at a time, when the part is
 * handed over. So a message never stops the thread that progresses for longer
 * than a part takes, and takes no more memory than its parts under way. */
#ifndef TMSG_AM_SEND_PACK_H
#define TMSG_AM_SEND_PACK_H

#include "am/endpoint/measures.h"
#include "am/send/send.h"
#include "core/map.h"
#include "memory/pool.h"

/* Bounds a fragment or slice of a message with tensors that are packed. */
#define TMSG_PACK_PART_MOST (4ULL << 20)

/* Bounds what is copied as a whole for one peer, and not part by part: packed,
 * for a peer that takes messages in one piece only, or, where the peer has
 * asked for it, gathered. One message of the application's own may be larger,
 * and then is the only one. */
#define TMSG_PACK_WHOLE_MOST (64ULL << 20)

/* The copies of a payload of up to these bytes are not counted. */
#define TMSG_PACK_SMALL_MOST (64ULL << 10)

/* Says which bytes of those that travel in slices come next. All zero bits: the
 * first. */
typedef struct {
    size_t tensor;
    uint64_t at;   /* in the layout, behind a body that heads the payload */
    uint64_t done; /* bytes of the tensor that were before that */
} tmsg_pack_walk_t;

/* Returns the bytes of tensors that are packed and do not travel in
 * fragments. */
uint64_t tmsg_pack_left(const tmsg_measures_t *measures, bool fragments);

/* Returns the bytes that tmsg_pack_count() is to count. Of what a peer has not
 * asked for only what is packed is counted. */
uint64_t tmsg_pack_whole(const tmsg_send_t *send,
                         const tmsg_payload_t *payload);

/* Counts `bytes` of a send that is to be copied as a whole, unless it has some
 * counted. Errors: IN_PROGRESS (others have to go first; the endpoint then has
 * a chore), LIMIT_EXCEEDED (a peer asked for these bytes, and they are too many
 * to be packed at once). tmsg_pack_over() takes them out again, when they are
 * gone. */
tmsg_status_t tmsg_pack_count(tmsg_send_t *send, uint64_t bytes);
void tmsg_pack_over(tmsg_send_t *send);

/* Returns the bytes of a part of a map with tensors that are packed, where
 * fragments of `chunk` bytes are usual. */
uint64_t tmsg_pack_chunk(const tmsg_map_t *map, uint64_t chunk);

/* Checks that a tensor can be packed later, if it has to be, and writes its
 * checksum, if one is asked for. The error names the tensor. Errors:
 * UNSUPPORTED, NO_MEMORY. */
tmsg_status_t tmsg_pack_check(const tmsg_payload_t *payload, size_t index,
                              tmsg_pool_t *pool);

/* Writes bytes `offset` to `offset + bytes` of a packed tensor, which was
 * checked. */
void tmsg_pack_part(const tmsg_map_entry_t *entry, uint64_t offset,
                    uint64_t bytes, void *to);

/* Writes the next bytes of the tensors that `split` does not name, with the
 * gaps between them, and goes on to those behind them. Returns the first
 * address that could not be read, or NULL. Memory of tensors that are packed is
 * read unchecked. */
const void *tmsg_pack_walk(const tmsg_map_t *map, const tmsg_split_t *split,
                           tmsg_pack_walk_t *walk, uint64_t bytes, void *to);

#endif
