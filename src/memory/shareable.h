/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/shareable.h - memory of this process that it can lend to others, who
 * then read it and cannot do anything else with it. A segment is one such piece
 * of memory; it is a file without a name (memory/memfd.h), sealed with
 * TMSG_MEMFD_SEALS and with all its pages there, and is lent as a whole.
 *
 * All functions may be called by any thread. In the child of a fork() the
 * segments of the parent are not found: they are the parent's to lend. */
#ifndef TMSG_MEMORY_SHAREABLE_H
#define TMSG_MEMORY_SHAREABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/shareable.h>

/* Counts references. The descriptor is open, and memory that is not the
 * application's is mapped, until the last one is dropped. */
typedef struct tmsg_shareable tmsg_shareable_t;

/* Makes a segment, and gives the caller its reference. It is not found by its
 * address: tmsg_shareable_alloc() makes those that are. The memory is all
 * zeros. Errors: INVALID_PARAM (0 bytes), NO_MEMORY, LIMIT_EXCEEDED
 * (RLIMIT_FSIZE, RLIMIT_NOFILE), UNSUPPORTED (memfd_create() is barred, a
 * kernel before 5.1), IO. */
tmsg_status_t tmsg_shareable_create(size_t bytes, tmsg_shareable_t **segment_p);

/* Makes a segment without pages, which takes memory as it is written to: with
 * bytes of each page, tmsg_shareable_write() takes all of them. Only its
 * creator may have its descriptor, until it is sealed by one of the two
 * functions below. Errors: as above. */
tmsg_status_t tmsg_shareable_create_draft(size_t bytes,
                                          tmsg_shareable_t **segment_p);

/* Writes bytes into a draft. Errors: NO_MEMORY, UNSUPPORTED (the kernel refuses
 * it), IO (`data` cannot be read). */
tmsg_status_t tmsg_shareable_write(tmsg_shareable_t *segment, uint64_t offset,
                                   const void *data, size_t bytes);

/* Seals a draft as other segments are sealed. Errors: UNSUPPORTED, IO. */
tmsg_status_t tmsg_shareable_seal(tmsg_shareable_t *segment);

/* Seals a draft against all writing: what it says now it says for ever. It is
 * unmapped here. Errors: IO (somebody has it mapped for writing). */
tmsg_status_t tmsg_shareable_freeze(tmsg_shareable_t *segment);

/* Returns the application's segment in which all these bytes lie, with a
 * reference for the caller, or NULL. Where the application has none, this is
 * one load. */
tmsg_shareable_t *tmsg_shareable_find(const void *address, size_t bytes);

void tmsg_shareable_hold(tmsg_shareable_t *segment);
void tmsg_shareable_drop(tmsg_shareable_t *segment); /* NULL: nothing */

/* The memory of a segment that the application has freed, or that is frozen, is
 * unmapped. */
uint8_t *tmsg_shareable_memory(const tmsg_shareable_t *segment);

/* The length of the file, which is what was asked for. The mapping ends with
 * the page. */
size_t tmsg_shareable_bytes(const tmsg_shareable_t *segment);

/* The descriptor stays the segment's. */
int tmsg_shareable_fd(const tmsg_shareable_t *segment);

/* Counts the loans that are out: a peer may read the memory. */
void tmsg_shareable_lend(tmsg_shareable_t *segment);
void tmsg_shareable_return(tmsg_shareable_t *segment);
bool tmsg_shareable_is_lent_now(const tmsg_shareable_t *segment);

/* Returns whether the application has freed the segment, or
 * tmsg_shareable_retire() was called for one of the library's own: nobody will
 * be lent it any more. */
bool tmsg_shareable_is_freed(const tmsg_shareable_t *segment);
void tmsg_shareable_retire(tmsg_shareable_t *segment);

/* Returns whether the caller's reference is the only one. */
bool tmsg_shareable_is_alone(const tmsg_shareable_t *segment);

#endif
