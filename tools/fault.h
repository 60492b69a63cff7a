/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - an input file that is cut short while it is mapped. */
#ifndef TMSG_FAULT_H
#define TMSG_FAULT_H

#include <stdbool.h>

/* From here on, to read of a mapping what its file has no more, or what its
 * disk cannot give, ends the program with 1 and a line that names `path`. */
void fault_watch(const char *path);

/* Whether that file is shorter now than it was then: what UCX or the kernel
 * reads of it fails without a signal, and with other words. */
bool fault_was_cut(void);

#endif
