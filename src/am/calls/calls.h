/* SPDX-License-Identifier: BSD-3-Clause */
/* am/calls/calls.h - what src/rpc uses, without UCX. Messages of kind CALL are
 * maps on a channel of their own, and reach no handler of the application's.
 *
 * The lock below is the worker's. A function of tmsg_calls_ops_t that is called
 * with the lock held, perhaps inside UCX, only takes notes. It calls nothing of
 * this room but functions that say so. A function that is called without the
 * lock runs where the application's callbacks run. */
#ifndef TMSG_AM_CALLS_CALLS_H
#define TMSG_AM_CALLS_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/incoming.h>

#include "am/endpoint/consumer.h"
#include "am/recv/streamed.h"
#include "core/list.h"
#include "serialize/call.h"

/* Returns what ops->create() made for that worker. The first call makes it,
 * unless a call of a peer's was before it. Takes the lock. Errors: CLOSED,
 * NO_MEMORY. */
tmsg_status_t tmsg_calls_start(tmsg_worker_t *worker,
                               const tmsg_calls_ops_t *ops, void **start_p);

/* Returns what ops->meet() made for the endpoint that stands for that handle.
 * The first call makes it. The caller owns a reference to that endpoint, as of
 * tmsg_calls_borrow(). Takes the lock, unless the worker is not shared and it
 * was made before. Errors: CLOSED (its worker is gone), NO_MEMORY. */
tmsg_status_t tmsg_calls_peer(tmsg_endpoint_t *endpoint,
                              const tmsg_calls_ops_t *ops, void **peer_p);

/* tmsg_calls_face() returns the endpoint whose handle the application has.
 * tmsg_calls_name() returns the name of an endpoint's own peer, which lives as
 * long as the endpoint. */
tmsg_endpoint_t *tmsg_calls_face(const tmsg_endpoint_t *endpoint);
const char *tmsg_calls_name(const tmsg_endpoint_t *endpoint);

/* Has ops->run() called soon, by whichever thread drives the worker. The caller
 * of tmsg_calls_wake_held() holds the lock. */
void tmsg_calls_wake(tmsg_calls_t *calls);
void tmsg_calls_wake_held(tmsg_calls_t *calls);

/* Has ops->catch_up() called before UCX is asked for messages again or the
 * worker sleeps. Only for a worker that is not shared, on its thread. */
void tmsg_calls_put_off(tmsg_calls_t *calls);

/* Has ops->run() called once, at a time of tmsg_calls_now_ns(). Of several
 * alarms the earliest counts, until it has called ops->run(). The caller of
 * tmsg_calls_alarm_held() holds the lock. */
void tmsg_calls_alarm(tmsg_calls_t *calls, uint64_t at_ns);
void tmsg_calls_alarm_held(tmsg_calls_t *calls, uint64_t at_ns);
uint64_t tmsg_calls_now_ns(void);

/* tmsg_calls_stir() wakes the threads that wait in tmsg_calls_until(), because
 * something changed; it takes the lock. tmsg_calls_until() waits as
 * tmsg_worker_until() does; it takes the lock, and calls `done` with the lock
 * held. */
void tmsg_calls_stir(tmsg_calls_t *calls);
tmsg_status_t tmsg_calls_until(tmsg_calls_t *calls, bool (*done)(void *arg),
                               void *arg, int timeout_ms, const char *missing,
                               const char *of);

/* Writes why the request of a call of this side's has not left, and returns
 * true; returns false if it has. If `taken_p` is given, a request that waits in
 * the queue is taken back, and *taken_p set: no handler will see it. Its call
 * is not told. Takes the lock. */
bool tmsg_calls_awaited(tmsg_endpoint_t *endpoint, uint64_t id, bool *taken_p,
                        char *words, size_t room);

/* Writes in words that a message waits for memory; "" if none does. Takes the
 * lock. */
void tmsg_calls_starve(tmsg_calls_t *calls, char *why, size_t room);

/* Returns whether messages have waited for memory for that long and none has
 * got any, and writes so in words. Takes the lock. */
bool tmsg_calls_starve_for(tmsg_calls_t *calls, uint64_t ns, char *words,
                           size_t room);

/* The context is a pointer that this thread carries into what it calls.
 * Callbacks that the thread runs while it waits begin with NULL, and leave the
 * context as it was. tmsg_calls_set_context() returns the previous one.
 * tmsg_calls_clear_context() is called after each of several callbacks that run
 * in one go, because what a callback left there may be gone. */
const void *tmsg_calls_context(void);
const void *tmsg_calls_set_context(const void *context);
void tmsg_calls_clear_context(void);

/* tmsg_calls_enter() keeps the endpoint's worker. A thread that destroys the
 * worker waits for tmsg_calls_leave(), or leaves the freeing to that call.
 * Errors: those of any call on the endpoint. */
