/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct {
    const char *what;
    const char *text;
    size_t bytes; /* 0: strlen(text) */
    bool valid;
} row_t;

static const row_t rows[] = {
    {"empty", "", 0, true},
    {"ASCII", "image/left", 0, true},
    {"NUL inside", "a\0b", 3, true},
    {"two bytes, lowest U+0080", "\xc2\x80", 0, true},
    {"two bytes, highest U+07FF", "\xdf\xbf", 0, true},
    {"three bytes, lowest U+0800", "\xe0\xa0\x80", 0, true},
    {"three bytes, before the surrogates U+D7FF", "\xed\x9f\xbf", 0, true},
    {"three bytes, behind the surrogates U+E000", "\xee\x80\x80", 0, true},
    {"three bytes, highest U+FFFF", "\xef\xbf\xbf", 0, true},
    {"four bytes, lowest U+10000", "\xf0\x90\x80\x80", 0, true},
    {"four bytes, highest U+10FFFF", "\xf4\x8f\xbf\xbf", 0, true},
    {"mixed scripts", "m\xc3\xa4\xe5\x83\x8f\xf0\x9f\x8e\x9e.raw", 0, true},
    {"lone continuation", "\x80", 0, false},
    {"continuation behind ASCII", "a\xbf", 0, false},
    {"overlong U+0000 in two bytes", "\xc0\x80", 0, false},
    {"overlong '/' in two bytes", "\xc0\xaf", 0, false},
    {"overlong U+007F in two bytes", "\xc1\xbf", 0, false},
    {"overlong '/' in three bytes", "\xe0\x80\xaf", 0, false},
    {"overlong U+07FF in three bytes", "\xe0\x9f\xbf", 0, false},
    {"overlong '/' in four bytes", "\xf0\x80\x80\xaf", 0, false},
    {"overlong U+FFFF in four bytes", "\xf0\x8f\xbf\xbf", 0, false},
    {"first surrogate U+D800", "\xed\xa0\x80", 0, false},
    {"last surrogate U+DFFF", "\xed\xbf\xbf", 0, false},
    {"a pair of surrogates", "\xed\xa0\xbd\xed\xb8\x80", 0, false},
    {"above U+10FFFF", "\xf4\x90\x80\x80", 0, false},
    {"lead f5", "\xf5\x80\x80\x80", 0, false},
    {"five bytes", "\xf8\x88\x80\x80\x80", 0, false},
    {"six bytes", "\xfc\x84\x80\x80\x80\x80", 0, false},
    {"fe", "\xfe", 0, false},
    {"ff", "\xff", 0, false},
    {"two bytes cut", "a\xc3", 0, false},
    {"three bytes cut after one", "\xe5", 0, false},
    {"three bytes cut after two", "\xe5\x83", 0, false},
    {"four bytes cut after three", "\xf0\x9f\x8e", 0, false},
    {"ASCII inside a sequence", "\xe5z\x8f", 0, false},
    {"a lead inside a sequence", "\xe5\xc3\xa4", 0, false},
    {"a good character behind a bad one", "\xff\xc3\xa4", 0, false},
    {"Latin-1", "m\xe4rz", 0, false},
};

/* On the heap, exactly as long as the text: ASan sees a byte too far. */
static bool is_valid(const char *text, size_t bytes)
{
    char *exact = malloc(bytes);
    bool valid;

    memcpy(exact, text, bytes);
    valid = tmsg_utf8_valid(exact, bytes);
    free(exact);
    return valid;
}

Test(utf8, follows_rfc_3629)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t bytes = rows[i].bytes ? rows[i].bytes : strlen(rows[i].text);
        bool valid = is_valid(rows[i].text, bytes);

        cr_expect_eq(valid, rows[i].valid, "%s: %d, not %d", rows[i].what,
                     valid, rows[i].valid);
    }
}

/* The definition, by arithmetic: the shortest form of a scalar value. */
static bool by_definition(const uint8_t *at, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

    while (bytes > 0) {
        size_t length = *at < 0x80             ? 1
                        : (*at & 0xe0) == 0xc0 ? 2
                        : (*at & 0xf0) == 0xe0 ? 3
                        : (*at & 0xf8) == 0xf0 ? 4
                                               : 0;
        uint32_t value = length == 1 ? *at : *at & (0x7fu >> length);

        if (length == 0 || length > bytes) {
            return false;
        }
        for (size_t i = 1; i < length; i++) {
            if ((at[i] & 0xc0) != 0x80) {
                return false;
            }
            value = value << 6 | (at[i] & 0x3f);
        }
        if (value < least[length] || value > 0x10ffff ||
            (value >= 0xd800 && value <= 0xdfff)) {
            return false;
        }
        at += length;
        bytes -= length;
    }
    return true;
}

static void compare(const uint8_t *text, size_t bytes)
{
    bool valid = tmsg_utf8_valid((const char *)text, bytes);
    bool expected = by_definition(text, bytes);

    if (valid != expected) {
        cr_expect(false, "%02x %02x %02x %02x, %zu bytes: %d, not %d", text[0],
                  text[1], text[2], text[3], bytes, valid, expected);
    }
}

Test(utf8, agrees_with_the_definition_on_all_short_texts)
{
    static const uint8_t ends[] = {0x00, 0x7f, 0x80, 0xa5, 0xbf, 0xc0, 0xff};
    uint8_t text[4];

    for (uint32_t i = 0; i < 1u << 24; i++) {
        text[0] = (uint8_t)i;
        text[1] = (uint8_t)(i >> 8);
        text[2] = (uint8_t)(i >> 16);
        text[3] = 0;
        if (text[0] >= 0x80 || text[1] >= 0x80) {
            compare(text, 3);
        }
    }
    for (uint32_t i = 0; i < 1u << 16; i++) {
        text[0] = (uint8_t)i;
        text[1] = (uint8_t)(i >> 8);
        compare(text, 2);
        for (size_t j = 0; text[0] >= 0xe0 && j < COUNT(ends); j++) {
            for (size_t k = 0; k < COUNT(ends); k++) {
                text[2] = ends[j];
                text[3] = ends[k];
                compare(text, 4);
            }
        }
    }
}

/* Looked at by eight: what is wrong is found wherever it is. */
Test(utf8, a_wrong_byte_is_found_in_every_place)
{
    char text[41];

    for (size_t bytes = 1; bytes < sizeof(text); bytes++) {
        memset(text, 'a', sizeof(text));
        cr_expect(tmsg_utf8_valid(text, bytes), "%zu bytes", bytes);
        for (size_t at = 0; at < bytes; at++) {
            text[at] = '\x80';
            cr_expect_not(tmsg_utf8_valid(text, bytes), "at %zu of %zu", at,
                          bytes);
            text[at] = '\xc3'; /* half of a letter, or whole */
            cr_expect_not(tmsg_utf8_valid(text, bytes), "at %zu of %zu", at,
                          bytes);
            if (at + 1 < bytes) {
                text[at + 1] = '\xa4';
                cr_expect(tmsg_utf8_valid(text, bytes), "at %zu of %zu", at,
                          bytes);
                text[at + 1] = 'a';
            }
            text[at] = 'a';
        }
    }
}
