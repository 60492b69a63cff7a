/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Memory that a peer lends: what is none is refused by a name, and what was
 * taken can be read to its end, whatever the peer does. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/net/loop.h"
#include "am/net/unwanted.h"
#include "am/shm/lent.h"
#include "memory/borrowed.h"
#include "memory/map_copies.h"
#include "memory/memfd.h"
#include "memory/shareable.h"
#include "support/lingering.h"
#include "support/must.h"

#define PAGE ((size_t)4096)
#define BYTES (16 * PAGE)

static bool is_huge;   /* what the kernel says of files */
static unsigned asked; /* how often a file system was asked */

int __real_fstatfs(int fd, struct statfs *system);
int __wrap_fstatfs(int fd, struct statfs *system);

int __wrap_fstatfs(int fd, struct statfs *system)
{
    int rc = __real_fstatfs(fd, system);

    asked++;

    system->f_type = is_huge ? HUGETLBFS_MAGIC : system->f_type;
    return rc;
}

static bool is_old; /* a kernel before Linux 6.7 */

void *__real_mmap(void *at, size_t bytes, int may, int flags, int fd,
                  off_t from);
void *__wrap_mmap(void *at, size_t bytes, int may, int flags, int fd,
                  off_t from);

void *__wrap_mmap(void *at, size_t bytes, int may, int flags, int fd,
                  off_t from)
{
    if (is_old && (flags & MAP_TYPE) == MAP_SHARED &&
        (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR &&
        fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE) {
        errno = EPERM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, may, flags, fd, from);
}

static int make_file(size_t bytes)
{
    int fd = tmsg_memfd_make();

    must_true(fd >= 0);
    must_eq(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void fill(int fd, size_t bytes)
{
    uint8_t *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    must_true(memory != MAP_FAILED);
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(i / PAGE + i);
    }
    must_eq(munmap(memory, bytes), 0);
}

static void seal(int fd, int seals)
{
    must_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
}

static int make_whole(int seals)
{
    int fd = make_file(BYTES);

    fill(fd, BYTES);
    seal(fd, seals);
    return fd;
}

/* A thread may close what is refused. */
static void await_close(int fd)
{
    uint64_t until = tmsg_now_ns() + 20 * UINT64_C(1000000000);

    while (fcntl(fd, F_GETFD) >= 0) {
        must_true(tmsg_now_ns() < until);
        usleep(100);
    }
    must_eq(errno, EBADF);
}

/* The descriptor is taken over also where it is refused. */
static void refuse(int fd, size_t bytes, const char *words)
{
    tmsg_borrowed_t lent;

    must_be(tmsg_lent_open(&lent, fd, bytes), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), words);
    must_true(lent.memory == NULL);
    await_close(fd);
}

static void take(tmsg_borrowed_t *lent, int fd)
{
    must(tmsg_lent_open(lent, fd, BYTES));
    for (size_t i = 0; i < BYTES; i++) {
        must_eq(lent->memory[i], (uint8_t)(i / PAGE + i));
    }
}

static void accept_whole(int fd)
{
    tmsg_borrowed_t lent;

    take(&lent, fd);
    tmsg_lent_close(&lent);
    must_true(lent.memory == NULL && fcntl(fd, F_GETFD) < 0);
}

Test(lent, is_no_file_of_another_kind)
{
    int ends[2];

    refuse(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), BYTES,
           "is not a file of memory");
    must_eq(pipe(ends), 0);
    refuse(ends[0], BYTES, "is not a file of memory");
    close(ends[1]);
    must_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    refuse(ends[0], BYTES, "is not a file of memory");
    close(ends[1]);
    refuse(open("/dev/zero", O_RDWR | O_CLOEXEC), BYTES,
           "is not a file of memory");
    refuse(open("/proc/self/exe", O_PATH | O_NOFOLLOW | O_CLOEXEC), BYTES,
           "cannot be asked for its seals");
    refuse(open("/proc/self/maps", O_RDONLY | O_CLOEXEC), BYTES,
           "is not a file of memory");
    refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), BYTES,
           "is not a file of memory");
    must_eq(asked, 0); /* it might not answer */
}

static void refuse_lingering(void)
{
    tmsg_borrowed_t lent;

    must_be(tmsg_lent_open(&lent, lingering_socket(), BYTES),
            TMSG_ERR_MALFORMED);
}

