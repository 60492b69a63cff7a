/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/utf8.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

Test(error, every_status_has_its_name)
{
    static const struct {
        int value;
        const char *name;
    } rows[] = {
        {0, "ok"},
        {1, "in progress"},
        {2, "cancel pending"},
        {-1, "invalid parameter"},
        {-2, "no memory"},
        {-3, "timed out"},
        {-4, "canceled"},
        {-5, "peer lost"},
        {-6, "refused"},
        {-7, "limit exceeded"},
        {-8, "malformed"},
        {-9, "unsupported"},
        {-10, "insecure"},
        {-11, "busy"},
        {-12, "not found"},
        {-13, "already exists"},
        {-14, "unreachable"},
        {-15, "incompatible"},
        {-16, "would block"},
        {-17, "closed"},
        {-18, "input/output error"},
        {-19, "internal error"},
        {-20, "checksum mismatch"},
        {-21, "dropped"},
        {-22, "resource exhausted"},
        {-23, "unavailable"},
        {-24, "application error"},
        {3, "unknown status"},
        {-25, "unknown status"},
        {-2147483647, "unknown status"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *name = tmsg_status_name((tmsg_status_t)rows[i].value);

        cr_expect_str_eq(name, rows[i].name, "%d: '%s', not '%s'",
                         rows[i].value, name, rows[i].name);
    }
}

Test(error, message_is_empty_before_the_first_failure)
{
    cr_expect_str_empty(tmsg_error_message(), "'%s'", tmsg_error_message());
}

Test(error, set_returns_the_status_and_keeps_the_words)
{
    tmsg_status_t status =
        tmsg_error_set(TMSG_ERR_BUSY, "tensor '%s': %d", "a", 7);

    cr_expect_eq(status, TMSG_ERR_BUSY, "%s", tmsg_status_name(status));
    cr_expect_str_eq(tmsg_error_message(), "tensor 'a': 7", "'%s'",
                     tmsg_error_message());
    status = tmsg_error_memory("a map");
    cr_expect_eq(status, TMSG_ERR_NO_MEMORY, "%s", tmsg_status_name(status));
    cr_expect_str_eq(tmsg_error_message(), "no memory for a map", "'%s'",
                     tmsg_error_message());
}

Test(error, arguments_may_point_into_the_message)
{
    tmsg_error_set(TMSG_ERR_BUSY, "inner");
    tmsg_error_set(TMSG_ERR_BUSY, "outer: %s", tmsg_error_message());
    tmsg_error_set(TMSG_ERR_BUSY, "%s, %s", tmsg_error_message() + 7,
                   tmsg_error_message());
    cr_expect_str_eq(tmsg_error_message(), "inner, outer: inner", "'%s'",
                     tmsg_error_message());
}

Test(error, errno_names_the_limit_of_descriptors)
{
    errno = EMFILE;
    cr_expect_eq(tmsg_error_errno(TMSG_ERR_IO, "open %s", "x"),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect(strstr(tmsg_error_message(), "open x: this process") != NULL);
    cr_expect(strstr(tmsg_error_message(), "RLIMIT_NOFILE") != NULL);
    errno = ENFILE;
    cr_expect_eq(tmsg_error_errno(TMSG_ERR_IO, "open %s", "x"),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect(strstr(tmsg_error_message(), "fs.file-max") != NULL);
}

Test(error, errno_adds_what_the_system_says)
{
    tmsg_status_t status;

    errno = ENOENT;
    status = tmsg_error_errno(TMSG_ERR_IO, "open %s", "/nowhere");
    cr_expect_eq(status, TMSG_ERR_IO, "%s", tmsg_status_name(status));
    cr_expect_str_eq(tmsg_error_message(),
                     "open /nowhere: No such file or directory", "'%s'",
                     tmsg_error_message());
}

/* What is joined is as what is formatted, of every length. */
Test(error, joined)
{
    char text[TMSG_ERROR_BYTES + 100], both[sizeof(text) + 100];

    for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
        const char *const texts[] = {"no message from ", text, "", " in 0 ms"};
        char joined[TMSG_ERROR_BYTES];

        memset(text, 'x', bytes);
        text[bytes] = '\0';
        if (bytes > 10) {
            text[5] = '\n';
            memcpy(text + bytes - 3, "\xe5\x83\x8f", 3);
        }
        cr_expect_eq(tmsg_error_join(TMSG_ERR_TIMED_OUT, texts, COUNT(texts)),
                     TMSG_ERR_TIMED_OUT);
        strcpy(joined, tmsg_error_message());
        snprintf(both, sizeof(both), "no message from %s in 0 ms", text);
        tmsg_error_set(TMSG_ERR_TIMED_OUT, "%s", both);
        cr_expect_str_eq(joined, tmsg_error_message(), "%zu: '%s', not '%s'",
                         bytes, joined, tmsg_error_message());
    }
}

/* Whatever names it quotes: one line, UTF-8, and cut with a mark. */
Test(error, message_is_one_line_of_utf8)
{
    char longer[2 * TMSG_ERROR_BYTES + 1];

    tmsg_error_set(TMSG_ERR_BUSY, "no tensor '%s'", "a\nb\x1b[0m\xff");
    cr_expect_str_eq(tmsg_error_message(), "no tensor 'a\\x0ab\\x1b[0m\\xff'",
                     "'%s'", tmsg_error_message());
    for (size_t shift = 0; shift < 4; shift++) {
        const char *message = tmsg_error_message();

        memset(longer, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof(longer); i += 4) {
            memcpy(longer + i, "\xf0\x9f\x8e\x9e", 5);
        }
        tmsg_error_set(TMSG_ERR_BUSY, "%s", longer);
        cr_expect(strlen(message) > TMSG_ERROR_BYTES - 5, "%zu bytes",
                  strlen(message));
        cr_expect(tmsg_utf8_valid(message, strlen(message)), "'%s'", message);
        cr_expect_str_eq(message + strlen(message) - 3, "...", "'%s'", message);
    }
    errno = EIO;
    tmsg_error_errno(TMSG_ERR_IO, "%s", longer);
    cr_expect(strlen(tmsg_error_message()) > TMSG_ERROR_BYTES - 5);
}

Test(error, name_is_cut_between_characters)
{
#define N60 "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
    static const struct {
        const char *name;
        size_t bytes; /* 0: strlen(name) */
        const char *shown;
    } rows[] = {
        {"", 0, ""},
        {"image", 0, "image"},
        {"image and more", 5, "image"},
        {"a\0b", 3, "a?b"},
        {N60 "nnnn", 0, N60 "nnnn"},
        {N60 "nnnnn", 0, N60 "nnnn..."},
        {N60 "nnnn\0", 65, N60 "nnnn..."},
        {N60 "\xf0\x9f\x8e\x9e", 0, N60 "\xf0\x9f\x8e\x9e"},
        {N60 "n\xf0\x9f\x8e\x9e", 0, N60 "n..."},
        {N60 "nnn\xc3\xa4", 0, N60 "nnn..."},
        {N60 "nn\xc3\xa4\xc3\xa4", 0, N60 "nn\xc3\xa4..."},
        {"\x1b[\xff", 0, "\x1b[\xff"}, /* for tmsg_error_set() */
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t bytes = rows[i].bytes ? rows[i].bytes : strlen(rows[i].name);
        char *exact = malloc(bytes);
        tmsg_error_name_t shown;

        memcpy(exact, rows[i].name, bytes);
        shown = tmsg_error_name(exact, bytes);
        cr_expect_str_eq(shown.text, rows[i].shown, "row %zu: '%s', not '%s'",
                         i, shown.text, rows[i].shown);
        free(exact);
    }
}

static void *fail_in_a_thread(void *arg)
{
    char *seen = arg;

    seen[0] = *tmsg_error_message(); /* nothing of the other thread's */
    tmsg_error_set(TMSG_ERR_BUSY, "theirs");
    strcpy(seen + 1, tmsg_error_message());
    return NULL;
}

Test(error, message_belongs_to_its_thread)
{
    pthread_t thread;
    char seen[32] = "?";

    tmsg_error_set(TMSG_ERR_BUSY, "ours");
    cr_assert_eq(pthread_create(&thread, NULL, fail_in_a_thread, seen), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(seen[0], '\0', "the thread began with '%c...'", seen[0]);
    cr_expect_str_eq(seen + 1, "theirs", "'%s'", seen + 1);
    cr_expect_str_eq(tmsg_error_message(), "ours", "'%s'",
                     tmsg_error_message());
}
