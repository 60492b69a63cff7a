/* SPDX-License-Identifier: BSD-3-Clause */
/* core/limits.h - defaults overlaid with what the application set. */
#ifndef TMSG_CORE_LIMITS_H
#define TMSG_CORE_LIMITS_H

#include <tensormsg/limits.h>
#include <tensormsg/status.h>

#define TMSG_METADATA_KEYS_USUAL 65536

/* The defaults of this machine, all of them. */
tmsg_limits_t tmsg_limits_usual(void);

/* Overlays the fields that *given sets, all or none. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_limits_merge(const tmsg_limits_t *given,
                                tmsg_limits_t *limits);

#endif
