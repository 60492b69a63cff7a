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
#include "core/list.h"

typedef struct tmsg_worker tmsg_worker_t;
typedef struct tmsg_ucx tmsg_ucx_t;

/* A tensor of device memory moves in pieces of so many bytes at most, and so
 * many are pinned for each direction of a worker. */
#define TMSG_CHUNK_BYTES (1ULL << 20)
#define TMSG_CHUNKS_BYTES (16ULL << 20)

/* Embedded in what is to be called by the next progress, outside UCX. */
typedef struct tmsg_soon {
    tmsg_node_t node;
    tmsg_list_t *list; /* that it is in; NULL: in none */
    void (*run)(struct tmsg_soon *call);
} tmsg_soon_t;

/* Embedded in what waits for work of a stream. */
typedef struct tmsg_copy {
    tmsg_node_t node;
    bool listed;
    const tmsg_domain_t *domain;
    void *event; /* NULL: it was done at once */
    /* Outside UCX; where it failed tmsg_error_message() says why. */
    void (*over)(struct tmsg_copy *copy, tmsg_status_t status);
} tmsg_copy_t;

/* Host memory that a domain has pinned. */
typedef struct {
    tmsg_node_t node;
    const tmsg_domain_t *domain;
    uint8_t *data;
    uint64_t capacity;
    bool pinned;
} tmsg_chunk_t;

/* Those of one direction: what is received never waits for what is sent. */
typedef struct {
    tmsg_list_t spare;
    tmsg_list_t hungry; /* calls that wait for one */
    uint64_t bytes;     /* of all, in use or not */
} tmsg_chunks_t;

/* Why a path was not taken. */
typedef enum {
    TMSG_DETOUR_STAGED = 0, /* UCX does not know such memory */
    TMSG_DETOUR_UNPINNED,   /* the driver did not pin a chunk */
    TMSG_DETOUR_HOST,       /* it came to the host: no such memory here */
    TMSG_DETOURS
} tmsg_detour_t;

/* Of a worker. All zero bits: nothing was ever staged. */
typedef struct {
    tmsg_list_t copies;
    tmsg_list_t calls;
    tmsg_chunks_t out, in;
    tmsg_timer_t timer; /* to ask again, where somebody sleeps */
    uint64_t wait_ns;
    unsigned told;          /* a bit for each reason that was logged */
    uint64_t unpinned;      /* chunks that the driver did not pin */
    char why_unpinned[160]; /* its words, of the last one */
} tmsg_stage_t;

static inline bool tmsg_stage_is_busy(const tmsg_stage_t *stage)
{
    return stage->copies.count + stage->calls.count > 0;
}

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
