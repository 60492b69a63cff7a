/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "core/utf8.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The characters themselves are compared with Python's unicodedata, in
 * bindings/shown. */
Test(shown, escapes_what_cannot_be_seen)
{
    static const struct {
        const char *text, *expected; /* NULL: as it is */
    } cases[] = {
        {"", NULL},
        {"tensor 'a'", NULL},
        {"m\xc3\xa4\xe5\x83\x8f\xf0\x9f\x8e\x9e", NULL},
        {"no-break\xc2\xa0space", NULL},
        {"a \\ and \\x1b", NULL},
        {"two\nlines\r\n", "two\\x0alines\\x0d\\x0a"},
        {"\tred \x1b[31m", "\\x09red \\x1b[31m"},
        {"del\x7f", "del\\x7f"},
        {"C1 \xc2\x9b\x33", "C1 \\x9b3"},
        {"\xe2\x80\xaegnp", "\\u202egnp"},
        {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
        {"a\xe2\x81\xa6z\xe2\x80\x8b", "a\\u2066z\\u200b"},
        {"\xf3\xa0\x80\x81", "\\U000e0001"},
        {"\xee\x80\x80\xef\xbf\xbf", "\\ue000\\uffff"},
        {"\xe3\x85\xa4", "\\u3164"},
        {"cut \xe5\x83", "cut \\xe5\\x83"},
        {"Latin m\xe4rz", "Latin m\\xe4rz"},
        {"\xff\xc3\xa4", "\\xff\xc3\xa4"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *expected =
            cases[i].expected ? cases[i].expected : cases[i].text;
        char text[64];

        for (int again = 0; again < 2; again++) { /* once is enough */
            tmsg_shown_format(text, sizeof(text), "%s",
                              again ? expected : cases[i].text);
            cr_expect_str_eq(text, expected, "case %zu: '%s', not '%s'", i,
                             text, expected);
        }
    }
}

/* Text is looked at by eight bytes: each byte, in each place. */
Test(shown, escapes_in_every_place)
{
    char text[32], expected[64];

    for (unsigned byte = 1; byte < 256; byte++) {
        bool printed = byte >= 0x20 && byte < 0x7f;

        for (int at = 0; at < 19; at++) {
            snprintf(expected, sizeof(expected), "%.*s%s%.*s", at,
                     "~~~~~~~~~~~~~~~~~~~", "XXXX" + (printed ? 3 : 0), 18 - at,
                     "~~~~~~~~~~~~~~~~~~~");
            if (printed) {
                expected[at] = (char)byte;
            } else {
                char escape[5];

                snprintf(escape, sizeof(escape), "\\x%02x", byte);
                memcpy(expected + at, escape, 4);
            }
            memset(text, '~', 19);
            text[19] = '\0';
            text[at] = (char)byte;
            cr_expect_eq(tmsg_shown_fit(text, sizeof(text), false),
                         strlen(text));
            cr_expect_str_eq(text, expected, "%#x at %d: '%s'", byte, at, text);
        }
    }
}

/* Returns whether `text` is the begin of `whole` that ends between two of its
 * pieces, which are separated by '|' in `pieces`. */
static bool ends_between(const char *text, size_t bytes, const char *pieces)
{
    size_t at = 0;

    for (; *pieces != '\0'; pieces++) {
        if (*pieces == '|') {
            if (at == bytes) {
                return true;
            }
        } else if (at == bytes || text[at++] != *pieces) {
            return false;
        }
    }
    return false;
}

/* In a buffer of each size, whether the text or its escapes are too long, and
 * where the text has escapes already. */
Test(shown, cuts_between_characters_and_escapes)
{
    static const char raw[] = "ab\xc3\xa4\x1b\xe2\x80\xae\xf3\xa0\x80\x81"
                              "\xf0\x9f\x8e\x9e\xff.";
    static const char pieces[] = "|a|b|\xc3\xa4|\\x1b|\\u202e|\\U000e0001|"
                                 "\xf0\x9f\x8e\x9e|\\xff|.|";
    static const char whole[] = "ab\xc3\xa4\\x1b\\u202e\\U000e0001"
                                "\xf0\x9f\x8e\x9e\\xff.";

    for (int again = 0; again < 2; again++) {
        for (size_t room = 5; room <= sizeof(whole); room++) {
            char *text = malloc(room); /* a sanitizer sees its end */
            size_t bytes;

            tmsg_shown_format(text, room, "%s", again ? whole : raw);
            bytes = strlen(text);
            if (room == sizeof(whole)) {
                cr_expect_str_eq(text, whole, "'%s'", text);
            } else {
                cr_assert(bytes >= 3 && bytes < room, "%zu: '%s'", room, text);
                cr_expect_str_eq(text + bytes - 3, "...", "%zu: '%s'", room,
                                 text);
                cr_expect(ends_between(text, bytes - 3, pieces), "%zu: '%s'",
                          room, text);
                /* The longest escape may have found no room. */
                cr_expect(bytes + 11 >= room, "%zu: '%s'", room, text);
            }
            free(text);
        }
    }
    for (size_t room = 1; room < 5; room++) {
        char text[5];

        tmsg_shown_format(text, room, "%s", "\x1b\x1b\x1b");
        cr_expect_str_eq(text, room == 4 ? "..." : "", "%zu: '%s'", room, text);
    }
}

Test(shown, random_texts_fit)
{
    uint32_t state = 1;

    for (int round = 0; round < 20000; round++) {
        char text[40];
        size_t bytes = 0, room;

        for (size_t most = (state >> 16) % 39; bytes < most; bytes++) {
            state = state * 1664525 + 1013904223;
            text[bytes] = (char)(state >> 24 | ((state >> 23 & 1) << 7));
            text[bytes] = text[bytes] == '\0' ? '\\' : text[bytes];
        }
        state = state * 1664525 + 1013904223;
        text[bytes] = '\0';
        room = bytes + 1 + (state >> 16) % (sizeof(text) - bytes);
        room = room > sizeof(text) ? sizeof(text) : room;
        cr_assert(tmsg_shown_fit(text, room, (state & 0x10000) != 0) < room);
        cr_assert(tmsg_utf8_valid(text, strlen(text)));
        bytes = strlen(text);
        cr_assert_eq(tmsg_shown_fit(text, room, false), bytes, "'%s'", text);
    }
}

/* What is sent is cut likewise. */
Test(shown, a_part_ends_between_characters_and_escapes)
{
    static const char whole[] = "a\xc3\xa4\\x1b\\u202e\\U000e0001"
                                "\xf0\x9f\x8e\x9e.";
    static const char pieces[] = "|a|\xc3\xa4|\\x1b|\\u202e|\\U000e0001|"
                                 "\xf0\x9f\x8e\x9e|.|";

    for (size_t most = 0; most <= sizeof(whole); most++) {
        size_t bytes = tmsg_shown_cut(whole, most);

        cr_expect(bytes <= most && bytes + 10 > most, "%zu of %zu", bytes,
                  most);
        cr_expect(ends_between(whole, bytes, pieces), "%zu of %zu", bytes,
                  most);
    }
}

Test(shown, a_quoted_text_is_short)
{
    char name[400];

    memset(name, '\n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    cr_expect_eq(strlen(tmsg_shown_short(name).text), 163);
    cr_expect_str_eq(tmsg_shown_short("a\nb").text, "a\\x0ab");
}

Test(shown, names_of_files)
{
    static const struct {
        const char *name, *why; /* NULL: a good one */
    } rows[] = {
        {"a.npy", NULL},
        {"m\xc3\xa4rz \xf0\x9f\x8e\x9e.npy", NULL},
        {"~a $(b) `c` *", NULL},
        {"12345678", NULL},
        {"123456789", "too long"},
        {"", "empty"},
        {".", "dot"},
        {"..", "dot"},
        {".a", "dot"},
        {"/a", "leave"},
        {"a/", "leave"},
        {"-a", "options"},
        {"a\n", "control"},
        {"\x7f", "control"},
        {"\xc2\x85", "control"},
        {"a\xe2\x80\xae", "invisible"},
        {"a\xef\xbb\xbf", "invisible"},
        {"\xff", "invisible"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t most = rows[i].name[0] == '1' ? 8 : 255;
        const char *why = tmsg_shown_bad_name(rows[i].name, most);

        if (rows[i].why == NULL) {
            cr_expect(why == NULL, "row %zu: '%s'", i, why);
        } else {
            cr_expect(why != NULL && strstr(why, rows[i].why) != NULL,
                      "row %zu: '%s'", i, why);
        }
    }
}
