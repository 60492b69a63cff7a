/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* Adds up what is told: a line of its own is one event, a count as many as it
 * says. */
typedef struct {
    unsigned lines, counts;
    unsigned long long events;
    char last[256];
} told_t;

static void add_up(void *arg, tmsg_log_level_t level, const char *line)
{
    told_t *told = arg;
    char *end;
    unsigned long long count = strtoull(line, &end, 10);

    (void)level;
    told->lines += end == line;
    told->counts += end != line;
    told->events += end == line ? 1 : count;
    snprintf(told->last, sizeof(told->last), "%s", line);
}

static uint64_t test_ns;

static uint64_t test_clock(void) { return test_ns; }

static void begin_limited(tmsg_log_level_t level, told_t *told)
{
    test_ns = UINT64_C(1000000000);
    tmsg_log_set_clock(test_clock);
    tmsg_log_set(level, add_up, told);
}

static void pass(double seconds) { test_ns += (uint64_t)(seconds * 1e9); }

static void say(unsigned times, const char *whom)
{
    for (unsigned i = 0; i < times; i++) {
        tmsg_log_of(TMSG_LOG_FOREIGN_KIND, whom, TMSG_LOG_WARN,
                    "tcp://%s:%u: does not speak tensormsg", whom, i);
    }
}

static void free_what_ucx_has(void *arg, tmsg_log_level_t level,
                              const char *line)
{
    (void)line;
    cr_assert(tmsg_log_may(TMSG_LOG_UCX_SAID_KIND, "rcache.c", level));
    cr_assert(!tmsg_log_pass_ucx(level, "said meanwhile"));
    ++*(unsigned *)arg;
}

/* UCX may say something where an application's function runs. */
Test(log, lines_of_ucx_do_not_wait_for_their_own_thread, .timeout = 60)
{
    unsigned calls = 0;

    cr_assert(!tmsg_log_pass_ucx(TMSG_LOG_WARN, "to nobody"));
    tmsg_log_set_ucx(free_what_ucx_has, &calls);
    cr_assert(tmsg_log_pass_ucx(TMSG_LOG_WARN, "said"));
    tmsg_log_set(TMSG_LOG_WARN, free_what_ucx_has, &calls);
    tmsg_log(TMSG_LOG_WARN, "said by the library");
    cr_assert(calls == 2);
}

Test(log, repeated_lines_are_counted)
{
    told_t told = {0};

    begin_limited(TMSG_LOG_WARN, &told);
    cr_expect_eq(tmsg_log_due_ns(), 0);
    say(TMSG_LOG_LINES, "127.0.0.1");
    cr_expect_eq(told.lines, TMSG_LOG_LINES, "%u", told.lines);
    cr_expect_eq(tmsg_log_due_ns(), 0);
    say(412, "127.0.0.1");
    cr_expect_eq(told.lines + told.counts, TMSG_LOG_LINES);
    cr_expect_eq(tmsg_log_due_ns(), test_ns + UINT64_C(10000000000));
    pass(9.9);
    tmsg_log_tell();
    cr_expect_eq(told.counts, 0);
    pass(0.1);
    tmsg_log_tell();
    cr_expect_str_eq(told.last,
                     "412 connections from 127.0.0.1 did not speak tensormsg "
                     "in the last 10 s",
                     "'%s'", told.last);
    cr_expect_eq(tmsg_log_due_ns(), 0);
    tmsg_log_tell();
    tmsg_log_flush();
    cr_expect_eq(told.counts, 1, "%u", told.counts);
    say(1, "127.0.0.1");
    cr_expect_eq(told.lines, TMSG_LOG_LINES + 1, "%u", told.lines);
}

/* The next line after an interval tells its count, though nobody looks. */
Test(log, a_later_line_tells_the_count)
{
    told_t told = {0};

    begin_limited(TMSG_LOG_WARN, &told);
    say(TMSG_LOG_LINES + 1, "a");
    pass(60);
    say(1, "a");
    cr_expect_eq(told.counts, 1);
    cr_expect_eq(told.lines, TMSG_LOG_LINES + 1);
    cr_expect_eq(told.events, TMSG_LOG_LINES + 2);
}

Test(log, counts_tell_whom_they_are_about)
{
    static const char *const whom[] = {"a", "b", "c", "d", "e", "f", "g"};
    told_t told = {0};

    begin_limited(TMSG_LOG_WARN, &told);
    say(TMSG_LOG_LINES, "z");
    for (unsigned i = 0; i < COUNT(whom); i++) {
        say(i + 1, whom[i]);
        say(i + 1, whom[i]);
    }
    pass(3);
    tmsg_log_flush();
    cr_expect_eq(told.counts, TMSG_LOG_WHOM_MOST + 1, "%u", told.counts);
    cr_expect_eq(told.events, TMSG_LOG_LINES + 2 * (1 + 2 + 3 + 4 + 5 + 6 + 7));
    cr_expect_str_eq(told.last,
                     "36 connections from others did not speak tensormsg in "
                     "the last 3 s",
                     "'%s'", told.last);
    /* What was flushed early has used up the lines of its interval. */
    say(1, "a");
    cr_expect_eq(told.lines, TMSG_LOG_LINES);
    tmsg_log_flush();
    cr_expect_str_eq(told.last,
                     "1 connection from a did not speak tensormsg in the last "
                     "1 s",
                     "'%s'", told.last);
}

