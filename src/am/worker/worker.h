/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/worker.h - the inside of a worker.
 *
 * The library queues what it finds out while it holds the worker's lock, or
 * while UCX calls it. Callbacks of the application are queued as "due" records,
 * work on an endpoint as "chores". progress() does the chores. It then runs
 * what is due, with no lock held and outside UCX. */
#ifndef TMSG_AM_WORKER_WORKER_H
#define TMSG_AM_WORKER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include <tensormsg/listener.h>

#include "am/net/loop.h"
#include "am/ucx/ucx.h"
#include "am/worker/budget.h"
#include "am/worker/context.h"
#include "am/worker/sharing.h"
#include "am/worker/spin.h"
#include "am/worker/staging.h"
#include "am/worker/stats.h"
#include "core/list.h"
#include "core/refs.h"
#include "serialize/schema.h"

/* A worker remembers this many channels whose record of the next template
 * message may be ready; see template.h. */
#define TMSG_WORKER_RECENT 8

/* Describes a queued callback. It is embedded in the record that the callback
 * is about. */
typedef struct tmsg_due {
    tmsg_node_t node;
    void (*run)(struct tmsg_due *due);
} tmsg_due_t;

/* Holds what a worker shares with objects that may outlive it. They ask here
 * whether the worker is over. */
typedef struct {
    tmsg_refs_t refs;
    atomic_bool over;
    tmsg_schema_total_t schemas; /* schemas that are kept for all peers */
} tmsg_life_t;

void tmsg_life_hold(tmsg_life_t *life);
void tmsg_life_drop(tmsg_life_t *life);

/* Says what a message that has arrived waits for; fetch_queue.h has the steps
 * from one state to the next. */
typedef enum {
    TMSG_FETCH_NONE = 0, /* it is not in the queue */
    TMSG_FETCH_GAPPED,   /* a message before it has not come */
    TMSG_FETCH_EARLY,    /* others are to have memory, or to come, before it */
    TMSG_FETCH_ARRIVED,  /* it is to ask for memory, unless it is early */
    TMSG_FETCH_ASKING,   /* it asks for memory */
    TMSG_FETCH_READY,    /* it needs no memory, or has it */
    TMSG_FETCH_STATES,
} tmsg_fetch_state_t;

/* Lists the messages that are not fetched yet, by their state. Early ones also
 * are in lists of their channel and endpoint, and what has such a list is
 * listed here; see fetch_queue.h. */
typedef struct {
    tmsg_list_t in[TMSG_FETCH_STATES];
    tmsg_list_t early_channels, early_endpoints;
    uint64_t looks; /* passes over the early messages, so far */
    uint64_t asked; /* early messages that were looked at in them, so far */
    uint64_t turns; /* messages that have arrived, so far */
} tmsg_fetch_queue_t;

/* Tells who drives a worker, and how that thread rests. Only lead.c, nap.c and
 * worker.c touch it. */
typedef struct {
    bool taken;       /* a thread drives the worker */
    pthread_t leader; /* the thread that drives it, if `taken` */
    uint64_t changes; /* events that a thread may have waited for */
    /* Counts those of `changes` that a receive may wait for. */
    _Atomic uint64_t arrivals;
    unsigned waiters; /* threads that sleep on `changed` */
    /* Counts the threads that wait for the lock: a thread that spins gives way
     * to them. */
    atomic_uint wanting;
    /* Counts the callbacks that threads are in; changed with the lock held. */
    atomic_uint callbacks;
    unsigned entered;   /* calls that must leave before the worker is freed */
    bool naps;          /* the leader sleeps on fast boxes; fastbox.h */
    bool no_naps;       /* the kernel has no naps */
    unsigned naps_vain; /* naps in vain since something came */
} tmsg_worker_lead_t;

/* Tells when the engine looks at the loop, which takes system calls. */
typedef struct {
    unsigned steps;       /* progress calls since the loop was looked at */
    unsigned quiet;       /* progress calls in a row that found nothing */
    unsigned busy;        /* progress calls in a row that found something */
    bool look;            /* the next progress call looks at the loop */
    struct timespec tick; /* when the clock last made it look at the loop */
    tmsg_timer_t tidy;    /* when to trim the memory budget's pool */
    tmsg_timer_t counts;  /* when to log counts of repeated events */
} tmsg_worker_pace_t;

/* Belongs to the room send. */
typedef struct {
    /* Lists the channels that sent template messages last. */
    struct tmsg_channel *recent[TMSG_WORKER_RECENT];
    unsigned next_recent;
    /* Holds memory from the memory budget's pool in which a template message is
     * put together, if it is not small. */
    tmsg_pool_block_t gather;
} tmsg_worker_tx_t;

/* Belongs to the room recv. */
typedef struct {
    bool starved; /* the log has told that a message waited for memory */
    bool chooses; /* the header callback has chosen a device before */
    /* since when messages wait for memory and none has got any; 0: they do
     * not */
    uint64_t starving_ns;
    uint64_t starved_ns; /* when such a message was in the queue last */
} tmsg_worker_rx_t;

/* Belongs to the room path: fast boxes of peers, and what is lent to them. */
typedef struct {
    bool fastboxes_sleep;       /* the senders were asked to wake this worker */
    unsigned fastboxes_made;    /* fast boxes that were made for peers */
    struct tmsg_lender *lender; /* NULL: nothing was lent or borrowed yet */
    /* Helps bulk streams with several subflows; NULL: there is none. */
    struct tmsg_bulk_crew *crew;
    /* Looks whether processes have ended that device memory was lent to. */
    tmsg_timer_t ipc_look;
    unsigned ipc_look_ms;
} tmsg_worker_paths_t;

