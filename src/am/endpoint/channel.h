/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/channel.h - what order and credits belong to.
 *
 * An endpoint has channel 0 from the start; the others are made when one side
 * first uses them, and stay as long as the endpoint. */
#ifndef TMSG_AM_ENDPOINT_CHANNEL_H
#define TMSG_AM_ENDPOINT_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/message.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/repeat.h"
#include "am/worker/way.h"
#include "core/list.h"
#include "serialize/schema.h"

#define TMSG_CHANNELS_DEFAULT 64 /* that a worker offers its peers */

typedef struct tmsg_channel {
    tmsg_endpoint_t *endpoint; /* whose it is; holds no reference */
    uint32_t tx_sequence;      /* of the next message that goes */
    uint32_t tx_window;        /* first sequence that has no credit */
    uint32_t rx_sequence;      /* of the next message to be delivered */
    uint32_t rx_consumed;      /* messages taken, dropped or refused */
    uint32_t rx_credited;      /* of these, as the peer was last told */
    uint32_t rx_taken;  /* of the next message to be taken, unless refused */
    tmsg_message_t *rx; /* arrived, in order of sequence */
    /* Which of the next queue_depth were delivered before their turn: a bit
     * each, at sequence modulo a power of two. NULL: none ever was. */
    uint64_t *overtook;
    tmsg_schema_table_t *tx_schemas; /* that the peer keeps; NULL: none yet */
    uint64_t sent_messages, received_messages;
    tmsg_list_t queued; /* sends, for the connection or for credit */
    tmsg_repeat_out_t repeat_out;
    tmsg_repeat_in_t repeat_in;
    uint16_t number;
    struct tmsg_channel *next; /* of the endpoint, in the order of first use */
    tmsg_list_t rx_unread;     /* a stream's, delivered and not taken, in order:
                                  they are taken in any; by own_queue */
    uint32_t rx_known;   /* refusals from here on are remembered: resume.h */
    uint64_t early_look; /* the last in which one was early: fetch_queue.h */
    tmsg_schema_store_t *rx_schemas;         /* that it sent; NULL: none yet */
    struct tmsg_schema_later *schemas_later; /* of those that overtook */
    uint32_t bye_sequence; /* the peer sends none from here on, if it said so */
    uint32_t bye_read;     /* of a BYE that is being read */
    uint64_t sent_in_pieces; /* of its messages, those with parts or slices */
    uint64_t parted; /* which of the endpoint's parts was its last; 0: none */
    tmsg_others_t others; /* as its last message in pieces saw them */
    bool stalled;         /* parts that are copied first are not there yet */
} tmsg_channel_t;

/* The channels of an endpoint. All zero bits and tmsg_channels_init(). */
typedef struct {
    tmsg_channel_t zero;      /* channel 0, first of the list */
    tmsg_channel_t **further; /* by number - 1; NULL: not used yet */
    uint32_t slots;           /* of `further` */
    tmsg_channel_t *calls;    /* that of TMSG_CHANNEL_CALLS; NULL: not used */
    tmsg_channel_t **streams; /* those of streams, by number; likewise */
    uint32_t stream_slots;    /* of `streams` */
    uint32_t count;           /* that exist */
    tmsg_channel_t *turn;     /* which sends next, where several wait */
    size_t queued;            /* sends in all their queues */
    size_t queued_streams;    /* of these, in those of streams */
} tmsg_channels_t;

void tmsg_channels_init(tmsg_endpoint_t *endpoint);

/* The connection stands: each has the credit of the peer's hello. */
void tmsg_channels_opened(tmsg_endpoint_t *endpoint);

/* The channel of that number; NULL: nobody has used it yet. */
tmsg_channel_t *tmsg_channel_find(tmsg_endpoint_t *endpoint, uint16_t number);

/* The same, made where it is new; what the peers have agreed is the caller's to
 * check. Errors: NO_MEMORY. */
tmsg_status_t tmsg_channel_get(tmsg_endpoint_t *endpoint, uint16_t number,
                               tmsg_channel_t **channel_p);

/* The channel that the application wants to send on. Errors: UNSUPPORTED (the
 * peer does not take it, as far as is known yet), NO_MEMORY. */
tmsg_status_t tmsg_channel_open(tmsg_endpoint_t *endpoint, uint16_t number,
                                tmsg_channel_t **channel_p);

/* Whether the peer, who is known, takes a channel. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_channel_judge(const tmsg_endpoint_t *endpoint,
                                 uint16_t number);

/* What is left of that to be checked when the peer is known. */
tmsg_status_t tmsg_channel_check(const tmsg_channel_t *channel);

/* The channel of a map, or of a part of one, that has arrived; made where it is
 * new. NULL: it cannot be, and the endpoint is to end. Inside UCX. */
tmsg_channel_t *tmsg_channel_of(tmsg_endpoint_t *endpoint, uint16_t number);

/* The one after it, round and round. */
tmsg_channel_t *tmsg_channel_after(tmsg_channel_t *channel);

/* Notes that a message is delivered before its turn; the first half says
 * whether there is memory to do so, the second cannot fail. */
bool tmsg_channel_may_overtake(tmsg_channel_t *channel);
void tmsg_channel_overtake(tmsg_channel_t *channel, uint32_t sequence);

/* Whether that one did, of the next queue_depth. */
bool tmsg_channel_overtook(const tmsg_channel_t *channel, uint32_t sequence);

/* The first number from there on whose message did not. */
uint32_t tmsg_channel_next(const tmsg_channel_t *channel, uint32_t sequence);

/* Whether the next message may go. */
bool tmsg_channel_has_credit(const tmsg_channel_t *channel);

/* The queue of a channel, counted with those of the others. */
void tmsg_channel_push(tmsg_channel_t *channel, tmsg_node_t *send);
void tmsg_channel_put_back(tmsg_channel_t *channel, tmsg_node_t *send);
tmsg_node_t *tmsg_channel_pop(tmsg_channel_t *channel);
void tmsg_channel_remove(tmsg_channel_t *channel, tmsg_node_t *send);

/* The word with the bit of a message that may have overtaken others; there must
 * be some. */
uint64_t *tmsg_channel_overtaking(const tmsg_channel_t *channel,
                                  uint32_t sequence, uint64_t *mask_p);

#endif
