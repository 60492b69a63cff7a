/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/caller.h - the calls that this side makes. The lock below is the hub's,
 * unless a comment names another. */
#ifndef TMSG_RPC_CALLER_H
#define TMSG_RPC_CALLER_H

#include "core/refs.h"
#include "rpc/hub.h"

#define TMSG_CALL_ERROR_BYTES 400
#define TMSG_CALL_NO_NUMBER UINT64_MAX

struct tmsg_call {
    tmsg_refs_t refs; /* for the handle, the list, the event, a coming reply */
    atomic_int status;
    tmsg_endpoint_t *endpoint; /* held; keeps peer and hub alive */
    tmsg_rpc_peer_t *peer;
    /* The peer in whose list the call is, and by whose endpoint it goes:
     * `peer`, or one that came after it, whose endpoint is held then. The lock
     * protects it. */
    tmsg_rpc_peer_t *current;
    tmsg_call_stream_t *stream; /* the stream that this call opened, or NULL;
                                   freed with the call */
    uint64_t id;
    _Atomic uint64_t
        number; /* message number of the request, or TMSG_CALL_NO_NUMBER */
    tmsg_keyed_t by_message; /* entry in the peer's calls_by_message */
    bool indexed;            /* by_message is in that table */
    tmsg_node_t node;        /* in the peer's list of calls */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_rpc_event_t expired; /* ends the call whose time is up */
    tmsg_call_in_t in;
    bool coming;    /* the head of the reply has arrived */
    bool abandoned; /* the handle was destroyed: on_done is not called */
    bool
        has_about; /* until a failure has come, reply_text says what is asked */
    bool may_have_run;
    tmsg_call_fn on_done;
    void *on_done_arg;
    int32_t timeout_ms;
    int32_t reply_status; /* status in the head of the reply */
    int32_t reply_code;
    uint8_t reply_flags;
    int32_t code;
    tmsg_message_t *reply;
    const tmsg_map_t *into; /* map that takes the reply, held until the call
                               ends; NULL: none */
    /* `into`, to be freed: this call had the last hold */
    const tmsg_map_t *spent;
    const tmsg_map_t *map, *spent_map; /* what a call with retries sends, or
                                          NULL; and that map, to be freed */
    struct tmsg_meter *meter;          /* NULL: the call is not counted */
    struct tmsg_hooks *hooks;          /* NULL: no interceptor sees the call */
    uint64_t begun_ns;
    uint64_t deadline_ns; /* 0: no deadline */
    tmsg_retry_t retry;   /* attempts 0: the call is made once */
    uint32_t flags;       /* TMSG_CALL_* */
    atomic_uint attempts; /* number of attempts made */
    unsigned unready;     /* those of them that found the server not ready */
    unsigned pauses;      /* since unready_ns */
    uint64_t unready_ns;  /* since when it has been so; 0: it is not */
    bool ran_before;      /* an earlier attempt may have run */
    bool released;        /* on_release was called, or there is none */
    unsigned lent;        /* number of attempts that may still read the map */
    tmsg_release_fn on_release; /* the application's, if the call has retries */
    void *on_release_arg;
    tmsg_expiry_t backoff; /* waits until the next attempt is due */
    tmsg_rpc_event_t next; /* begins the next attempt */
    bool extras; /* the call has an `into`, retries, hooks, a meter or a stream:
                    rare steps look at these */
    tmsg_call_head_t head; /* head of the request */
    tmsg_call_send_t how;  /* how the request is sent */
    /* A new call zeroes the fields above, not those below. */
    size_t method_bytes; /* this and `method` hold the name that the record's
                            last call used */
    char reply_text[TMSG_CALL_TEXT_MOST + 1];
    char error[TMSG_CALL_ERROR_BYTES];
    char method[TMSG_METHOD_BYTES_MAX + 1];
};

/* As tmsg_endpoint_call(). If there is no reply in time the error says `about`,
 * what is asked. `borrows`: the reply may be a loan, whatever the worker's
 * flags; the request has to tell the peer. */
tmsg_status_t tmsg_call_about(tmsg_endpoint_t *endpoint, const char *method,
                              const tmsg_map_t *map,
                              const tmsg_call_params_t *params,
                              const char *about, bool borrows,
                              tmsg_call_t **call_p);

void tmsg_call_hold(tmsg_call_t *call);
void tmsg_call_drop(tmsg_call_t *call); /* lock not held */

/* Drops `count` references. Lock not held. The caller is the worker's thread,
 * or any thread if the worker is shared. */
void tmsg_call_drop_own(tmsg_call_t *call, unsigned count);

/* Drops the reference of a handle that nobody was given. Lock not held; the
 * same threads as tmsg_call_drop_own(). */
void tmsg_call_drop_unseen(tmsg_call_t *call);

/* Gives back the ended call whose release was put off. Worker's thread only. */
void tmsg_calls_catch_up(tmsg_hub_t *hub);

/* Has a call that goes on go by the heir of its current peer from now on
 * (carry.c). The caller holds the endpoint of the current one. Lock held. */
void tmsg_call_carry(tmsg_call_t *call, tmsg_rpc_peer_t *heir);

/* Ends the hold of a call's current peer, with the call. Lock not held. */
void tmsg_call_drop_current(tmsg_call_t *call);

/* Holds and returns the endpoint of the call's current peer. Takes the lock. */
tmsg_endpoint_t *tmsg_call_hold_current(tmsg_call_t *call);

/* Tells the other side that nobody waits for the reply to that attempt any
 * more. Lock not held. */
void tmsg_call_uncall(tmsg_call_t *call, uint64_t id);

bool tmsg_call_has_ended(const tmsg_call_t *call);

