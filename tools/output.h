/* SPDX-License-Identifier: BSD-3-Clause */
/* output.h - standard output, which may fail like any other file. */
#ifndef TMSG_OUTPUT_H
#define TMSG_OUTPUT_H

#include <stdbool.h>

/* To be called first in main(): a standard descriptor that came closed would
 * be the number of the next file, or connection, that is opened. And UCX writes
 * its warnings to descriptor 1, where a script reads our JSON: from here on
 * `stdout` is a descriptor of our own and 1 is standard error. */
void output_open(void);

/* From here on a reader that closes its pipe has had enough, and that is no
 * failure: the command's work is elsewhere. */
void output_is_by_the_way(void);

/* Flushes. False when that, or anything written before, has failed; the first
 * time with a line on standard error. */
bool output_flush(void);

/* Flushes for the last time. `code`, or 1 in place of 0 if output was lost. */
int output_end(int code);

#endif
