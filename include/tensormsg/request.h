/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/request.h - an operation that goes on after its call returned. */
#ifndef TENSORMSG_REQUEST_H
#define TENSORMSG_REQUEST_H

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle on a send, a connect or a close. Destroying it does not stop the
 * operation, which goes on without it. To wait belongs to the thread of its
 * worker (worker.h); to test it, to ask for its error and to destroy it, any
 * thread may, also after its worker is gone, which ends it. */
typedef struct tmsg_request tmsg_request_t;

/* Called once when the operation has ended, on the thread that progresses,
 * with no lock held. `status` is the outcome, `error` its words ("" when it
 * succeeded), valid until the callback returns. It may call the library, but
 * not wait in it. */
typedef void (*tmsg_done_fn)(void *arg, tmsg_status_t status,
                             const char *error);

/* IN_PROGRESS, or the outcome. Does not drive the worker. */
TMSG_API tmsg_status_t tmsg_request_test(const tmsg_request_t *request);

/* Drives the worker until the operation has ended or timeout_ms passed (0:
 * look once; -1: no limit). Returns the outcome, which is also put in
 * tmsg_error_message(); a timeout ends only the wait, never the operation.
 * Errors: TIMED_OUT, WOULD_BLOCK (in a callback of that worker), and all that
 * the operation may end with. */
TMSG_API tmsg_status_t tmsg_request_wait(tmsg_request_t *request,
                                         int timeout_ms);

/* Why it failed, in one line that names the peer; "" while it goes on or when
 * it succeeded. Valid until the request is destroyed. */
TMSG_API const char *tmsg_request_error(const tmsg_request_t *request);

/* Gives the handle back; from any thread. NULL is allowed. */
TMSG_API void tmsg_request_destroy(tmsg_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
