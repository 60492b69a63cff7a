/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/first_thread.h - processes whose first thread has ended, by
 * pthread_exit() in main(), while others go on. /proc then shows no
 * descriptors, namespaces or memory of the process: peers cannot open or read
 * what it shares, and UCX does not start in it. */
#ifndef TMSG_AM_SHM_FIRST_THREAD_H
#define TMSG_AM_SHM_FIRST_THREAD_H

#include <stdbool.h>
#include <sys/types.h>

/* What to do about it, for the words of an error. */
#define TMSG_FIRST_THREAD_WORDS                                                \
    "the first thread of the process has ended, and with it what /proc tells " \
    "of its memory: let main() wait for the other threads, by pthread_join()"

/* Returns whether this is so of a process. False for one that has ended as a
 * whole. */
bool tmsg_first_thread_has_ended(pid_t pid);

#endif
