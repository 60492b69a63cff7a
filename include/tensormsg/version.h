/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/version.h - which release this is; CMake reads it here. */
#ifndef TENSORMSG_VERSION_H
#define TENSORMSG_VERSION_H

#include <tensormsg/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers. Releases with the same major number keep the
 * ABI. While the major number is 0, releases with the same minor number keep
 * it. */
#define TMSG_VERSION_MAJOR 0
#define TMSG_VERSION_MINOR 1
#define TMSG_VERSION_PATCH 0

/* Returns the version of the library that was loaded: "0.1.0". The text is
 * static. From any thread. It never fails. */
TMSG_API const char *tmsg_version(void);

#ifdef __cplusplus
}
#endif

#endif
