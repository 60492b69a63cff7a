/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/staging.h - copies to and from devices that are under way. */
#ifndef TMSG_AM_WORKER_STAGING_H
#define TMSG_AM_WORKER_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/domain.h>

#include "am/net/loop.h"
#include "core/list.h"

/* Device memory is copied in chunks of at most TMSG_CHUNK_BYTES. At most
 * TMSG_CHUNKS_BYTES are pinned for each direction of a worker. */
#define TMSG_CHUNK_BYTES (1ULL << 20)

#define TMSG_CHUNKS_BYTES (16ULL << 20)

/* Device memory that cannot be shared is copied on its device, in blocks of
 * TMSG_BLOCK_BYTES. A worker has at most TMSG_BLOCKS_BYTES of them. */
#define TMSG_BLOCK_BYTES (16ULL << 20)
#define TMSG_BLOCKS_BYTES (64ULL << 20)

/* A fragment that a peer's UCX reads on a device may be longer. If it goes to a
 * device that UCX does not write here, it gets a chunk of its own, alone. */
#define TMSG_CHUNK_BYTES_MOST (256ULL << 20)

/* UCX takes so much memory of a device at most, or as much as one fragment
 * needs, for fragments that come from devices to the host. */
#define TMSG_BOUNCED_BYTES (64ULL << 20)

/* Describes a call that the next progress makes, outside UCX. It is embedded in
 * the record that the call is about. */
typedef struct tmsg_soon {
    tmsg_node_t node;
    tmsg_list_t *list; /* the list that it is in; NULL: none */
    void (*run)(struct tmsg_soon *call);
} tmsg_soon_t;

/* Describes a copy that a stream of a device works at. It is embedded in the
 * record that waits for the copy. */
typedef struct tmsg_copy {
    tmsg_node_t node;
    bool listed;
    const tmsg_domain_t *domain;
    void *event;   /* NULL: the copy was done at once */
    bool signaled; /* the driver wakes a thread that sleeps */
    /* Called outside UCX when the copy has ended. If the copy failed,
     * tmsg_error_message() says why. */
    void (*over)(struct tmsg_copy *copy, tmsg_status_t status);
} tmsg_copy_t;

/* Describes work that a device may let down; see staging/vital.h. It is
 * embedded in the record of the work. */
typedef struct tmsg_vital {
    tmsg_node_t node;
    bool listed;
    unsigned direct; /* fragments of the device's memory that UCX has */
    void (*ask)(struct tmsg_vital *vital); /* outside UCX */
} tmsg_vital_t;

/* Describes a chunk: host memory that a domain pins, a block, or a slot of
 * device memory that the peer opens. */
typedef struct {
    tmsg_node_t node;
    const tmsg_domain_t *domain;
    uint8_t *data;
    uint64_t capacity;
    bool pinned;
    bool pin_tried;
    bool on_device; /* it is a block or a slot, in memory of `device` */
    tmsg_device_t device;
    struct tmsg_ipc_block *ipc; /* that the slot is of; NULL: it is none */
} tmsg_chunk_t;

/* Holds the chunks of one direction. Each direction has its own, so that
 * received data never wait for sent data. */
typedef struct {
    tmsg_list_t spare;
    tmsg_list_t waiting; /* calls that wait for a chunk */
    uint64_t bytes;      /* bytes of all chunks, in use or not */
} tmsg_chunks_t;

/* Tells why the direct path was not taken. */
typedef enum {
    TMSG_DETOUR_STAGED = 0, /* UCX does not know such memory */
    TMSG_DETOUR_UNPINNED,   /* the driver did not pin a chunk */
    TMSG_DETOUR_HOST,       /* the data came to the host: no such memory here */
    TMSG_DETOUR_UNSHARED,   /* there was no block for memory that needs one */
    TMSG_DETOURS
} tmsg_detour_t;

typedef struct tmsg_pins tmsg_pins_t;

/* Holds what a worker stages. All zero bits: nothing was ever staged. */
typedef struct {
    tmsg_list_t copies;
    tmsg_list_t calls;
    tmsg_chunks_t out, in, blocks;
    uint64_t bounced;   /* bytes of fragments from devices to the host */
    bool bounce_missed; /* an endpoint waits for the end of one */
    tmsg_pins_t *pins;  /* see staging/pin.h; NULL: nothing was pinned yet */
    bool pinning;       /* a chunk is out of use, because it is being pinned */
    tmsg_list_t ipc_blocks; /* see staging/ipc_block.h */
    tmsg_timer_t timer; /* asks for the copies again while a thread sleeps */
    uint64_t wait_ns;
    bool patient; /* `timer` is a long one: the driver wakes before */
    tmsg_list_t vitals;
    tmsg_timer_t health;    /* asks the devices of `vitals` whether they work */
    unsigned told;          /* a bit for each reason that was logged */
    uint64_t unpinned;      /* chunks that the driver did not pin */
    char why_unpinned[160]; /* the driver's words for the last one */
} tmsg_staging_t;

static inline bool tmsg_copies_are_busy(const tmsg_staging_t *stage)
{
    return stage->copies.count + stage->calls.count > 0 ||
           (stage->pinning &&
            stage->out.waiting.count + stage->in.waiting.count > 0);
}

#endif
