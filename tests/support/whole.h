/* SPDX-License-Identifier: BSD-3-Clause */
/* support/whole.h - what `make test` does a part of, and `make soak`, or a test
 * that is started by hand, the whole. */
#ifndef TMSG_TESTS_WHOLE_H
#define TMSG_TESTS_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether to spare nothing. */
bool whole_run(void);

/* Whether to do the n-th of many combinations. Under `make test` one of its
 * two runs, each with its own UCX, does the even ones, the other the odd. */
bool is_due(size_t n);

#endif
