/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/api.h - how the library's symbols are declared. */
#ifndef TENSORMSG_API_H
#define TENSORMSG_API_H

#define TMSG_API __attribute__((visibility("default")))

/* Gives data that the caller lent back to it. The library calls it exactly
 * once, from any thread, with no lock of its own held. */
typedef void (*tmsg_release_fn)(void *arg);

#endif
