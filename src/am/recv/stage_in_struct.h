/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/stage_in_struct.h - the inside of a message's stage, for
 * stage_place.c, which says where tensors go, and stage_in.c, which gets them
 * there. */
#ifndef TMSG_AM_RECV_STAGE_IN_STRUCT_H
#define TMSG_AM_RECV_STAGE_IN_STRUCT_H

#include "am/recv/stage_in.h"
#include "am/staging/stage_sum.h"
#include "am/worker/staging.h"
#include "am/worker/store.h"

/* Of one tensor. Its device is the map's, its memory too, once it is known. */
typedef struct {
    const tmsg_domain_t *domain; /* NULL: the host */
    tmsg_stream_t stream;
    bool chosen;     /* by the application: the host will not do */
    bool on_host;    /* it had to */
    bool direct;     /* UCX writes there */
    int memory_type; /* as what */
    uint64_t sum;    /* its checksum, once that is known */
    uint8_t *host;   /* what is copied on: of a tensor that is no part */
    tmsg_device_memory_t memory; /* where it is not lent */
} tmsg_dest_t;

/* What is waited for before a tensor's memory is written; then, of one that is
 * no part, the copy. */
typedef struct {
    tmsg_copy_t copy;
    tmsg_message_t *message;
} tmsg_step_t;

struct tmsg_stage_in {
    tmsg_soon_t call;       /* for a chunk */
    tmsg_chunk_t *chunk;    /* for the next part */
    tmsg_pool_block_t head; /* host memory of tensors that are no parts */
    uint64_t head_bytes;    /* of it, against the budget */
    uint64_t pooled;        /* of devices, likewise */
    size_t awaited;         /* streams that are not done */
    size_t copying;         /* copies of tensors that are no parts */
    bool begun;
    bool copied;  /* these were begun */
    bool summing; /* then the checksums were */
    bool summed;
    tmsg_message_t *message; /* of these */
    tmsg_sums_t sums;
    tmsg_step_t *steps; /* one a tensor, once memory is found */
    size_t count;
    tmsg_dest_t dests[];
};

/* Whether another than UCX writes it. */
static inline bool tmsg_dest_is_staged(const tmsg_dest_t *dest)
{
    return dest->domain != NULL && !dest->direct;
}

/* One came to the host that was sent from a device. Lock held. */
void tmsg_stage_in_on_host(tmsg_message_t *message);

#endif
