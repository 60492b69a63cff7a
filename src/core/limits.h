/* SPDX-License-Identifier: BSD-3-Clause */
/* core/limits.h - the limits: defaults, and what the application sets
 * instead. */
#ifndef TMSG_CORE_LIMITS_H
#define TMSG_CORE_LIMITS_H

#include <stdbool.h>

#include <tensormsg/limits.h>
#include <tensormsg/status.h>

#define TMSG_METADATA_KEYS_USUAL 65536

/* Returns the defaults of this machine, with all fields set. */
tmsg_limits_t tmsg_limits_usual(void);

/* Sets the fields of *limits that *given sets: all of them or, on error, none.
 * Errors: INVALID_PARAM. */
tmsg_status_t tmsg_limits_merge(const tmsg_limits_t *given,
                                tmsg_limits_t *limits);

/* Sets one limit by the name of its field. tmsg_limits_merge() checks the value
 * later. False: no limit has that name. */
bool tmsg_limits_set(tmsg_limits_t *limits, const char *name, uint64_t value);

#endif
