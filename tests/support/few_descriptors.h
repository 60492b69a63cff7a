/* SPDX-License-Identifier: BSD-3-Clause */
/* support/few_descriptors.h - a process that runs out of descriptors. */
#ifndef TMSG_TESTS_FEW_DESCRIPTORS_H
#define TMSG_TESTS_FEW_DESCRIPTORS_H

#define SPARE_MOST 100

/* Takes all descriptors but so many, SPARE_MOST at most, and gives them back.
 * Each that the process closes meanwhile is one more that is left. */
void spare_leave(unsigned left);
void spare_leave_all(void);

#endif
