/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/worker.h - the worker as the library sees it.
 *
 * Whatever the library finds out while it holds the worker's lock, or while
 * UCX calls it, is queued: callbacks of the application as "due" records, work
 * on an endpoint as "chores". progress() does the chores and then runs what is
 * due, with no lock held and outside UCX. */
#ifndef TMSG_AM_WORKER_WORKER_H
#define TMSG_AM_WORKER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include <tensormsg/listener.h>

#include "am/net/loop.h"
#include "am/ucx/ucx.h"
#include "am/worker/context.h"
#include "am/worker/patience.h"
#include "am/worker/sharing.h"
#include "am/worker/staging.h"
#include "am/worker/stats.h"
#include "am/worker/store.h"
#include "core/list.h"
#include "core/refs.h"
#include "serialize/schema.h"

/* Channels for which the record of the next repeat may be ready; repeat.h. */
#define TMSG_WORKER_RECENT 8

/* Embedded in what has a callback to run. */
typedef struct tmsg_due {
    tmsg_node_t node;
    void (*run)(struct tmsg_due *due);
} tmsg_due_t;

/* Outlives the worker for those who may ask whether it is over, and for what
 * else they share. */
typedef struct {
    tmsg_refs_t refs;
    atomic_bool over;
    tmsg_schema_total_t schemas; /* of peers that are kept for them */
} tmsg_life_t;

void tmsg_life_hold(tmsg_life_t *life);
void tmsg_life_drop(tmsg_life_t *life);

/* Messages that are not fetched yet, each in one of these: fetch_queue.h. */
typedef struct {
    tmsg_list_t first;   /* need no memory, or have it */
    tmsg_list_t asking;  /* for memory */
    tmsg_list_t arrived; /* are to ask, unless they are early */
    tmsg_list_t early;   /* others are to have theirs first, or to come */
    tmsg_list_t gapped;  /* one before them has not come */
    uint64_t looks;      /* at the early ones, so far */
    uint64_t turns;      /* of those that arrived, so far */
} tmsg_fetch_queue_t;

/* Who drives a worker, and how that thread rests: lead.c, nap.c and worker.c
 * alone touch it. */
typedef struct {
    bool taken;                /* a thread drives it, and others need not: */
    pthread_t leader;          /* this one */
    uint64_t changes;          /* things that somebody may have waited for */
    _Atomic uint64_t arrivals; /* of these, what a receive may wait for */
    unsigned waiters;          /* threads that sleep on `changed` */
    atomic_uint
        wanting; /* threads that wait for the lock: spinning gives way */
    atomic_uint callbacks; /* that threads are in; changed with the lock */
    unsigned entered;      /* calls that must leave before it is freed */
    bool naps;             /* the leader sleeps on boxes; box.h */
    bool no_naps;          /* this kernel cannot */
    unsigned naps_vain;    /* since something came */
} tmsg_worker_lead_t;

/* When the loop is looked at, which takes system calls: the engine's. */
typedef struct {
    unsigned steps;       /* progress calls since the loop was looked at */
    unsigned quiet;       /* those in a row that found nothing */
    unsigned busy;        /* those in a row that found something */
    bool look;            /* look at it in the next one */
    struct timespec tick; /* when it was last looked at by the clock */
    tmsg_timer_t tidy;    /* when to trim the store's pool */
} tmsg_worker_pace_t;

/* The room send's part. */
typedef struct {
    struct tmsg_channel *recent[TMSG_WORKER_RECENT]; /* that sent repeats */
    unsigned next_recent;
    tmsg_pool_block_t gather; /* where a repeat is put together, if it is not
                               * small; of the store's pool */
} tmsg_worker_tx_t;

/* The room recv's. */
typedef struct {
    bool starved; /* a message has waited for memory, as was logged */
    bool chooses; /* the header callback has chosen a device before */
} tmsg_worker_rx_t;

/* The room path's: boxes of peers. */
typedef struct {
    bool boxes_sleep;    /* their senders are to wake us */
    unsigned boxes_made; /* for peers */
} tmsg_worker_paths_t;

/* The room endpoint's: bytes that peers may send ahead; see credit.h. */
typedef struct {
    uint64_t bytes;
    uint32_t count;
} tmsg_worker_windows_t;

/* The engine's: of endpoints that have left the table. */
typedef struct {
    tmsg_stats_t stats;
    uint64_t endpoints;
} tmsg_worker_past_t;

