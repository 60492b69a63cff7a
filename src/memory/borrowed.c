/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/borrowed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tensormsg/shareable.h>

#include "core/error.h"
#include "memory/map_copies.h"

typedef struct {
    const uint8_t *memory;
    size_t bytes;
    int fd; /* -1: there were too many */
} borrowed_t;

/* By address. */
static struct {
    pthread_mutex_t lock;
    borrowed_t *all;
    size_t count;
    size_t room;
    unsigned fds;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_size_t registered; /* registry.count, for who has no lock */

static void lock(void) { pthread_mutex_lock(&registry.lock); }

static void unlock(void) { pthread_mutex_unlock(&registry.lock); }

static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

/* Returns the index of the first mapping that ends behind the address. */
static size_t find_place(const uint8_t *address)
{
    size_t from = 0, to = registry.count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (address <
            registry.all[middle].memory + registry.all[middle].bytes) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

/* Returns the mapping in which the bytes lie, or NULL. */
static const borrowed_t *find(const uint8_t *address, size_t bytes)
{
    size_t place = find_place(address);
    const borrowed_t *found = &registry.all[place];

    return place < registry.count && address >= found->memory &&
                   bytes <= found->bytes - (size_t)(address - found->memory)
               ? found
               : NULL;
}

static void note_count(size_t count)
{
    registry.count = count;
    atomic_store_explicit(&registered, count, memory_order_relaxed);
}

static bool make_room(void)
{
    size_t room = registry.room == 0 ? 16 : 2 * registry.room;
    borrowed_t *all;

    if (registry.count < registry.room) {
        return true;
    }
    all = realloc(registry.all, room * sizeof(*all));
    if (all == NULL) {
        return false;
    }
    registry.all = all;
    registry.room = room;
    return true;
}

tmsg_status_t tmsg_borrowed_add(const uint8_t *memory, size_t bytes, int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool added, keeps = false;

    pthread_once(&once, watch_forks);
    lock();
    added = make_room();
    if (added) {
        size_t place = find_place(memory);

        keeps = registry.fds < TMSG_BORROWED_FDS;
        registry.fds += keeps;
        memmove(&registry.all[place + 1], &registry.all[place],
                (registry.count - place) * sizeof(*registry.all));
        registry.all[place] = (borrowed_t){memory, bytes, keeps ? fd : -1};
        note_count(registry.count + 1);
    }
    unlock();
    if (!keeps) {
        close(fd);
    }
    return added ? TMSG_OK : tmsg_error_memory("the list of borrowed memory");
}

void tmsg_borrowed_remove(const uint8_t *memory)
{
    size_t place;
    int fd = -1;

    lock();
    place = find_place(memory);
    if (place < registry.count && registry.all[place].memory == memory) {
        fd = registry.all[place].fd;
        tmsg_map_copies_forget(memory, registry.all[place].bytes);
        registry.fds -= fd >= 0;
        memmove(&registry.all[place], &registry.all[place + 1],
                (registry.count - place - 1) * sizeof(*registry.all));
        note_count(registry.count - 1);
        if (registry.count == 0) {
            free(registry.all);
            registry.all = NULL;
            registry.room = 0;
        }
    }
    unlock();
    if (fd >= 0) {
        close(fd);
    }
}

int tmsg_shareable_is_borrowed(const void *memory)
{
    bool found;

    if (atomic_load_explicit(&registered, memory_order_relaxed) == 0) {
        return 0;
    }
    lock();
    found = find(memory, 1) != NULL;
    unlock();
    return found;
}

static size_t bytes_before(const void *memory)
{
    return (uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE);
}

/* The lock is held, so that the descriptor stays what it is. */
static void *map_pages(const borrowed_t *found, const uint8_t *from,
                       size_t bytes)
{
    void *pages;

    if (found->fd < 0) { /* the caller copies the bytes */
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    pages = tmsg_map_copies_take(from, bytes);
    if (pages == NULL) {
        pages =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_NORESERVE, found->fd, from - found->memory);
        if (pages != MAP_FAILED) {
            tmsg_map_copies_add(pages, bytes, from);
        }
    }
    return pages;
}

/* The lock is held. *whole_p: the caller is to copy the bytes. */
static tmsg_status_t map_copy(const uint8_t *memory, size_t bytes,
                              void **copy_p, bool *whole_p)
{
    const borrowed_t *found = find(memory, bytes);
    size_t before = bytes_before(memory);
    uint8_t *base;

    if (found == NULL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "these %zu bytes are not memory that a peer lends", bytes);
    }
    base = map_pages(found, memory - before, before + bytes);
    if (base == MAP_FAILED) {
        return tmsg_error_errno(TMSG_ERR_NO_MEMORY,
                                "%zu bytes that a peer lends cannot be mapped "
                                "to be copied on write",
                                bytes);
    }
    *whole_p = found->fd < 0;
    *copy_p = base + before;
    return TMSG_OK;
}

tmsg_status_t tmsg_shareable_map_copy(const void *memory, uint64_t bytes,
                                      void **copy_p)
{
    bool whole = false;
    tmsg_status_t status;

    if (bytes == 0 || copy_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "a copy of 0 bytes, or copy_p is NULL");
    }
    lock();
    status = map_copy(memory, (size_t)bytes, copy_p, &whole);
    unlock();
    if (whole && status == TMSG_OK) {
        memcpy(*copy_p, memory, (size_t)bytes);
    }
    return status;
}

void tmsg_shareable_unmap_copy(void *copy, uint64_t bytes)
{
    size_t before = bytes_before(copy);
    uint8_t *base = (uint8_t *)copy - before;
    size_t mapped = before + (size_t)bytes;
    bool as_lent = tmsg_map_copies_is_as_lent(base, mapped);
    bool kept;

    lock();
    kept = tmsg_map_copies_keep(base, as_lent);
    unlock();
    if (!kept) {
        munmap(base, mapped);
    }
}
