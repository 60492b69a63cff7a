/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/channel.h - channels. Each has an order of messages and credits
 * of its own.
 *
 * An endpoint has channel 0 from the start. Another channel is made when one
 * side first uses it, and stays as long as the endpoint. Lock held, for all
 * functions here. */
#ifndef TMSG_AM_ENDPOINT_CHANNEL_H
#define TMSG_AM_ENDPOINT_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/message.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/template.h"
#include "am/worker/way.h"
#include "core/list.h"
#include "serialize/schema.h"

/* A worker offers its peers this many channels by default. */
#define TMSG_CHANNELS_DEFAULT 64

typedef struct tmsg_channel {
    tmsg_endpoint_t *endpoint; /* the owner; no reference is held */
    uint32_t tx_sequence;      /* number of the next message that goes */
    uint32_t tx_window;        /* first number that has no credit */
    uint32_t rx_sequence;      /* number of the next message to be delivered */
    uint32_t rx_consumed;      /* messages taken, dropped or refused */
    uint32_t rx_credited; /* value of rx_consumed that the peer was last told */
    /* Holds the number of the next message to be taken, unless it was
     * refused. */
    uint32_t rx_taken;
    tmsg_message_t *rx; /* arrived messages, by number */
    /* Has a bit for each of the next queue_depth messages that was delivered
     * before its turn. The bit's position is the message's number modulo a
     * power of two. NULL: no message ever was. */
    uint64_t *overtook;
    /* Holds the schemas that the peer keeps; NULL: none yet. */
    tmsg_schema_table_t *tx_schemas;
    uint64_t sent_messages, received_messages;
    tmsg_list_t queued; /* sends that wait for the connection or for credit */
    tmsg_template_out_t template_out;
    tmsg_template_in_t template_in;
    uint16_t number;
    struct tmsg_channel *next; /* next channel of the endpoint, by first use */
    /* Lists the messages of a stream that are delivered and not taken, by
     * number. They are taken in any order. own_queue links them. */
    tmsg_list_t rx_unread;
    /* Refusals of messages from this number on are remembered; see resume.h. */
    uint32_t rx_known;
    /* Holds the schemas that the peer sent; NULL: none yet. */
    tmsg_schema_store_t *rx_schemas;
    /* Holds the schemas of messages that overtook. */
    struct tmsg_schema_later *schemas_later;
    /* The peer sends no message from this number on; valid once the peer has
     * said BYE. */
    uint32_t bye_sequence;
    uint32_t bye_read; /* the number in a BYE that is being read */
    /* Counts sent messages that had fragments or slices. */
    uint64_t sent_in_fragments;
    /* Holds the value of tx.fragments_handed when this channel handed over a
     * fragment last; 0: never. */
    uint64_t last_fragment;
    tmsg_others_t
        others; /* small messages, at its last message with fragments */
    /* Tells that the first message with fragments cannot go on now: the peer is
     * to ask for its fragments, or a copy is not there yet. */
    bool stalled;
    tmsg_list_t aborts; /* aborts of messages yet to come, by number; abort.c */
    /* Lists the early messages that do not overtake, by turn. The channel is in
     * the worker's list while it has some. The first was judged in the pass
     * `early_look`: it is behind others of the channel, or not. See
     * fetch_queue.h. */
    tmsg_list_t early;
    tmsg_node_t early_queue;
    uint64_t early_look;
    bool early_behind;
} tmsg_channel_t;

/* Holds the channels of an endpoint. It starts with all zero bits and
 * tmsg_channels_init(). */
typedef struct {
    tmsg_channel_t zero; /* channel 0, first of the list */
    /* Holds other channels by number - 1; NULL: not used yet. */
    tmsg_channel_t **further;
    uint32_t slots;        /* slots of `further` */
    tmsg_channel_t *calls; /* channel TMSG_CHANNEL_CALLS; NULL: not used yet */
    /* Holds the channels of streams by number; NULL: not used yet. */
    tmsg_channel_t **streams;
    uint32_t stream_slots; /* slots of `streams` */
    uint32_t count;        /* channels that exist */
    tmsg_channel_t *turn;  /* the channel that sends next if several wait */
    size_t queued;         /* sends in the queues of all channels */
    size_t queued_streams; /* sends in the queues of streams */
} tmsg_channels_t;

