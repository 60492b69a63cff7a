/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/hub.h - what all calls of one worker have in common.
 *
 * Its lock is taken inside the worker's, never around it: with it held nothing
 * of src/am is called, nothing that may free a message or an endpoint, and
 * nothing of the application. What is to be told to the application is an
 * event, which runs where its callbacks do. */
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
#include "rpc/table.h"

#define TMSG_RPC_EARLY 32 /* calls that were canceled before they came */

#ifdef __SANITIZE_ADDRESS__ /* which finds what is used after it was freed */
#define TMSG_RPC_SPARES 0
#else
#define TMSG_RPC_SPARES 64 /* records of a kind that are kept */
#endif

/* A step that the other end of a call waits for: its functions are one with
 * those around it, and what is rare in it is another, for which it saves
 * nothing. */
#define TMSG_RPC_STEP static inline __attribute__((always_inline))
#define TMSG_RPC_RARE static __attribute__((noinline))

typedef struct tmsg_hub tmsg_hub_t;

/* Embedded in what has something to tell; `fire` runs without locks. */
typedef struct tmsg_rpc_event {
    tmsg_node_t node;
    void (*fire)(struct tmsg_rpc_event *event);
} tmsg_rpc_event_t;

/* Embedded in what ends at its deadline; `expire` runs with the lock held. */
typedef struct tmsg_expiry {
    tmsg_node_t node;
    uint64_t at_ns; /* 0: it has none, or is in the list no more */
    void (*expire)(struct tmsg_expiry *expiry);
} tmsg_expiry_t;

typedef struct {
    tmsg_call_t *call;  /* NULL: it is free, and the next free one is */
    uint32_t next_free; /* this, or none where that is their number */
} tmsg_rpc_slot_t;

/* Records of a kind that are kept for the next. */
typedef struct {
    void *_Atomic at_hand; /* one that is had without the lock, of a worker that
                            * is not shared by its thread alone; or NULL */
    tmsg_list_t more;      /* as if they were nodes */
} tmsg_records_t;

struct tmsg_hub {
    tmsg_refs_t refs;     /* of the worker, its peers, its server */
    bool shared;          /* the worker is */
    pthread_mutex_t lock; /* then; else */
    atomic_bool locked;   /* this is its lock */
    tmsg_calls_t *calls;  /* to be used while the worker is there */
    atomic_bool over;     /* it is not */
    tmsg_list_t events;
    tmsg_list_t deadlines;  /* soonest first */
    uint64_t alarm_ns;      /* that was asked for; 0: none */
    tmsg_rpc_slot_t *slots; /* of calls under way, by their id's low half */
    uint32_t slot_count, free_slot;
    uint32_t generation;        /* of the newest id: its high half */
    struct tmsg_server *server; /* NULL: none */
    struct tmsg_task *running;  /* whose handler the worker's thread is in;
                                 * NULL: none, as where it is shared */
    uint64_t late_replies;      /* that nobody waited for any more */
    uint64_t retried;           /* attempts beyond a call's first */
    bool counts;                /* metrics are wanted */
    tmsg_list_t meters;
    tmsg_table_t meters_by_name;
    unsigned names_called; /* that have a meter */
    tmsg_map_t *empty;     /* what stands for a NULL */
    tmsg_records_t calls_kept;
    tmsg_call_t *call_ready; /* the next call's record, with all that is known
                              * before; NULL: none, as where it is shared */
    tmsg_call_t *call_over;  /* one that is still to be given back, with its
                              * reply; NULL: none, as where it is shared */
    tmsg_records_t tasks_kept;
    _Atomic(struct tmsg_chain *) chains[2]; /* by tmsg_side_t - 1; NULL: none */
    struct tmsg_tracer *tracer;             /* NULL: none */
    tmsg_list_t spare_hooks;                /* as above */
    unsigned refusals; /* that interceptors are still to be told of */
};

/* Of retries, in thousandths of a token. */
typedef struct {
    uint32_t tokens, most, gain;
} tmsg_budget_t;

