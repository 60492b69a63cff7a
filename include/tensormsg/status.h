/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/status.h - what a call answers, and the words that go with it.
 *
 * A function that can fail returns a status. TMSG_OK is 0, and failures are
 * negative.
 *
 *     status = tmsg_worker_recv(worker, 1000, &message);
 *     if (status != TMSG_OK) {
 *         fprintf(stderr, "%s: %s\n", tmsg_status_name(status),
 *                 tmsg_error_message());
 *     }
 */
#ifndef TENSORMSG_STATUS_H
#define TENSORMSG_STATUS_H

#include <tensormsg/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one list of outcomes. Values never change and are only appended;
 * failures are negative, so `status < 0` asks "did it fail?". */
typedef enum {
    TMSG_OK = 0,
    TMSG_IN_PROGRESS = 1, /* not a failure: the operation goes on */
    /* Not a failure either: an operation was given up, and what was lent to it
     * is not free yet (tmsg_request_cancel(), tmsg_endpoint_recv_into()). */
    TMSG_CANCEL_PENDING = 2,

    TMSG_ERR_INVALID_PARAM = -1,   /* an argument is out of its domain */
    TMSG_ERR_NO_MEMORY = -2,       /* an allocation failed */
    TMSG_ERR_TIMED_OUT = -3,       /* the wait's deadline passed */
    TMSG_ERR_CANCELED = -4,        /* the side that began it gave it up */
    TMSG_ERR_PEER_LOST = -5,       /* the peer died or was cut off */
    TMSG_ERR_REFUSED = -6,         /* the peer, or its policy, refused it */
    TMSG_ERR_LIMIT_EXCEEDED = -7,  /* beyond a limit of tmsg_limits_t */
    TMSG_ERR_MALFORMED = -8,       /* bytes that break their format */
    TMSG_ERR_UNSUPPORTED = -9,     /* well-formed, but not possible here */
    TMSG_ERR_INSECURE = -10,       /* would let strangers in */
    TMSG_ERR_BUSY = -11,           /* in use, or over its capacity now */
    TMSG_ERR_NOT_FOUND = -12,      /* no such name, host or file */
    TMSG_ERR_ALREADY_EXISTS = -13, /* that name, address or file is taken */
    TMSG_ERR_UNREACHABLE = -14,    /* nobody answers at that address */
    TMSG_ERR_INCOMPATIBLE = -15,   /* the peer's wire or UCX version differs */
    TMSG_ERR_WOULD_BLOCK = -16,    /* it would have to wait where it may not */
    TMSG_ERR_CLOSED = -17,         /* the endpoint was closed in order */
    TMSG_ERR_IO = -18,             /* a system call failed; see the message */
    TMSG_ERR_INTERNAL = -19,       /* a fault of UCX or of the library */
    TMSG_ERR_CORRUPT = -20,        /* the data that came are not those sent */
    TMSG_ERR_DROPPED = -21,        /* dropped by a full queue's policy */
    TMSG_ERR_RESOURCE_EXHAUSTED = -22, /* a server has all the calls it takes */
    TMSG_ERR_UNAVAILABLE = -23, /* no server, or it is not ready or ends */
    TMSG_ERR_APPLICATION = -24  /* a handler's own: tmsg_call_code() */
} tmsg_status_t;

/* Returns the status's name in lower case ("timed out"), for logs. Never NULL;
 * "unknown status" for a value that is not in the list. */
TMSG_API const char *tmsg_status_name(tmsg_status_t status);

/* Returns why the latest failing call of this thread failed: what, which and
 * why, in one line ("tensor 'mask': ndim 70 exceeds 64"). The text is the
 * library's, and valid until this thread's next failing call; "" before the
 * first. A call that succeeds leaves it as it was. Later failures, of a send or
 * a connection, are told by tmsg_request_error() and tmsg_endpoint_error(). */
TMSG_API const char *tmsg_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
