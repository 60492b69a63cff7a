/* SPDX-License-Identifier: BSD-3-Clause */
/* tool.h - shared declarations of the subcommands of `tensormsg`. */
#ifndef TMSG_TOOL_H
#define TMSG_TOOL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tensormsg/tensormsg.h>

#include "measure/figures.h"

/* 3 to 7 are in reply.h. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CUT = 8 };

/* Each function runs a subcommand, and returns an exit code. Each parses its
 * own arguments; argv[0] is "tensormsg recv" or the like. */
int recv_main(int argc, char **argv);
int send_main(int argc, char **argv);
int info_main(int argc, char **argv);
int dump_main(int argc, char **argv);
int perf_main(int argc, char **argv);
int call_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int health_main(int argc, char **argv);
int key_main(int argc, char **argv);

/* Prints one line, "tensormsg: ...", on standard error. Characters that could
 * control a terminal are escaped. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes text from elsewhere as core/shown.h says: control characters as \xNN,
 * and other characters that mislead a reader (such as U+202e) as \uNNNN. */
void put_text(FILE *stream, const char *text);

/* Writes JSON text, and escapes the characters that put_text() escapes in the
 * way of JSON. */
void put_json(FILE *stream, const char *json);

/* Returns "" for a count of 1, else "s". */
const char *plural(size_t count);

/* Tells whether a path ends in `ending`, such as ".npz". */
bool ends_with(const char *path, const char *ending);

/* Writes a size such as "1.2 GB", and returns `text`. */
#define BYTES_TEXT 24
const char *format_bytes(uint64_t bytes, char *text);

/* These functions parse a number on the command line. Any other text ends the
 * program with exit code 2. */
int parse_seconds(const char *text, struct argp_state *state); /* returns ms */
unsigned parse_count(const char *text, struct argp_state *state);

int ms_until(uint64_t deadline_ns); /* 0 if the deadline has passed */

#endif