/* Makes a call with two references: the list's and the handle's. It takes over
 * the caller's reference to the peer's endpoint, also on an error. Errors:
 * INVALID_PARAM (the method's name, params), UNSUPPORTED, BUSY (reply_into),
 * NO_MEMORY. */
tmsg_status_t tmsg_call_make(tmsg_rpc_peer_t *peer, const char *method,
                             const tmsg_call_params_t *params,
                             tmsg_call_t **call_p);

/* Puts the call into its peer's list, a slot and the list of deadlines, so that
 * replies find it. Metrics count the bytes of `map`. Takes the lock. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_call_enlist(tmsg_call_t *call, const tmsg_map_t *map);

/* Serves as `began` of a tmsg_call_send_t: from now on the call can be found by
 * its message's number, if its peer refuses. A worker that is not shared needs
 * no `began` for calls without extras, because nobody looks for such a call
 * before it was sent. */
void tmsg_call_began(void *call);

/* Has the call found by its message's number, if calls of its current peer are.
 * Lock held. */
void tmsg_call_index(tmsg_call_t *call);

/* Ends a call without retries that was not sent. Takes the lock. Returns false
 * if the call has ended otherwise; that end is told. */
bool tmsg_call_delist(tmsg_call_t *call, tmsg_status_t status);

/* Returns the call of that peer with that id, or NULL if it does not go on.
 * Lock held. */
tmsg_call_t *tmsg_call_find(const tmsg_rpc_peer_t *peer, uint64_t id);

/* Returns `why` without the peer's name that it begins with. The reader of the
 * words sees that name already, or is that peer. */
const char *tmsg_call_without_peer(const char *peer, const char *why);

/* Writes into call->error why the call failed. Lock held. */
void tmsg_call_explain(tmsg_call_t *call, const char *why);

/* Cancels the call if it goes on. If `abandon`, on_done is not called any more.
 * Lock not held. */
void tmsg_call_give_up(tmsg_call_t *call, bool abandon);

/* Returns a status from the wire, or REFUSED if the status is not a known one.
 */
int32_t tmsg_call_known_status(int32_t status);

/* Sets the functions of a new call for its reply and its end. */
void tmsg_call_init(tmsg_call_t *call);

/* Adds slots. Lock held. Errors: NO_MEMORY. */
tmsg_status_t tmsg_call_grow_slots(tmsg_hub_t *hub);

/* Gives an attempt its slot and its id. Lock held. Errors: NO_MEMORY. */
static inline tmsg_status_t tmsg_call_take_slot(tmsg_hub_t *hub,
                                                tmsg_call_t *call)
{
    uint32_t slot = hub->free_slot;

    if (slot == hub->slot_count && tmsg_call_grow_slots(hub) != TMSG_OK) {
        return TMSG_ERR_NO_MEMORY;
    }
    hub->free_slot = hub->slots[slot].next_free;
    hub->slots[slot].call = call;
    call->id = (uint64_t)++hub->generation << 32 | slot;
    return TMSG_OK;
}

/* Frees the slot of an attempt that is over, so that nobody finds its id. Lock
 * held. */
void tmsg_call_leave(tmsg_call_t *call);

/* Ends the call and removes it from all lists. The caller then owns the list's
 * reference. Lock held, once a call. */
void tmsg_call_end(tmsg_call_t *call, tmsg_status_t status);

/* Ends the call with the words `why` and queues the event that tells of it, or
 * has the call made again. Lock held. */
void tmsg_call_fail(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                    const char *why);

/* Ends the call like tmsg_call_fail(); the event also tells the peer. Lock
 * held. */
void tmsg_call_quit(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                    const char *why);

/* Sends a call that has an id by that endpoint; a NULL `map` stands for an
 * empty one. Lock not held. Errors: those of tmsg_calls_send(); on error
 * nothing was sent. */
tmsg_status_t tmsg_call_send(tmsg_call_t *call, tmsg_endpoint_t *endpoint,
                             uint64_t id, const tmsg_map_t *map);

/* Reads the flags and the retries of `params` (retry.c). Errors: INVALID_PARAM.
 */
tmsg_status_t tmsg_retry_read(const tmsg_call_params_t *params,
                              tmsg_call_t *call);

/* Keeps what the attempts of a call with retries need, before the first is
 * sent. Takes the lock. */
void tmsg_retry_init(tmsg_call_t *call, const tmsg_map_t *map);

/* tmsg_retry_lend() takes a reference to the call for an attempt that is about
 * to be sent, until the attempt no longer reads the map. tmsg_retry_unlend()
 * undoes it if the attempt was not sent. Both take the lock. */
void tmsg_retry_lend(tmsg_call_t *call, tmsg_call_send_t *how);
void tmsg_retry_unlend(tmsg_call_t *call);

/* Decides what follows an attempt that ended with `status`. Returns true if an
 * event will make the call again; the caller then wakes the hub. `safe` means
 * that the server allows the call to be repeated. Lock held. */
bool tmsg_call_again(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                     bool safe);

/* Calls on_release of a call with retries if the call has ended and no attempt
 * reads the map. Lock not held. */
void tmsg_call_release(tmsg_call_t *call);

/* Serves as `begins` of tmsg_calls_ops_t, for replies. */
tmsg_status_t tmsg_reply_begins(tmsg_rpc_peer_t *peer,
                                const tmsg_call_head_t *head,
                                tmsg_call_in_t **in_p,
                                const tmsg_map_t **into_p);

/* Serves as `bounced` of tmsg_calls_ops_t, for requests. */
bool tmsg_call_bounces(void *peer, uint32_t message_id, bool sent,
                       tmsg_status_t status, const char *error);

/* Fails the peer's calls, because its endpoint has ended. Lock held. */
void tmsg_calls_lost(tmsg_rpc_peer_t *peer, tmsg_status_t status,
                     const char *error);

#endif
