/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that two processes share: whatever the peer does to it, no page goes
 * missing, for the next touch of such a page may be a signal. What a peer can
 * do it does here by descriptors and a mapping that it made beforehand. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/path/shared.h"
#include "am/shm/segment.h"
#include "fakes/old_kernel.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
#define PAGE ((size_t)4096)
#define BYTES (16 * PAGE)
#define LARGE ((size_t)3 << 20)
#define SEALED (F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

static void punch(int fd)
{
    must_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      (off_t)BYTES),
            0);
}

static bool has_all_pages(int fd)
{
    struct stat about;

    must_eq(fstat(fd, &about), 0);
    return about.st_blocks * 512 == (blkcnt_t)BYTES;
}

/* Both sides have the memory, and `fd` is a descriptor that the peer kept. */
static void nothing_can_be_taken(const tmsg_segment_t *segment, int fd,
                                 uint8_t *mapped)
{
    char path[64];
    uint8_t byte = 0;

    must_true(segment->settled && segment->sealed);
    must_true(has_all_pages(fd));
    must_eq(fcntl(fd, F_GET_SEALS) & SEALED, SEALED);
    must_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE),
            -1);
    must_eq(ftruncate(fd, 0), -1);
    must_eq(madvise(mapped, PAGE, MADV_REMOVE), -1);
    must_eq(write(fd, &byte, 1), -1);
    must_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    must_true(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
              MAP_FAILED);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    must_eq(truncate(path, 0), -1);
    must_eq(open(path, O_RDWR | O_TRUNC | O_CLOEXEC), -1);
    must_true(has_all_pages(fd));
    mapped[PAGE] ^= 1; /* what was mapped is still written to */
    must_eq(segment->memory[PAGE], mapped[PAGE]);
}

static void both_sides(bool peer_makes)
{
    tmsg_segment_t made, opened;
    uint8_t *mapped;
    int fd;

    must(tmsg_segment_create(&made, BYTES));
    must_true(!made.settled);
    fd = dup(made.fd);
    mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must_true(mapped != MAP_FAILED);
    must(tmsg_segment_open(&opened, BYTES,
                           &(tmsg_segment_offer_t){.pid = getpid(),
                                                   .fd = made.fd,
                                                   .mark = made.memory}));
    if (peer_makes) {
        nothing_can_be_taken(&opened, fd, mapped);
    }
    must(tmsg_segment_settle(&made));
    must_eq(made.fd, -1);
    nothing_can_be_taken(&made, fd, mapped);
    munmap(mapped, BYTES);
    close(fd);
    tmsg_segment_free(&made);
    tmsg_segment_free(&opened);
}

Test(segment, no_page_can_be_taken_from_who_opens_it) { both_sides(true); }
Test(segment, no_page_can_be_taken_from_who_made_it) { both_sides(false); }

/* The first page has the mark; without it nothing is taken. */
Test(segment, pages_that_were_given_back_before_are_taken_again)
{
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES] = {0};
    tmsg_segment_t made, opened;
    int fd;

    must(tmsg_segment_create(&made, BYTES));
    fd = dup(made.fd);
    punch(fd);
    must_true(!has_all_pages(fd));
    must(tmsg_segment_open(
        &opened, BYTES,
        &(tmsg_segment_offer_t){.pid = getpid(), .fd = made.fd, .mark = mark}));
    must_true(has_all_pages(fd) && opened.sealed);
    close(fd);
    tmsg_segment_free(&opened);
    tmsg_segment_free(&made);
}

/* A peer of an older version takes the memory and does not seal it. */
Test(segment, its_maker_takes_them_again_too)
{
    tmsg_segment_t made;
    uint8_t *mapped;
    int fd;

    must(tmsg_segment_create(&made, BYTES));
    fd = dup(made.fd);
    mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must_true(mapped != MAP_FAILED);
    punch(fd);
    must(tmsg_segment_settle(&made));
    nothing_can_be_taken(&made, fd, mapped);
    munmap(mapped, BYTES);
    close(fd);
    tmsg_segment_free(&made);
}

static void refuse_settling(int seals)
{
    tmsg_segment_t made;
    int fd;

    must(tmsg_segment_create(&made, BYTES));
    fd = dup(made.fd);
    must_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    cr_expect(eq(int, tmsg_segment_settle(&made), TMSG_ERR_IO));
    must_true(!made.settled && made.fd < 0);
    close(fd);
    tmsg_segment_free(&made);
}

Test(segment, a_peer_that_keeps_the_right_to_take_pages_gets_nothing)
{
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES] = {0};
    tmsg_segment_t opened;
    int fd = memfd_create("kept", MFD_ALLOW_SEALING | MFD_CLOEXEC);

    refuse_settling(F_SEAL_SEAL);
    must_eq(ftruncate(fd, (off_t)BYTES), 0);
    must_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    cr_expect(
        eq(int,
           tmsg_segment_open(&opened, BYTES,
                             &(tmsg_segment_offer_t){
                                 .pid = getpid(), .fd = fd, .mark = mark}),
           TMSG_ERR_IO));
    close(fd);
}

/* A liar may name memory of somebody else. */
Test(segment, another_ones_memory_is_left_as_it_is)
{
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES];
    tmsg_segment_t made, opened;
    int before;

    must(tmsg_segment_create(&made, BYTES));
    memcpy(mark, made.memory, sizeof(mark));
    mark[15] ^= 1;
    before = fcntl(made.fd, F_GET_SEALS);
    cr_expect(
        eq(int,
           tmsg_segment_open(&opened, BYTES,
                             &(tmsg_segment_offer_t){
                                 .pid = getpid(), .fd = made.fd, .mark = mark}),
           TMSG_ERR_IO));
    cr_expect(eq(int, fcntl(made.fd, F_GET_SEALS), before));
    tmsg_segment_free(&made);
}

static void pass(pair_t *pair, size_t bytes)
{
    tmsg_request_t *sent =
        send_on(pair->to_a, 0, sample_bytes(1, bytes), TMSG_SEND_ACKED);

    large_take(pair, &pair->a, 1, bytes);
    must(pair_finish(pair, sent));
}

static void is_told(bool old, size_t bytes, size_t times, const char *words)
{
    pair_t pair;

    kernel_is_old = old;
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(str, (char *)tmsg_shared_words(pair.to_a), "none"));
    for (size_t i = 0; i < times; i++) {
        pass(&pair, bytes);
    }
    cr_expect(
        eq(int, strncmp(tmsg_shared_words(pair.to_a), words, strlen(words)), 0),
        "%s", tmsg_shared_words(pair.to_a));
    cr_expect(
        eq(int, strncmp(tmsg_shared_words(pair.to_b), words, strlen(words)), 0),
        "%s", tmsg_shared_words(pair.to_b));
    must_true(pair.to_a->stats.sent_by_bulk + pair.to_a->stats.sent_by_fastbox >
              0);
    pair_close(&pair);
}

Test(segment, of_a_ring_is_told_to_be_sealed)
{
    is_told(false, LARGE, 2, "sealed");
}

Test(segment, of_a_fast_box_is_told_to_be_sealed)
{
    is_told(false, 100, 60, "sealed");
}

Test(segment, of_an_old_kernel_is_told_not_to_be)
{
    is_told(true, LARGE, 2, "not sealed");
    is_told(true, 100, 60, "not sealed");
}
