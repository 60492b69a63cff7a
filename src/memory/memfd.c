/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/memfd.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

/* A signal interrupts fallocate(), which then has taken nothing. Of so many
 * bytes it is done before the next signal of a profiler comes. */
#define AT_ONCE ((size_t)2 << 20)

/* Kernels since 6.3 may ask for the seal against execution, which older ones do
 * not know. */
int tmsg_memfd_make(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("tensormsg", flags | MFD_NOEXEC_SEAL);

    return fd < 0 && errno == EINVAL ? memfd_create("tensormsg", flags) : fd;
}

bool tmsg_memfd_may_have(size_t bytes)
{
    struct rlimit most;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
        errno = EFBIG;
        return false;
    }
    return true;
}

static bool take_some(int fd, size_t from, size_t bytes)
{
    int rc;

    do {
        rc = fallocate(fd, 0, (off_t)from, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    return rc == 0;
}

bool tmsg_memfd_take_pages(int fd, size_t bytes)
{
    bool taken = tmsg_memfd_may_have(bytes);

    for (size_t from = 0; taken && from < bytes; from += AT_ONCE) {
        size_t left = bytes - from;

        taken = take_some(fd, from, left < AT_ONCE ? left : AT_ONCE);
    }
    return taken;
}