/* Its peer may keep its close from an end, and the thread that closes it. */
Test(lent, is_not_waited_for_where_its_close_takes_long, .timeout = 60)
{
    uint64_t began = tmsg_now_ns();
    pid_t child;
    int status;

    for (int i = 0; i < 8; i++) {
        must_true(!tmsg_unwanted_is_full());
        refuse_lingering();
    }
    must_true(tmsg_unwanted_is_full());
    accept_whole(make_whole(TMSG_MEMFD_SEALS));
    refuse(make_whole(0), BYTES, "not sealed");
    child = fork();
    if (child == 0) {
        /* One of them was being closed. */
        bool full = tmsg_unwanted_is_full();

        _exit(full ? 1 : 0);
    }
    must_eq(waitpid(child, &status, 0), child);
    must_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must_true(tmsg_now_ns() - began < 30 * UINT64_C(1000000000));
}

Test(lent, is_no_file_of_huge_pages)
{
    is_huge = true;
    refuse(make_whole(TMSG_MEMFD_SEALS), BYTES, "huge pages");
}

/* On machines that have some. */
Test(lent, is_no_file_of_huge_pages_that_the_kernel_made)
{
    int fd = memfd_create("huge", MFD_HUGETLB | MFD_ALLOW_SEALING);

    if (fd >= 0) {
        must_eq(ftruncate(fd, (off_t)2 << 20), 0);
        seal(fd, TMSG_MEMFD_SEALS);
        refuse(fd, (size_t)2 << 20, "huge pages");
    }
}

Test(lent, is_sealed_against_all_that_takes_pages)
{
    refuse(make_whole(0), BYTES,
           "not sealed against shrinking, growing, writing, further seals");
    refuse(make_whole(TMSG_MEMFD_SEALS & ~F_SEAL_SHRINK), BYTES,
           "not sealed against shrinking");
    refuse(make_whole(TMSG_MEMFD_SEALS & ~F_SEAL_GROW), BYTES,
           "not sealed against growing");
    refuse(make_whole(TMSG_MEMFD_SEALS & ~F_SEAL_FUTURE_WRITE), BYTES,
           "not sealed against writing");
    refuse(make_whole(TMSG_MEMFD_SEALS & ~F_SEAL_SEAL), BYTES,
           "not sealed against further seals");
}

/* Files that a name leads to cannot be sealed. */
Test(lent, is_no_file_of_dev_shm)
{
    char path[] = "/dev/shm/lent.XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);

    if (fd >= 0) {
        unlink(path);
        must_eq(ftruncate(fd, (off_t)BYTES), 0);
        refuse(fd, BYTES, "not sealed against shrinking");
    }
}

Test(lent, is_as_long_as_was_said)
{
    refuse(make_whole(TMSG_MEMFD_SEALS), BYTES - 1,
           "has 65536 bytes, not the 65535 that were said");
    refuse(make_whole(TMSG_MEMFD_SEALS), BYTES + 1, "has 65536 bytes");
    refuse(make_whole(TMSG_MEMFD_SEALS), SIZE_MAX, "has 65536 bytes");
    refuse(make_whole(TMSG_MEMFD_SEALS), 0, "has 65536 bytes, not the 0");
    refuse(make_file(0), 0, "not sealed");
}

Test(lent, has_no_holes)
{
    int fd = make_file((size_t)1 << 40);

    seal(fd, TMSG_MEMFD_SEALS);
    refuse(fd, (size_t)1 << 40, "has holes: 0 of its 1099511627776 bytes");
    fd = make_file(BYTES);
    fill(fd, BYTES);
    must_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(5 * PAGE), (off_t)PAGE),
            0);
    seal(fd, TMSG_MEMFD_SEALS);
    refuse(fd, BYTES, "has holes: 61440 of its 65536 bytes are there");
}

/* As many blocks are there as the file is long, but behind its end. */
Test(lent, has_its_pages_before_its_end)
{
    int fd = make_file(BYTES);

    must_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)BYTES, (off_t)BYTES), 0);
    seal(fd, TMSG_MEMFD_SEALS);
    refuse(fd, BYTES, "none at byte 0");
    fd = make_file(BYTES);
    fill(fd, BYTES);
    must_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)BYTES, (off_t)BYTES), 0);
    must_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(9 * PAGE), (off_t)PAGE),
            0);
    seal(fd, TMSG_MEMFD_SEALS);
    refuse(fd, BYTES, "none at byte 36864");
}

