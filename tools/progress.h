/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - a line that shows how far a transfer is, on terminals only. */
#ifndef TMSG_PROGRESS_H
#define TMSG_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether there is a terminal to show it on. */
bool progress_wanted(void);

/* "what  [####      ]  1.2/3.4 GB  0.9 GB/s  2.1 s". The library tells of
 * whole messages only: `done` counts those, of `total` bytes (0: unknown). */
void progress_show(const char *what, uint64_t done, uint64_t total,
                   uint64_t since_ns);

/* Takes the line away; before anything else is printed. */
void progress_clear(void);

#endif
