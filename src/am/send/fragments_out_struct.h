/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/fragments_out_struct.h - the record of a message's fragments on their
 * way out. fragments_out.c has UCX move them; fragments_pulled.c serves peers
 * that ask for them. */
#ifndef TMSG_AM_SEND_FRAGMENTS_OUT_STRUCT_H
#define TMSG_AM_SEND_FRAGMENTS_OUT_STRUCT_H

#include "am/endpoint/measures.h"
#include "am/send/fragments.h"
#include "am/send/pack.h"
#include "am/send/stage_out.h"
#include "am/worker/staging.h"

#define TMSG_FRAGMENT_NUMBER_BYTES 4

/* Describes a fragment that UCX or the bulk stream has. */
typedef struct {
    tmsg_op_t op;
    tmsg_send_t *send;
    bool busy;
    tmsg_fill_t *fill; /* what its device memory was copied to, or NULL */
    /* The peer copies it out of this memory. NULL: it does not. */
    const tmsg_ipc_memory_t *memory;
    bool direct;           /* UCX gets its device memory */
    tmsg_pool_block_t own; /* host memory that it was copied or packed to */
    tmsg_cma_out_t read;
    /* UCX reads the fragment's preamble and number here until it reports. */
    uint8_t header[TMSG_PREAMBLE_BYTES + TMSG_FRAGMENT_NUMBER_BYTES];
} tmsg_fragments_slot_t;

/* Says where the next fragment begins. */
typedef struct {
    size_t tensor;
    uint64_t offset;         /* in the tensor */
    const struct iovec *iov; /* list of the next slice; NULL: one piece */
    const uint8_t *at;       /* where the next slice begins, if iov is NULL */
    tmsg_pack_walk_t walk;   /* to the next slice, if slices are packed */
    uint64_t left_bytes;     /* of the slices */
    uint32_t number;
} tmsg_fragments_next_t;

struct tmsg_fragments_out {
    tmsg_node_t node;   /* in `queue` */
    tmsg_list_t *queue; /* tx.fragments_queued or `pulled`; NULL: in none */
    bool awaited;       /* the peer has yet to say how and when they go */
    bool granted;       /* the peer has memory for them and takes them by UCX */
    tmsg_send_t *send;
    const tmsg_map_t *map; /* the map that travels */
    tmsg_split_t split;
    uint64_t bytes;         /* of all, with the gaps between tensors */
    bool packs;             /* slices are made when they are handed over */
    tmsg_plan_t left;       /* plan of what goes in slices behind the head */
    tmsg_pool_block_t list; /* list of the slices, where they were cut */
    tmsg_fragments_next_t next;
    unsigned in_ucx;
    const void *unreadable; /* address that could not be read, or NULL */
    /* slot whose fragment could not be copied or packed */
    tmsg_fragments_slot_t *uncopied;
    tmsg_soon_t call; /* fails the message of such a slot */
    tmsg_fragments_slot_t slots[TMSG_FRAGMENTS_SENT];
    uint8_t others[]; /* what split.others points to */
};

/* Returns whether nothing is left to be handed over. */
bool tmsg_fragments_out_is_over(const tmsg_fragments_out_t *fragments);

/* tmsg_fragments_out_next_bytes() returns the bytes of the next fragment.
 * tmsg_fragments_out_step() returns where these bytes are, and goes on to the
 * fragment behind it. If it sets *count_p above 1, it returns a list of that
 * many struct iovec. The slot gets the memory that the bytes were copied or
 * packed to. Returns NULL if there is no memory for that, or, with
 * fragments->unreadable set, if they cannot be read. */
uint64_t tmsg_fragments_out_next_bytes(const tmsg_fragments_out_t *fragments);
const void *tmsg_fragments_out_step(tmsg_fragments_out_t *fragments,
                                    uint64_t bytes, tmsg_fragments_slot_t *slot,
                                    int *memory_type_p, size_t *count_p);

/* Fails the message whose next fragment tmsg_fragments_out_step() could not
 * make, unless it was given up meanwhile. Never called in the middle of other
 * work on the endpoint. */
void tmsg_fragments_out_fail(tmsg_fragments_out_t *fragments);

/* tmsg_fragments_out_take_slot() takes a free slot.
 * tmsg_fragments_out_give_slot() frees it when whoever moved the fragment has
 * done with it. */
tmsg_fragments_slot_t *
tmsg_fragments_out_take_slot(tmsg_fragments_out_t *fragments);
void tmsg_fragments_out_give_slot(tmsg_fragments_slot_t *slot);

void tmsg_fragments_out_enlist(tmsg_fragments_out_t *fragments,
                               tmsg_list_t *queue);
void tmsg_fragments_out_unlist(tmsg_fragments_out_t *fragments);
void tmsg_fragments_out_await(tmsg_fragments_out_t *fragments, bool awaited);
void tmsg_fragments_out_grant(tmsg_fragments_out_t *fragments);

#endif
