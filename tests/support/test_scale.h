/* SPDX-License-Identifier: BSD-3-Clause */
/* support/test_scale.h - what `make test` does a part of, and `make soak`, or a
 * test that is started by hand, the whole. */
#ifndef TMSG_TESTS_TEST_SCALE_H
#define TMSG_TESTS_TEST_SCALE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether to spare nothing. */
bool whole_run(void);

/* Whether a sanitizer makes it slow, and the plain runs do the same. */
bool is_slow(void);

/* Whether there are two runs, each with its own UCX, that do half each of what
 * has many combinations. Under a sanitizer there is but one. */
bool does_half(void);

/* Whether to do the n-th combination: one run does the even ones, the other the
 * odd. */
bool is_due(size_t n);

#endif
