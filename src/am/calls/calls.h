/* SPDX-License-Identifier: BSD-3-Clause */
/* am/calls/calls.h - what src/rpc stands on, without UCX: messages of kind
 * CALL, which are maps on a channel of their own and reach no application's
 * handler.
 *
 * Locks: `lock` below is the worker's. What is called with it held, inside UCX
 * perhaps, takes notes and calls nothing of this room but what says so; what is
 * called without runs where the application's callbacks do. */
#ifndef TMSG_AM_CALLS_CALLS_H
#define TMSG_AM_CALLS_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/incoming.h>

#include "core/list.h"
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

/* What `create` made for that worker, by the first that asks. Takes the lock.
 * Errors: CLOSED, NO_MEMORY. */
tmsg_status_t tmsg_calls_start(tmsg_worker_t *worker,
                               const tmsg_calls_ops_t *ops, void **start_p);

/* What `meet` made for that endpoint. Takes the lock. Errors: CLOSED (its
 * worker is gone), NO_MEMORY. */
tmsg_status_t tmsg_calls_peer(tmsg_endpoint_t *endpoint,
                              const tmsg_calls_ops_t *ops, void **peer_p);

/* Has `run` called soon, wherever the worker is driven. The second is for who
 * has the lock. */
void tmsg_calls_wake(tmsg_calls_t *calls);
void tmsg_calls_wake_held(tmsg_calls_t *calls);

/* Of a worker that is not shared, on its thread: has `catch_up` called before
 * UCX is asked for messages again, or the worker sleeps. */
void tmsg_calls_put_off(tmsg_calls_t *calls);

/* Has `run` called at a time of tmsg_calls_now_ns(), once: the earliest that
 * was asked for since `run` was called by it. */
void tmsg_calls_alarm(tmsg_calls_t *calls, uint64_t at_ns);
void tmsg_calls_alarm_held(tmsg_calls_t *calls, uint64_t at_ns);
uint64_t tmsg_calls_now_ns(void);

/* Somebody who waits may have what he waited for; and that wait, as
 * tmsg_worker_until(): `done` is called with the lock held. */
void tmsg_calls_stir(tmsg_calls_t *calls);
tmsg_status_t tmsg_calls_until(tmsg_calls_t *calls, bool (*done)(void *arg),
                               void *arg, int timeout_ms, const char *missing,
                               const char *of);

/* What this thread takes with it into what it calls; callbacks that it runs
 * while it waits begin with nothing, and leave it as it was. The second gives
 * what was there before. The third is for behind each of several callbacks that
 * are run at one go: what one has left may be gone. */
const void *tmsg_calls_context(void);
const void *tmsg_calls_set_context(const void *context);
void tmsg_calls_clear_context(void);

/* Has the endpoint's worker stay: who destroys it waits for the second, or has
 * that free it. Errors: those of any call on the endpoint. */
tmsg_status_t tmsg_calls_enter(tmsg_endpoint_t *endpoint);
void tmsg_calls_leave(tmsg_endpoint_t *endpoint);

/* Whether several threads may call. */
bool tmsg_calls_are_shared(const tmsg_calls_t *calls);

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

tmsg_status_t tmsg_calls_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_call_send_t *how);

/* More answers wait to be sent to a peer than any that takes them leaves here:
 * one that does not is to be answered no more. The first is for who has the
 * lock. */
#define TMSG_CALLS_ANSWERS_MOST 4096u
bool tmsg_calls_are_full_held(const tmsg_endpoint_t *endpoint);
bool tmsg_calls_are_full(tmsg_endpoint_t *endpoint);

/* Whether a map may be received into. Any thread. Errors: UNSUPPORTED, BUSY. */
tmsg_status_t tmsg_calls_check_into(const tmsg_map_t *map);

/* A message on the channel of a stream, in order behind those that were sent
 * before; head->type says what it is. `params` (NULL: none) are its sender's,
 * of which channel, TRY and UNORDERED are not looked at. Never blocks. */
typedef struct {
    tmsg_call_send_t call;
    uint16_t channel;
    const tmsg_send_params_t *params;
    /* Lock held, before all: whether it may be sent now, while so many wait on
     * its channel. Any other status than OK is the caller's answer. */
    tmsg_status_t (*may)(void *arg, size_t waiting);
    void *arg;
} tmsg_stream_send_t;

tmsg_status_t tmsg_stream_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_stream_send_t *how,
                               tmsg_request_t **request_p);

/* Gives up those messages of a stream that wait on its channel. */
void tmsg_stream_clear(tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint64_t id);

/* How many messages wait on a channel. Lock held. */
size_t tmsg_stream_waiting(tmsg_endpoint_t *endpoint, uint16_t channel);

/* A message of a stream's has been read, or will not be: its sender may send
 * another. */
void tmsg_stream_take(tmsg_message_t *message);

/* Whether this side dialled, and whether the peer takes streams, as far as is
 * known. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_stream_side(tmsg_endpoint_t *endpoint, bool *dialled_p);

/* Nobody can be told what he has to know: the endpoint ends. */
void tmsg_stream_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *why);

/* Messages of streams in lists, oldest first. */
void tmsg_stream_push(tmsg_list_t *list, tmsg_message_t *message);
tmsg_message_t *tmsg_stream_pop(tmsg_list_t *list);

/* Gives the request of a call of ours up, if it is still here, and tells the
 * peer that nobody waits for its reply. */
void tmsg_calls_cancel(tmsg_endpoint_t *endpoint, uint64_t id);

/* Keeps an endpoint, as a message does; from any thread. */
void tmsg_calls_hold(tmsg_endpoint_t *endpoint);
void tmsg_calls_drop(tmsg_endpoint_t *endpoint);

/* The same while its worker lives, on that one's thread; mostly without an
 * atomic operation if it is not shared. What was borrowed may be dropped, and
 * must be where the worker is shared, or gone. */
void tmsg_calls_borrow(tmsg_endpoint_t *endpoint);
void tmsg_calls_return(tmsg_endpoint_t *endpoint);

#endif
