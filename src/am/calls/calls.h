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

#include "am/endpoint/consumer.h"
#include "am/recv/streamed.h"
#include "core/list.h"
#include "serialize/call.h"

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

/* Sends a message of kind CALL, as tmsg_call_send_t says. */
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

/* Whether this side dialled, and whether the peer takes streams, as far as is
 * known. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_stream_side(tmsg_endpoint_t *endpoint, bool *dialled_p);

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

/* For the engine, lock held: does what calls have put off. */
void tmsg_call_catch_up(tmsg_worker_t *worker);

/* For the engine, no lock: the worker goes, and nothing of it runs any more. */
void tmsg_call_over(tmsg_worker_t *worker);

#endif
