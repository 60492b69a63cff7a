/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_status.h - how UCX says what became of an operation. */
#ifndef TMSG_AM_UCX_UCX_STATUS_H
#define TMSG_AM_UCX_UCX_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* A status of UCX's, which may have other values than those below. The type is
 * the one that UCX's enumeration is compatible with (ucx_status.c asserts it):
 * UCX calls a function that takes or returns it as it is. */
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

/* Whether a status is of the connection, not of some memory. */
bool tmsg_ucx_is_loss(tmsg_ucx_status_t status);

/* Of what UCX gives when it is asked for something: IN_PROGRESS if that is a
 * request, of whose end UCX tells. For this room alone. */
tmsg_ucx_status_t tmsg_ucx_request_status(const void *given);

/* UCX's words for a status. */
const char *tmsg_ucx_status_words(tmsg_ucx_status_t status);

#endif