/* Belongs to the room endpoint: bytes that all peers may send ahead; see
 * credit.h. */
typedef struct {
    uint64_t bytes;
    uint32_t count;
} tmsg_worker_windows_t;

/* Belongs to the room bell. */
typedef struct {
    tmsg_list_t all; /* that may be rung, or have something under way */
} tmsg_worker_bells_t;

/* Belongs to the engine: sums over endpoints that have left the table. */
typedef struct {
    tmsg_stats_t stats;
    uint64_t endpoints;
    uint64_t doubted_ns; /* when a stranger last had a UCX worker retired */
} tmsg_worker_past_t;

#define TMSG_SELDOM_RETIRED 1u /* some UCX workers wait to be closed */
#define TMSG_SELDOM_LOANS 2u   /* peers have lent something; path/loans.h */
#define TMSG_SELDOM_BELLS 4u   /* there are bells; bell/bell.h */

struct tmsg_worker {
    pid_t pid; /* that made it */
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
    uint16_t channels; /* channels that each peer may use */
    tmsg_worker_windows_t windows;
    tmsg_spin_t spin; /* of its waits, whichever thread leads */
    /* Serves the worker's waits, and an application that polls by itself. */
    tmsg_sharing_t sharing;
    tmsg_queue_params_t send_queue; /* of its endpoints; every field is set */

    pthread_mutex_t lock; /* taken only if several threads may call */
    pthread_cond_t changed;
    tmsg_worker_lead_t lead;
    bool asleep;     /* the leader sleeps on the descriptor and wake_fd */
    int wake_fd;     /* wakes the leader, and nobody else */
    bool armed;      /* the application may sleep on the descriptor */
    pthread_t armer; /* the thread that armed the descriptor */
    /* UCX is calling us, or a fast box is being emptied: UCX may not be
     * called. */
    bool inside;
    bool fetching;    /* a thread asks for memory */
    bool dispatching; /* a thread runs what is due */
    bool ending;      /* nothing new begins, and waits end */
    /* The worker was destroyed inside a callback. The last call that leaves
     * frees it. */
    bool doomed;
    pthread_t thread; /* own thread, if `threaded` */
    bool threaded;    /* never unset */

    tmsg_loop_t loop;
    tmsg_worker_pace_t pace;
    /* Counts the rounds in a row that found nothing, since something was
     * sent. */
    unsigned idle;
    tmsg_list_t
        bulk_streams; /* bulk streams that may bring something; bulk.h */
    /* fast boxes of peers, to be looked into; fastboxes.h */
    tmsg_list_t fastboxes;
    /* Peers are to be called for what UCX has kept back. */
    bool fastboxes_unreported;
    /* Holds the core of the peer whose message came last by a fast box, plus 1;
     * 0: none. */
    atomic_int peer_core;
    tmsg_worker_paths_t paths;
    /* Calls have put work off until UCX is asked again, or the worker
     * sleeps. */
    bool calls_behind;
    tmsg_list_t due;
    tmsg_timer_t liveness; /* when to look for peers that are silent */

    tmsg_ucx_t *ucx;
    uint8_t seldom; /* TMSG_SELDOM_*: what few workers have to look after */
    tmsg_endpoint_t **endpoints; /* endpoints by slot; a free slot is NULL */
    uint32_t endpoint_slots;
    uint32_t endpoint_count; /* slots that are taken */
    uint32_t generation;     /* generation of the newest endpoint id */
    tmsg_worker_past_t past;
    tmsg_list_t chores; /* endpoints that have chores */
    tmsg_listener_t *listeners;
    struct tmsg_publisher *publishers;
    struct tmsg_calls *calls; /* NULL: no calls were made or taken; calls.h */

    tmsg_worker_bells_t bells;
    tmsg_staging_t stage; /* copies to and from devices */

    tmsg_budget_t *budget;
    /* Counts the templates that were made so far; each gets a number. */
    uint64_t templates;
    tmsg_worker_tx_t tx;
    tmsg_map_t *layout; /* the newest layout that a peer defined, or NULL */
    tmsg_fetch_queue_t fetch; /* messages that arrived and are not fetched */
    tmsg_list_t ready;        /* messages that the application may pull */
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

/* Gives the lock back and wakes threads that sleep on the worker: there may be
 * work for them. */
static inline void tmsg_worker_unlock(tmsg_worker_t *worker)
{
    if (tmsg_worker_is_shared(worker)) {
        tmsg_worker_unlock_shared(worker);
    }
}

/* Returns how many messages of a channel are consumed before their credit goes
 * back: half a window, because telling the peer costs a message. */
static inline uint32_t tmsg_worker_credit_batch(const tmsg_worker_t *worker)
{
    return worker->queue_depth / 2;
}

/* Returns whether the worker takes something new. Lock held. Errors: CLOSED
 * (the worker is ending). */
tmsg_status_t tmsg_worker_check(const tmsg_worker_t *worker);

/* Checks that this process made the worker, which is of no use to the child of
 * a fork(). No lock is needed. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_worker_check_process(const tmsg_worker_t *worker);

/* Queues a callback. Lock held. */
void tmsg_worker_due(tmsg_worker_t *worker, tmsg_due_t *due);

/* Notes that something has happened that a thread may wait for. Lock held. */
void tmsg_worker_changed(tmsg_worker_t *worker);

/* Works as tmsg_worker_changed(), for something that a receive may wait for. */
void tmsg_worker_arrived(tmsg_worker_t *worker);

#endif
