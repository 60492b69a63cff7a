/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/request.h - an operation that goes on after its call has
 * returned.
 *
 * A request is a handle on a send, a connect or a close. Whoever does not want
 * to wait passes NULL for it.
 *
 *     tmsg_endpoint_send(endpoint, map, NULL, &request);
 *     while (tmsg_request_test(request) == TMSG_IN_PROGRESS) {
 *         tmsg_worker_progress(worker); // or tmsg_request_wait()
 *     }
 *     tmsg_request_destroy(request);
 */
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

/* IN_PROGRESS, CANCEL_PENDING, or the outcome. Does not drive the worker. */
TMSG_API tmsg_status_t tmsg_request_test(const tmsg_request_t *request);

/* Drives the worker until the operation has ended or timeout_ms passed (0:
 * look once; -1: no limit). Returns the outcome, which is also put in
 * tmsg_error_message(); a timeout ends only the wait, never the operation. A
 * send that is given up meanwhile ends the wait at once, with CANCEL_PENDING
 * where what was lent to it is not free yet. Errors: TIMED_OUT, WOULD_BLOCK (in
 * a callback of that worker), and all that the operation may end with. */
TMSG_API tmsg_status_t tmsg_request_wait(tmsg_request_t *request,
                                         int timeout_ms);

/* The same, but waits on while the status is CANCEL_PENDING: then everything
 * that was lent to the operation is its owner's again. */
TMSG_API tmsg_status_t tmsg_request_wait_released(tmsg_request_t *request,
                                                  int timeout_ms);

/* Gives an operation up, and tells what tmsg_request_test() says from now on.
 * Returns at once and harms no other operation.
 *
 * A send that still waits (for the connection, for credit, for its turn) ends
 * with CANCELED; nothing of it was sent. One that has begun is over as well,
 * for whoever waits for it and for the peer, which is told and drops what it
 * has not handed to its application yet; its on_refused says so there. UCX
 * cannot be made to let go of memory, though: while it may still read
 * tensors that the map borrows, the status is CANCEL_PENDING, and they must
 * stay as they are. It becomes CANCELED when no byte of them can be read any
 * more: as a rule within a round trip; where the peer has stopped, when the
 * connection has ended. on_release (endpoint.h) runs then, and after it
 * on_done. Tensors that the library holds (copied ones, those of a map that
 * gives them back by a function, or of a message) wait for nobody.
 *
 * CANCELED does not say that the peer did not get the message: its application
 * may have taken it just before. It is delivered whole or not at all.
 *
 * The request of tmsg_endpoint_ready() or tmsg_endpoint_close() ends with
 * CANCELED and the connection goes on; tmsg_endpoint_destroy() is what cancels
 * a connect. That of tmsg_publisher_publish() goes on as well, IN_PROGRESS.
 *
 * What has ended before stays as it was. Thread: as to wait; in callbacks too,
 * but not once its worker is being destroyed, which cancels all that is
 * left. */
TMSG_API tmsg_status_t tmsg_request_cancel(tmsg_request_t *request);

/* Why it failed, or was given up, in one line that names the peer; "" while it
 * goes on or when it succeeded. Valid until the request is destroyed. */
TMSG_API const char *tmsg_request_error(const tmsg_request_t *request);

/* Gives the handle back; from any thread. NULL is allowed. */
TMSG_API void tmsg_request_destroy(tmsg_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
