/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/parts_out_struct.h - the record of a message's parts on their way
 * out, for parts_out.c, which has UCX move them, and parts_pulled.c, where the
 * peer has a say in it. */
#ifndef TMSG_AM_SEND_PARTS_OUT_STRUCT_H
#define TMSG_AM_SEND_PARTS_OUT_STRUCT_H

#include "am/endpoint/measures.h"
#include "am/send/parts.h"
#include "am/send/stage_out.h"
#include "am/worker/staging.h"

#define TMSG_PART_NUMBER_BYTES 4

/* One that is being moved. */
typedef struct {
    tmsg_op_t op;
    tmsg_send_t *send;
    bool busy;
    tmsg_fill_t *fill;     /* that it was copied to, or NULL */
    tmsg_pool_block_t own; /* the same, of the host's memory */
    tmsg_cma_out_t read;
    /* UCX reads it until it reports. */
    uint8_t header[TMSG_PREAMBLE_BYTES + TMSG_PART_NUMBER_BYTES];
} tmsg_parts_slot_t;

/* Where the next part begins. */
typedef struct {
    const uint8_t *packed; /* its tensor's bytes, or those of what follows */
    size_t tensor;
    uint64_t offset;         /* in that */
    const struct iovec *iov; /* the next slice; NULL: all are one piece */
    const uint8_t *at;       /* which begins here */
    uint64_t left_bytes;     /* of slices */
    uint32_t number;
} tmsg_parts_next_t;

struct tmsg_parts_out {
    tmsg_node_t node;   /* in this list, while some are to be handed over: */
    tmsg_list_t *queue; /* endpoint's parting or pulled; NULL: in none */
    bool awaited;       /* the peer is to say how they go, and when */
    bool granted;       /* it did: by UCX, and it has memory for them */
    tmsg_send_t *send;
    const tmsg_map_t *map; /* that travels */
    tmsg_split_t split;
    uint64_t bytes; /* of all, with the gaps that are between tensors */
    tmsg_pool_block_t staging; /* tensors that were packed */
    tmsg_plan_t left;          /* what goes in slices, behind the head */
    tmsg_pool_block_t list;    /* of these, where they are cut */
    tmsg_parts_next_t next;
    unsigned in_ucx;
    const void *unreadable;      /* there; NULL: nowhere */
    tmsg_parts_slot_t *uncopied; /* for that, or as there was no memory */
    tmsg_soon_t call;            /* to fail for that */
    tmsg_parts_slot_t slots[TMSG_PARTS_SENT];
    uint8_t others[]; /* the split's */
};

/* Whether nothing is left to be handed over. */
bool tmsg_parts_out_is_over(const tmsg_parts_out_t *parts);

/* The bytes of the next part, and where they are; goes on to the one behind it.
 * With *count_p set they are a list of so many. */
uint64_t tmsg_parts_out_next_bytes(const tmsg_parts_out_t *parts);
const void *tmsg_parts_out_step(tmsg_parts_out_t *parts, uint64_t bytes,
                                tmsg_fill_t **fill_p, int *memory_type_p,
                                size_t *count_p);

/* One that is free, and then not; whoever moved it has done with it. */
tmsg_parts_slot_t *tmsg_parts_out_take_slot(tmsg_parts_out_t *parts);
void tmsg_parts_out_give_slot(tmsg_parts_slot_t *slot);

void tmsg_parts_out_enlist(tmsg_parts_out_t *parts, tmsg_list_t *queue);
void tmsg_parts_out_unlist(tmsg_parts_out_t *parts);
void tmsg_parts_out_await(tmsg_parts_out_t *parts, bool awaited);
void tmsg_parts_out_grant(tmsg_parts_out_t *parts);

#endif
