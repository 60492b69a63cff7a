/* SPDX-License-Identifier: BSD-3-Clause */
/* flood.h - bounds the lines that peers can cause on standard error. A peer
 * that is refused a thousand times costs FLOOD_LINES lines and one with a
 * number. */
#ifndef TMSG_FLOOD_H
#define TMSG_FLOOD_H

#include "tool.h"

#define FLOOD_LINES 20
#define FLOOD_MS 10000

typedef struct {
    const char *what;     /* ends the sentence "and 412 more ..." */
    uint64_t since_ns;    /* time of the first line of this interval */
    unsigned lines, more; /* lines printed in it, and not printed */
} flood_t;

/* Prints a line as complain() does. Beyond FLOOD_LINES in FLOOD_MS it is only
 * counted. */
void flood_complain(flood_t *flood, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints how many lines were only counted, when their interval is over or if
 * `now`. Returns the milliseconds until then, or -1 if there are none. */
int flood_tell(flood_t *flood, bool now);

#endif