Test(lent, comes_with_a_descriptor)
{
    tmsg_borrowed_t lent;

    must_be(tmsg_lent_open(&lent, -1, BYTES), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "came without its descriptor");
    must_be(tmsg_lent_open(&lent, 1023, BYTES), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "cannot be asked for its seals");
}

Test(lent, may_be_sealed_against_all_writing)
{
    accept_whole(
        make_whole(TMSG_MEMFD_LENGTH_SEALS | F_SEAL_WRITE | F_SEAL_SEAL));
    accept_whole(make_whole(TMSG_MEMFD_SEALS));
    is_old = true;
    accept_whole(
        make_whole(TMSG_MEMFD_LENGTH_SEALS | F_SEAL_WRITE | F_SEAL_SEAL));
    accept_whole(make_whole(TMSG_MEMFD_SEALS));
}

static int reopen(int fd, int flags)
{
    char path[64];
    int again;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, flags | O_CLOEXEC);
    must_true(again >= 0);
    return again;
}

Test(lent, may_come_by_a_descriptor_that_only_reads)
{
    int fd = make_whole(TMSG_MEMFD_LENGTH_SEALS);
    tmsg_borrowed_t lent;

    accept_whole((seal(fd, TMSG_MEMFD_SEALS), reopen(fd, O_RDONLY)));
    refuse(reopen(fd, O_PATH), BYTES, "cannot be asked for its seals");
    must_be(tmsg_lent_open(&lent, reopen(fd, O_WRONLY), BYTES),
            TMSG_ERR_NO_MEMORY);
    must_say(tmsg_error_message(), "cannot be mapped here");
}

/* The owner keeps what it had: a descriptor, and a mapping to write by. */
Test(lent, loses_no_page_whatever_its_owner_does)
{
    tmsg_shareable_t *segment;
    tmsg_borrowed_t lent;
    uint8_t *memory;
    char path[64], byte = 0;
    int fd;

    must(tmsg_shareable_create(BYTES, &segment));
    memory = tmsg_shareable_memory(segment);
    fd = tmsg_shareable_fd(segment);
    for (size_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i / PAGE + i);
    }
    take(&lent, dup(fd));
    must_eq(ftruncate(fd, 0), -1);
    must_eq(ftruncate(fd, (off_t)(2 * BYTES)), -1);
    must_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE),
            -1);
    must_eq(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, PAGE), -1);
    must_eq(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE), -1);
    must_eq(madvise(memory, PAGE, MADV_REMOVE), -1);
    must_eq(pwrite(fd, &byte, 1, 0), -1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    must_eq(open(path, O_RDWR | O_TRUNC | O_CLOEXEC), -1);
    must_eq(lseek(fd, 0, SEEK_HOLE), BYTES);
    memory[PAGE] ^= 1; /* is all that it can do */
    must_eq(lent.memory[PAGE], memory[PAGE]);
    memory[PAGE] ^= 1;
    tmsg_shareable_drop(segment);
    for (size_t i = 0; i < BYTES; i++) {
        must_eq(lent.memory[i], (uint8_t)(i / PAGE + i));
    }
    tmsg_lent_close(&lent);
}

Test(lent, may_be_frozen)
{
    tmsg_shareable_t *segment;
    tmsg_borrowed_t lent, again;
    uint8_t *memory;
    int fd;

    must(tmsg_shareable_create_draft(BYTES, &segment));
    memory = tmsg_shareable_memory(segment);
    fd = tmsg_shareable_fd(segment);
    for (size_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i / PAGE + i);
    }
    refuse(dup(fd), BYTES, "not sealed against writing, further seals");
    must(tmsg_shareable_freeze(segment));
    take(&lent, dup(fd));
    take(&again, dup(fd));
    must_true(lent.inode != 0 && lent.inode == again.inode);
    must_true(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
              MAP_FAILED);
    tmsg_shareable_drop(segment);
    tmsg_lent_close(&lent);
    tmsg_lent_close(&again);
}

