/* SPDX-License-Identifier: BSD-3-Clause */
/* support/locales.h - locales with another decimal point, made on the spot. */
#ifndef TESTS_SUPPORT_LOCALES_H
#define TESTS_SUPPORT_LOCALES_H

/* Has the process write and read numbers as the locale does (as "de_DE": with a
 * comma), which is compiled into a folder of its own, and sees that its decimal
 * point is `point`. Dies else. */
void locale_enter(const char *name, const char *point);

#endif
