/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/parts_layout.h - which parts a message that comes has, and where each
 * of them goes. */
#ifndef TMSG_AM_RECV_PARTS_LAYOUT_H
#define TMSG_AM_RECV_PARTS_LAYOUT_H

#include "am/recv/message.h"

/* What a part is of. */
typedef struct {
    bool is_slice;   /* of what travels in slices, else of one tensor */
    uint32_t index;  /* of that in the map */
    uint64_t offset; /* in the one or the other */
    uint64_t bytes;
} tmsg_part_range_t;

/* Makes message->parts by what its body said; NULL where it has none. Errors:
 * NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_parts_layout_make(tmsg_message_t *message);

/* The part of a number; false: the message has none of that. */
bool tmsg_parts_layout_find(const tmsg_message_t *message, uint32_t number,
                            tmsg_part_range_t *range_p);

/* Notes that it came; false: it did before. */
bool tmsg_parts_layout_note(tmsg_message_t *message, uint32_t number);

/* Both, of one that came with so many bytes: what is wrong with it, or NULL. */
const char *tmsg_parts_layout_claim(tmsg_message_t *message, uint32_t number,
                                    uint64_t bytes, tmsg_part_range_t *range_p);

/* And that one of them is in its place. */
void tmsg_parts_layout_landed(tmsg_message_t *message);

/* Bytes of its parts that have not come, or somewhat more. */
uint64_t tmsg_parts_layout_coming(const tmsg_message_t *message);

/* Each tensor has its place: notes where slices go. Errors: NO_MEMORY. */
tmsg_status_t tmsg_parts_layout_place(tmsg_message_t *message);

/* Where a slice goes: in one piece, or as a list, the length of which is then
 * *count_p. *iov_p is the caller's to free. NULL: no memory. */
void *tmsg_parts_layout_slice(const tmsg_message_t *message,
                              const tmsg_part_range_t *range,
                              struct iovec **iov_p, size_t *count_p);

#endif
