/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/error.h"
#include "memory/memfd.h"

const char tmsg_segment_unsealed[] =
    "not sealed, as this kernel (before Linux 5.1) cannot: a peer that gives "
    "its pages back may end this process by a signal";

static void init_segment(tmsg_segment_t *segment, size_t bytes)
{
    *segment = (tmsg_segment_t){.bytes = bytes, .fd = -1, .pid = getpid()};
}

/* Maps the memory. A child of this process has no part in it. */
static tmsg_status_t map_segment(tmsg_segment_t *segment)
{
    void *memory = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED, segment->fd, 0);

    if (memory == MAP_FAILED) {
        return tmsg_error_errno(TMSG_ERR_IO, "shared memory cannot be mapped");
    }
    (void)madvise(memory, segment->bytes, MADV_DONTFORK);
    segment->memory = memory;
    return TMSG_OK;
}

/* Returns whether the pages of the file are sealed. If the kernel does not know
 * the seal, *known_p is false. The other side may seal at the same time. */
static bool seal_pages(int fd, bool *known_p)
{
    int seals;

    *known_p = fcntl(fd, F_ADD_SEALS, TMSG_MEMFD_SEALS) == 0 || errno != EINVAL;
    seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
           (seals & F_SEAL_FUTURE_WRITE) != 0;
}

/* Seals the memory, which this side has mapped. The pages that the other side
 * gave back before the seal stay missing, so all are taken once more. */
static tmsg_status_t keep_pages(tmsg_segment_t *segment)
{
    bool known;

    segment->sealed = seal_pages(segment->fd, &known);
    if (!segment->sealed && known) {
        return tmsg_error_set(TMSG_ERR_IO,
                              "the peer keeps the right to give back pages of "
                              "the memory");
    }
    if (!tmsg_memfd_take_pages(segment->fd, segment->bytes)) {
        return tmsg_error_errno(TMSG_ERR_IO, "pages of the memory are missing");
    }
    segment->settled = true;
    return TMSG_OK;
}

/* Makes the memory. Its pages are taken at once, because a page that is missing
 * later would be a signal. */
static tmsg_status_t make_memory(tmsg_segment_t *segment)
{
    segment->fd = tmsg_memfd_make();
    if (segment->fd < 0 ||
        !tmsg_memfd_take_pages(segment->fd, segment->bytes) ||
        fcntl(segment->fd, F_ADD_SEALS, TMSG_MEMFD_LENGTH_SEALS) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "no memory to be shared");
    }
    return map_segment(segment);
}

tmsg_status_t tmsg_segment_create(tmsg_segment_t *segment, size_t bytes)
{
    tmsg_status_t status;

    init_segment(segment, bytes);
    status = make_memory(segment);
    if (status == TMSG_OK) {
        randombytes_buf(segment->memory, TMSG_SEGMENT_MARK_BYTES);
    } else {
        tmsg_segment_free(segment);
    }
    return status;
}

tmsg_status_t tmsg_segment_settle(tmsg_segment_t *segment)
{
    tmsg_status_t status = keep_pages(segment);

    tmsg_segment_close_fd(segment);
    return status;
}

void tmsg_segment_close_fd(tmsg_segment_t *segment)
{
    if (segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
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

/* Returns whether the file begins with the mark. It is not looked at through a
 * mapping: until the file is sealed, that may be a signal. */
static bool has_mark(int fd, const uint8_t *mark)
{
    uint8_t found[TMSG_SEGMENT_MARK_BYTES];

    return pread(fd, found, sizeof(found), 0) == (ssize_t)sizeof(found) &&
           sodium_memcmp(found, mark, sizeof(found)) == 0;
}

/* Nothing is changed of a file that has another mark: it may be anybody's. */
static tmsg_status_t find_peer_memory(tmsg_segment_t *segment,
                                      const tmsg_segment_offer_t *offer)
{
    tmsg_status_t status;

    segment->fd = offer->passed
                      ? offer->fd
                      : open_peer_file(offer->pid, offer->fd, segment->bytes);
    if (segment->fd < 0) {
        return tmsg_error_errno(TMSG_ERR_IO,
                                "the peer's memory cannot be opened here");
    }
    if (!is_memory_for_good(segment->fd, segment->bytes)) {
        return tmsg_error_set(TMSG_ERR_IO,
                              "the peer's file is not sealed memory of the "
                              "length that it offered");
    }
    if (!has_mark(segment->fd, offer->mark)) {
        return tmsg_error_set(
            TMSG_ERR_IO, "the memory is not the one that the peer offered");
    }
    status = map_segment(segment);
    return status == TMSG_OK ? keep_pages(segment) : status;
}

tmsg_status_t tmsg_segment_open(tmsg_segment_t *segment, size_t bytes,
                                const tmsg_segment_offer_t *offer)
{
    tmsg_status_t status;

    init_segment(segment, bytes);
    status = find_peer_memory(segment, offer);
    if (offer->passed) {
        segment->fd = -1;
    }
    tmsg_segment_close_fd(segment);
    if (status != TMSG_OK) {
        tmsg_segment_free(segment);
    }
    return status;
}

void tmsg_segment_free(tmsg_segment_t *segment)
{
    tmsg_segment_close_fd(segment);
    if (segment->memory != NULL && segment->pid == getpid()) {
        munmap(segment->memory, segment->bytes);
    }
    segment->memory = NULL;
}
