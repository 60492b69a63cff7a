/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/log.h - log lines about a peer. */
#ifndef TMSG_AM_ENDPOINT_LOG_H
#define TMSG_AM_ENDPOINT_LOG_H

#include <tensormsg/endpoint.h>

#include "core/log.h"

/* Whom a line is about that cannot be told from others. */
#define TMSG_LOG_UNKNOWN "unknown peers"

/* Writes a line of a kind about the endpoint's peer, whose name it begins with,
 * or counts it. */
void tmsg_endpoint_log(const tmsg_endpoint_t *endpoint, tmsg_log_kind_t kind,
                       tmsg_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes whom lines about the peer are counted for: the principal that it has
 * proved to be or, without one, the host or path that it came from. Returns
 * `text`. */
const char *tmsg_endpoint_whom(const tmsg_endpoint_t *endpoint,
                               char text[TMSG_LOG_WHOM_BYTES]);

#endif
