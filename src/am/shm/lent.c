/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/shm/lent.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "am/net/unwanted.h"
#include "core/error.h"
#include "memory/borrowed.h"
#include "memory/memfd.h"

#define REFUSED "the memory that the peer lends"

static const struct {
    int seal;
    const char *words;
} wanted[] = {
    {F_SEAL_SHRINK, " shrinking"},
    {F_SEAL_GROW, " growing"},
    {F_SEAL_FUTURE_WRITE | F_SEAL_WRITE, " writing"}, /* either will do */
    {F_SEAL_SEAL, " further seals"},
};

static tmsg_status_t check_kind(int fd, struct stat *about)
{
    struct statfs system;

    if (fstat(fd, about) != 0 || fstatfs(fd, &system) != 0) {
        return tmsg_error_errno(TMSG_ERR_MALFORMED,
                                REFUSED " cannot be looked at");
    }
    if (system.f_type == HUGETLBFS_MAGIC) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              REFUSED " is a file of huge pages (hugetlbfs), "
                                      "whose pages may run out");
    }
    if (!S_ISREG(about->st_mode) || system.f_type != TMPFS_MAGIC) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              REFUSED " is a file of a file system (%#lx), not "
                                      "of memory",
                              (unsigned long)system.f_type);
    }
    return TMSG_OK;
}

/* Names all the seals that are missing. */
static tmsg_status_t check_seals(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    char words[80] = "";

    if (seals < 0 && errno == EINVAL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              REFUSED " is not a file of memory");
    }
    if (seals < 0) {
        return tmsg_error_errno(TMSG_ERR_MALFORMED,
                                REFUSED " cannot be asked for its seals");
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if ((seals & wanted[i].seal) == 0) {
            strcat(words, words[0] == '\0' ? "" : ",");
            strcat(words, wanted[i].words);
        }
    }
    return words[0] == '\0'
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_MALFORMED,
                                REFUSED " is not sealed against%s", words);
}

static tmsg_status_t check_length(const struct stat *about, size_t bytes)
{
    if (bytes > 0 && (uint64_t)about->st_size == bytes) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_MALFORMED,
                          REFUSED " has %lld bytes, not the %zu that were said",
                          (long long)about->st_size, bytes);
}

/* The blocks are asked first because they are known, and holes are looked
 * for. */
static tmsg_status_t check_pages(int fd, const struct stat *about)
{
    off_t hole = 0;

    if (about->st_blocks >= (about->st_size + 511) / 512) {
        hole = lseek(fd, 0, SEEK_HOLE);
    }
    if (hole == about->st_size) {
        return TMSG_OK;
    }
    if (hole < 0) {
        return tmsg_error_errno(TMSG_ERR_MALFORMED,
                                REFUSED " cannot be searched for holes");
    }
    return tmsg_error_set(
        TMSG_ERR_MALFORMED,
        REFUSED " has holes: %lld of its %lld bytes are there, and none at "
                "byte %lld",
        (long long)about->st_blocks * 512, (long long)about->st_size,
        (long long)hole);
}

/* The seals are read first: what they keep is looked at afterwards, and stays
 * as it is then. And the kernel answers itself for files that are no memory: to
 * ask a file system of the peer's own (FUSE) may take for ever. */
static tmsg_status_t check_file(int fd, size_t bytes, uint64_t *inode_p)
{
    struct stat about;
    tmsg_status_t status;

    if (fd < 0) {
        return tmsg_error_set(TMSG_ERR_IO,
                              REFUSED " came without its descriptor");
    }
    status = check_seals(fd);
    status = status == TMSG_OK ? check_kind(fd, &about) : status;
    status = status == TMSG_OK ? check_length(&about, bytes) : status;
    status = status == TMSG_OK ? check_pages(fd, &about) : status;
    if (status == TMSG_OK) {
        *inode_p = about.st_ino;
    }
    return status;
}

static tmsg_status_t map_file(int fd, size_t bytes, const uint8_t **memory_p)
{
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED && errno == EPERM) {
        /* Linux before 6.7 takes it for a mapping that may be written to some
         * day, against F_SEAL_WRITE. Of a file that nobody writes to, a private
         * mapping shows the same. */
        memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (memory == MAP_FAILED) {
        return tmsg_error_errno(TMSG_ERR_NO_MEMORY,
                                REFUSED " (%zu bytes) cannot be mapped here",
                                bytes);
    }
    *memory_p = memory;
    return TMSG_OK;
}

uint64_t tmsg_lent_inode(int fd)
{
    struct stat about;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &about) == 0 ? about.st_ino
                                                                 : 0;
}

tmsg_status_t tmsg_lent_open(tmsg_borrowed_t *lent, int fd, size_t bytes)
{
    tmsg_status_t status;

    *lent = (tmsg_borrowed_t){.bytes = bytes};
    status = check_file(fd, bytes, &lent->inode);
    if (status == TMSG_OK) {
        status = map_file(fd, bytes, &lent->memory);
    }
    if (status != TMSG_OK) {
        tmsg_unwanted_close(fd);
        return status;
    }
    status = tmsg_borrowed_add(lent->memory, bytes, fd);
    if (status != TMSG_OK) {
        tmsg_lent_close(lent);
    }
    return status;
}

void tmsg_lent_close(tmsg_borrowed_t *lent)
{
    if (lent->memory != NULL) {
        tmsg_borrowed_remove(lent->memory);
        tmsg_memfd_drop(-1, (void *)(uintptr_t)lent->memory, lent->bytes);
        lent->memory = NULL;
    }
}
