/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fragments_layout.h - which fragments an arriving message has, and
 * where each of them goes. */
#ifndef TMSG_AM_RECV_FRAGMENTS_LAYOUT_H
#define TMSG_AM_RECV_FRAGMENTS_LAYOUT_H

#include "am/recv/message.h"

/* Says which bytes of a message a fragment carries. */
typedef struct {
    bool is_slice;   /* bytes that travel in slices, not bytes of one tensor */
    uint32_t index;  /* position of its tensor in the map */
    uint64_t offset; /* first byte, in the tensor or in the sliced bytes */
    uint64_t bytes;
} tmsg_fragment_range_t;

/* Makes message->fragments as the body says, or leaves it NULL if there are no
 * fragments. Errors: NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_fragments_layout_make(tmsg_message_t *message);

/* Finds the fragment with a number. Returns false if the message has no such
 * fragment. */
bool tmsg_fragments_layout_find(const tmsg_message_t *message, uint32_t number,
                                tmsg_fragment_range_t *range_p);

/* Notes that a fragment came. Returns false if it had come before. */
bool tmsg_fragments_layout_note(tmsg_message_t *message, uint32_t number);

/* Finds and notes a fragment that came with `bytes` bytes. Returns what is
 * wrong with it, or NULL. */
const char *tmsg_fragments_layout_claim(tmsg_message_t *message,
                                        uint32_t number, uint64_t bytes,
                                        tmsg_fragment_range_t *range_p);

/* Notes that a fragment is in its place. */
void tmsg_fragments_layout_landed(tmsg_message_t *message);

/* Returns the bytes of fragments that are not in their place yet, or somewhat
 * more. */
uint64_t tmsg_fragments_layout_coming(const tmsg_message_t *message);

/* Notes where slices go, once each tensor has its place. Errors: NO_MEMORY. */
tmsg_status_t tmsg_fragments_layout_place(tmsg_message_t *message);

/* Returns where a slice goes: its memory, or *iov_p as a list if *count_p is
 * more than 1. The caller frees *iov_p. If the slice goes to the only place
 * there is, *iov_p and *count_p are left as they are. Returns NULL without
 * memory. */
void *tmsg_fragments_layout_slice(const tmsg_message_t *message,
                                  const tmsg_fragment_range_t *range,
                                  struct iovec **iov_p, size_t *count_p);

#endif
