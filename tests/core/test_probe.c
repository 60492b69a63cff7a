/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/probe.h"

#define PAGES 5

static size_t page;

static void measure(void) { page = (size_t)sysconf(_SC_PAGESIZE); }

/* Pages of ones, to read and write. */
static unsigned char *map_pages(void)
{
    unsigned char *data = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(data != MAP_FAILED);
    memset(data, 1, PAGES * page);
    return data;
}

/* A mapped file whose last pages are gone. */
static unsigned char *map_cut_file(size_t pages_left)
{
    char path[] = "/tmp/tensormsg-test.XXXXXX";
    int fd = mkstemp(path);
    unsigned char *data;

    cr_assert(fd >= 0 && ftruncate(fd, (off_t)(PAGES * page)) == 0);
    data = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    cr_assert(data != MAP_FAILED &&
              ftruncate(fd, (off_t)(pages_left * page)) == 0);
    unlink(path);
    close(fd);
    return data;
}

Test(probe, finds_the_first_byte_that_is_gone, .init = measure)
{
    unsigned char *data = map_pages();

    cr_expect(eq(ptr, (void *)tmsg_probe(data, PAGES * page), NULL));
    cr_expect(eq(ptr, (void *)tmsg_probe(data, 0), NULL));
    cr_assert(mprotect(data + 2 * page, page, PROT_NONE) == 0);
    cr_expect(eq(ptr, (void *)tmsg_probe(data + 3, PAGES * page - 3),
                 data + 2 * page));
    cr_expect(eq(ptr, (void *)tmsg_probe(data + 2 * page + 5, 1),
                 data + 2 * page + 5));
    cr_expect(eq(ptr, (void *)tmsg_probe(data, 2 * page), NULL));
    cr_expect(eq(ptr, (void *)tmsg_probe(data + 3 * page, 2 * page), NULL));
    data = map_cut_file(1);
    cr_expect(eq(ptr, (void *)tmsg_probe(data, PAGES * page), data + page));
}

Test(probe, copies_up_to_what_is_gone, .init = measure)
{
    unsigned char *to = calloc(PAGES, page);
    unsigned char *data = map_pages();

    cr_expect(eq(sz, tmsg_probe_copy(to, data + 1, PAGES * page - 1),
                 PAGES * page - 1));
    cr_expect(eq(int, memcmp(to, data + 1, PAGES * page - 1), 0));
    memset(to, 0, PAGES * page);
    munmap(data + 3 * page, page);
    cr_expect(
        eq(sz, tmsg_probe_copy(to, data + 1, PAGES * page - 1), 3 * page - 1));
    cr_expect(eq(int, memcmp(to, data + 1, 3 * page - 1), 0));
    cr_expect(eq(int, to[3 * page - 1], 0));
    cr_expect(eq(sz, tmsg_probe_copy(to, data + 3 * page, 1), 0));
    data = map_cut_file(2);
    cr_expect(eq(sz, tmsg_probe_copy(to, data, PAGES * page), 2 * page));
    free(to);
}