/* Whoever can write to it now could do so for ever. */
Test(lent, is_not_frozen_while_somebody_writes)
{
    tmsg_shareable_t *segment;
    uint8_t *theirs;

    must(tmsg_shareable_create_draft(BYTES, &segment));
    theirs = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                  tmsg_shareable_fd(segment), 0);
    must_true(theirs != MAP_FAILED);
    must_be(tmsg_shareable_freeze(segment), TMSG_ERR_IO);
    must_eq(munmap(theirs, BYTES), 0);
    must(tmsg_shareable_freeze(segment));
    tmsg_shareable_drop(segment);
}

Test(lent, cannot_be_written_to_by_who_borrows_it)
{
    tmsg_borrowed_t lent;
    int fd = make_whole(TMSG_MEMFD_SEALS);
    void *memory;

    take(&lent, fd);
    memory = (void *)(uintptr_t)lent.memory;
    must_eq(mprotect(memory, BYTES, PROT_READ | PROT_WRITE), -1);
    must_true(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
              MAP_FAILED);
    tmsg_lent_close(&lent);
}

Test(lent, is_copied_where_it_is_written_to)
{
    tmsg_shareable_t *segment;
    uint8_t *memory, *copy;
    tmsg_borrowed_t lent;
    void *made, *other;

    must(tmsg_shareable_create(BYTES, &segment));
    memory = tmsg_shareable_memory(segment);
    memory[PAGE + 5] = 5;
    must(tmsg_lent_open(&lent, dup(tmsg_shareable_fd(segment)), BYTES));
    must(tmsg_shareable_map_copy(lent.memory + PAGE + 5, 2 * PAGE, &made));
    must(tmsg_shareable_map_copy(lent.memory + PAGE + 5, 1, &other));
    copy = made;
    must_eq(copy[0], 5);
    copy[0] = 6;
    must_eq(memory[PAGE + 5], 5);
    must_eq(lent.memory[PAGE + 5], 5);
    must_eq(*(uint8_t *)other, 5);
    tmsg_shareable_unmap_copy(other, 1);
    tmsg_lent_close(&lent);
    must_eq(copy[0], 6); /* as it is on its own */
    tmsg_shareable_unmap_copy(copy, 2 * PAGE);
    tmsg_shareable_drop(segment);
}

static long count_faults(const uint8_t *memory, size_t bytes)
{
    struct rusage before, after;
    volatile uint8_t seen = 0;

    getrusage(RUSAGE_THREAD, &before);
    for (size_t at = 0; at < bytes; at += PAGE) {
        seen = seen + memory[at];
    }
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_minflt - before.ru_minflt;
}

Test(lent, is_mapped_once_for_many_who_only_read_it)
{
    enum { LARGE = 1024 * PAGE };
    tmsg_shareable_t *segment;
    uint8_t *memory, *copy;
    tmsg_borrowed_t lent;
    void *made, *again, *other;

    must(tmsg_shareable_create(LARGE, &segment));
    memory = tmsg_shareable_memory(segment);
    must(tmsg_lent_open(&lent, dup(tmsg_shareable_fd(segment)), LARGE));
    must(tmsg_shareable_map_copy(lent.memory + 5, LARGE - 5, &made));
    must_true(count_faults(made, LARGE - PAGE) > 0);
    if (!tmsg_map_copies_is_as_lent((uint8_t *)made - 5, LARGE)) {
        cr_skip_test("a Linux before 6.7 does not tell who wrote to a page");
    }
    tmsg_shareable_unmap_copy(made, LARGE - 5);

    memory[PAGE] = 6; /* the next loan */
    must(tmsg_shareable_map_copy(lent.memory + 5, LARGE - 5, &again));
    must_true(again == made);
    must_true(count_faults(again, LARGE - PAGE) < 4);
    copy = again;
    must_eq(copy[PAGE - 5], 6);
    must(tmsg_shareable_map_copy(lent.memory + 5, LARGE - 5, &other));
    must_true(other != again); /* two loans at a time */
    copy[2 * PAGE] = 7;
    tmsg_shareable_unmap_copy(again, LARGE - 5);
    tmsg_shareable_unmap_copy(other, LARGE - 5);

    must(tmsg_shareable_map_copy(lent.memory + 5, LARGE - 5, &again));
    copy = again; /* not the one that was written to */
    must_eq(copy[2 * PAGE], 0);
    must(tmsg_shareable_map_copy(lent.memory + 5, LARGE - 5, &other));
    copy = other;
    must_eq(copy[2 * PAGE], 0);
    tmsg_shareable_unmap_copy(other, LARGE - 5);
    tmsg_lent_close(&lent);
    must_eq(msync((uint8_t *)other - 5, LARGE, MS_ASYNC), -1); /* unmapped */
    must_eq(*(uint8_t *)again, 0);                             /* in use */
    tmsg_shareable_unmap_copy(again, LARGE - 5);
    must_eq(msync((uint8_t *)again - 5, LARGE, MS_ASYNC), -1);
    tmsg_shareable_drop(segment);
}

