/* SPDX-License-Identifier: BSD-3-Clause */
/* core/regular.h - files that people name. A FIFO or a terminal in the place of
 * one would keep who opens or reads it waiting, perhaps for ever. */
#ifndef TMSG_CORE_REGULAR_H
#define TMSG_CORE_REGULAR_H

#include <tensormsg/status.h>

/* Opens a regular file to be read, and waits for nothing. An error begins with
 * `what` and the path, and says what else it is. The caller closes *fd_p, which
 * is -1 on error. Errors: NOT_FOUND, IO. */
tmsg_status_t tmsg_regular_open(const char *what, const char *path, int *fd_p);

#endif
