/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - shows the progress of a transfer on one line of a terminal. */
#ifndef TMSG_PROGRESS_H
#define TMSG_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Tells whether standard error is a terminal that can show the line. */
bool progress_wanted(void);

/* Shows the name `what`, a bar, "1.2 GB of 3.4 GB", the rate and the time, if
 * standard error is such a terminal. `done` counts the bytes of whole messages
 * only, because the library reports no others. A `total` of 0 means unknown.
 * `since_ns` is the time of the start. */
void progress_show(const char *what, uint64_t done, uint64_t total,
                   uint64_t since_ns);

/* Clears the line. The caller does this before it prints anything else. */
void progress_clear(void);

#endif
