/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.h - SIGINT and SIGTERM as a descriptor. */
#ifndef TMSG_SIGNALS_H
#define TMSG_SIGNALS_H

#include <stdbool.h>

/* A descriptor that is readable once one of them came; -1 with errno. */
int signals_open(void);

/* Whether one came. A second one then ends the program at once. */
bool signals_came(int fd);

#endif
