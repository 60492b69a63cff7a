/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/map_copies.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "memory/memfd.h"

/* Of fewer bytes the page faults cost less than the look at the pages. */
#define LEAST_BYTES ((size_t)512 << 10)
#define IDLE_MOST 1024 /* a process may have some 65,000 mappings */

/* Since Linux 6.7 (admin-guide/mm/pagemap.rst); older headers lack it. */
#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN _IOWR('f', 16, pm_scan_arg_t)
#define PAGE_IS_FILE (1 << 2)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_SWAPPED (1 << 4)
#endif

typedef struct {
    uint64_t start, end, categories;
} page_region_t;

typedef struct {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask;
    uint64_t return_mask;
} pm_scan_arg_t;

typedef struct {
    uint8_t *copy;
    size_t bytes;
    const uint8_t *of; /* NULL: that memory is gone */
    bool idle;
} copy_t;

static copy_t *copies;
static size_t copy_count, copy_room, idle_count;

uint8_t *tmsg_map_copies_take(const uint8_t *of, size_t bytes)
{
    for (size_t i = 0; idle_count > 0 && i < copy_count; i++) {
        copy_t *each = &copies[i];

        if (each->idle && each->of == of && each->bytes == bytes) {
            each->idle = false;
            idle_count--;
            return each->copy;
        }
    }
    return NULL;
}

static bool make_room(void)
{
    size_t room = copy_room == 0 ? 16 : 2 * copy_room;
    copy_t *more;

    if (copy_count < copy_room) {
        return true;
    }
    more = realloc(copies, room * sizeof(*more));
    if (more == NULL) {
        return false;
    }
    copies = more;
    copy_room = room;
    return true;
}

void tmsg_map_copies_add(uint8_t *copy, size_t bytes, const uint8_t *of)
{
    if (bytes >= LEAST_BYTES && make_room()) {
        copies[copy_count++] = (copy_t){copy, bytes, of, false};
    }
}

static void remove_at(size_t i)
{
    idle_count -= copies[i].idle;
    copies[i] = copies[--copy_count];
    if (copy_count == 0) {
        free(copies);
        copies = NULL;
        copy_room = 0;
    }
}

bool tmsg_map_copies_is_as_lent(const uint8_t *copy, size_t bytes)
{
    page_region_t written;
    pm_scan_arg_t scan = {.size = sizeof(scan),
                          .start = (uintptr_t)copy,
                          .end = (uintptr_t)copy + bytes,
                          .vec = (uintptr_t)&written,
                          .vec_len = 1,
                          .max_pages = 1,
                          .category_inverted = PAGE_IS_FILE,
                          .category_mask = PAGE_IS_FILE,
                          .category_anyof_mask =
                              PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                          .return_mask = PAGE_IS_FILE};
    int pagemap, found;

    if (bytes < LEAST_BYTES) {
        return false;
    }
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) {
        return false;
    }
    found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
    close(pagemap);
    return found == 0;
}

bool tmsg_map_copies_keep(const uint8_t *copy, bool as_lent)
{
    size_t i = 0;

    while (i < copy_count && copies[i].copy != copy) {
        i++;
    }
    if (i == copy_count) {
        return false;
    }
    if (!as_lent || copies[i].of == NULL || idle_count == IDLE_MOST) {
        remove_at(i);
        return false;
    }
    copies[i].idle = true;
    idle_count++;
    return true;
}

void tmsg_map_copies_forget(const uint8_t *memory, size_t bytes)
{
    for (size_t i = copy_count; i-- > 0;) {
        copy_t *each = &copies[i];

        if (each->of == NULL || each->of < memory ||
            each->of >= memory + bytes) {
            continue;
        }
        each->of = NULL;
        if (each->idle) {
            tmsg_memfd_drop(-1, each->copy, each->bytes);
            remove_at(i);
        }
    }
}
