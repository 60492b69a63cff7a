/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

static const char *describe_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO or pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

tmsg_status_t tmsg_regular_open(const char *what, const char *path, int *fd_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    tmsg_status_t status;

    *fd_p = -1;
    if (fd < 0 || fstat(fd, &about) != 0) {
        status =
            tmsg_error_errno(errno == ENOENT ? TMSG_ERR_NOT_FOUND : TMSG_ERR_IO,
                             "%s %s", what, path);
    } else if (!S_ISREG(about.st_mode)) {
        status = tmsg_error_set(TMSG_ERR_IO,
                                "%s %s is %s: it must be a regular file", what,
                                path, describe_kind(about.st_mode));
    } else {
        *fd_p = fd;
        return TMSG_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
