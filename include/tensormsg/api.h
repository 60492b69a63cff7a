/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/api.h - how the library's symbols are declared. */
#ifndef TENSORMSG_API_H
#define TENSORMSG_API_H

#define TMSG_API __attribute__((visibility("default")))

/* Gives data back to the caller that lent them. The library calls it exactly
 * once, on any thread, while it holds no lock. */
typedef void (*tmsg_release_fn)(void *arg);

#endif
