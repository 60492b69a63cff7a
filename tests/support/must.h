/* SPDX-License-Identifier: BSD-3-Clause */
/* support/must.h - what has to hold for a test to go on, in threads and child
 * processes too, where Criterion's assertions do not reach. A failure says
 * where, what was got and what was wanted, and ends the process by abort(). */
#ifndef TMSG_TESTS_MUST_H
#define TMSG_TESTS_MUST_H

#include <stdbool.h>

#include <tensormsg/status.h>

#define must(call) must_be(call, TMSG_OK)
#define must_be(call, wanted)                                                  \
    must_status(__FILE__, __LINE__, #call, call, wanted)

/* The words must hold `part`; NULL words hold nothing. */
#define must_say(words, part) must_hold(__FILE__, __LINE__, words, part)

#define must_true(condition)                                                   \
    ((condition) ? (void)0                                                     \
                 : die("%s:%d: not %s", __FILE__, __LINE__, #condition))

/* Two integers. */
#define must_eq(got, wanted)                                                   \
    must_equal(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))

void must_status(const char *file, int line, const char *call,
                 tmsg_status_t got, tmsg_status_t wanted);
void must_hold(const char *file, int line, const char *words, const char *part);
void must_equal(const char *file, int line, const char *what, long long got,
                long long wanted);

void die(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

#endif
