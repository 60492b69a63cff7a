/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/consumer.h - what a connection knows of the consumers of calls
 * and streams. */
#ifndef TMSG_AM_ENDPOINT_CONSUMER_H
#define TMSG_AM_ENDPOINT_CONSUMER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/map.h>

#include "serialize/call.h"

/* Calls have this channel, beyond all channels of applications. */
#define TMSG_CHANNEL_CALLS 1024u

/* Streams have the channels from this one on. The dialling side opens streams
 * on the first of these, the third and so on, the other side on the rest. */
#define TMSG_CHANNEL_STREAMS 1025u

/* A side may open this many streams on one endpoint. */
#define TMSG_STREAMS_MOST 512u

static inline bool tmsg_channel_is_stream(uint16_t number)
{
    return number >= TMSG_CHANNEL_STREAMS &&
           number < TMSG_CHANNEL_STREAMS + 2 * TMSG_STREAMS_MOST;
}

/* Names the channel of a stream as one side sees it. */
typedef struct {
    bool ours;      /* our side opens the streams on the channel */
    uint16_t index; /* below TMSG_STREAMS_MOST */
} tmsg_stream_key_t;

/* Returns the number of the channel. `dialled`: this side dialled. */
static inline uint16_t tmsg_stream_channel(tmsg_stream_key_t key, bool dialled)
{
    return (uint16_t)(TMSG_CHANNEL_STREAMS + 2u * key.index +
                      (key.ours == dialled ? 0 : 1));
}

typedef struct tmsg_calls tmsg_calls_t; /* one for each worker */

/* Receives a message that is a call or a reply. It is embedded in the record of
 * that call. Exactly one of these functions is called, without a lock. */
typedef struct tmsg_call_in {
    /* The message has come. The callee owns it from now on. */
    void (*arrived)(struct tmsg_call_in *in, tmsg_message_t *message);
    /* The message was refused, or its sender gave it up. */
    void (*failed)(struct tmsg_call_in *in, tmsg_status_t status,
                   const char *why);
    /* The connection of the message has ended. If there is a session, the
     * message may come again. */
    void (*dropped)(struct tmsg_call_in *in);
    bool borrows; /* the message may be a loan, whatever the worker's flags */
} tmsg_call_in_t;

/* What tmsg_worker_describe() tells of offers, and of the calls and streams
 * that the worker serves. */
typedef struct {
    uint64_t offers, offered_bytes;       /* that are not over */
    uint64_t lent_bytes;                  /* that are not released */
    uint64_t fetches, waiting_fetches;    /* under way; that wait for a name */
    uint64_t fetched_maps, fetched_bytes; /* so far */
    uint64_t running_calls, waiting_calls;
    uint64_t held_calls; /* whose handler is done with them */
    uint64_t stalls;     /* so far */
    bool leaves; /* the server shuts down: peers look for the next one */
} tmsg_calls_counts_t;

typedef struct tmsg_calls_ops {
    /* Makes what `start` stands for in the other entries. Called once for each
     * worker, lock held. NULL: no memory. */
    void *(*create)(tmsg_calls_t *calls);
    /* The worker is gone, and so is `calls`. No lock. */
    void (*over)(void *start);

    /* Makes what an endpoint is to the room above. Lock held. NULL: no
     * memory. */
    void *(*meet)(void *start, tmsg_endpoint_t *endpoint);
    /* The endpoint has ended: nothing comes of it any more. No lock. */
    void (*ended)(void *peer, tmsg_status_t status, const char *error);
    /* Frees the memory of `peer`. Any thread. */
    void (*forget)(void *peer);

    /* The head of a message has come, and none of its payload is taken yet.
     * Lock held, inside UCX. A status other than OK refuses the message with
     * tmsg_error_message(), which the sender is told.
     *
     * *into_p is NULL at first. The function may set it to a map with a
     * reference: the message is then received into the map and owns the
     * reference. into_p is NULL if the tensors have their places already. If
     * they are to be received elsewhere, the function returns IN_PROGRESS, and
     * nothing has happened. */
    tmsg_status_t (*begins)(void *peer, const tmsg_call_head_t *head,
                            tmsg_call_in_t **in_p, const tmsg_map_t **into_p);

    /* A message of a stream has come, in its turn on that channel. The callee
     * owns the message, and has to take it. `message` is NULL if it was refused
     * or given up, with that status and text. `head` is NULL if it could not be
     * read. No lock. */
    void (*streamed)(void *peer, tmsg_stream_key_t key, tmsg_message_t *message,
                     const tmsg_call_head_t *head, tmsg_status_t status,
                     const char *why);
    /* A message of a stream did not leave, and nobody wanted that. Lock
     * held. */
    void (*stuck)(void *peer, tmsg_stream_key_t key, uint64_t id,
                  tmsg_status_t status, const char *error);

    /* The peer gives up a call of its own. Lock held, inside UCX. */
    void (*canceled)(void *peer, uint64_t id);
    /* A message of this side did not reach its receiver. `sent` is false if it
     * was never handed to UCX. `head` is the message's own, or NULL if it is
     * not known any more. Returns false if the message is not known here. Lock
     * held, inside UCX. */
    bool (*bounced)(void *peer, const tmsg_call_head_t *head,
                    uint32_t message_id, bool sent, tmsg_status_t status,
                    const char *error);

    /* Called after tmsg_calls_wake(), or when the alarm is due. No lock. */
    void (*run)(void *start);
    /* Called after tmsg_calls_put_off(). No lock. */
    void (*catch_up)(void *start);
    /* Adds to *counts_p. Lock held. */
    void (*count)(void *start, tmsg_calls_counts_t *counts_p);
} tmsg_calls_ops_t;

