/* SPDX-License-Identifier: BSD-3-Clause */
/* am/calls.h - what src/rpc stands on, without UCX: messages of kind CALL,
 * which are maps on a channel of their own and reach no application's handler.
 *
 * Locks: `lock` below is the worker's. What is called with it held, inside UCX
 * perhaps, takes notes and calls nothing of this room but what says so; what is
 * called without runs where the application's callbacks do. */
#ifndef TMSG_AM_CALLS_H
#define TMSG_AM_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/incoming.h>

#include "serialize/call.h"

#define TMSG_CHANNEL_CALLS 1024u /* beyond all that applications may use */

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
     * sender hears. */
    tmsg_status_t (*begins)(void *peer, const tmsg_call_head_t *head,
                            tmsg_call_in_t **in_p);

    /* Lock held, inside UCX: the peer gives up a call of its own. */
    void (*canceled)(void *peer, uint64_t id);
    /* Lock held, inside UCX: a message of ours did not reach its receiver, be
     * it that it was never handed to UCX (not `sent`). False: it is not known.
     */
    bool (*bounced)(void *peer, uint32_t message_id, bool sent,
                    tmsg_status_t status, const char *error);

    /* tmsg_calls_wake() or the alarm asked for it. No lock. */
    void (*run)(void *start);
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

/* The same at a time of tmsg_calls_now_ns(), once: the earliest that was asked
 * for since `run` was called by it. */
void tmsg_calls_alarm(tmsg_calls_t *calls, uint64_t at_ns);
void tmsg_calls_alarm_held(tmsg_calls_t *calls, uint64_t at_ns);
uint64_t tmsg_calls_now_ns(void);

/* Somebody who waits may have what he waited for; and that wait, as
 * tmsg_worker_until(): `done` is called with the lock held. */
void tmsg_calls_stir(tmsg_calls_t *calls);
tmsg_status_t tmsg_calls_until(tmsg_calls_t *calls, bool (*done)(void *arg),
                               void *arg, int timeout_ms, const char *missing,
                               const char *of);

/* Whether several threads may call. */
bool tmsg_calls_are_shared(const tmsg_calls_t *calls);

/* A message of kind CALL. *head and its text are copied where they are needed
 * longer than this call. deadline_ns, if not 0, is what left_us is counted from
 * when it is sent. on_release as in tmsg_send_params_t. The message id is
 * written with the lock held, before `bounced` can name it. Never blocks, and
 * is never dropped by a full queue's policy; `queues`: it is not held to the
 * queue's bounds either. Errors: as tmsg_endpoint_send(). */
typedef struct {
    const tmsg_call_head_t *head;
    uint64_t deadline_ns;
    tmsg_release_fn on_release;
    void *on_release_arg;
    bool queues;
    atomic_uint *message_id_p; /* NULL: none; else */
    atomic_bool *begun_p;      /* is true once it was written */
} tmsg_call_send_t;

tmsg_status_t tmsg_calls_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_call_send_t *how);

/* Gives the request of a call of ours up, if it is still here, and tells the
 * peer that nobody waits for its reply. */
void tmsg_calls_cancel(tmsg_endpoint_t *endpoint, uint64_t id);

/* Keeps an endpoint, as a message does; from any thread. */
void tmsg_calls_hold(tmsg_endpoint_t *endpoint);
void tmsg_calls_drop(tmsg_endpoint_t *endpoint);

#endif
