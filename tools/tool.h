/* SPDX-License-Identifier: BSD-3-Clause */
/* tool.h - what the subcommands of `tensormsg` share. */
#ifndef TMSG_TOOL_H
#define TMSG_TOOL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tensormsg/tensormsg.h>

#include "measure/figures.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Each parses its own arguments (argv[0] is "tensormsg recv", ...). */
int recv_main(int argc, char **argv);
int send_main(int argc, char **argv);
int info_main(int argc, char **argv);
int dump_main(int argc, char **argv);
int perf_main(int argc, char **argv);
int call_main(int argc, char **argv);
int serve_main(int argc, char **argv);
int key_main(int argc, char **argv);

/* One line on standard error, "tensormsg: ...", with what could drive a
 * terminal made harmless. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes text that came from elsewhere: control characters as \xNN, others
 * that deceive the eye (U+202e and its kin) as \uNNNN. */
void put_text(FILE *stream, const char *text);

/* Writes JSON with the same characters as JSON has them. */
void put_json(FILE *stream, const char *json);

/* "s", but for one. */
const char *plural(size_t count);

/* Whether a path has this ending: ".npz". */
bool ends_with(const char *path, const char *ending);

/* "1.2 GB"; returns `text`. */
#define BYTES_TEXT 24
const char *format_bytes(uint64_t bytes, char *text);

/* Command line numbers. Anything else ends the program with exit code 2. */
int parse_seconds(const char *text, struct argp_state *state); /* to ms */
unsigned parse_count(const char *text, struct argp_state *state);

int ms_until(uint64_t deadline_ns); /* 0 when it has passed */

#endif
