/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/memfd.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/thread.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

/* A signal interrupts fallocate(), which then has taken nothing. So it is asked
 * for some pages at a time, and for fewer where signals come often, as those of
 * a profiler do. */
#define MOST_AT_ONCE ((size_t)2 << 20)
#define LEAST_AT_ONCE ((size_t)1 << 16)
/* A thread drops so many bytes or more. */
#define BY_THREAD ((size_t)64 << 20)

typedef struct {
    int fd;
    void *memory;
    size_t bytes;
} dropped_t;

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

bool tmsg_memfd_take_pages(int fd, size_t bytes)
{
    size_t from = 0, at_once = MOST_AT_ONCE;

    if (!tmsg_memfd_may_have(bytes)) {
        return false;
    }
    while (from < bytes) {
        size_t some = bytes - from < at_once ? bytes - from : at_once;

        if (fallocate(fd, 0, (off_t)from, (off_t)some) == 0) {
            from += some;
        } else if (errno == EINTR) {
            at_once = at_once > LEAST_AT_ONCE ? at_once / 2 : at_once;
        } else {
            return false;
        }
    }
    return true;
}

static void drop_now(const dropped_t *dropped)
{
    if (dropped->memory != NULL) {
        munmap(dropped->memory, dropped->bytes);
    }
    if (dropped->fd >= 0) {
        close(dropped->fd);
    }
}

static void *drop_in_thread(void *arg)
{
    dropped_t *dropped = arg;

    drop_now(dropped);
    free(dropped);
    return NULL;
}

void tmsg_memfd_drop(int fd, void *memory, size_t bytes)
{
    const dropped_t dropped = {fd, memory, bytes};
    dropped_t *kept = bytes < BY_THREAD ? NULL : malloc(sizeof(*kept));

    if (kept != NULL) {
        *kept = dropped;
        if (tmsg_thread_detach(drop_in_thread, kept) == 0) {
            return;
        }
        free(kept);
    }
    drop_now(&dropped);
}
