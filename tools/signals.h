/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.h - how SIGINT and SIGTERM end a command that has something to finish
 * first. Without signals_open() they end the process at once. */
#ifndef TMSG_SIGNALS_H
#define TMSG_SIGNALS_H

#include <stdbool.h>

/* Time for what is under way when a signal has come: for the messages of a
 * measurement to come back, or for standard output to be read. */
#define SIGNALS_GRACE_MS 500

/* Catches SIGINT and SIGTERM. The first of them is noted. A further one ends
 * the process at once; one within a tenth of a second counts as the same,
 * because some programs signal both a process and its group. A signal that is
 * ignored is caught only with `also_ignored`. Returns a descriptor that becomes
 * readable when a signal comes, or -1 with errno. */
int signals_open(bool also_ignored);

/* Returns that descriptor, or -1 before signals_open(). */
int signals_fd(void);

/* Tells whether a signal has come since signals_open(). */
bool signals_came(void);

/* Has SIGHUP become a wish, instead of ending the process; only when the
 * terminal of this process hangs up does it still mean what SIGTERM does (if it
 * is ignored, nothing). Returns a descriptor that becomes readable when SIGHUP
 * comes, or -1 with errno. Call signals_open() before. */
int signals_take_hangup(void);

/* Returns that descriptor, or -1. */
int signals_hangup_fd(void);

/* Tells whether SIGHUP has come since the call before. */
bool signals_hung_up(void);

/* Tells whether a signal has come and the time of SIGNALS_GRACE_MS since is
 * over. */
bool signals_grace_is_over(void);

#endif
