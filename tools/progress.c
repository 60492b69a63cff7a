/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define WIDTH 20

static atomic_bool shown;

bool progress_wanted(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) == 1 &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

void progress_show(const char *what, uint64_t done, uint64_t total,
                   uint64_t since_ns)
{
    double seconds = (double)(now_ns() - since_ns) / 1e9;
    int filled = total == 0 ? 0 : (int)((double)done / (double)total * WIDTH);
    char a[BYTES_TEXT], b[BYTES_TEXT], bar[WIDTH + 1];

    if (!progress_wanted()) {
        return;
    }
    memset(bar, ' ', WIDTH);
    memset(bar, '#', (size_t)(filled > WIDTH ? WIDTH : filled));
    bar[WIDTH] = '\0';
    atomic_store(&shown, true);
    fputs("\r\033[K", stderr);
    put_text(stderr, what);
    fprintf(stderr, "  [%s]  %s of %s", bar, format_bytes(done, a),
            format_bytes(total, b));
    if (done > 0 && seconds > 0) {
        fprintf(stderr, "  %s/s",
                format_bytes((uint64_t)((double)done / seconds), a));
    }
    fprintf(stderr, "  %.1f s", seconds);
    fflush(stderr);
}

void progress_clear(void)
{
    if (atomic_exchange(&shown, false)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
