/* SPDX-License-Identifier: BSD-3-Clause */
/* core/log.h - writes log lines. */
#ifndef TMSG_CORE_LOG_H
#define TMSG_CORE_LOG_H

#include <tensormsg/log.h>

void tmsg_log(tmsg_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns whether a line of that level would be seen. Call this before costly
 * formatting. */
int tmsg_log_wanted(tmsg_log_level_t level);

#endif
