/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/survey.h - what UCX finds on this machine. */
#ifndef TMSG_AM_UCX_SURVEY_H
#define TMSG_AM_UCX_SURVEY_H

#include <stdint.h>

#include <tensormsg/status.h>

#include "am/ucx/config.h"

typedef struct {
    uint64_t memory_types; /* a bit for each type; 0: UCX did not open */
    char *transports; /* "posix/memory", a line each; freed by the caller */
} tmsg_ucx_survey_t;

/* Opens UCX with these keys, only to see what it finds. If that fails,
 * *survey_p is set all the same, without transports. Errors: INTERNAL (UCX does
 * not open), INVALID_PARAM (a key that this UCX does not have), NO_MEMORY,
 * UNSUPPORTED. */
tmsg_status_t tmsg_ucx_survey(const tmsg_ucx_keys_t *keys,
                              tmsg_ucx_survey_t *survey_p);

#endif
