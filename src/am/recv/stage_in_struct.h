/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/stage_in_struct.h - the inside of a message's stage. stage_place.c
 * decides where tensors go, and stage_in.c brings them there. */
#ifndef TMSG_AM_RECV_STAGE_IN_STRUCT_H
#define TMSG_AM_RECV_STAGE_IN_STRUCT_H

#include "am/recv/stage_in.h"
#include "am/staging/sum.h"
#include "am/worker/budget.h"
#include "am/worker/staging.h"

/* Each tensor has one destination. The map has the tensor's device, and its
 * memory once that is known. */
typedef struct {
    const tmsg_domain_t *domain; /* NULL: the tensor goes to the host */
    tmsg_stream_t stream;
    bool chosen;  /* the application chose the device: the host will not do */
    bool on_host; /* it goes to the host, because the device had no memory */
    bool direct;  /* UCX writes the device's memory */
    bool ipc; /* its fragments may lie in device memory of the sender's: which
               * way it came is counted as they come */
    bool gathered;   /* it travels in the message because it is small */
    bool reached;    /* UCX, or a copy by CUDA IPC, could write that memory */
    int memory_type; /* UCX's type of that memory */
    uint64_t sum;    /* its checksum, once that is known */
    uint8_t *host;   /* host bytes to copy on, unless it travels in fragments */
    tmsg_device_memory_t memory; /* its device memory, if that is not lent */
} tmsg_dest_t;

/* A tensor's step waits for the stream, before the tensor's memory is written.
 */
typedef struct {
    tmsg_copy_t copy;
    tmsg_message_t *message;
} tmsg_step_t;

/* The tensors of the message itself go to their devices by a chunk, as many at
 * a time as fit. */
typedef struct {
    tmsg_copy_t copy;
    tmsg_soon_t call; /* goes on when a chunk is free */
    tmsg_message_t *message;
    tmsg_chunk_t *chunk;
    size_t next;     /* tensor to be copied */
    uint64_t offset; /* in that tensor */
} tmsg_pour_t;

struct tmsg_stage_in {
    tmsg_soon_t call;       /* called when a chunk is free */
    tmsg_chunk_t *chunk;    /* chunk for the next fragment */
    tmsg_pool_block_t head; /* host memory of tensors in the message itself */
    uint64_t head_bytes;    /* bytes of `head` that count against the budget */
    uint64_t pooled;        /* bytes of devices that count against the budget */
    size_t awaited;         /* streams that are not done */
    tmsg_vital_t vital;     /* listed while there are such fragments */
    bool lost;              /* UCX never reports them: the device has failed */
    bool begun;
    bool copied;  /* copies of tensors in the message itself were begun */
    bool pouring; /* these are not over */
    tmsg_pour_t pour;
    bool summing; /* checksums were begun, after the copies */
    bool summed;
    tmsg_message_t *message; /* the message that `sums` and `vital` are for */
    tmsg_sums_t sums;
    tmsg_step_t *steps; /* one for each tensor, used once memory is found */
    size_t count;
    tmsg_dest_t dests[];
};

/* Returns whether the tensor goes to a device whose memory UCX does not write.
 */
static inline bool tmsg_dest_is_staged(const tmsg_dest_t *dest)
{
    return dest->domain != NULL && !dest->direct;
}

/* Returns UNSUPPORTED: a tensor comes through the host, and a path is required.
 */
tmsg_status_t tmsg_stage_in_no_path(const tmsg_message_t *message,
                                    size_t index);

/* Counts a tensor that was sent from a device and came to the host. Lock held.
 */
void tmsg_stage_in_on_host(tmsg_message_t *message);

#endif