tmsg_status_t tmsg_calls_enter(tmsg_endpoint_t *endpoint);
void tmsg_calls_leave(tmsg_endpoint_t *endpoint);

/* Returns whether several threads may call the worker. */
bool tmsg_calls_are_shared(const tmsg_calls_t *calls);

/* Returns the worker, which is there as long as calls of its peers come. */
tmsg_worker_t *tmsg_calls_worker(const tmsg_calls_t *calls);

/* Returns the names of those who may ask what goes on here; NULL: nobody named
 * any. */
const char *tmsg_calls_observers(const tmsg_calls_t *calls);

/* Returns whether the peer connected to a listener here. */
bool tmsg_calls_was_accepted(const tmsg_endpoint_t *endpoint);

/* Returns the limit lent_bytes. */
uint64_t tmsg_calls_lent_most(const tmsg_calls_t *calls);

/* Sends a message of kind CALL, as tmsg_call_send_t says. */
tmsg_status_t tmsg_calls_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_call_send_t *how);

/* Ends what lending_p of tmsg_call_send_t is for: the map is lent to nobody any
 * more. Loans that are out stay as they are. Takes the lock. */
void tmsg_calls_unlend(tmsg_calls_t *calls, struct tmsg_lending **lending_p);

/* Returns whether too many answers wait to be sent to a peer. A peer that takes
 * its answers never leaves so many waiting; one that does gets no more answers.
 * The caller of tmsg_calls_are_full_held() holds the lock. */
#define TMSG_CALLS_ANSWERS_MOST 4096u
bool tmsg_calls_are_full_held(const tmsg_endpoint_t *endpoint);
bool tmsg_calls_are_full(tmsg_endpoint_t *endpoint);

/* Checks whether a map may be received into. Any thread. Errors: UNSUPPORTED,
 * BUSY. */
tmsg_status_t tmsg_calls_check_into(const tmsg_map_t *map);

/* A message on the channel of a stream, sent in order after the earlier ones;
 * head->type says what it is. `params` are the sender's (NULL: none); their
 * channel, TRY and UNORDERED are ignored. Sending never blocks. */
typedef struct {
    tmsg_call_send_t call;
    uint16_t channel;
    const tmsg_send_params_t *params;
    /* Called first, lock held: says whether the message may be sent now, while
     * `waiting` messages wait on its channel. Any status but OK is returned to
     * the caller. */
    tmsg_status_t (*may)(void *arg, size_t waiting);
    void *arg;
} tmsg_stream_send_t;

tmsg_status_t tmsg_stream_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_stream_send_t *how,
                               tmsg_request_t **request_p);

/* Gives up the messages of a stream that wait on its channel. Takes the
 * lock. */
void tmsg_stream_clear(tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint64_t id);

/* Returns how many messages wait on a channel. Lock held. */
size_t tmsg_stream_waiting(tmsg_endpoint_t *endpoint, uint16_t channel);

/* Returns whether this side dialled, and checks that the peer takes streams, as
 * far as that is known. Takes the lock. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_stream_side(tmsg_endpoint_t *endpoint, bool *dialled_p);

/* These functions keep messages of streams in lists, oldest first. */
void tmsg_stream_push(tmsg_list_t *list, tmsg_message_t *message);
tmsg_message_t *tmsg_stream_pop(tmsg_list_t *list);

/* Gives up the request of a call of this side's, if it has not ended, and tells
 * the peer that nobody waits for its reply. Takes the lock. */
void tmsg_calls_cancel(tmsg_endpoint_t *endpoint, uint64_t id);

/* Gives up the reply to a call of the peer's, if its send has not ended: the
 * call ends with CANCELED there, and these words. Takes the lock. */
void tmsg_calls_recall(tmsg_endpoint_t *endpoint, uint64_t id, const char *why);

/* These functions count references to an endpoint, like those of a message. Any
 * thread. */
void tmsg_calls_hold(tmsg_endpoint_t *endpoint);
void tmsg_calls_drop(tmsg_endpoint_t *endpoint);

/* These functions count references on the worker's thread while the worker
 * lives. If the worker is not shared, most calls need no atomic operation. A
 * borrowed reference may be given back by tmsg_calls_drop(), and must be if the
 * worker is shared or gone. */
void tmsg_calls_borrow(tmsg_endpoint_t *endpoint);
void tmsg_calls_return(tmsg_endpoint_t *endpoint);

/* Called by the engine, lock held: does what calls have put off. */
void tmsg_call_catch_up(tmsg_worker_t *worker);

/* Called by the engine, no lock: the worker is being freed, and nothing of it
 * runs any more. */
void tmsg_call_over(tmsg_worker_t *worker);

#endif
