/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/message.h - a message while it arrives, and while the application has
 * it. */
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

/* A message is WAITING, FETCHING and WHOLE, and DELIVERED when its turn in its
 * channel has come, or before that if it is unordered. It is WAITING again if
 * there was no memory for it, or if a body that came by rendezvous says that
 * its tensors are yet to be placed. A message that is refused or given up is
 * FAILED, and keeps its place until its turn. The order of the values counts:
 * a message has its turn from WHOLE on. */
typedef enum {
    /* The connection broke; only a resumed session sends the message again. */
    TMSG_RX_BROKEN = -1,
    TMSG_RX_WAITING = 0,   /* it waits for memory, or is not kept yet */
    TMSG_RX_FETCHING = 1,  /* its payload is being fetched */
    TMSG_RX_WHOLE = 2,     /* it may be delivered when its turn comes */
    TMSG_RX_FAILED = 3,    /* the order skips its turn */
    TMSG_RX_DELIVERED = 4, /* it is queued for the application, or delivered */
} tmsg_rx_state_t;

/* Payloads of up to this many bytes lie in the record itself. The record then
 * is still small enough that malloc() keeps it at hand. */
#define TMSG_MESSAGE_SMALL 576

/* The record itself can list this many pieces of a payload. */
#define TMSG_MESSAGE_PIECES 4

typedef struct tmsg_fragments_in tmsg_fragments_in_t;
typedef struct tmsg_stage_in tmsg_stage_in_t;

struct tmsg_message {
    tmsg_spare_t spare;
    tmsg_due_t due; /* runs the handler, or destroys the message */
    tmsg_endpoint_t *endpoint;
    tmsg_channel_t *channel;
    /* A CALL belongs to this call; see endpoint/consumer.h. */
    struct tmsg_call_in *call;
    tmsg_call_head_t *stream; /* a stream message's call head, with its text */
    tmsg_block_t block;       /* the tensors' memory, unless they are small */
    uint64_t noted;           /* further bytes that count against held_bytes */
    tmsg_preamble_t head;
    tmsg_rx_state_t state;
    tmsg_status_t refusal; /* status for on_refused, when its turn comes */
    char *why;             /* text for on_refused; NULL without memory */
    tmsg_ucx_t *ucx;
    /* The payload is here until it is received: in UCX's descriptor, in a copy,
     * or behind &to_read. */
    void *data;
    /* Says where the payload is in the sender's memory; see cma.h. */
    tmsg_cma_in_t to_read;
    bool is_read; /* the payload is read by `to_read` */
    /* The message was received into this map, or a CALL is to be received into
     * it. The message holds the map. */
    const tmsg_map_t *posted;
    bool lent; /* a CALL's tensors have their places in `posted` */
    bool rendezvous;
    bool asked;  /* on_header was called */
    bool landed; /* the payload lies in the block as it travelled */
    /* The sender gave the message up; `refusal` and `why` tell the reason. */
    bool aborted;
    bool discarded;      /* it is destroyed soon, even if a list still has it */
    bool laid;           /* the record keeps its map for a template message */
    bool answered_later; /* not as it is taken; see tmsg_message_answer() */
    /* `data` is the library's copy, because UCX's data was not to be kept. */
    bool copied;
    bool in_segment; /* `data` occupies one of UCX's segments; see segments.h */
    /* Only the fields before `pieces` exist, and there is no map; see
     * tmsg_message_tombstone(). */
    bool tombstone;
    /* The number of the template that this message was made by, or 0. Such a
     * message stays as it was made, and its `noted` is charged from the start.
     */
    uint64_t by_template;
    /* `kept_back` counts bytes of held_bytes that are reserved for devices; see
     * fetch.c. */
    uint64_t kept_back;
    /* `in_place_bytes` is the size of the tensors that lie in `data`. 0: none
     * do. See in_place.h. */
    uint64_t in_place_bytes;
    /* `charged` counts the message's bytes against the sender's window; see
     * credit.h. */
    uint64_t charged;
    bool decoded;    /* the map is known */
    bool placed;     /* each tensor has its memory */
    bool by_bulk;    /* the fragments were asked for by the bulk stream */
    bool in_block;   /* all tensors lie in the block, as they travel */
    bool head_here;  /* the payload of the message itself has come */
    bool starved;    /* it has waited for memory */
    bool views;      /* tensors of it lie where the sender lends them */
    bool behind_gap; /* an earlier message of its channel has not come */
    tmsg_fetch_state_t fetch; /* what it waits for */
    uint64_t turn;            /* its place among those that asked for memory */
    /* `pending` counts operations that call tmsg_message_fetched() when they
     * end. */
    unsigned pending;
    /* record of the fragments; NULL: there are none */
    tmsg_fragments_in_t *fragments;
    uint64_t fragments_bytes;
    /* The stage records tensors that go to devices. NULL: there are none. */
    tmsg_stage_in_t *stage;
    /* The wait for streams of the map that it is copied into, or NULL. */
    struct tmsg_map_await *await;
    tmsg_op_t op;
    /* The body declares these checksums, this split and this schema. */
    tmsg_body_extra_t extra;
    tmsg_schema_t *schema; /* the schema that it defines, until its turn */
    /* The checksums are copied here, because the body does not stay. */
    uint8_t *checksums;
    /* The sender lends the tensors; NULL: it does not, or no more. Only where
     * they were placed or go to devices are they copied. */
    struct tmsg_loan_in *loan;
    uint8_t *raw;  /* preamble and body, with TMSG_WORKER_CAPTURE */
    uint8_t *body; /* a spilled body with its padding, while it arrives */
    /* which tensors the application has given back; NULL: none */
    bool *given_back;
    struct iovec few_pieces[TMSG_MESSAGE_PIECES];
    tmsg_message_t *next_in_order;
    tmsg_node_t queue; /* in the worker's fetch queue, then in its ready list */
    /* The endpoint's ready list has the message by this node, or rx_unread has
     * a STREAM's message by it; a CALL is in `awaiting` by it. */
    tmsg_node_t own_queue;
    /* A new message does not zero the fields from here on. The first seven
     * belong to the record, and stay when another message uses it. */
    tmsg_budget_t *budget;
    tmsg_map_t *map;
    struct iovec *pieces; /* a payload's pieces, if few_pieces is too short */
    size_t piece_room;    /* capacity of `pieces` */
    /* The next message may use this record of fragments. */
    tmsg_fragments_in_t *fragments_kept;
    uint8_t *room; /* the payload of a template message that is not small */
    size_t room_bytes;
    /* While it is early, it is in lists of its channel and endpoint by these
     * nodes; see fetch_queue.h. */
    tmsg_node_t early_queue, fills_queue;
    bool early_in_channel, early_fills;
    /* Payload bytes that belong to no tensor are received here. */
    uint8_t gap[TMSG_PAYLOAD_ALIGNMENT];
    /* The additional bytes let the payload begin aligned. */
    uint8_t small[TMSG_MESSAGE_SMALL + TMSG_PAYLOAD_ALIGNMENT];
};

