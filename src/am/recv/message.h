/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/message.h - a message on its way in, and in the application's hands.
 */
#ifndef TMSG_AM_RECV_MESSAGE_H
#define TMSG_AM_RECV_MESSAGE_H

#include <sys/uio.h>

#include <tensormsg/message.h>

#include "am/endpoint/channel.h"
#include "am/endpoint/op.h"
#include "am/path/cma.h"
#include "am/worker/worker.h"
#include "serialize/call.h"
#include "serialize/schema.h"

typedef enum {
    TMSG_RX_BROKEN = -1,   /* its connection was; it is to come again */
    TMSG_RX_WAITING = 0,   /* for memory, or not kept yet */
    TMSG_RX_FETCHING = 1,  /* UCX writes into it */
    TMSG_RX_WHOLE = 2,     /* may be delivered when its turn comes */
    TMSG_RX_FAILED = 3,    /* its turn is skipped */
    TMSG_RX_DELIVERED = 4, /* queued for, or with, the application */
} tmsg_rx_state_t;

/* Payloads up to here lie in the record, which then is still one that malloc()
 * keeps at hand. */
#define TMSG_MESSAGE_SMALL 576

#define TMSG_MESSAGE_PIECES 4 /* of a payload, in the record */

typedef struct tmsg_parts_in tmsg_parts_in_t;
typedef struct tmsg_stage_in tmsg_stage_in_t;

struct tmsg_message {
    tmsg_spare_t spare;
    tmsg_due_t due; /* the handler, or its destruction */
    tmsg_endpoint_t *endpoint;
    tmsg_channel_t *channel;
    struct tmsg_call_in *call; /* whom a CALL is for; calls.h */
    tmsg_call_head_t *stream;  /* of a STREAM's: what it is; with its text */
    tmsg_block_t block;        /* for the tensors, unless they are small */
    uint64_t noted;            /* what beside it counts against held_bytes */
    tmsg_preamble_t head;
    tmsg_rx_state_t state;
    tmsg_status_t refusal; /* for on_refused, when its turn comes */
    char *why;             /* the words to it; NULL without memory */
    tmsg_ucx_t *ucx;
    void *data;               /* UCX's descriptor, until received; or to_read */
    tmsg_cma_in_t to_read;    /* of a rendezvous of ours, */
    bool is_read;             /* if it is one */
    const tmsg_map_t *posted; /* where it was received into, or, of a CALL, is
                               * to be; held */
    bool lent;                /* a CALL's tensors have their places there */
    bool rendezvous;
    bool asked;      /* on_header was called */
    bool landed;     /* its payload is in the block, as it travelled */
    bool aborted;    /* its sender gave it up: `refusal` and `why` say so */
    bool discarded;  /* it is destroyed soon, wherever it is still listed */
    bool laid;       /* the record keeps its map for a repeat */
    bool copied;     /* data is ours, for it was not to be kept */
    bool in_segment; /* data takes one of UCX's segments; see segments.h */
    bool husk;       /* it ends before `pieces`, and has no map */
    /* Which repeat it is of, for which it stays as it began; 0: of none. Of
     * such a one `noted` is charged from the start. */
    uint64_t again;
    uint64_t kept_back;     /* of held_bytes, for devices; see fetch.c */
    uint64_t lying_bytes;   /* not 0: the tensors lie in data; see lying.h */
    uint64_t charged;       /* against the sender's window; see credit.h */
    bool decoded;           /* the map is known */
    bool placed;            /* and where its tensors lie */
    bool by_lane;           /* its parts were asked for by the lane */
    bool in_block;          /* all of them, there, as they travel */
    bool head_here;         /* what travels in the message itself */
    bool starved;           /* it has waited for memory */
    bool behind_gap;        /* one before it on its channel has not come */
    tmsg_list_t *listed;    /* in the worker's fetch; NULL: in none of it */
    uint64_t turn;          /* which it was that asked there for memory */
    unsigned pending;       /* operations that will look at it when they end */
    tmsg_parts_in_t *parts; /* large tensors; NULL: none */
    uint64_t parts_bytes;
    tmsg_stage_in_t *stage; /* tensors that come to a device; NULL: none */
    tmsg_op_t op;
    tmsg_body_extra_t extra; /* what is to be checked of the tensors */
    tmsg_schema_t *schema;   /* which it defines, until its turn */
    uint8_t *checksums;      /* these, where the body does not stay */
    uint8_t *raw;            /* with TMSG_WORKER_CAPTURE: preamble and body */
    uint8_t *body;           /* a spilled one, padded, on its way */
    struct iovec few_pieces[TMSG_MESSAGE_PIECES];
    tmsg_message_t *next_in_order;
    tmsg_node_t queue;     /* of the worker's fetch, then ready */
    tmsg_node_t own_queue; /* endpoint's ready; a STREAM's: rx_unread */
    /* Not zeroed with the rest, the first seven kept with the record: */
    tmsg_store_t *store;
    tmsg_map_t *map;
    struct iovec *pieces;        /* of a payload that is written to more */
    size_t piece_room;           /* of these */
    tmsg_parts_in_t *parts_kept; /* a record of parts for the next one */
    uint8_t *room; /* for the payload of a repeat that is not small */
    size_t room_bytes;
    uint8_t gap[TMSG_PAYLOAD_ALIGNMENT]; /* takes what is no tensor's */
    /* with room to begin aligned. */
    uint8_t small[TMSG_MESSAGE_SMALL + TMSG_PAYLOAD_ALIGNMENT];
};

