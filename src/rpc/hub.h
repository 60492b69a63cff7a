/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/hub.h - what all calls of one worker share.
 *
 * The hub's lock is taken inside the worker's lock, never around it. A thread
 * that holds it calls nothing of src/am, nothing that may free a message or an
 * endpoint, and nothing of the application. The hub tells the application by
 * events, which run where the application's callbacks run. */
#ifndef TMSG_RPC_HUB_H
#define TMSG_RPC_HUB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/stream.h>

#include "am/calls/calls.h"
#include "core/error.h"
#include "core/list.h"
#include "core/refs.h"
#include "rpc/heap.h"
#include "rpc/table.h"

#define TMSG_RPC_EARLY 32 /* ids of canceled calls that are kept */
#define TMSG_RPC_SAFE 32  /* methods of a peer that are known as idempotent */

#ifdef __SANITIZE_ADDRESS__ /* ASan finds uses after free only in freed        \
                               records */
#define TMSG_RPC_SPARES 0
#else
#define TMSG_RPC_SPARES 64 /* records of a kind that are kept */
#endif

/* TMSG_RPC_STEP marks a step that the other end of a call waits for: the
 * compiler inlines it. TMSG_RPC_RARE marks a rare step: it stays a function, so
 * that the steps around it save no registers for it. */
#define TMSG_RPC_STEP static inline __attribute__((always_inline))
#define TMSG_RPC_RARE static __attribute__((noinline))

typedef struct tmsg_hub tmsg_hub_t;

/* An event is embedded in the record that has something to tell. `fire` runs
 * without locks. */
typedef struct tmsg_rpc_event {
    tmsg_node_t node;
    void (*fire)(struct tmsg_rpc_event *event);
} tmsg_rpc_event_t;

/* An expiry is embedded in the record that ends at a deadline. `expire` runs
 * with the hub's lock held. */
typedef struct tmsg_expiry {
    tmsg_node_t node;
    uint64_t at_ns; /* 0: no deadline, or not in the list */
    void (*expire)(struct tmsg_expiry *expiry);
} tmsg_expiry_t;

/* A lifetime is an expiry of a record that may be one of many thousands, with
 * times that have nothing in common: calls with deadlines do not pass by them.
 */
typedef struct tmsg_lifetime {
    tmsg_heap_node_t
        node; /* its number: when, 0: no time, or not in the heap */
    void (*expire)(struct tmsg_lifetime *lifetime);
} tmsg_lifetime_t;

typedef struct {
    tmsg_call_t *call; /* NULL: the slot is free */
    /* if free: the next free slot, or slot_count for none */
    uint32_t next_free;
} tmsg_rpc_slot_t;

/* The records of one kind that are kept for reuse. */
typedef struct {
    void *_Atomic
        at_hand; /* a record that is taken without the lock, or NULL; if the
                    worker is not shared, only its thread takes it */
    tmsg_list_t more; /* further records, linked as if they were nodes */
} tmsg_records_t;

struct tmsg_hub {
    tmsg_refs_t refs;     /* of the worker, its peers, its server */
    bool shared;          /* several threads may call the worker */
    pthread_mutex_t lock; /* the lock of a shared worker */
    atomic_bool locked;   /* the lock of a worker that is not shared */
    tmsg_calls_t *calls;  /* usable while the worker exists */
    atomic_bool over;     /* the worker is gone */
    tmsg_list_t events;
    tmsg_list_t deadlines; /* soonest first */
    tmsg_heap_t lifetimes;
    uint64_t alarm_ns; /* time of the alarm that was asked for; 0: none */
    /* of calls under way, by the low half of their id */
    tmsg_rpc_slot_t *slots;
    uint32_t slot_count, free_slot;
    uint32_t generation;         /* high half of the newest id */
    struct tmsg_server *server;  /* the application's; NULL: none */
    struct tmsg_server *builtin; /* of the library's own methods; NULL: none
                                    yet, or the worker is gone */
    struct tmsg_offers *offers;  /* NULL: none yet */
    uint64_t lent_most;          /* bytes that offers may lend */
    tmsg_map_t *fetch_kept;      /* request of a fetch by key, for the next one;
                                    NULL: none */
    struct tmsg_task *running;   /* task whose handler the worker's thread runs;
                                    NULL: none, or the worker is shared */
    uint64_t late_replies;       /* replies that no call waited for any more */
    uint64_t retried;            /* attempts beyond the first of a call */
    atomic_bool leaves;          /* its server was drained, and no other came */
    bool counts;                 /* the application wants metrics */
    tmsg_list_t meters;
    tmsg_table_t meters_by_name;
    /* number of method names that have a caller's meter */
    unsigned names_called;
    tmsg_map_t *empty; /* map that is sent in place of NULL */
    tmsg_records_t calls_kept;
    tmsg_call_t *call_ready; /* prepared record for the next call; NULL: none,
                                or the worker is shared */
    /* ended call whose record and reply are still to be given back; NULL: none,
     * or the worker is shared */
    tmsg_call_t *call_over;
    tmsg_records_t tasks_kept;
    _Atomic(struct tmsg_chain *) chains[2]; /* by tmsg_side_t - 1; NULL: none */
    struct tmsg_tracer *tracer;             /* NULL: none */
    tmsg_list_t spare_hooks;                /* spare tmsg_hooks_t, for reuse */
    unsigned refusals; /* number of refusals that interceptors are still to be
                          told of */
};

