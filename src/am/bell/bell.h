/* SPDX-License-Identifier: BSD-3-Clause */
/* am/bell/bell.h - bells: sends and receives that a GPU starts.
 *
 * bell.c makes them, proxy.c does what they are rung for. A bell is rung by its
 * line (tensormsg/device/bell.h), in one of two forms:
 *
 *   by a stream   `posted` is two halves (memory/lines.h). The lower one is 1
 *                 from a ring until the operation has ended. Of a bell that
 *                 receives it is 1 at first: the map may be filled.
 *   by a kernel   `posted` and `done` count. An operation begins while `posted`
 *                 is above the operations that have begun; of a bell that
 *                 receives, while all that have begun are consumed.
 *
 * The worker loads `posted` once in each round of progress, unless an operation
 * is under way. */
#ifndef TMSG_AM_BELL_BELL_H
#define TMSG_AM_BELL_BELL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/bell.h>
#include <tensormsg/device/bell.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/worker.h"
#include "memory/lines.h"

typedef enum {
    TMSG_BELL_UNUSED = 0,
    TMSG_BELL_BY_STREAM = 1,
    TMSG_BELL_BY_KERNEL = 2
} tmsg_bell_form_t;

/* The handle has a reference, and so has the worker's list. The worker's lock
 * protects what is neither atomic nor set for good. */
struct tmsg_bell {
    tmsg_refs_t refs;
    tmsg_node_t node; /* in the worker's list */
    bool listed;
    tmsg_worker_t *worker;
    tmsg_life_t *life;         /* the worker's, held */
    tmsg_endpoint_t *endpoint; /* the handle's, held */
    const tmsg_map_t *held;    /* the application's map */
    tmsg_map_t *map;           /* the same without streams */
    bool receives;
    tmsg_send_params_t params;
    tmsg_line_t line;
    atomic_int form;         /* tmsg_bell_form_t */
    uint64_t begun;          /* operations that a kernel has started */
    bool busy;               /* an operation is under way */
    bool warming;            /* it, or the next, is not rung for */
    bool warm;               /* such an operation has ended */
    bool ending;             /* the handle is gone */
    tmsg_request_t *request; /* of the send under way; NULL: none */
    bool posted;             /* the map is posted to be received into */
    bool is_due;             /* `due` is queued, or runs */
    tmsg_due_t due;          /* receives */
    tmsg_due_t end_due;      /* drops the list's reference */
    atomic_int status;
    char *error; /* set before `status`; NULL: no memory for it */
};

/* Drops a reference. Not under the lock, for the map's release functions are
 * the application's. */
void tmsg_bell_drop(tmsg_bell_t *bell);

/* Lock held, for the functions below.
 *
 * Has every waiter go on, now and for ever. The first status stays. */
void tmsg_bell_fail(tmsg_bell_t *bell, tmsg_status_t status, const char *error);

/* Takes a bell whose handle is gone off the worker's list, unless an operation
 * is under way. */
void tmsg_bell_leave(tmsg_bell_t *bell);

/* Begins what bells were rung for, and looks for what has come. Returns how
 * many there were. */
unsigned tmsg_bells_poll(tmsg_worker_t *worker);

/* Has a thread that is about to sleep wake soon, to look at the bells. Returns
 * false if there is something to do at once. */
bool tmsg_bells_arm(tmsg_worker_t *worker);

/* Without the lock: ends the bells of a worker on which nothing happens any
 * more. `drained`: nothing of theirs is under way. */
void tmsg_bells_finish(tmsg_worker_t *worker, bool drained);

#endif