Test(log, each_kind_is_counted_by_itself)
{
    told_t told = {0};

    begin_limited(TMSG_LOG_WARN, &told);
    for (int kind = 0; kind < TMSG_LOG_KIND_COUNT; kind++) {
        for (int i = 0; i < TMSG_LOG_LINES + 3; i++) {
            tmsg_log_of((tmsg_log_kind_t)kind, "w", TMSG_LOG_ERROR, "line");
        }
    }
    cr_expect_eq(told.lines, TMSG_LOG_LINES * TMSG_LOG_KIND_COUNT);
    pass(10);
    tmsg_log_tell();
    cr_expect_eq(told.counts, TMSG_LOG_KIND_COUNT);
    cr_expect_eq(told.events, (TMSG_LOG_LINES + 3) * TMSG_LOG_KIND_COUNT);
}

/* What nobody would see is not counted, and DEBUG tells all. */
Test(log, levels_decide_what_is_counted)
{
    told_t told = {0};

    begin_limited(TMSG_LOG_ERROR, &told);
    say(100, "a");
    cr_expect_eq(tmsg_log_due_ns(), 0);
    cr_expect_eq(told.events, 0);
    tmsg_log_set(TMSG_LOG_DEBUG, add_up, &told);
    for (int i = 0; i < 100; i++) {
        tmsg_log_of(TMSG_LOG_FAILED_KIND, "a", TMSG_LOG_DEBUG, "line");
    }
    cr_expect_eq(told.lines, 100, "%u", told.lines);
}

/* The former function hears what was counted for it. */
Test(log, another_function_begins_anew)
{
    told_t first = {0}, second = {0};

    begin_limited(TMSG_LOG_WARN, &first);
    say(TMSG_LOG_LINES + 7, "a");
    tmsg_log_set(TMSG_LOG_WARN, add_up, &second);
    cr_expect_eq(first.events, TMSG_LOG_LINES + 7);
    say(1, "a");
    cr_expect_eq(second.lines, 1);
}

static void *say_many(void *arg)
{
    (void)arg;
    say(1000, "somebody");
    return NULL;
}

Test(log, counts_of_several_threads_add_up)
{
    pthread_t threads[4];
    told_t told = {0};

    begin_limited(TMSG_LOG_WARN, &told);
    for (size_t i = 0; i < COUNT(threads); i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, say_many, NULL), 0);
    }
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    tmsg_log_flush();
    cr_expect_eq(told.events, 4000, "%llu", told.events);
    cr_expect_eq(told.lines, TMSG_LOG_LINES);
}

static bool ending;

/* LeakSanitizer asks this at the end, and cannot look for leaks in a process
 * that was forked. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return ending; }

/* Fails if it is called once the program has ended. */
static void expect_before_the_end(void *arg, tmsg_log_level_t level,
                                  const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
    if (ending) {
        _exit(17);
    }
}

static void end_with_a_count(void)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0) {
        tmsg_log_set(TMSG_LOG_WARN, expect_before_the_end, NULL);
        say(TMSG_LOG_LINES + 5, "a");
        ending = true;
        exit(0);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0, "%d", status);
}

Test(log, what_is_left_at_the_end_goes_to_standard_error)
{
    char text[512];

    capture(end_with_a_count, text, sizeof(text));
    cr_expect_not_null(strstr(text, "5 connections from a did not speak"),
                       "'%s'", text);
    cr_expect_null(strstr(text, "does not speak"), "'%s'", text);
}

static int in_the_sink[2], out_of_it[2];

static void stay(void *arg, tmsg_log_level_t level, const char *line)
{
    char byte = 0;

    (void)arg;
    (void)level;
    (void)line;
    if (write(in_the_sink[1], &byte, 1) == 1) {
        (void)!read(out_of_it[0], &byte, 1);
    }
}

static void *log_one(void *arg)
{
    tmsg_log(TMSG_LOG_WARN, "of another thread");
    return arg;
}

Test(log, goes_on_in_a_child_though_another_thread_was_in_it)
{
    pthread_t thread;
    char byte = 0;
    int status;
    pid_t pid;

    cr_assert_eq(pipe(in_the_sink), 0);
    cr_assert_eq(pipe(out_of_it), 0);
    tmsg_log_set(TMSG_LOG_WARN, stay, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, log_one, NULL), 0);
    cr_assert_eq(read(in_the_sink[0], &byte, 1), 1);
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        alarm(20);
        close(in_the_sink[0]); /* so that the function goes on at once */
        close(in_the_sink[1]);
        in_the_sink[1] = -1;
        tmsg_log_may(TMSG_LOG_UCX_SAID_KIND, "a file", TMSG_LOG_WARN);
        tmsg_log(TMSG_LOG_WARN, "of the child");
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect_eq(status, 0);
    cr_assert_eq(write(out_of_it[1], &byte, 1), 1);
    pthread_join(thread, NULL);
}
