/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/stage_out_struct.h - the record of a map's device memory on its way
 * out. stage_out.c has its life, and what is read before it is sent;
 * stage_path.c finds out which way each tensor goes; stage_ipc.c those that the
 * peer copies itself; stage_copy.c copies those that are copied first. */
#ifndef TMSG_AM_SEND_STAGE_OUT_STRUCT_H
#define TMSG_AM_SEND_STAGE_OUT_STRUCT_H

#include "am/path/ipc.h"
#include "am/send/gather.h"
#include "am/send/stage_out.h"
#include "am/staging/sum.h"
#include "am/staging/vital.h"
#include "core/map.h"
#include "memory/domain.h"

/* One with UCX, one that may go, one that is being copied. */
#define TMSG_STAGE_FILLS 3

/* Describes a chunk with fragments that follow each other. */
struct tmsg_fill {
    tmsg_copy_t copy;
    tmsg_send_t *send;
    tmsg_chunk_t *chunk; /* NULL: it is free */
    bool copying;
    uint64_t at;    /* where the next fragment to be handed over begins */
    uint64_t bytes; /* that the fragments take in the chunk */
    unsigned in_ucx;
};

/* Waits for what a stream held when the map was sent. */
typedef struct {
    tmsg_copy_t copy;
    tmsg_send_t *send;
    tmsg_device_t device;
    tmsg_stream_t stream;
} tmsg_stage_await_t;

struct tmsg_stage_out {
    tmsg_send_t *send;
    tmsg_soon_t call; /* waits for a chunk, or has to tell of a failure */
    tmsg_vital_t vital;
    bool lost; /* UCX never reports its fragments: the device has failed */
    tmsg_status_t failure;
    char why[240];
    const tmsg_split_t *split;
    size_t staged; /* tensors that UCX does not read */
    uint64_t staged_bytes;
    bool ipc;     /* they go by device memory that the peer opens */
    size_t slots; /* those of them that are copied into slots first */
    /* Memory of the application's that they lie in, one a tensor; NULL: none */
    tmsg_ipc_memory_t **own;
    size_t own_count;   /* tensors of the map */
    size_t copied;      /* tensors that UCX reads from blocks */
    uint8_t *is_copied; /* one a tensor; NULL: none is one of them */
    size_t tensor;      /* index of the next tensor that is copied */
    uint64_t offset;    /* in that tensor */
    bool stopped;
    unsigned copying;
    unsigned first, filled; /* of fills, in the order of fragments */
    tmsg_fill_t fills[TMSG_STAGE_FILLS];
    tmsg_sums_t sums; /* used if `values` is set */
    uint64_t *values; /* checksums, one a tensor */
    bool summed;      /* all of `values` are known */
    tmsg_gather_t gather;
    size_t awaited; /* streams that are not done */
    size_t streams;
    tmsg_stage_await_t streams_of[];
};

/* stage_path.c */

/* Returns the domain of a tensor of a device, or NULL. */
const tmsg_domain_t *tmsg_stage_domain(const tmsg_map_entry_t *entry);

/* Returns whether UCX takes the memory as it is. The UCX of a peer that knows
 * no such memory finds no way to fetch it, and gives the connection up. */
bool tmsg_stage_is_reached(const tmsg_send_t *send,
                           const tmsg_map_entry_t *entry,
                           const tmsg_domain_t *domain, int *memory_type_p);

/* Returns whether UCX reads a tensor from a block that it is copied to. */
bool tmsg_stage_is_copied(const tmsg_send_t *send,
                          const tmsg_map_entry_t *entry);

/* Returns the domain of a tensor that is copied before it is sent, or NULL. */
const tmsg_domain_t *tmsg_stage_staged_domain(const tmsg_send_t *send,
                                              const tmsg_map_entry_t *entry);

/* stage_ipc.c */

/* Returns the memory of the application's that the peer copies a tensor out of,
 * or NULL. */
tmsg_ipc_memory_t *tmsg_stage_own_memory(const tmsg_send_t *send,
                                         const tmsg_map_entry_t *entry);
void tmsg_stage_drop_own(tmsg_stage_out_t *stage);

/* Returns whether a tensor is to go by device memory that the peer opens: UCX
 * does not read it. */
bool tmsg_stage_wants_ipc(const tmsg_send_t *send,
                          const tmsg_map_entry_t *entry);

/* Finds out whether all tensors that UCX does not read go by device memory that
 * the peer opens. Errors: IN_PROGRESS (the peer has not answered). */
tmsg_status_t tmsg_stage_choose_ipc(tmsg_send_t *send);

/* Takes a slot of device memory that the peer has opened, for the next tensor.
 * Errors: IN_PROGRESS (`call` follows, unless it is NULL), those of
 * tmsg_ipc_ready(). */
tmsg_status_t tmsg_stage_take_slot(tmsg_stage_out_t *stage,
                                   const tmsg_domain_t *domain,
                                   tmsg_soon_t *call, tmsg_chunk_t **chunk_p);

/* stage_copy.c: gives the chunks back that neither UCX nor a copy has. */
void tmsg_stage_give_fills(tmsg_stage_out_t *stage);

#endif
