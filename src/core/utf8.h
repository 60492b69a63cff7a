/* SPDX-License-Identifier: BSD-3-Clause */
/* core/utf8.h - checks for UTF-8. */
#ifndef TMSG_CORE_UTF8_H
#define TMSG_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a text is UTF-8 as RFC 3629 defines it: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
bool tmsg_utf8_valid(const char *text, size_t bytes);

/* Returns the length of the character at `at`, of which `left` bytes follow, 1
 * at least. Returns 0 if there is none. */
size_t tmsg_utf8_character(const char *at, size_t left);

#endif
