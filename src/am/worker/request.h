/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/request.h - requests as the room sees them. */
#ifndef TMSG_AM_WORKER_REQUEST_H
#define TMSG_AM_WORKER_REQUEST_H

#include <stdatomic.h>

#include <tensormsg/request.h>

#include "am/worker/worker.h"
#include "core/refs.h"

/* Heads every record of an operation. Counted: the application's handle, and
 * the library for as long as the operation goes on, so that the record
 * outlives its handle. */
struct tmsg_request {
    tmsg_due_t due; /* the callback */
    tmsg_refs_t refs;
    atomic_int status;
    tmsg_worker_t *worker; /* not to be touched once the status is final */
    char *error;           /* NULL: none, or no memory for it */
    tmsg_done_fn on_done;
    void *on_done_arg;
    void (*destroy)(tmsg_request_t *request); /* frees the record */
    void (*cancel)(tmsg_request_t *request);  /* lock held, while it goes on;
                                               * NULL: it cannot be */
};

/* Starts with one reference, the library's. */
void tmsg_request_init(tmsg_request_t *request, tmsg_worker_t *worker,
                       void (*destroy)(tmsg_request_t *request),
                       void (*cancel)(tmsg_request_t *request));

/* Ends the operation and drops the library's reference. Callback and waiters
 * learn of it. `error` may be NULL. */
void tmsg_request_end(tmsg_request_t *request, tmsg_status_t status,
                      const char *error);

/* It is given up, but what was lent to it is not free yet: waits end, and
 * tmsg_request_end() is still to come, with the same words. */
void tmsg_request_pend(tmsg_request_t *request, const char *error);

void tmsg_request_hold(tmsg_request_t *request);
void tmsg_request_drop(tmsg_request_t *request);

/* The same of one whose handle nobody has, and that no callback had the chance
 * to end: lock held since. */
void tmsg_request_hold_hidden(tmsg_request_t *request);
void tmsg_request_drop_hidden(tmsg_request_t *request);

#endif
