/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/stage.h - copies between host memory and that of devices, which
 * run beside the CPU: what they need, and who is told when they are done.
 *
 * The library's own stream of a device gets only copies that can run at once:
 * what is before them on a stream of the application's is waited for here, by
 * asking, so that a kernel which waits for a message holds up no other one. */
#ifndef TMSG_AM_STAGING_STAGE_H
#define TMSG_AM_STAGING_STAGE_H

#include <stdbool.h>

#include <tensormsg/domain.h>

#include "am/net/loop.h"
#include "am/worker/staging.h"
#include "core/list.h"

typedef struct tmsg_worker tmsg_worker_t;
typedef struct tmsg_ucx tmsg_ucx_t;

/* Lock held, outside UCX: tells of what is done. Returns how much. */
unsigned tmsg_stage_poll(tmsg_worker_t *worker);

/* Somebody is about to sleep. False: there is work. */
bool tmsg_stage_arm(tmsg_worker_t *worker);

/* Nothing is under way any more. */
void tmsg_stage_close(tmsg_worker_t *worker);

/* Lock held, all that follow. */

void tmsg_soon(tmsg_worker_t *worker, tmsg_soon_t *call);
void tmsg_soon_forget(tmsg_soon_t *call);

/* A chunk for `bytes`, at most TMSG_CHUNKS_BYTES. Without `call` it is had
 * though all that there may be are in use. Errors: IN_PROGRESS (`call` is made
 * when it is worth another try), NO_MEMORY. */
tmsg_status_t tmsg_chunk_take(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                              const tmsg_domain_t *domain, uint64_t bytes,
                              tmsg_soon_t *call, tmsg_chunk_t **chunk_p);
void tmsg_chunk_give(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                     tmsg_chunk_t *chunk);

/* The library's own stream of a device, or none. */
tmsg_status_t tmsg_stage_stream(const tmsg_domain_t *domain,
                                tmsg_device_t device, tmsg_stream_t *stream_p);

/* Has copy->over called when what the stream holds is done; with no stream, by
 * the next progress. */
tmsg_status_t tmsg_copy_watch(tmsg_worker_t *worker, tmsg_copy_t *copy,
                              const tmsg_domain_t *domain, tmsg_device_t device,
                              tmsg_stream_t stream);

/* Copies a chunk's bytes in, on the own stream, and watches that. On error
 * nothing is under way. */
tmsg_status_t tmsg_copy_in(tmsg_worker_t *worker, tmsg_copy_t *copy,
                           const tmsg_domain_t *domain, tmsg_device_t device,
                           void *to, const void *host, uint64_t bytes);

/* Does not call it any more. */
void tmsg_copy_forget(tmsg_worker_t *worker, tmsg_copy_t *copy);

/* Whether UCX reads and writes memory of that device itself, and as what: it is
 * asked which types it knows, and never tried. */
bool tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                      tmsg_device_t device, int *memory_type_p);

/* Notes a path that was not taken: logged the first time. */
void tmsg_stage_detour(tmsg_worker_t *worker, tmsg_detour_t reason,
                       const char *words);

#endif
