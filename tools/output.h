/* SPDX-License-Identifier: BSD-3-Clause */
/* output.h - handles standard output, which may fail like any other file. */
#ifndef TMSG_OUTPUT_H
#define TMSG_OUTPUT_H

#include <stdbool.h>

/* Opens /dev/null for each standard descriptor that is closed; otherwise the
 * next file or connection would get its number. Then gives `stdout` a
 * descriptor of its own and makes descriptor 1 standard error: UCX writes its
 * warnings to descriptor 1, and a script reads JSON from standard output.
 * main() calls this function first. */
void output_open(void);

/* After this call a closed pipe on standard output is not a failure. The
 * command's result is elsewhere, and the reader has had enough. */
void output_is_by_the_way(void);

/* Waits until a descriptor takes bytes, or fails. Returns false if a signal
 * came that signals_open() catches, and the descriptor takes none in the time
 * of grace. */
bool output_await_room(int fd);

/* Flushes standard output. Returns false if this or an earlier write has
 * failed. The first failure prints a line on standard error. */
bool output_flush(void);

/* Flushes standard output for the last time. Returns `code`; if output was lost
 * and `code` is 0, returns 1. */
int output_end(int code);

#endif
