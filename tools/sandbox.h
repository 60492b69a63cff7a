/* SPDX-License-Identifier: BSD-3-Clause */
/* sandbox.h - shuts the process in: Landlock and seccomp, for --sandbox. */
#ifndef TMSG_SANDBOX_H
#define TMSG_SANDBOX_H

#include <stdbool.h>

#define SANDBOX_DIRS 2

/* Checks that this build and this kernel have a sandbox, and sets what UCX
 * needs to work in one with peers that are in none. `url` is where the command
 * is to listen. Called before UCX is opened. Returns false after a complaint.
 */
bool sandbox_prepare(const char *url);

/* Shuts all threads in, now and for ever. From here on the process writes into
 * `dirs` alone (each may be NULL), reads what UCX and the C library need, and
 * starts no program. Returns false after a complaint; then nothing may be
 * received. */
bool sandbox_enter(const char *const dirs[SANDBOX_DIRS]);

#endif