/* What the room above does for an endpoint, `peer`, whose place another takes,
 * `heir`. Lock held. */
typedef struct {
    /* The request of that call was not handed over: it goes by the heir, in
     * the message of that number; UINT64_MAX: that will be told. Returns false
     * if nobody waits for its reply any more. */
    bool (*carried)(void *peer, void *heir, uint64_t id, uint64_t number);
    /* The endpoint has ended, and what could be carried was. Calls that end
     * with it may be made again by the heir, until `ended` of tmsg_calls_ops_t
     * returns. Returns how many calls end. */
    size_t (*left)(void *peer, void *heir);
} tmsg_carry_ops_t;

extern const tmsg_carry_ops_t tmsg_hub_carry;

/* The consumer of the calls that come to a worker on which nobody has begun to
 * call or serve. */
extern const tmsg_calls_ops_t tmsg_hub_ops;

/* Tells how a message of kind CALL is sent. Sending never blocks, and no
 * queue's policy drops the message. Errors: as tmsg_endpoint_send().
 *  - *head and its text are copied if they are needed longer than the call
 *    that sends.
 *  - deadline_ns, if it is not 0, is the time from which left_us is counted
 *    when the message is sent.
 *  - on_release is as in tmsg_send_params_t.
 *  - The message's number is written to *number_p, and then `began` is called,
 *    before `bounced` can name the message and with the lock held. Either may
 *    be NULL.
 *  - `queues`: the message is not held to the bounds of the queue either.
 *  - `last`: a later failure of the message is not told.
 *  - `flags`: TMSG_CALL_SEND_*. */
enum {
    /* The operation ends when the peer has taken the message. */
    TMSG_CALL_SEND_ACKED = 1 << 0,
    /* The message is lent, as with TMSG_SEND_LEND. */
    TMSG_CALL_SEND_LEND = 1 << 1,
    /* The peer has asked for a loan, whatever its worker's flags. */
    TMSG_CALL_SEND_ASKED = 1 << 2,
    /* The reply to the message may be a loan, whatever this worker's flags. */
    TMSG_CALL_SEND_ASKS = 1 << 3
};

typedef struct {
    const tmsg_call_head_t *head;
    uint64_t deadline_ns;
    tmsg_release_fn on_release;
    void *on_release_arg;
    bool queues;
    tmsg_done_fn on_done; /* NULL: none */
    void *on_done_arg;
    bool last;
    _Atomic uint64_t *number_p;
    void (*began)(void *arg);
    void *began_arg;
    /* Points to a map whose metadata goes with the message, before the map's
     * own; NULL: none. It has no tensors, and is held until it was sent. */
    const tmsg_map_t *more;
    /* Tells that the message goes without `more` if that is too much, or there
     * is no memory for it. */
    bool spares_more;
    uint8_t flags;
    /* Somebody else may change the map's memory when the operation has ended,
     * even memory that the map owns. */
    bool reclaims;
    /* With LEND: keeps what the tensors lie in for the next message of the same
     * map, until tmsg_calls_unlend(). *lending_p is NULL at first, and the
     * worker's alone. NULL: nothing is kept. */
    struct tmsg_lending **lending_p;
} tmsg_call_send_t;

#endif
