/* SPDX-License-Identifier: BSD-3-Clause */
/* numbers.h - lists of the command line: "64,4K,1M", "64:1M", "64:1M:4". */
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

/* Reads a list of numbers from `least` to `most`: each alone (with K, M or G,
 * of 1024, if it has that behind it), or A:B, each twice the one before, or
 * A:B:F, each F times it; B comes last in any case. NULL, or what is wrong with
 * it; no number is taken twice. */
const char *numbers_parse(const char *text, uint64_t least, uint64_t most,
                          numbers_t *numbers);

/* "64B", "4KiB", "1MiB": the shortest that is exact. Returns `text`. */
#define NUMBERS_TEXT 32
const char *numbers_format_bytes(uint64_t bytes, char text[NUMBERS_TEXT]);

#endif