static unsigned count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    must_true(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Peers decide how much they lend, and this process how many descriptors it
 * has. */
Test(lent, keeps_few_descriptors)
{
    enum { MANY = TMSG_BORROWED_FDS + 20 };
    unsigned before = count_descriptors();
    tmsg_borrowed_t lent[MANY];

    for (int i = 0; i < MANY; i++) {
        take(&lent[i], make_whole(TMSG_MEMFD_SEALS));
    }
    must_eq(count_descriptors() - before, TMSG_BORROWED_FDS);
    for (int i = 0; i < MANY; i += MANY - 1) {
        const uint8_t *memory = lent[i].memory + PAGE + 5;
        void *copy;

        must(tmsg_shareable_map_copy(memory, BYTES - PAGE - 5, &copy));
        must_eq(memcmp(copy, memory, BYTES - PAGE - 5), 0);
        *(uint8_t *)copy ^= 1;
        must_true(*memory != *(uint8_t *)copy);
        tmsg_shareable_unmap_copy(copy, BYTES - PAGE - 5);
    }
    tmsg_lent_close(&lent[0]);
    take(&lent[0], make_whole(TMSG_MEMFD_SEALS));
    for (int i = 0; i < MANY; i++) {
        tmsg_lent_close(&lent[i]);
    }
    must_eq(count_descriptors(), before);
}

Test(lent, is_known_by_its_address)
{
    enum { MANY = 40 };
    tmsg_borrowed_t lent[MANY];
    uint8_t own = 0;
    void *copy;

    must_eq(tmsg_shareable_is_borrowed(&own), 0);
    for (int i = 0; i < MANY; i++) {
        take(&lent[i], make_whole(TMSG_MEMFD_SEALS));
    }
    for (int i = 0; i < MANY; i++) {
        const uint8_t *memory = lent[i].memory;

        must_eq(tmsg_shareable_is_borrowed(memory), 1);
        must_eq(tmsg_shareable_is_borrowed(memory + BYTES - 1), 1);
        must_be(tmsg_shareable_map_copy(memory + PAGE, BYTES, &copy),
                TMSG_ERR_INVALID_PARAM);
        must_be(tmsg_shareable_map_copy(memory, 0, &copy),
                TMSG_ERR_INVALID_PARAM);
        tmsg_lent_close(&lent[i]);
        must_eq(tmsg_shareable_is_borrowed(memory), 0);
        must_be(tmsg_shareable_map_copy(memory, 1, &copy),
                TMSG_ERR_INVALID_PARAM);
    }
    must_eq(tmsg_shareable_is_borrowed(&own), 0);
}

Test(lent, says_that_there_is_no_address_space)
{
    size_t bytes = (size_t)64 << 20;
    struct rlimit few = {0, RLIM_INFINITY};
    unsigned long long pages;
    tmsg_borrowed_t lent;
    FILE *file = fopen("/proc/self/statm", "r");
    int fd = make_file(bytes);

    fill(fd, bytes);
    seal(fd, TMSG_MEMFD_SEALS);
    must_true(file != NULL && fscanf(file, "%llu", &pages) == 1);
    fclose(file);
    few.rlim_cur = pages * PAGE + bytes / 2;
    must_eq(setrlimit(RLIMIT_AS, &few), 0);
    must_be(tmsg_lent_open(&lent, fd, bytes), TMSG_ERR_NO_MEMORY);
    few.rlim_cur = RLIM_INFINITY;
    must_eq(setrlimit(RLIMIT_AS, &few), 0);
}
