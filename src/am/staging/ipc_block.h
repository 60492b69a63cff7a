/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/ipc_block.h - device memory through which tensors go to a peer
 * that opens it (CUDA IPC).
 *
 * A worker has a *block* for a device and a principal, of a few *slots*. A
 * fragment is copied into a slot on the device, and the peer copies it out from
 * there. So a peer can read what goes to its own principal alone, and nothing
 * of the application's own memory. Lock held, for all functions here. */
#ifndef TMSG_AM_STAGING_IPC_BLOCK_H
#define TMSG_AM_STAGING_IPC_BLOCK_H

#include "am/staging/copy.h"
#include "memory/device_ipc.h"

#define TMSG_IPC_SLOTS 4
#define TMSG_IPC_SLOT_BYTES TMSG_CHUNKS_BYTES

typedef struct tmsg_ipc_block {
    tmsg_node_t node; /* in worker->stage.ipc_blocks */
    tmsg_worker_t *worker;
    const tmsg_domain_t *domain;
    tmsg_device_t device;
    char *principal;
    tmsg_ipc_memory_t *memory; /* NULL: there is none, for ever; see `why` */
    char why[200];
    tmsg_list_t waiting; /* calls that wait for a slot */
    unsigned used;       /* a bit for each slot */
    tmsg_chunk_t slots[TMSG_IPC_SLOTS];
} tmsg_ipc_block_t;

/* Finds the block of a device and a principal, or makes it. Errors: UNSUPPORTED
 * (no memory of that kind is to be had; the message says why), NO_MEMORY. */
tmsg_status_t tmsg_ipc_block_find(tmsg_worker_t *worker,
                                  const tmsg_domain_t *domain,
                                  tmsg_device_t device, const char *principal,
                                  tmsg_ipc_block_t **block_p);

/* Takes a slot. Errors: IN_PROGRESS (`call`, unless it is NULL, is made when
 * another try is worth it). tmsg_chunk_give() gives it back. */
tmsg_status_t tmsg_ipc_slot_take(tmsg_ipc_block_t *block, tmsg_soon_t *call,
                                 tmsg_chunk_t **chunk_p);
void tmsg_ipc_slot_give(tmsg_chunk_t *chunk);

/* Frees the blocks of a worker that ends. */
void tmsg_ipc_blocks_close(tmsg_worker_t *worker);

#endif
