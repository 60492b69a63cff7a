/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/copy.h - copies between host memory and device memory, which run
 * beside the CPU. This file has what they need, and reports when they are done.
 *
 * The library's own stream of a device gets only copies that can run at once.
 * Work that precedes them on a stream of the application's is awaited here, by
 * asking for its event: a kernel that waits for a message then holds up no
 * other message. */
#ifndef TMSG_AM_STAGING_COPY_H
#define TMSG_AM_STAGING_COPY_H

#include <stdbool.h>

#include <tensormsg/domain.h>

#include "am/net/loop.h"
#include "am/worker/staging.h"
#include "core/list.h"
#include "memory/device_ipc.h"

typedef struct tmsg_worker tmsg_worker_t;
typedef struct tmsg_ucx tmsg_ucx_t;

/* Lock held, outside UCX: reports the copies that are done and makes the calls
 * of tmsg_soon(). Returns how many. */
unsigned tmsg_copies_poll(tmsg_worker_t *worker);

/* Sets the timer that wakes a thread which is about to sleep, if copies are
 * under way. Returns false if there is work to do at once. */
bool tmsg_copies_arm(tmsg_worker_t *worker);

/* Frees the chunks and the timers. Nothing may be under way any more. */
void tmsg_copies_close(tmsg_worker_t *worker);

/* Lock held, for all functions below.
 *
 * tmsg_soon() has `call` made by the next tmsg_copies_poll().
 * tmsg_soon_forget() takes it back. */

void tmsg_soon(tmsg_worker_t *worker, tmsg_soon_t *call);
void tmsg_soon_forget(tmsg_soon_t *call);

/* Takes a chunk for `bytes`. One of more than TMSG_CHUNKS_BYTES is alone.
 * Without `call` it makes
 * one even if all chunks that there may be are in use. Errors: IN_PROGRESS
 * (`call` is made when another try is worth it), NO_MEMORY. */
tmsg_status_t tmsg_chunk_take(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                              const tmsg_domain_t *domain, uint64_t bytes,
                              tmsg_soon_t *call, tmsg_chunk_t **chunk_p);
void tmsg_chunk_give(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                     tmsg_chunk_t *chunk);

/* Takes a block, which is given back as a chunk is, whatever `chunks` say.
 * Errors: as above, and those of the domain. */
tmsg_status_t tmsg_block_take(tmsg_worker_t *worker,
                              const tmsg_domain_t *domain, tmsg_device_t device,
                              tmsg_soon_t *call, tmsg_chunk_t **chunk_p);

/* Returns the library's own stream of a device, or no stream if the domain has
 * none. */
tmsg_status_t tmsg_copy_stream(const tmsg_domain_t *domain,
                               tmsg_device_t device, tmsg_stream_t *stream_p);

/* Has copy->over called when the work is done that the stream holds now.
 * Without a stream, the next progress calls it. */
tmsg_status_t tmsg_copy_watch(tmsg_worker_t *worker, tmsg_copy_t *copy,
                              const tmsg_domain_t *domain, tmsg_device_t device,
                              tmsg_stream_t stream);

/* Copies a chunk's bytes to a device on the library's own stream, and watches
 * the copy. On error nothing is under way. */
tmsg_status_t tmsg_copy_in(tmsg_worker_t *worker, tmsg_copy_t *copy,
                           const tmsg_domain_t *domain, tmsg_device_t device,
                           void *to, const void *host, uint64_t bytes);

/* Copies bytes that lie in a view, `offset` bytes from its begin, to memory of
 * the view's domain or of the host, and watches the copy. On error nothing is
 * under way. Errors: UNSUPPORTED (memory of another domain), those of drivers.
 */
tmsg_status_t tmsg_copy_from(tmsg_worker_t *worker, tmsg_copy_t *copy,
                             const tmsg_ipc_view_t *view, uint64_t offset,
                             const tmsg_domain_t *domain, tmsg_device_t device,
                             void *to, uint64_t bytes);

/* Stops watching a copy: copy->over is not called any more. */
void tmsg_copy_forget(tmsg_worker_t *worker, tmsg_copy_t *copy);

/* Returns whether UCX itself reads and writes memory of that device, and as
 * which type. UCX is asked which memory types it knows; nothing is tried. */
bool tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                      tmsg_device_t device, int *memory_type_p);

/* Notes that the fast path was not taken. Logs each reason the first time. */
void tmsg_copy_detour(tmsg_worker_t *worker, tmsg_detour_t reason,
                      const char *words);

#endif