/* The budget of retries, in thousandths of a token. */
typedef struct {
    uint32_t tokens, most, gain;
} tmsg_retry_budget_t;

#define TMSG_RETRY_BUDGET_DEFAULT ((tmsg_retry_budget_t){10000, 10000, 100})

/* A slot is the place of a stream that the peer opened. The peer uses the place
 * again when it has heard that this side is done with the stream before. */
typedef struct {
    tmsg_call_stream_t *stream; /* held; NULL: no stream */
    /* id of a stream that was canceled before it came; 0: none */
    uint64_t early;
} tmsg_stream_slot_t;

/* What calls keep of an endpoint. A peer lives as long as its endpoint. */
typedef struct tmsg_rpc_peer {
    tmsg_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    bool over; /* the endpoint has ended */
    /* What the endpoint that takes this one's place is to calls: from its end
     * on until that was told. NULL: nothing, or not any more. */
    struct tmsg_rpc_peer *heir;
    tmsg_list_t calls; /* calls of this side under way */
    tmsg_list_t tasks; /* calls of the peer, to be answered */
    tmsg_retry_budget_t budget;
    /* keys of methods that the peer declared idempotent in its replies to calls
     * with retries: a ring */
    uint64_t safe[TMSG_RPC_SAFE];
    unsigned safe_count;
    bool refuses; /* a message of this side did not arrive: from then on calls
                     are also found by the numbers of their messages */
    tmsg_table_t calls_by_message;
    tmsg_table_t tasks_by_id;
    uint64_t early[TMSG_RPC_EARLY];
    unsigned early_count;
    bool dialled; /* this side dialled; known once it has opened a stream */
    tmsg_call_stream_t **streams; /* streams that this side opened, by index;
                                     the array holds them */
    uint32_t stream_count;
    /* places of the streams that the peer opened, by index */
    tmsg_stream_slot_t *slots;
    uint32_t slot_count;
    unsigned refusals; /* number of the peer's refusals that interceptors are
                          still to be told of */
    unsigned fetches_waiting; /* places that the peer's fetches take that wait
                                 for a name */
    tmsg_list_t waits;        /* these fetches, oldest first */
    tmsg_node_t waiter;       /* among the peers that have some */
    unsigned lists;           /* that go to the peer, of offers or methods */
    uint64_t looked; /* number of the offer that was looked at for them last */
    bool may_fetch;  /* that offer */
} tmsg_rpc_peer_t;

void tmsg_hub_hold(tmsg_hub_t *hub);
void tmsg_hub_drop(tmsg_hub_t *hub);

/* Waits for the lock of a worker that is not shared, and takes it. */
void tmsg_hub_await_lock(tmsg_hub_t *hub);

/* These functions take and give back the hub's lock. If the worker is not
 * shared, its thread rarely meets another: others only give back handles. One
 * exchange then costs less than a mutex, which takes two locked operations and
 * two calls. */
