/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/request.h - the inside of a request. */
#ifndef TMSG_AM_WORKER_REQUEST_H
#define TMSG_AM_WORKER_REQUEST_H

#include <stdatomic.h>

#include <tensormsg/request.h>

#include "am/worker/worker.h"
#include "core/refs.h"

/* Heads every record of an operation. References are counted: the application's
 * handle has one, and the library has one as long as the operation goes on. The
 * record therefore outlives its handle. */
struct tmsg_request {
    tmsg_due_t due; /* calls on_done */
    tmsg_refs_t refs;
    atomic_int status;
    tmsg_worker_t *worker; /* must not be touched once the status is final */
    char *error;           /* NULL: no error, or no memory for its text */
    tmsg_done_fn on_done;
    void *on_done_arg;
    void (*destroy)(tmsg_request_t *request); /* frees the record */
    /* Cancels the operation; called with the lock held, while the operation
     * goes on. NULL: the operation cannot be canceled. */
    void (*cancel)(tmsg_request_t *request);
};

/* Initializes a request with one reference, the library's. */
void tmsg_request_init(tmsg_request_t *request, tmsg_worker_t *worker,
                       void (*destroy)(tmsg_request_t *request),
                       void (*cancel)(tmsg_request_t *request));

/* Ends the operation and drops the library's reference. Tells the callback and
 * the waiting threads. `error` may be NULL. Lock held. */
void tmsg_request_end(tmsg_request_t *request, tmsg_status_t status,
                      const char *error);

/* Marks an operation as given up while what was lent to it is still in use.
 * Waits end now. tmsg_request_end() still has to follow, with the same error
 * text. */
void tmsg_request_pend(tmsg_request_t *request, const char *error);

void tmsg_request_hold(tmsg_request_t *request);
void tmsg_request_drop(tmsg_request_t *request);

/* These two work as tmsg_request_hold() and tmsg_request_drop(), without a
 * locked operation. They are only for a request whose handle nobody has, and
 * that no callback had the chance to end: the lock was held since the request
 * began. */
void tmsg_request_hold_hidden(tmsg_request_t *request);
void tmsg_request_drop_hidden(tmsg_request_t *request);

#endif
