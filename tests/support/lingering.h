/* SPDX-License-Identifier: BSD-3-Clause */
/* support/lingering.h - descriptors whose close takes long. */
#ifndef TMSG_TESTS_LINGERING_H
#define TMSG_TESTS_LINGERING_H

/* Returns a socket whose close waits for a quarter of an hour: its peer does
 * not read. The end of the process does not wait. */
int lingering_socket(void);

#endif
