/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/staging.h - copies to and from devices that are under way. */
#ifndef TMSG_AM_WORKER_STAGING_H
#define TMSG_AM_WORKER_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/domain.h>

#include "am/net/loop.h"
#include "core/list.h"

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

#endif