void tmsg_channels_init(tmsg_endpoint_t *endpoint);

/* Gives each channel the credit of the peer's hello, when the connection
 * stands. */
void tmsg_channels_opened(tmsg_endpoint_t *endpoint);

/* Returns the channel with that number; NULL: nobody has used it yet. */
tmsg_channel_t *tmsg_channel_find(tmsg_endpoint_t *endpoint, uint16_t number);

/* Finds the channel with that number, or makes it. The caller checks what the
 * peers have agreed. Errors: NO_MEMORY. */
tmsg_status_t tmsg_channel_get(tmsg_endpoint_t *endpoint, uint16_t number,
                               tmsg_channel_t **channel_p);

/* Finds or makes the channel that the application wants to send on. Errors:
 * UNSUPPORTED (the peer does not take it, as far as is known yet),
 * NO_MEMORY. */
tmsg_status_t tmsg_channel_open(tmsg_endpoint_t *endpoint, uint16_t number,
                                tmsg_channel_t **channel_p);

/* Checks whether the peer takes a channel. The peer's hello must be known.
 * Errors: UNSUPPORTED. */
tmsg_status_t tmsg_channel_judge(const tmsg_endpoint_t *endpoint,
                                 uint16_t number);

/* Checks a channel that was opened before the peer's hello was known. Errors:
 * UNSUPPORTED. */
tmsg_status_t tmsg_channel_check(const tmsg_channel_t *channel);

/* Finds or makes the channel of a map, or of a fragment of a map, that has
 * arrived. NULL: the channel cannot be, and the endpoint is to end. Inside UCX.
 */
tmsg_channel_t *tmsg_channel_of(tmsg_endpoint_t *endpoint, uint16_t number);

/* Returns the next channel of the endpoint; after the last comes channel 0. */
tmsg_channel_t *tmsg_channel_after(tmsg_channel_t *channel);

/* These two note that a message is delivered before its turn.
 * tmsg_channel_may_overtake() returns false if there is no memory for that.
 * tmsg_channel_overtake() is called after it, and cannot fail. */
bool tmsg_channel_may_overtake(tmsg_channel_t *channel);
void tmsg_channel_overtake(tmsg_channel_t *channel, uint32_t sequence);

/* Returns whether a message was delivered before its turn. It must be one of
 * the next queue_depth. */
bool tmsg_channel_overtook(const tmsg_channel_t *channel, uint32_t sequence);

/* Returns the first number, from `sequence` on, whose message was not delivered
 * before its turn. */
uint32_t tmsg_channel_next(const tmsg_channel_t *channel, uint32_t sequence);

/* Returns whether the next message has credit. */
bool tmsg_channel_has_credit(const tmsg_channel_t *channel);

/* These work on the queue of a channel, and count its sends with those of the
 * other channels. tmsg_channel_put_back() adds at the head, tmsg_channel_push()
 * at the tail. */
void tmsg_channel_push(tmsg_channel_t *channel, tmsg_node_t *send);
void tmsg_channel_put_back(tmsg_channel_t *channel, tmsg_node_t *send);
tmsg_node_t *tmsg_channel_pop(tmsg_channel_t *channel);
void tmsg_channel_remove(tmsg_channel_t *channel, tmsg_node_t *send);

/* Returns the word with the bit of a message that may have overtaken others,
 * and the bit's mask. channel->overtook must not be NULL. */
uint64_t *tmsg_channel_overtaking(const tmsg_channel_t *channel,
                                  uint32_t sequence, uint64_t *mask_p);

#endif
