/* SPDX-License-Identifier: BSD-3-Clause */
/* core/utf8.h - checks for UTF-8. */
#ifndef TMSG_CORE_UTF8_H
#define TMSG_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a text is UTF-8 as RFC 3629 defines it: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
bool tmsg_utf8_valid(const char *text, size_t bytes);

/* Makes `text` one line of UTF-8 that a terminal can show: each byte of a
 * control character, or of anything that is not UTF-8, becomes '?'. */
void tmsg_utf8_scrub(char *text);

#endif
