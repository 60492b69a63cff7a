/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    int lines;
    tmsg_log_level_t level;
    char line[2048];
} seen_t;

static void note(void *arg, tmsg_log_level_t level, const char *line)
{
    seen_t *seen = arg;

    seen->lines++;
    seen->level = level;
    snprintf(seen->line, sizeof(seen->line), "%s", line);
}

/* What `write_lines` has to say on standard error. */
static void capture(void (*write_lines)(void), char *text, size_t bytes)
{
    int ends[2], before = dup(STDERR_FILENO);
    ssize_t got;

    cr_assert_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    write_lines();
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    got = read(ends[0], text, bytes - 1);
    text[got < 0 ? 0 : got] = '\0';
    close(ends[0]);
}

static void one_line_a_level(void)
{
    tmsg_log(TMSG_LOG_ERROR, "e%d", 1);
    tmsg_log(TMSG_LOG_WARN, "w%d", 2);
    tmsg_log(TMSG_LOG_INFO, "i%d", 3);
    tmsg_log(TMSG_LOG_DEBUG, "d%d", 4);
}

Test(log, passes_lines_of_its_level_and_graver)
{
    for (int set = TMSG_LOG_NONE; set <= TMSG_LOG_DEBUG; set++) {
        for (int level = TMSG_LOG_ERROR; level <= TMSG_LOG_DEBUG; level++) {
            seen_t seen = {0};
            int expected = level <= set;
            int wanted;

            tmsg_log_set((tmsg_log_level_t)set, note, &seen);
            wanted = tmsg_log_wanted((tmsg_log_level_t)level);
            tmsg_log((tmsg_log_level_t)level, "map %d of '%s'", 3, "peer");
            cr_expect_eq(seen.lines, expected, "set %d, level %d: %d lines",
                         set, level, seen.lines);
            cr_expect_eq(wanted, expected, "set %d, level %d: wanted %d", set,
                         level, wanted);
            if (expected) {
                cr_expect_eq((int)seen.level, level, "%d, not %d",
                             (int)seen.level, level);
                cr_expect_str_eq(seen.line, "map 3 of 'peer'", "'%s'",
                                 seen.line);
            }
        }
    }
}

Test(log, a_line_is_one_line)
{
    seen_t seen = {0};
    char longer[4096];

    tmsg_log_set(TMSG_LOG_ERROR, note, &seen);
    tmsg_log(TMSG_LOG_ERROR, "peer '%s'", "a\nerror: b\x1b[2J\xff");
    cr_expect_str_eq(seen.line, "peer 'a\\x0aerror: b\\x1b[2J\\xff'", "'%s'",
                     seen.line);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    tmsg_log(TMSG_LOG_ERROR, "%s", longer);
    cr_expect_eq(seen.lines, 2, "%d", seen.lines);
    cr_expect_lt(strlen(seen.line), sizeof(longer), "%zu", strlen(seen.line));
}

Test(log, without_a_function_goes_to_standard_error)
{
    static const char expected[] = "tensormsg error: e1\ntensormsg warn: w2\n"
                                   "tensormsg info: i3\n";
    char text[256];

    tmsg_log_set(TMSG_LOG_INFO, NULL, NULL);
    capture(one_line_a_level, text, sizeof(text));
    cr_expect_str_eq(text, expected, "'%s', not '%s'", text, expected);
}

Test(log, prints_nothing_unless_asked)
{
    char text[256];

    unsetenv("TENSORMSG_LOG");
    capture(one_line_a_level, text, sizeof(text));
    cr_expect_str_empty(text, "'%s'", text);
}

/* The variable is read once a process, so each value has a test of its own. */
static void expect_of_variable(const char *value, int lines)
{
    char text[256];
    int count = 0;

    setenv("TENSORMSG_LOG", value, 1);
    capture(one_line_a_level, text, sizeof(text));
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        count++;
    }
    cr_expect_eq(count, lines, "TENSORMSG_LOG=%s: %d lines, not %d: '%s'",
                 value, count, lines, text);
    setenv("TENSORMSG_LOG", lines > 0 ? "none" : "debug", 1);
    cr_expect_eq(tmsg_log_wanted(TMSG_LOG_ERROR), lines > 0,
                 "the variable was read twice");
}

Test(log, variable_none) { expect_of_variable("none", 0); }
Test(log, variable_error) { expect_of_variable("error", 1); }
Test(log, variable_warn) { expect_of_variable("warn", 2); }
Test(log, variable_info) { expect_of_variable("info", 3); }
Test(log, variable_debug) { expect_of_variable("debug", 4); }
Test(log, variable_empty) { expect_of_variable("", 0); }
Test(log, variable_unknown) { expect_of_variable("verbose", 0); }
Test(log, variable_in_capitals) { expect_of_variable("DEBUG", 0); }
Test(log, variable_cut) { expect_of_variable("err", 0); }

Test(log, code_goes_before_the_variable)
{
    seen_t seen = {0};

    setenv("TENSORMSG_LOG", "debug", 1);
    tmsg_log_set(TMSG_LOG_WARN, note, &seen);
    one_line_a_level();
    cr_expect_eq(seen.lines, 2, "%d lines, not 2", seen.lines);
}

static void *write_many(void *arg)
{
    for (int i = 0; i < 1000; i++) {
        tmsg_log(TMSG_LOG_WARN, "%s %d", (const char *)arg, i);
    }
    return NULL;
}

/* One call at a time: an unguarded counter loses nothing. */
Test(log, calls_the_function_once_at_a_time)
{
    pthread_t threads[4];
    seen_t seen = {0};

    tmsg_log_set(TMSG_LOG_WARN, note, &seen);
    for (size_t i = 0; i < COUNT(threads); i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, write_many, "line"), 0);
    }
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    cr_expect_eq(seen.lines, 4000, "%d lines, not 4000", seen.lines);
}
