/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static void init_shared(tmsg_shared_t *shared, size_t bytes)
{
    *shared = (tmsg_shared_t){.bytes = bytes, .fd = -1, .pid = getpid()};
}

/* Maps the memory. A child of this process has no part in it. */
static tmsg_status_t map_shared(tmsg_shared_t *shared)
{
    void *memory = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        shared->fd, 0);

    if (memory == MAP_FAILED) {
        return tmsg_error_errno(TMSG_ERR_IO, "shared memory cannot be mapped");
    }
    (void)madvise(memory, shared->bytes, MADV_DONTFORK);
    shared->memory = memory;
    return TMSG_OK;
}

/* Makes the file. Kernels since 6.3 may ask for the seal, which older ones do
 * not know. */
static int make_file(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("tensormsg", flags | MFD_NOEXEC_SEAL);

    return fd < 0 && errno == EINVAL ? memfd_create("tensormsg", flags) : fd;
}

/* Takes the pages of the file. More than a file may have here would be a
 * signal. */
static bool take_pages(int fd, size_t bytes)
{
    struct rlimit most;
    int rc;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
        errno = EFBIG;
        return false;
    }
    do {
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/* Makes the memory. Its pages are taken at once, because a page that is missing
 * later would be a signal. */
static tmsg_status_t make_memory(tmsg_shared_t *shared)
{
    shared->fd = make_file();
    if (shared->fd < 0 || !take_pages(shared->fd, shared->bytes) ||
        fcntl(shared->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "no memory to be shared");
    }
    return map_shared(shared);
}

tmsg_status_t tmsg_shared_create(tmsg_shared_t *shared, size_t bytes)
{
    tmsg_status_t status;

    init_shared(shared, bytes);
    status = make_memory(shared);
    if (status == TMSG_OK) {
        randombytes_buf(shared->memory, TMSG_SHARED_MARK_BYTES);
    } else {
        tmsg_shared_free(shared);
    }
    return status;
}

void tmsg_shared_close_fd(tmsg_shared_t *shared)
{
    if (shared->fd >= 0) {
        close(shared->fd);
        shared->fd = -1;
    }
}

/* Returns whether the file is memory of that length, for now. */
static bool is_memory(int fd, size_t bytes)
{
    struct stat about;
    struct statfs system;

    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
           about.st_size == (off_t)bytes && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

/* Returns whether the file is memory of that length and stays so. If it became
 * shorter, there would be a signal, whenever the peer likes. The seal is read
 * first, because a file that is not sealed yet may be cut after it was
 * measured. */
static bool is_memory_for_good(int fd, size_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && is_memory(fd, bytes);
}

/* Opens the file of the peer's descriptor, if it is memory. This looks before
 * it opens: to open a device does something, and a peer may want this side to
 * wait for whoever has a lease of the file. */
static int open_peer_file(pid_t pid, int fd, size_t bytes)
{
    char path[64];
    int found, error, opened = -1;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    found = open(path, O_PATH | O_CLOEXEC);
    if (found < 0) {
        return -1;
    }
    errno = EINVAL;
    if (is_memory(found, bytes)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
        opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    error = errno;
    close(found);
    errno = error;
    return opened;
}

static tmsg_status_t find_peer_memory(tmsg_shared_t *shared, pid_t pid, int fd)
{
    shared->fd = open_peer_file(pid, fd, shared->bytes);
    if (shared->fd < 0) {
        return tmsg_error_errno(TMSG_ERR_IO,
                                "the peer's memory cannot be opened here");
    }
    if (!is_memory_for_good(shared->fd, shared->bytes)) {
        return tmsg_error_set(TMSG_ERR_IO,
                              "what the peer offers is no such memory");
    }
    return map_shared(shared);
}

tmsg_status_t tmsg_shared_open(tmsg_shared_t *shared, size_t bytes, pid_t pid,
                               int fd, const uint8_t *mark)
{
    tmsg_status_t status;

    init_shared(shared, bytes);
    status = find_peer_memory(shared, pid, fd);
    tmsg_shared_close_fd(shared);
    if (status == TMSG_OK &&
        sodium_memcmp(shared->memory, mark, TMSG_SHARED_MARK_BYTES) != 0) {
        status = tmsg_error_set(TMSG_ERR_IO, "the memory is another's");
    }
    if (status != TMSG_OK) {
        tmsg_shared_free(shared);
    }
    return status;
}

void tmsg_shared_free(tmsg_shared_t *shared)
{
    tmsg_shared_close_fd(shared);
    if (shared->memory != NULL && shared->pid == getpid()) {
        munmap(shared->memory, shared->bytes);
    }
    shared->memory = NULL;
}
