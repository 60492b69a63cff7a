/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_request.h - for this room alone: what UCX gives for something that
 * it is to do. */
#ifndef TMSG_AM_UCX_UCX_REQUEST_H
#define TMSG_AM_UCX_UCX_REQUEST_H

#include <ucs/type/status.h>

#include "am/ucx/ucx_status.h"

/* IN_PROGRESS where it is a request, of whose end UCX tells. */
static inline tmsg_ucx_status_t tmsg_ucx_request_status(ucs_status_ptr_t given)
{
    return UCS_PTR_STATUS(given);
}

#endif
