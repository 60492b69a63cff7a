/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.h - delivers SIGINT and SIGTERM through a file descriptor. */
#ifndef TMSG_SIGNALS_H
#define TMSG_SIGNALS_H

#include <stdbool.h>

/* Returns a descriptor that becomes readable after one of the signals. Returns
 * -1 and sets errno on failure. */
int signals_open(void);

/* Tells whether a signal came. After it has, a second signal ends the program
 * at once. */
bool signals_came(int fd);

#endif
