/* SPDX-License-Identifier: BSD-3-Clause */
/* fakes/old_kernel.h - a kernel before 5.1, for a program that is linked with
 * fakes/old_kernel.c and --wrap=fcntl. */
#ifndef TMSG_TESTS_FAKES_OLD_KERNEL_H
#define TMSG_TESTS_FAKES_OLD_KERNEL_H

#include <stdbool.h>

extern bool kernel_is_old; /* and knows no F_SEAL_FUTURE_WRITE */

#endif
