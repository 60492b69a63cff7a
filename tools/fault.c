/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "progress.h"
#include "tool.h"

/* Made beforehand: a handler may do little more than write() it. */
static char line[4 * 4096 + 256]; /* the longest path, all escaped */
static size_t line_bytes;
static const char *watched;
static off_t watched_bytes;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL); /* another bug: it comes again on return */
        return;
    }
    if (write(STDERR_FILENO, line, line_bytes) < 0) {
        /* nobody to tell */
    }
    _exit(EXIT_FAILED);
}

void fault_watch(const char *path)
{
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO};
    struct stat about;
    FILE *text = fmemopen(line, sizeof(line) - 1, "w");

    if (text == NULL) {
        return;
    }
    fputs(progress_wanted() ? "\r\033[K" : "", text);
    fputs("tensormsg: ", text);
    put_text(text, path);
    fputs(": the file was cut short, or could not be read, while it was in "
          "use\n",
          text);
    fclose(text);
    line_bytes = strlen(line);
    sigaction(SIGBUS, &action, NULL);
    watched = path;
    watched_bytes = stat(path, &about) == 0 ? about.st_size : 0;
}

bool fault_was_cut(void)
{
    struct stat about;

    return stat(watched, &about) == 0 && about.st_size < watched_bytes;
}