static inline void tmsg_hub_lock(tmsg_hub_t *hub)
{
    if (hub->shared) {
        pthread_mutex_lock(&hub->lock);
    } else if (atomic_exchange_explicit(&hub->locked, true,
                                        memory_order_acquire)) {
        tmsg_hub_await_lock(hub);
    }
}

static inline void tmsg_hub_unlock(tmsg_hub_t *hub)
{
    if (hub->shared) {
        pthread_mutex_unlock(&hub->lock);
    } else {
        atomic_store_explicit(&hub->locked, false, memory_order_release);
    }
}

/* These functions take and give back the hub's lock only if the worker is
 * shared. If not, the worker's thread alone touches calls and tasks that go on,
 * and the tables that find them. Other threads give back only ended ones. */
static inline void tmsg_hub_lock_live(tmsg_hub_t *hub)
{
    if (hub->shared) {
        pthread_mutex_lock(&hub->lock);
    }
}

static inline void tmsg_hub_unlock_live(tmsg_hub_t *hub)
{
    if (hub->shared) {
        pthread_mutex_unlock(&hub->lock);
    }
}

/* tmsg_hub_record() returns a kept record, unchanged but for its first 16
 * bytes, or a new one of zeros; NULL: no memory. tmsg_hub_give_record() keeps a
 * record for reuse or frees it. `own` means that the caller is the worker's
 * thread, or that the worker is shared. Lock not held. */
void *tmsg_hub_record(tmsg_hub_t *hub, tmsg_records_t *records, size_t bytes);
void tmsg_hub_give_record(tmsg_hub_t *hub, tmsg_records_t *records,
                          void *record, bool own);

/* Keeps a record without the lock. Only for the thread of a worker that is not
 * shared. Returns false if the place is taken or no records are kept. */
static inline bool tmsg_hub_put_at_hand(tmsg_records_t *records, void *record)
{
    bool free_place =
        TMSG_RPC_SPARES > 0 &&
        atomic_load_explicit(&records->at_hand, memory_order_relaxed) == NULL;

    if (free_place) {
        atomic_store_explicit(&records->at_hand, record, memory_order_relaxed);
    }
    return free_place;
}

/* Takes the record that tmsg_hub_put_at_hand() kept, or returns NULL. The
 * caller is the thread of a worker that is not shared, or holds the lock. */
static inline void *tmsg_hub_take_at_hand(tmsg_records_t *records)
{
    void *record =
        atomic_load_explicit(&records->at_hand, memory_order_relaxed);

    atomic_store_explicit(&records->at_hand, NULL, memory_order_relaxed);
    return record;
}

/* These functions take and keep records that are always given back with the
 * lock held. tmsg_hub_take_record() returns NULL if there is no memory.
 * tmsg_hub_keep_record() returns false if the caller has to free the record.
 * Lock held. */
void *tmsg_hub_take_record(tmsg_records_t *records, size_t bytes);
bool tmsg_hub_keep_record(tmsg_records_t *records, void *record);

/* Frees the records that are kept, when nobody takes them any more. */
void tmsg_hub_free_records(tmsg_records_t *records);

/* Queues an event, which fires once the worker was woken. Lock held. */
void tmsg_hub_tell(tmsg_hub_t *hub, tmsg_rpc_event_t *event);

/* tmsg_hub_expect() begins to wait for a deadline, and returns true if the
 * caller has to ask tmsg_calls_alarm() for it. tmsg_hub_forgo() stops to wait.
 * The other two do so for a lifetime. Lock held. */
bool tmsg_hub_expect(tmsg_hub_t *hub, tmsg_expiry_t *expiry, uint64_t at_ns);
void tmsg_hub_forgo(tmsg_hub_t *hub, tmsg_expiry_t *expiry);
bool tmsg_lifetime_begin(tmsg_hub_t *hub, tmsg_lifetime_t *lifetime,
                         uint64_t at_ns);
void tmsg_lifetime_end(tmsg_hub_t *hub, tmsg_lifetime_t *lifetime);

/* Has the queued events fire, if the worker exists. Lock not held. */
void tmsg_hub_wake(tmsg_hub_t *hub);

/* Checks whether a name may name a method, and stores its length. Errors:
 * INVALID_PARAM. */
tmsg_status_t tmsg_method_check(const char *method, size_t *bytes_p);

#endif
