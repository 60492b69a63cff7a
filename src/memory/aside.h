/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/aside.h - driver calls that may wait for a device, on a thread beside
 * the caller's. A kernel of the application may run until the caller goes on,
 * and the driver may wait for that kernel. */
#ifndef TMSG_MEMORY_ASIDE_H
#define TMSG_MEMORY_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

#define TMSG_ASIDE_NAME "tmsg-aside" /* of the threads, for debuggers */

/* Describes a call. It is embedded in what the call is about. */
typedef struct tmsg_aside_job {
    struct tmsg_aside_job *next;
    void (*run)(struct tmsg_aside_job *job);
} tmsg_aside_job_t;

/* A row of calls, which are made one after the other. All zero bits: it is
 * empty. It lives as long as the process. */
typedef struct {
    tmsg_aside_job_t *first, *last;
    bool running;   /* a thread makes the calls */
    unsigned forks; /* of this process when that thread was started */
} tmsg_aside_t;

/* Has the row's thread call job->run(job), once. The thread ends when the row
 * is empty. If there can be no thread, the caller makes the call. */
void tmsg_aside(tmsg_aside_t *aside, tmsg_aside_job_t *job);

/* Waits until the row is empty, for `ms` at most. Returns whether it is. */
bool tmsg_aside_wait(tmsg_aside_t *aside, uint64_t ms);

#endif
