/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/available.h - how much memory the machine and the process's cgroups
 * have left. Who takes more of it in one call is killed by the kernel: a file's
 * pages are promised one by one, and only the last one is too many. */
#ifndef TMSG_MEMORY_AVAILABLE_H
#define TMSG_MEMORY_AVAILABLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t bytes;   /* UINT64_MAX: nobody says */
    const char *what; /* that has no more, for the words of an error */
} tmsg_available_t;

/* Returns the least of what the machine (MemAvailable and SwapFree) and the
 * cgroups above the process (versions 1 and 2) have left, with what they can
 * drop of the files that they have read. Without /proc it is all memory of the
 * machine. /proc and /sys are looked for below `root`, which is "" but in
 * tests. */
tmsg_available_t tmsg_available_look(const char *root);

/* Returns whether the machine promises no more memory than it has
 * (vm.overcommit_memory=2). */
bool tmsg_available_is_strict(const char *root);

#endif
