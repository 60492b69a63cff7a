/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/request.h - an operation that goes on after its call has
 * returned.
 *
 * A request is a handle on a send, a connect or a close. To not wait, pass NULL
 * for it.
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

/* A handle on a send, a connect or a close. To destroy it does not stop the
 * operation. To wait for it and to cancel it belong to the thread of its worker
 * (any thread, if the worker is shared). Any thread may test it, ask for its
 * error and destroy it, also after its worker is gone. The worker's end ends
 * the operation. */
typedef struct tmsg_request tmsg_request_t;

/* Called once when the operation has ended, on the thread that drives the
 * worker, with no lock held. `status` is the outcome. `error` has its words (""
 * if it succeeded), valid until the callback returns. The callback may call the
 * library, but may not wait in it. */
typedef void (*tmsg_done_fn)(void *arg, tmsg_status_t status,
                             const char *error);

/* Returns IN_PROGRESS, CANCEL_PENDING, or the outcome. Does not drive the
 * worker. */
TMSG_API tmsg_status_t tmsg_request_test(const tmsg_request_t *request);

/* Drives the worker until the operation has ended or timeout_ms has passed (0:
 * looks once; -1: no limit). Returns the outcome, whose words are also in
 * tmsg_error_message(). A timeout ends the wait, not the operation. If a send
 * is given up meanwhile, the wait ends at once: with CANCEL_PENDING if what was
 * lent to it is not free yet.
 * Errors: all that the operation may end with, and:
 *   TIMED_OUT - the operation goes on
 *   WOULD_BLOCK - in a callback of that worker
 *   CLOSED - another thread destroys the worker */
TMSG_API tmsg_status_t tmsg_request_wait(tmsg_request_t *request,
                                         int timeout_ms);

/* Waits as tmsg_request_wait() does, but does not return CANCEL_PENDING: it
 * waits until everything that was lent to the operation is its owner's
 * again. */
TMSG_API tmsg_status_t tmsg_request_wait_released(tmsg_request_t *request,
                                                  int timeout_ms);

/* Gives an operation up. Returns at once what tmsg_request_test() returns from
 * now on. It harms no other operation.
 *
 * A send that still waits (for the connection, for credit, for its turn) ends
 * with CANCELED, and was not sent, not even in part. A send that has begun is
 * over as well, for this side and for the peer. The peer is told, drops what it
 * has not handed to its application, and calls its on_refused. UCX, however,
 * cannot release memory early. While it may still read tensors that the map
 * borrows, the status is CANCEL_PENDING, and they must stay unchanged. The
 * status becomes CANCELED when no byte of them can be read any more: usually
 * after one round trip; if the peer has stopped, when the connection has ended.
 * Then on_release (endpoint.h) runs, and after it on_done. A send whose tensors
 * the library holds does not wait so: copied tensors, tensors with a release
 * function, those of a message.
 *
 * CANCELED does not mean that the peer did not get the message: its application
 * may have taken it just before. The message is delivered whole or not at all.
 *
 * The request of tmsg_endpoint_ready() or tmsg_endpoint_close() ends with
 * CANCELED, and the connection goes on; tmsg_endpoint_destroy() cancels a
 * connect. The request of tmsg_publisher_publish() goes on, and stays
 * IN_PROGRESS.
 *
 * An operation that has ended stays as it was. Thread: as for a wait; in
 * callbacks too, but not once the worker is being destroyed, which cancels
 * everything. */
TMSG_API tmsg_status_t tmsg_request_cancel(tmsg_request_t *request);

/* Returns why the operation failed or was given up, in one line that names the
 * peer; "" while it goes on or if it succeeded. Valid until the request is
 * destroyed. */
TMSG_API const char *tmsg_request_error(const tmsg_request_t *request);

/* Gives the handle back. From any thread. NULL is allowed. */
TMSG_API void tmsg_request_destroy(tmsg_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
