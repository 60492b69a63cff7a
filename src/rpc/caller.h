/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/caller.h - calls that this side has made. */
#ifndef TMSG_RPC_CALLER_H
#define TMSG_RPC_CALLER_H

#include "core/refs.h"
#include "rpc/hub.h"

#define TMSG_CALL_ERROR_BYTES 400
#define TMSG_CALL_NO_NUMBER UINT64_MAX

struct tmsg_call {
    tmsg_refs_t refs; /* handle, list, event, reply on its way */
    atomic_int status;
    tmsg_endpoint_t *endpoint; /* held, and with it peer and hub */
    tmsg_rpc_peer_t *peer;
    tmsg_call_stream_t *stream; /* that it is, or NULL; lives as long */
    uint64_t id;
    _Atomic uint64_t number; /* of its request's message, or none: */
    tmsg_keyed_t by_message; /* by which it is found, */
    bool indexed;            /* if it is */
    tmsg_node_t node;        /* of the peer's calls */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_call_in_t in;
    bool coming;   /* the reply's head is here */
    bool forsaken; /* its handle is gone, and with it on_done */
    bool may_have_run;
    tmsg_call_fn on_done;
    void *on_done_arg;
    int32_t timeout_ms;
    int32_t reply_status; /* what the head of the reply said */
    int32_t reply_code;
    uint8_t reply_flags;
    int32_t code;
    tmsg_message_t *reply;
    const tmsg_map_t *into;            /* held until it ends; NULL: none */
    const tmsg_map_t *spent;           /* the last hold was ours: to be freed */
    const tmsg_map_t *map, *spent_map; /* what is sent, where it may be again */
    struct tmsg_meter *meter;          /* NULL: it is not counted */
    struct tmsg_hooks *hooks;          /* NULL: nobody intercepts it */
    uint64_t begun_ns;
    uint64_t deadline_ns;       /* 0: none */
    tmsg_retry_t retry;         /* attempts 0: it is made once */
    uint32_t flags;             /* TMSG_CALL_* */
    atomic_uint attempts;       /* that were made */
    bool ran_before;            /* one of them may have */
    bool released;              /* on_release was called, or is none */
    unsigned lent;              /* attempts that may still read the map */
    tmsg_release_fn on_release; /* of a call that may be made again */
    void *on_release_arg;
    tmsg_expiry_t backoff; /* until the next attempt, */
    tmsg_rpc_event_t next; /* which this begins */
    bool extras; /* some of into, retry, hooks, meter and stream is there: what
                  * these take is done beside what every call takes */
    tmsg_call_head_t head; /* of its request, */
    tmsg_call_send_t how;  /* which is sent so */
    /* Not zeroed with the rest: */
    size_t method_bytes; /* that and the name: of the record's last call */
    char reply_text[TMSG_CALL_TEXT_MOST + 1];
    char error[TMSG_CALL_ERROR_BYTES];
    char method[TMSG_METHOD_BYTES_MAX + 1];
};

void tmsg_call_hold(tmsg_call_t *call);
void tmsg_call_drop(tmsg_call_t *call); /* without a lock */

/* The same of so many, on the thread of the worker, or any where that is
 * shared. */
void tmsg_call_drop_own(tmsg_call_t *call, unsigned count);

/* Likewise its handle, which nobody was given. */
void tmsg_call_drop_unseen(tmsg_call_t *call);

/* Gives back what was put off. */
void tmsg_calls_catch_up(tmsg_hub_t *hub);

bool tmsg_call_has_ended(const tmsg_call_t *call);

/* With two references, the list's and the handle's. Errors: INVALID_PARAM (the
 * method's name, params), UNSUPPORTED, BUSY (reply_into), NO_MEMORY. */
tmsg_status_t tmsg_call_make(tmsg_rpc_peer_t *peer, const char *method,
                             const tmsg_call_params_t *params,
                             tmsg_call_t **call_p);