/* Whether its parts were asked for, by another way than PARTs, and may come. */
static inline bool tmsg_message_awaits_parts(const tmsg_message_t *message)
{
    return message->by_lane && !message->aborted &&
           message->state == TMSG_RX_FETCHING;
}

/* Ends a record that is kept. */
void tmsg_message_free_spare(tmsg_spare_t *spare);

/* Starts one for an arrival, with an empty map. Errors: NO_MEMORY. */
tmsg_status_t tmsg_message_create(const tmsg_preamble_t *head, tmsg_ucx_t *ucx,
                                  tmsg_channel_t *channel,
                                  tmsg_message_t **message_p);

/* Starts one that repeats another of its channel's: with that one's head, its
 * tensors placed in its room, and its memory counted. NULL: there is no memory
 * for it, or the budget has none. */
tmsg_message_t *tmsg_message_again(tmsg_ucx_t *ucx, tmsg_channel_t *channel);

/* Where the payload of a repeat lies: in the record, if it is small. */
static inline uint8_t *tmsg_message_room(tmsg_message_t *message, size_t bytes)
{
    return bytes > TMSG_MESSAGE_SMALL
               ? message->room
               : message->small +
                     -(uintptr_t)message->small % TMSG_PAYLOAD_ALIGNMENT;
}

/* Lock held: what is left of one that was refused, has no more to it than that
 * and only waits for its turn: some 550 bytes, in a new place, without a map.
 * The message as it is, where there is no memory or it is of another kind. */
tmsg_message_t *tmsg_message_husk(tmsg_message_t *message);

/* Of its payload and, once they are known, its parts. */
static inline uint64_t tmsg_message_bytes(const tmsg_message_t *message)
{
    return message->head.payload_bytes + message->parts_bytes;
}

/* Counts memory of a message's that could not wait. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_message_note(tmsg_message_t *message, uint64_t bytes);

/* Frees a spilled body, if there is one. */
void tmsg_message_drop_body(tmsg_message_t *message);

/* From here on the map owns the message, and with it the memory of its tensors:
 * it may be on its way to somebody else when the application is done with both.
 */
void tmsg_message_delivered(tmsg_message_t *message);

/* Lock held: destroys one that is in no list, when callbacks may run: it may
 * call the application's allocator. */
void tmsg_message_discard(tmsg_message_t *message);

/* Lock held: takes one that is ready for its application. */
void tmsg_message_take_out(tmsg_message_t *message);

/* Lock held: pulls a message; of one endpoint, or of any if NULL. */
tmsg_message_t *tmsg_message_pull(tmsg_worker_t *worker,
                                  tmsg_endpoint_t *endpoint);

/* Lock held: takes back a message of that number which was queued to be pulled;
 * NULL if there is none. */
tmsg_message_t *tmsg_message_withdraw(tmsg_channel_t *channel,
                                      uint32_t sequence);

/* Lock held: drops what was delivered to nobody yet. */
void tmsg_messages_discard(tmsg_endpoint_t *endpoint);

#endif
