/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/loans.h - the frames of loans. Lock held. */
#ifndef TMSG_AM_PATH_LOANS_H
#define TMSG_AM_PATH_LOANS_H

#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"

/* Takes a frame TMSG_FRAME_SEGMENT to TMSG_FRAME_SEGMENT_GONE of an open
 * connection. It has a descriptor, which is closed or kept here, or
 * TMSG_FRAME_FD_*. */
tmsg_status_t tmsg_loan_frame(tmsg_endpoint_t *endpoint, uint8_t frame,
                              const uint8_t *data, size_t bytes, int fd);

#endif
