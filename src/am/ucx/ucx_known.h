/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_known.h - does this UCX have such a key? */
#ifndef TMSG_AM_UCX_UCX_KNOWN_H
#define TMSG_AM_UCX_UCX_KNOWN_H

#include "am/ucx/ucx_config.h"

/* Finds keys that the application wrote and UCX has not, or not by that name,
 * which up to 1.16 ucp_config_modify() takes without a word. To be called once
 * UCX has loaded its transports. Errors: INVALID_PARAM (names the key). */
tmsg_status_t tmsg_ucx_known(const tmsg_ucx_keys_t *keys);

/* What can be said of keys before UCX has opened: values that do not parse and,
 * from UCX 1.17 on, keys that it has not. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_ucx_known_early(const tmsg_ucx_given_t *given);

#endif
