/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks for a program under callgrind, for Python by ctypes: what this thread
 * does between growth_begin() and growth_end() is counted, under the label. */
#include <valgrind/callgrind.h>

#include "marks.h"

void growth_begin(void)
{
    static int started;

    if (started++ == 0) { /* each start compiles all code anew */
        CALLGRIND_START_INSTRUMENTATION;
    }
    CALLGRIND_TOGGLE_COLLECT;
}

void growth_end(const char *label)
{
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(label);
}