/* Returns whether the message's fragments were asked for by the bulk stream,
 * and may come. */
static inline bool tmsg_message_awaits_fragments(const tmsg_message_t *message)
{
    return message->by_bulk && !message->aborted &&
           message->state == TMSG_RX_FETCHING;
}

/* Frees a record that a list of spares kept. */
void tmsg_message_free_spare(tmsg_spare_t *spare);

/* Creates a message for an arrival, with an empty map. Errors: NO_MEMORY. */
tmsg_status_t tmsg_message_create(const tmsg_preamble_t *head, tmsg_ucx_t *ucx,
                                  tmsg_channel_t *channel,
                                  tmsg_message_t **message_p);

/* Creates a template message. The message has the template's head and layout;
 * its tensors are placed in its room, and its memory is counted. Returns NULL
 * if there is no memory for it, or if it does not fit the memory budget. */
tmsg_message_t *tmsg_message_by_template(tmsg_ucx_t *ucx,
                                         tmsg_channel_t *channel);

/* Returns where the payload of a template message is. Small payloads are in the
 * record. */
static inline uint8_t *tmsg_message_room(tmsg_message_t *message, size_t bytes)
{
    return bytes > TMSG_MESSAGE_SMALL
               ? message->room
               : message->small +
                     -(uintptr_t)message->small % TMSG_PAYLOAD_ALIGNMENT;
}

/* Lock held: replaces a refused message that only waits for its turn by a
 * tombstone, and returns that. A tombstone takes some 550 bytes of new memory,
 * and has no map. Returns `message` unchanged if there is no memory. Does so
 * too if the message still has more than its refusal: a call, a body,
 * fragments, data, a posted map, a stage record, or pending operations. Nor is
 * a template message replaced. */
tmsg_message_t *tmsg_message_tombstone(tmsg_message_t *message);

/* Returns the bytes of the payload and, once they are known, of the fragments.
 */
static inline uint64_t tmsg_message_bytes(const tmsg_message_t *message)
{
    return message->head.payload_bytes + message->fragments_bytes;
}

/* Counts memory of a message that could not wait for budget. Errors:
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_message_note(tmsg_message_t *message, uint64_t bytes);

/* Gives a loan back whose tensors were all copied. The others stay. */
void tmsg_message_copied_loan(tmsg_message_t *message);

/* Gives a loan back at once, if the message is one and nobody has views of it.
 * Lock held. */
void tmsg_message_drop_loan(tmsg_message_t *message);

/* Frees a spilled body, if there is one. */
void tmsg_message_drop_body(tmsg_message_t *message);

/* Marks a message as delivered. From here on the map owns the message, and with
 * it the memory of its tensors: the map may be on its way to another peer when
 * the application is done with both. */
void tmsg_message_delivered(tmsg_message_t *message);

/* Lock held: queues the destruction of a message that is in no list. The
 * message is destroyed where callbacks may run, since that may call the
 * application's allocator. */
void tmsg_message_discard(tmsg_message_t *message);

/* Lock held: takes a ready message out of the ready lists, for the application.
 */
void tmsg_message_take_out(tmsg_message_t *message);

/* Lock held: pulls the next ready message of an endpoint, or of any endpoint if
 * that is NULL. Returns NULL if there is none. */
tmsg_message_t *tmsg_message_pull(tmsg_worker_t *worker,
                                  tmsg_endpoint_t *endpoint);

/* Lock held: takes back the message with that number that was queued to be
 * pulled. Returns NULL if there is none. */
tmsg_message_t *tmsg_message_withdraw(tmsg_channel_t *channel,
                                      uint32_t sequence);

/* Lock held: takes the first message that is queued to be pulled out of the
 * queues. It counts as not taken. Returns NULL if there is none. */
tmsg_message_t *tmsg_message_unqueue(tmsg_endpoint_t *endpoint);

/* Lock held: drops the messages that are queued to be pulled. */
void tmsg_messages_discard(tmsg_endpoint_t *endpoint);

#endif
