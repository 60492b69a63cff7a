/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_status.h"

#include <stddef.h>
#include <ucs/type/status.h>

_Static_assert(_Generic((ucs_status_t)0, tmsg_ucx_status_t
                        : true, default
                        : false),
               "UCX calls functions that take or return a tmsg_ucx_status_t");

#define IS(ours, its) _Static_assert((int)(ours) == (int)(its), #ours)

IS(TMSG_UCX_IN_PROGRESS, UCS_INPROGRESS);
IS(TMSG_UCX_OK, UCS_OK);
IS(TMSG_UCX_NO_RESOURCE, UCS_ERR_NO_RESOURCE);
IS(TMSG_UCX_IO_ERROR, UCS_ERR_IO_ERROR);
IS(TMSG_UCX_NO_MEMORY, UCS_ERR_NO_MEMORY);
IS(TMSG_UCX_INVALID_PARAM, UCS_ERR_INVALID_PARAM);
IS(TMSG_UCX_UNREACHABLE, UCS_ERR_UNREACHABLE);
IS(TMSG_UCX_INVALID_ADDR, UCS_ERR_INVALID_ADDR);
IS(TMSG_UCX_NO_DEVICE, UCS_ERR_NO_DEVICE);
IS(TMSG_UCX_BUSY, UCS_ERR_BUSY);
IS(TMSG_UCX_CANCELED, UCS_ERR_CANCELED);
IS(TMSG_UCX_EXCEEDS_LIMIT, UCS_ERR_EXCEEDS_LIMIT);
IS(TMSG_UCX_UNSUPPORTED, UCS_ERR_UNSUPPORTED);
IS(TMSG_UCX_REJECTED, UCS_ERR_REJECTED);

bool tmsg_ucx_is_loss(tmsg_ucx_status_t status)
{
    return status == UCS_ERR_ENDPOINT_TIMEOUT ||
           status == UCS_ERR_CONNECTION_RESET ||
           status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CANCELED;
}

/* This is inline for the link-time optimizer, with the most frequent case
 * first. */
inline tmsg_ucx_status_t tmsg_ucx_request_status(const void *given)
{
    return given == NULL ? UCS_OK : UCS_PTR_STATUS(given);
}

const char *tmsg_ucx_status_words(tmsg_ucx_status_t status)
{
    return ucs_status_string((ucs_status_t)status);
}
