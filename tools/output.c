/* SPDX-License-Identifier: BSD-3-Clause */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

static bool by_the_way, lost;

/* argp ends the program itself after --help, so the last flush is done here. */
static void at_exit(void)
{
    if (!lost && !output_flush()) {
        _exit(EXIT_FAILED);
    }
}

/* UCX has kept the old stream since it was loaded. A new stream keeps UCX's
 * output away from `stdout`. */
static void part_from_ucx(void)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");

    if (stream == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        fclose(stream);
        return;
    }
    stdout = stream;
}

void output_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* The descriptor is opened in the wrong direction, so that using it
             * still fails. */
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
    part_from_ucx();
    atexit(at_exit);
}

void output_is_by_the_way(void) { by_the_way = true; }

bool output_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return !lost;
    }
    if (by_the_way && errno == EPIPE) {
        __fpurge(stdout);
        clearerr(stdout);
        return !lost;
    }
    if (!lost) {
        lost = true;
        complain("standard output: %s",
                 errno == 0 ? "could not be written" : strerror(errno));
    }
    return false;
}

int output_end(int code)
{
    return output_flush() || code != EXIT_DONE ? code : EXIT_FAILED;
}
