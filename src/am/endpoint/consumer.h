/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/consumer.h - what a connection knows of those who take calls and
 * streams. */
#ifndef TMSG_AM_ENDPOINT_CONSUMER_H
#define TMSG_AM_ENDPOINT_CONSUMER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/map.h>

#include "serialize/call.h"

#define TMSG_CHANNEL_CALLS 1024u /* beyond all that applications may use */

/* Of streams: those that the dialling side opens have the first of these, the
 * third and so on, those of the other side the rest. */
#define TMSG_CHANNEL_STREAMS 1025u

#define TMSG_STREAMS_MOST 512u /* that a side may open on one endpoint */

static inline bool tmsg_channel_is_stream(uint16_t number)
{
    return number >= TMSG_CHANNEL_STREAMS &&
           number < TMSG_CHANNEL_STREAMS + 2 * TMSG_STREAMS_MOST;
}

/* What a stream's channel is to one side. */
typedef struct {
    bool ours;      /* this side opens those on it */
    uint16_t index; /* below TMSG_STREAMS_MOST */
} tmsg_stream_key_t;

/* Its number, from that and from whether this side dialled. */
static inline uint16_t tmsg_stream_channel(tmsg_stream_key_t key, bool dialled)
{
    return (uint16_t)(TMSG_CHANNEL_STREAMS + 2u * key.index +
                      (key.ours == dialled ? 0 : 1));
}

typedef struct tmsg_calls tmsg_calls_t; /* of one worker */

/* Embedded in what a message that is a call, or a reply, is for. Of these,
 * exactly one is called, without a lock. */
typedef struct tmsg_call_in {
    /* The message is here, and the callee's from now on. */
    void (*arrived)(struct tmsg_call_in *in, tmsg_message_t *message);
    /* It was refused, or given up by its sender. */
    void (*failed)(struct tmsg_call_in *in, tmsg_status_t status,
                   const char *why);
    /* Its connection has ended; where there is a session, it may come again. */
    void (*dropped)(struct tmsg_call_in *in);
} tmsg_call_in_t;

typedef struct tmsg_calls_ops {
    /* Lock held, once a worker: makes what `start` gives; NULL: no memory. */
    void *(*create)(tmsg_calls_t *calls);
    /* The worker is gone, and so is `calls`; no lock. */
    void (*over)(void *start);

    /* Lock held: what an endpoint is to the room above; NULL: no memory. */
    void *(*meet)(void *start, tmsg_endpoint_t *endpoint);
    /* It has ended: nothing comes of it any more. No lock. */
    void (*ended)(void *peer, tmsg_status_t status, const char *error);
    /* Its memory goes; any thread. */
    void (*forget)(void *peer);

    /* Lock held, inside UCX: the head of a message has come, before any of its
     * payload is taken. Not OK refuses it, with tmsg_error_message(), which its
     * sender hears. *into_p, NULL before, may be made a map that it is received
     * into, with a hold on it, which the message then has. into_p itself is
     * NULL where its tensors have their places: where they are to be received
     * elsewhere, IN_PROGRESS, and nothing has happened. */
    tmsg_status_t (*begins)(void *peer, const tmsg_call_head_t *head,
                            tmsg_call_in_t **in_p, const tmsg_map_t **into_p);

    /* A message of a stream's, in its turn on that channel; it is the callee's,
     * and to be taken. NULL: it was refused or given up, with that status and
     * words; head is NULL where it could not be read. No lock. */
    void (*streamed)(void *peer, tmsg_stream_key_t key, tmsg_message_t *message,
                     const tmsg_call_head_t *head, tmsg_status_t status,
                     const char *why);
    /* Lock held: a message of a stream did not leave, and nobody wanted that.
     */
    void (*stuck)(void *peer, tmsg_stream_key_t key, uint64_t id,
                  tmsg_status_t status, const char *error);

    /* Lock held, inside UCX: the peer gives up a call of its own. */
    void (*canceled)(void *peer, uint64_t id);
    /* Lock held, inside UCX: a message of ours did not reach its receiver, be
     * it that it was never handed to UCX (not `sent`). `head` is its own, where
     * that is still known, and NULL else. False: it is not known. */
    bool (*bounced)(void *peer, const tmsg_call_head_t *head,
                    uint32_t message_id, bool sent, tmsg_status_t status,
                    const char *error);

    /* tmsg_calls_wake() or the alarm asked for it. No lock. */
    void (*run)(void *start);
    /* tmsg_calls_put_off() did. No lock. */
    void (*catch_up)(void *start);
} tmsg_calls_ops_t;

/* A message of kind CALL. *head and its text are copied where they are needed
 * longer than this call. deadline_ns, if not 0, is what left_us is counted from
 * when it is sent. on_release as in tmsg_send_params_t. Before `bounced` can
 * name the message, and with the lock held, its number is written to *number_p,
 * and then `began` called; either may be NULL. Never blocks, and is never
 * dropped by a full queue's policy; `queues`: it is not held to the queue's
 * bounds either; `last`: that it failed later is not told.
 * Errors: as tmsg_endpoint_send(). */
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
    const tmsg_map_t *more; /* whose metadata goes with it, too, and before the
                             * map's own; NULL: none. Has no tensors, and is
                             * held until it was sent */
    bool spares_more;       /* where that is too much, or there is no memory for
                             * it, it goes without */
} tmsg_call_send_t;

#endif
