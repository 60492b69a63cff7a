/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/test_scale.h"

#include <stdlib.h>

bool whole_run(void)
{
    const char *second_ucx = getenv("TMSG_UCX_1_22");

    return getenv("TMSG_WHOLE") != NULL || second_ucx == NULL ||
           second_ucx[0] == '\0';
}

bool is_slow(void)
{
    const char *sanitizer = getenv("TMSG_SANITIZE");

    return !whole_run() && sanitizer != NULL && sanitizer[0] != '\0';
}

bool does_half(void) { return !whole_run() && !is_slow(); }

bool is_due(size_t n)
{
    size_t half = getenv("TMSG_OTHER_HALF") != NULL;

    return !does_half() || n % 2 == half;
}
