/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h - parses lists of the command line: "64,4K,1M", "64:1M",
 * "64:1M:4". */
#ifndef TMSG_PERF_NUMBERS_H
#define TMSG_PERF_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBERS_MOST 64

typedef struct {
    uint64_t values[NUMBERS_MOST];
    size_t count;
} numbers_t;

/* Reads a list of numbers from `least` to `most`. An item is a number, or a
 * range A:B (each number is twice the previous one), or A:B:F (each is F times
 * the previous one). A range always ends with B. A number may end with K, M or
 * G, which are powers of 1024. Repeated numbers are dropped. Returns NULL, or
 * text that tells what is wrong. */
const char *numbers_parse(const char *text, uint64_t least, uint64_t most,
                          numbers_t *numbers);

/* Writes a size in the shortest exact form, such as "64B", "4KiB" or "1MiB".
 * Returns `text`. */
#define NUMBERS_TEXT 32
const char *numbers_format_bytes(uint64_t bytes, char text[NUMBERS_TEXT]);

#endif
