/* SPDX-License-Identifier: BSD-3-Clause */
/* core/limits.h - defaults overlaid with what the application set. */
#ifndef TMSG_CORE_LIMITS_H
#define TMSG_CORE_LIMITS_H

#include <stdbool.h>

#include <tensormsg/limits.h>
#include <tensormsg/status.h>

#define TMSG_METADATA_KEYS_USUAL 65536

/* The defaults of this machine, all of them. */
tmsg_limits_t tmsg_limits_usual(void);

/* Overlays the fields that *given sets, all or none. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_limits_merge(const tmsg_limits_t *given,
                                tmsg_limits_t *limits);

/* Sets one limit by the name of its field, without judging the value: that is
 * for tmsg_limits_merge(). False: there is none of that name. */
bool tmsg_limits_set(tmsg_limits_t *limits, const char *name, uint64_t value);

#endif