struct tmsg_worker {
    tmsg_context_t *context;
    tmsg_life_t *life;
    uint32_t flags;
    tmsg_message_fn handler;
    void *handler_arg;
    tmsg_refused_fn on_refused;
    void *on_refused_arg;
    tmsg_header_fn on_header;
    void *on_header_arg;
    uint32_t queue_depth;
    uint16_t channels; /* that each peer may use */
    tmsg_worker_windows_t windows;
    tmsg_patience_t patience;       /* of its waits, whoever leads */
    tmsg_sharing_t sharing;         /* likewise, and of who polls itself */
    tmsg_queue_params_t send_queue; /* of its endpoints; all set */

    pthread_mutex_t lock; /* taken only where several threads may call */
    pthread_cond_t changed;
    tmsg_worker_lead_t lead;
    bool asleep;      /* the leader sleeps on the descriptor, and on */
    int wake_fd;      /* this one, which is its own */
    bool armed;       /* the application may sleep on it */
    pthread_t armer;  /* in this thread */
    bool inside;      /* UCX is calling us, or a box is being emptied:
                       * UCX is not to be called */
    bool fetching;    /* a thread asks for memory */
    bool dispatching; /* a thread runs what is due */
    bool ending;      /* nothing new begins, and waits end */
    bool doomed;      /* destroyed inside a callback: freed by who leaves */
    pthread_t thread; /* with TMSG_WORKER_THREAD */

    tmsg_loop_t loop;
    tmsg_worker_pace_t pace;
    unsigned idle;     /* as pace.quiet, and since something was sent */
    tmsg_list_t lanes; /* that something is expected of; lane.h */
    tmsg_list_t boxes; /* of peers, to be looked into; boxes.h */
    bool boxes_owe;    /* peers are to be called for what UCX has kept back */
    atomic_int
        peer_core; /* of whose message came last by one, and 1; 0: none */
    tmsg_worker_paths_t paths;
    bool calls_behind; /* calls have put something off until then */
    tmsg_list_t due;
    tmsg_timer_t silence; /* when to look for peers that are silent */

    tmsg_ucx_t *ucx;
    bool has_retired;            /* some of these wait to be closed */
    tmsg_endpoint_t **endpoints; /* by slot; NULL is free */
    uint32_t endpoint_slots;
    uint32_t endpoint_count; /* slots that are taken */
    uint32_t generation;     /* of the newest endpoint id */
    tmsg_worker_past_t past;
    tmsg_list_t chores; /* endpoints that have some */
    tmsg_listener_t *listeners;
    struct tmsg_publisher *publishers;
    struct tmsg_calls *calls; /* NULL: nobody calls, or is called; calls.h */

    tmsg_stage_t stage; /* copies to and from devices */

    tmsg_store_t *store;
    uint64_t repeats; /* kinds of message that could be repeated, so far */
    tmsg_worker_tx_t tx;
    tmsg_map_t *layout; /* the newest of what peers have defined, or NULL */
    tmsg_fetch_queue_t fetch; /* messages that arrived and are not fetched, */
    tmsg_list_t ready;        /* and those to be pulled */
    tmsg_worker_rx_t rx;
};

static inline bool tmsg_worker_is_shared(const tmsg_worker_t *worker)
{
    return (worker->flags & (TMSG_WORKER_SHARED | TMSG_WORKER_THREAD)) != 0;
}

void tmsg_worker_lock_shared(tmsg_worker_t *worker);
void tmsg_worker_unlock_shared(tmsg_worker_t *worker);

static inline void tmsg_worker_lock(tmsg_worker_t *worker)
{
    if (tmsg_worker_is_shared(worker)) {
        tmsg_worker_lock_shared(worker);
    }
}

/* Giving the lock back wakes whoever sleeps: there may be work. */
static inline void tmsg_worker_unlock(tmsg_worker_t *worker)
{
    if (tmsg_worker_is_shared(worker)) {
        tmsg_worker_unlock_shared(worker);
    }
}

/* Messages of a channel whose credit goes back at a time, for that costs a
 * message: half a window. */
static inline uint32_t tmsg_worker_credit_batch(const tmsg_worker_t *worker)
{
    return worker->queue_depth / 2;
}

/* Lock held. Errors: CLOSED (it is ending, and takes nothing new). */
tmsg_status_t tmsg_worker_check(const tmsg_worker_t *worker);

/* Lock held: queues a callback. */
void tmsg_worker_due(tmsg_worker_t *worker, tmsg_due_t *due);

/* Lock held: something that somebody may wait for has happened. */
void tmsg_worker_changed(tmsg_worker_t *worker);

/* The same, where it is something that a receive may wait for. */
void tmsg_worker_arrived(tmsg_worker_t *worker);

#endif
