/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/borrowed.h - which memory of this process peers lend it, for whoever
 * has no more than an address (tmsg_shareable_is_borrowed()). Any thread. */
#ifndef TMSG_MEMORY_BORROWED_H
#define TMSG_MEMORY_BORROWED_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* At most so many descriptors of peers' files are kept. */
#define TMSG_BORROWED_FDS 128

/* Lists a mapping of the peer's file `fd` from its beginning, until it is
 * removed, which is before it is unmapped. Takes the descriptor over, also on
 * an error, and keeps it for tmsg_shareable_map_copy() unless there are too
 * many: peers decide how much they lend. Errors: NO_MEMORY. */
tmsg_status_t tmsg_borrowed_add(const uint8_t *memory, size_t bytes, int fd);
void tmsg_borrowed_remove(const uint8_t *memory);

#endif
