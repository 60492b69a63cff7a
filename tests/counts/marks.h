/* SPDX-License-Identifier: BSD-3-Clause */
/* tests/counts/marks.h - marks what callgrind counts; see growth.py. */
#ifndef TMSG_TESTS_COUNTS_MARKS_H
#define TMSG_TESTS_COUNTS_MARKS_H

void growth_begin(void);
void growth_end(const char *label);

#endif
