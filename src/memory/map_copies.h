/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/map_copies.h - mappings of borrowed memory that are copied on write
 * (tmsg_shareable_map_copy()). A large one that nobody wrote to is kept and
 * used again for the same bytes, because a new one costs a page fault for each
 * 64 KiB that are read. Its pages are the lender's, and so it shows what the
 * lender writes there later. Only memory/borrowed.c calls these functions; it
 * holds its lock meanwhile, but for tmsg_map_copies_is_as_lent(). */
#ifndef TMSG_MEMORY_MAP_COPIES_H
#define TMSG_MEMORY_MAP_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a mapping of these bytes that was kept, or NULL. */
uint8_t *tmsg_map_copies_take(const uint8_t *of, size_t bytes);

/* Lists a new mapping, so that it can be kept. */
void tmsg_map_copies_add(uint8_t *copy, size_t bytes, const uint8_t *of);

/* Returns whether nobody wrote to the mapping: all its pages are the lender's.
 * Returns false also for a small one, and before Linux 6.7. */
bool tmsg_map_copies_is_as_lent(const uint8_t *copy, size_t bytes);

/* A mapping is not used any more. Returns false if the caller is to unmap it.
 */
bool tmsg_map_copies_keep(const uint8_t *copy, bool as_lent);

/* The lender's memory goes: unmaps what is kept of it. */
void tmsg_map_copies_forget(const uint8_t *memory, size_t bytes);

#endif
