/* SPDX-License-Identifier: BSD-3-Clause */
/* support/soak_progress.h - where a soak is, so that one that was stopped goes
 * on, and the seed it works with. */
#ifndef TMSG_TESTS_SOAK_PROGRESS_H
#define TMSG_TESTS_SOAK_PROGRESS_H

#include <stdint.h>

/* $TMSG_SOAK_SEED, or a fixed one; printed the first time. */
uint64_t soak_seed(void);

/* The slice to begin with, kept in $TMSG_SOAK_STATE; 0 at first. */
uint64_t soak_place(const char *name);
void soak_keep(const char *name, uint64_t slice);

#endif