#define TMSG_BUDGET_DEFAULT ((tmsg_budget_t){10000, 10000, 100})

/* Where a stream of the peer's is, or was: the peer uses it again when it has
 * heard that this side is done with the one before. */
typedef struct {
    tmsg_call_stream_t *stream; /* NULL: none; else holds it */
    uint64_t early; /* one that was canceled before it came; 0: none */
} tmsg_stream_slot_t;

/* An endpoint: lives as long as that. */
typedef struct {
    tmsg_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    bool over;         /* it has ended */
    tmsg_list_t calls; /* ours, under way */
    tmsg_list_t tasks; /* its, to be answered */
    tmsg_budget_t budget;
    bool refuses; /* a message of ours did not arrive: from then on calls are
                   * found by the numbers of theirs */
    tmsg_table_t calls_by_message;
    tmsg_table_t tasks_by_id;
    uint64_t early[TMSG_RPC_EARLY];
    unsigned early_count;
    bool dialled; /* this side did; known once it has opened a stream */
    tmsg_call_stream_t **streams; /* ours, by index; these hold them */
    uint32_t stream_count;
    tmsg_stream_slot_t *slots; /* its, likewise */
    uint32_t slot_count;
    unsigned refusals; /* of its, as the hub's */
} tmsg_rpc_peer_t;

extern const tmsg_calls_ops_t tmsg_hub_ops;

void tmsg_hub_hold(tmsg_hub_t *hub);
void tmsg_hub_drop(tmsg_hub_t *hub);

/* Takes the lock of a worker that is not shared, once it is given back. */
void tmsg_hub_await_lock(tmsg_hub_t *hub);

/* Of a worker that is not shared hardly anybody ever wants it but the thread
 * that has the worker: handles that are given back elsewhere. There it costs
 * one locked operation where a mutex takes two, and two calls. */
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

/* The same for what a worker that is not shared has to itself as long as it
 * lives: calls and tasks that go on, and where they are found. What other
 * threads give back there is none of these any more. */
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

/* Without a lock: a record that was kept, as it was left but for its first 16
 * bytes, or a new one, of zeros; NULL: no memory. Keeps it for the next; `own`:
 * the caller is the worker's thread, or that is shared. */
void *tmsg_hub_record(tmsg_hub_t *hub, tmsg_records_t *records, size_t bytes);
void tmsg_hub_give_record(tmsg_hub_t *hub, tmsg_records_t *records,
                          void *record, bool own);

/* The first place of a record that is given back on the thread of a worker that
 * is not shared. False: it is taken, or none are kept. */
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

/* What was put there, on that thread or with the lock; NULL: nothing. */
static inline void *tmsg_hub_take_at_hand(tmsg_records_t *records)
{
    void *record =
        atomic_load_explicit(&records->at_hand, memory_order_relaxed);

    atomic_store_explicit(&records->at_hand, NULL, memory_order_relaxed);
    return record;
}

/* The same with the lock held, of records that are always given back so. False:
 * it is not kept, and to be freed. */
void *tmsg_hub_take_record(tmsg_records_t *records, size_t bytes);
bool tmsg_hub_keep_record(tmsg_records_t *records, void *record);

/* Lock held: has the event fire, once the worker was woken. */
void tmsg_hub_tell(tmsg_hub_t *hub, tmsg_rpc_event_t *event);

/* Lock held: begins to wait for a deadline; true: tmsg_calls_alarm() is to be
 * asked for it. Stops to. */
bool tmsg_hub_expect(tmsg_hub_t *hub, tmsg_expiry_t *expiry, uint64_t at_ns);
void tmsg_hub_forgo(tmsg_hub_t *hub, tmsg_expiry_t *expiry);

/* Without a lock: has events fire, if the worker is there. */
void tmsg_hub_wake(tmsg_hub_t *hub);

/* Whether a name may be a method's. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_method_check(const char *method, size_t *bytes_p);

#endif
