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

#include <tensormsg/server.h>

#include "am/calls.h"
#include "core/error.h"
#include "core/list.h"

#define TMSG_RPC_EARLY 32 /* calls that were canceled before they came */

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

struct tmsg_hub {
    atomic_uint refs; /* of the worker, its peers, its server */
    pthread_mutex_t lock;
    tmsg_calls_t *calls; /* to be used while the worker is there */
    atomic_bool over;    /* it is not */
    tmsg_list_t events;
    tmsg_list_t deadlines;  /* soonest first */
    uint64_t alarm_ns;      /* that was asked for; 0: none */
    tmsg_rpc_slot_t *slots; /* of calls under way, by their id's low half */
    uint32_t slot_count, free_slot;
    uint32_t generation;        /* of the newest id: its high half */
    struct tmsg_server *server; /* NULL: none */
    uint64_t late_replies;      /* that nobody waited for any more */
};

/* An endpoint: lives as long as that. */
typedef struct {
    tmsg_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    bool over;         /* it has ended */
    tmsg_list_t calls; /* ours, under way */
    tmsg_list_t tasks; /* its, to be answered */
    uint64_t early[TMSG_RPC_EARLY];
    unsigned early_count;
} tmsg_rpc_peer_t;

extern const tmsg_calls_ops_t tmsg_hub_ops;

void tmsg_hub_hold(tmsg_hub_t *hub);
void tmsg_hub_drop(tmsg_hub_t *hub);

static inline void tmsg_hub_lock(tmsg_hub_t *hub)
{
    pthread_mutex_lock(&hub->lock);
}

static inline void tmsg_hub_unlock(tmsg_hub_t *hub)
{
    pthread_mutex_unlock(&hub->lock);
}

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
