/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/printable.h - a peer's names in our error messages. */
#ifndef TMSG_SERIALIZE_PRINTABLE_H
#define TMSG_SERIALIZE_PRINTABLE_H

#include <stddef.h>

#define TMSG_PRINTABLE_BYTES 68 /* what tmsg_printable() writes at most */

/* Writes `text` to `printable` with NUL: control characters and all that is not
 * UTF-8 as '?', and after 64 bytes "...". Returns `printable`. */
const char *tmsg_printable(const char *text, size_t bytes, char *printable);

#endif
