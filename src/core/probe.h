/* SPDX-License-Identifier: BSD-3-Clause */
/* core/probe.h - reads memory that may be gone: a mapped file that was cut,
 * pages that were unmapped. The kernel reads it for us, so that this is an
 * error and not a signal. */
#ifndef TMSG_CORE_PROBE_H
#define TMSG_CORE_PROBE_H

#include <stddef.h>

/* Returns the first address that cannot be read now; NULL: all bytes can. */
const void *tmsg_probe(const void *data, size_t bytes);

/* Copies the bytes that can be read, from the first on. Returns their number,
 * which is less than `bytes` if the next byte cannot be read. If the kernel
 * does not let a process read itself (seccomp), this is memcpy(). */
size_t tmsg_probe_copy(void *to, const void *from, size_t bytes);

#endif
