/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.h - what an actor hears and says. */
#ifndef TMSG_TESTS_MODEL_LINES_H
#define TMSG_TESTS_MODEL_LINES_H

#include <stdbool.h>

/* One line is one write(): whoever is killed has said all that it did, but for
 * the last. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Obeys what has come; the driver's end is ours. False: nothing has. */
bool lines_hear(void (*obey)(const char *line));

#endif
