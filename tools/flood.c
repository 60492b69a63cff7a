/* SPDX-License-Identifier: BSD-3-Clause */
#include "flood.h"

#include <stdarg.h>

#define FLOOD_NS (FLOOD_MS * 1000000ULL)

void flood_complain(flood_t *flood, const char *format, ...)
{
    uint64_t now = now_ns();
    char line[1400];
    va_list args;

    if (now - flood->since_ns >= FLOOD_NS) {
        flood_tell(flood, true);
        flood->since_ns = now;
        flood->lines = 0;
    }
    if (flood->lines == FLOOD_LINES) {
        flood->more++;
        return;
    }
    flood->lines++;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    complain("%s", line);
}

int flood_tell(flood_t *flood, bool now)
{
    uint64_t end = flood->since_ns + FLOOD_NS;

    if (flood->more == 0) {
        return -1;
    }
    if (!now && ms_until(end) > 0) {
        return ms_until(end);
    }
    complain("and %u more %s", flood->more, flood->what);
    flood->more = 0;
    return -1;
}
