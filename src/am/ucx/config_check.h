/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/config_check.h - whether this UCX has a key that the application
 * wrote. */
#ifndef TMSG_AM_UCX_CONFIG_CHECK_H
#define TMSG_AM_UCX_CONFIG_CHECK_H

#include "am/ucx/config.h"

/* Finds keys that the application wrote and UCX does not have, or not by that
 * name. Up to 1.20 ucp_config_modify() accepts such keys silently. Called once
 * UCX has loaded its transports. Errors: INVALID_PARAM (names the key). */
tmsg_status_t tmsg_ucx_check_keys(const tmsg_ucx_keys_t *keys);

/* Checks keys before UCX has opened: finds values that do not parse and, from
 * UCX 1.20.1 on, keys that UCX does not have. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_ucx_check_keys_early(const tmsg_ucx_given_t *given);

#endif