/* From here on replies find it, and its end; `map` is counted. */
tmsg_status_t tmsg_call_enlist(tmsg_call_t *call, const tmsg_map_t *map);

/* A tmsg_call_send_t's `began`: has it found by its message's number from now
 * on, if its peer refuses. Not needed where nobody can look for it before it
 * was sent, as one that has no extras, of a worker that is not shared. */
void tmsg_call_began(void *call);

/* It was not sent. False: it has ended otherwise, and that is told. */
bool tmsg_call_delist(tmsg_call_t *call, tmsg_status_t status);

/* Lock held: one of that peer's that goes on; NULL: none. */
tmsg_call_t *tmsg_call_find(const tmsg_rpc_peer_t *peer, uint64_t id);

/* Words without the name of the peer that they begin with: whoever they are
 * for has it in front already, or is that peer. */
const char *tmsg_call_without_peer(const char *peer, const char *why);

/* Lock held: says why it failed. */
void tmsg_call_explain(tmsg_call_t *call, const char *why);

/* Ends it if it goes on. Without a lock. */
void tmsg_call_give_up(tmsg_call_t *call, bool forsake);

/* A status from the wire. */
int32_t tmsg_call_known_status(int32_t status);

/* What a new call begins with: functions for its reply and its end. */
void tmsg_call_init(tmsg_call_t *call);

/* Lock held: more slots. Errors: NO_MEMORY. */
tmsg_status_t tmsg_call_grow_slots(tmsg_hub_t *hub);

/* Lock held: an id for an attempt. Errors: NO_MEMORY. */
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

/* Lock held: the attempt is over, whose id nobody finds any more. */
void tmsg_call_leave(tmsg_call_t *call);

/* Lock held, once: it is in no list any more, and whose reference that was is
 * the caller's. */
void tmsg_call_end(tmsg_call_t *call, tmsg_status_t status);

/* Lock held: ends it with words, for an event to tell of, or has it made
 * again. */
void tmsg_call_fail(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                    const char *why);

/* Lock held: ends it with words; the peer is to hear of it, too. */
void tmsg_call_quit(tmsg_call_t *call, tmsg_status_t status, const char *why);

/* Sends it, which has an id; `map` may be NULL. Without a lock. Errors: as
 * tmsg_calls_send(), and nothing was sent. */
tmsg_status_t tmsg_call_send(tmsg_call_t *call, uint64_t id,
                             const tmsg_map_t *map);

/* retry.c: reads that part of what a call is made with. Errors:
 * INVALID_PARAM. */
tmsg_status_t tmsg_retry_read(const tmsg_call_params_t *params,
                              tmsg_call_t *call);

/* Of a call that may be made again, before it is sent: keeps what that takes.
 */
void tmsg_retry_init(tmsg_call_t *call, const tmsg_map_t *map);

/* An attempt is to be sent, which holds the call until it reads the map no
 * more; it was not. */
void tmsg_retry_lend(tmsg_call_t *call, tmsg_call_send_t *how);
void tmsg_retry_unlend(tmsg_call_t *call);

/* Lock held: an attempt has come to that. True: it will be made again, which an
 * event sees to; the hub is to be woken. `safe`: the server says that nothing
 * is against it. */
bool tmsg_call_again(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                     bool safe);

/* Without a lock, when it has ended: calls on_release if it may be. */
void tmsg_call_release(tmsg_call_t *call);

/* tmsg_calls_ops_t's `begins`, of a reply. */
tmsg_status_t tmsg_reply_begins(tmsg_rpc_peer_t *peer,
                                const tmsg_call_head_t *head,
                                tmsg_call_in_t **in_p,
                                const tmsg_map_t **into_p);

/* tmsg_calls_ops_t's `bounced`, of a request. */
bool tmsg_call_bounces(void *peer, uint32_t message_id, bool sent,
                       tmsg_status_t status, const char *error);

/* The hub's lock held: the peer's endpoint has ended. */
void tmsg_calls_lost(tmsg_rpc_peer_t *peer, tmsg_status_t status,
                     const char *error);

#endif
