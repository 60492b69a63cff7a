/* SPDX-License-Identifier: BSD-3-Clause */
/* support/locales.h - locales with another decimal point, made on the spot. */
#ifndef TESTS_SUPPORT_LOCALES_H
#define TESTS_SUPPORT_LOCALES_H

/* Compiles the locale (as "de_DE": a comma) into a folder of its own, makes it
 * the process's, and sees that its decimal point is `point`. Dies else. */
void locale_enter(const char *name, const char *point);

#endif
