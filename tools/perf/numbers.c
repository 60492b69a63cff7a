/* SPDX-License-Identifier: BSD-3-Clause */
#include "numbers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char units[] = "KMG";

/* Parses the text after the digits: K, KiB, M, MiB, G, GiB, B or nothing. */
static bool parse_unit(const char **at, uint64_t *number)
{
    const char *unit = **at == '\0' ? NULL : strchr(units, **at);
    unsigned shift = unit == NULL ? 0 : 10 * (unsigned)(unit - units + 1);

    if (*number > UINT64_MAX >> shift) {
        return false;
    }
    *number <<= shift;
    *at += unit != NULL;
    if (unit != NULL && strncmp(*at, "iB", 2) == 0) {
        *at += 2;
    } else if (unit == NULL && **at == 'B') {
        *at += 1;
    }
    return true;
}

static bool parse_one(const char **at, uint64_t *number_p)
{
    uint64_t number;
    char *end;

    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    number = strtoull(*at, &end, 10);
    if (errno != 0) {
        return false;
    }
    *at = end;
    *number_p = number;
    return parse_unit(at, number_p);
}

static const char *add_number(numbers_t *numbers, uint64_t number)
{
    for (size_t i = 0; i < numbers->count; i++) {
        if (numbers->values[i] == number) {
            return NULL;
        }
    }
    if (numbers->count == NUMBERS_MOST) {
        return "more than 64 numbers";
    }
    numbers->values[numbers->count++] = number;
    return NULL;
}

static const char *add_range(numbers_t *numbers, const uint64_t ends[2],
                             uint64_t factor)
{
    const char *wrong = NULL;

    for (uint64_t at = ends[0]; at < ends[1] && wrong == NULL;) {
        wrong = add_number(numbers, at);
        at = at == 0 ? 1 : at > UINT64_MAX / factor ? ends[1] : at * factor;
    }
    return wrong == NULL ? add_number(numbers, ends[1]) : wrong;
}

static const char *parse_item(const char **at, uint64_t least, uint64_t most,
                              numbers_t *numbers)
{
    uint64_t ends[2], factor = 2;

    if (!parse_one(at, &ends[0])) {
        return "not a number";
    }
    ends[1] = ends[0];
    if (**at == ':') {
        ++*at;
        if (!parse_one(at, &ends[1]) || ends[1] < ends[0]) {
            return "not a range A:B with A below B";
        }
    }
    if (**at == ':') {
        ++*at;
        if (!parse_one(at, &factor) || factor < 2) {
            return "not a range A:B:F with a factor F of 2 or more";
        }
    }
    if (ends[0] < least || ends[1] > most) {
        return "out of range";
    }
    return add_range(numbers, ends, factor);
}

const char *numbers_parse(const char *text, uint64_t least, uint64_t most,
                          numbers_t *numbers)
{
    const char *at = text;
    const char *wrong;

    numbers->count = 0;
    for (;;) {
        wrong = parse_item(&at, least, most, numbers);
        if (wrong != NULL || *at == '\0') {
            return wrong;
        }
        if (*at++ != ',') {
            return "not a number";
        }
    }
}

const char *numbers_format_bytes(uint64_t bytes, char text[NUMBERS_TEXT])
{
    unsigned unit = 0;

    while (unit < sizeof(units) - 1 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(text, NUMBERS_TEXT, "%lluB", (unsigned long long)bytes);
    } else {
        snprintf(text, NUMBERS_TEXT, "%llu%ciB", (unsigned long long)bytes,
                 units[unit - 1]);
    }
    return text;
}
