/* SPDX-License-Identifier: BSD-3-Clause */
/* support/golden_listing.h - the listings of tests/golden: hex with remarks
 * behind
 * '#', the first of which is the case's status or title. Whatever goes wrong
 * here ends the test by abort(). */
#ifndef TMSG_TESTS_GOLDEN_LISTING_H
#define TMSG_TESTS_GOLDEN_LISTING_H

#include <stddef.h>
#include <stdint.h>

#define GOLDEN_CASES_MAX 256

typedef struct {
    char path[512]; /* without .hex */
    char remark[128];
    uint8_t *bytes; /* exactly as long as the listing, for ASan's sake */
    size_t size;
} golden_t;

/* Reads hex digits up to '#' or the end of each line of `text`, into a buffer
 * that the caller frees. */
uint8_t *golden_unhex(const char *text, size_t *size_p);

/* A whole file with a NUL after it; the caller frees it. */
char *golden_read(const char *path);

/* Reads the listings of a folder such as "v0/valid", sorted by name, into
 * GOLDEN_CASES_MAX cases; more, or none, is an error. Returns how many there
 * are. */
size_t golden_load(const char *folder, golden_t *cases);

void golden_free(golden_t *cases, size_t count);

#endif
