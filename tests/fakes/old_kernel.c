/* SPDX-License-Identifier: BSD-3-Clause */
#include "fakes/old_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif

bool kernel_is_old;

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);

int __wrap_fcntl(int fd, int command, ...)
{
    va_list list;
    long argument;

    va_start(list, command);
    argument = va_arg(list, long);
    va_end(list);
    if (kernel_is_old && command == F_ADD_SEALS &&
        (argument & F_SEAL_FUTURE_WRITE) != 0) {
        errno = EINVAL;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}
