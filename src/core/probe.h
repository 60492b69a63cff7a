/* SPDX-License-Identifier: BSD-3-Clause */
/* core/probe.h - memory that may be gone: a mapped file that was cut, pages
 * that were unmapped. The kernel reads it for us, so that this is an error and
 * no signal. */
#ifndef TMSG_CORE_PROBE_H
#define TMSG_CORE_PROBE_H

#include <stddef.h>

/* The first of the bytes that cannot be read now; NULL: all can. */
const void *tmsg_probe(const void *data, size_t bytes);

/* Copies as many of the bytes as can be read, from the first on: less than all
 * if the next cannot. Where the kernel does not let a process read itself
 * (seccomp), it is memcpy(). */
size_t tmsg_probe_copy(void *to, const void *from, size_t bytes);

#endif
