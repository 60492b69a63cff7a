/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_status.h - the statuses by which UCX says how an operation
 * ended. */
#ifndef TMSG_AM_UCX_UCX_STATUS_H
#define TMSG_AM_UCX_UCX_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* A status of UCX, which may also have values that are not below. The type is
 * compatible with UCX's enumeration (ucx_status.c asserts it), so that UCX can
 * call a function that takes or returns it. */
typedef int8_t tmsg_ucx_status_t;

enum {
    TMSG_UCX_IN_PROGRESS = 1,
    TMSG_UCX_OK = 0,
    TMSG_UCX_NO_RESOURCE = -2,
    TMSG_UCX_IO_ERROR = -3,
    TMSG_UCX_NO_MEMORY = -4,
    TMSG_UCX_INVALID_PARAM = -5,
    TMSG_UCX_UNREACHABLE = -6,
    TMSG_UCX_INVALID_ADDR = -7,
    TMSG_UCX_NO_DEVICE = -14,
    TMSG_UCX_BUSY = -15,
    TMSG_UCX_CANCELED = -16,
    TMSG_UCX_EXCEEDS_LIMIT = -21,
    TMSG_UCX_UNSUPPORTED = -22,
    TMSG_UCX_REJECTED = -23
};

static inline bool tmsg_ucx_is_error(tmsg_ucx_status_t status)
{
    return status < 0;
}

/* Returns whether a status means that the connection is lost, rather than a
 * failure of some memory. */
bool tmsg_ucx_is_loss(tmsg_ucx_status_t status);

/* Returns the status of what UCX returns for an operation. IN_PROGRESS: UCX
 * returned a request, whose end it reports. For this room alone. */
tmsg_ucx_status_t tmsg_ucx_request_status(const void *given);

/* Returns UCX's words for a status. */
const char *tmsg_ucx_status_words(tmsg_ucx_status_t status);

#endif
