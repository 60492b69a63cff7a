/* SPDX-License-Identifier: BSD-3-Clause */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "signals.h"
#include "tool.h"

#define LOOK_MS 50

static bool by_the_way, lost;

/* argp ends the program itself after --help, so the last flush is done here. */
static void at_exit(void)
{
    if (!lost && !output_flush()) {
        _exit(EXIT_FAILED);
    }
}

bool output_await_room(int fd)
{
    for (;;) {
        bool came = signals_came();
        struct pollfd fds[] = {
            {.fd = fd, .events = POLLOUT},
            {.fd = came ? -1 : signals_fd(), .events = POLLIN},
        };

        poll(fds, 2, came ? LOOK_MS : -1);
        if (fds[0].revents != 0) {
            return true;
        }
        if (signals_grace_is_over()) {
            errno = EINTR;
            return false;
        }
    }
}

/* Where standard output goes. A regular file always has room. */
typedef struct {
    int fd;
    bool is_file;
} output_t;

/* Writes to it, as a cookie_write_function_t. A pipe with room takes PIPE_BUF
 * bytes without waiting, so that a signal is heard while nobody reads it. */
static ssize_t write_out(void *cookie, const char *data, size_t bytes)
{
    const output_t *output = cookie;
    size_t done = 0;

    while (done < bytes && (output->is_file || output_await_room(output->fd))) {
        size_t left = bytes - done;
        size_t most = output->is_file ? left : PIPE_BUF;
        ssize_t count =
            write(output->fd, data + done, left < most ? left : most);

        if (count >= 0) {
            done += (size_t)count;
        } else if (errno != EINTR && errno != EAGAIN) {
            break;
        }
    }
    return (ssize_t)done;
}

/* UCX has kept the old stream since it was loaded. A new stream keeps UCX's
 * output away from `stdout`. */
static void part_from_ucx(void)
{
    static output_t output;
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    struct stat status;
    FILE *stream;

    output.fd = fd;
    output.is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    stream = fd < 0 ? NULL
                    : fopencookie(&output, "w",
                                  (cookie_io_functions_t){.write = write_out});
    if (stream == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        fclose(stream);
        close(fd);
        return;
    }
    if (isatty(fd)) {
        setvbuf(stream, NULL, _IOLBF, 0);
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
                 errno == 0       ? "could not be written"
                 : errno == EINTR ? "it is not being read, and a signal came"
                                  : strerror(errno));
    }
    return false;
}

int output_end(int code)
{
    return output_flush() || code != EXIT_DONE ? code : EXIT_FAILED;
}
