/* SPDX-License-Identifier: BSD-3-Clause */
/* support/struck_processes.h - processes that a soak kills or stops at random
 * moments, and the file by which those that are left find a new one. */
#ifndef TMSG_TESTS_STRUCK_PROCESSES_H
#define TMSG_TESTS_STRUCK_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

void pause_us(uint64_t us);
uint64_t now_ms(void); /* monotonic */

/* Runs run(arg) in a process, which ends with the one that started it. That one
 * must not have opened UCX. */
pid_t process_start(void (*run)(void *arg), void *arg);

/* Kills and reaps it; *pid is 0 then. */
void process_kill(pid_t *pid);

/* Kills it, or stops it for a random time, as the dice say: `most_ms` at most,
 * after which it goes on. Returns whether it was killed. */
bool process_strike(pid_t *pid, uint64_t *dice, uint32_t most_ms);

/* These write a URL to a file at once, and read it; false: there is none. */
void url_write(const char *path, const char *url);
bool url_read(const char *path, char *url, int bytes);

#endif
