/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/error.h"

#define HEAD_BYTES 4096
#define ROOM_BYTES ((size_t)1024 * 1024) /* stays in the cache */
#define ALL_BYTES (HEAD_BYTES + ROOM_BYTES)
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
/* After which the other side goes on. */
#define STEP_BYTES ((size_t)32 * 1024)

/*        0           8           16                    64
 *      +-----------+-----------+---------------------+
 *    0 |         mark          |                     |
 *      +-----------+-----+-----+---------------------+
 *   64 |  written  |waits|                           |  the sender's
 *      +-----------+-----+---------------------------+
 *  128 |   read    |waits|                           |  the receiver's
 *      +-----------+-----+---------------------------+
 *                           ...
 *      +---------------------------------------------+
 * 4096 |       bytes: the n-th at n mod 1 MiB        |
 *      +---------------------------------------------+
 */

/* Of one side: how far it is, of all bytes ever, and whether it waits. */
typedef struct {
    _Alignas(64) _Atomic uint64_t at;
    _Atomic uint32_t waits;
} end_t;

typedef struct {
    uint8_t mark[TMSG_RING_MARK_BYTES];
    end_t sender, receiver;
} head_t;

struct tmsg_ring {
    head_t *head;
    uint8_t *room;
    end_t *own, *others;
    uint64_t at; /* our own, whatever stands there */
    bool sends;
    int fd;
    pid_t pid; /* in a child of ours there is something else */
};

_Static_assert(offsetof(head_t, sender) == 64 &&
                   offsetof(head_t, receiver) == 128 &&
                   offsetof(end_t, waits) == 8,
               "the peer looks elsewhere");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "a lock would be this process's alone");

/* A child of ours has no part in it. */
static tmsg_status_t map(tmsg_ring_t *ring)
{
    void *all =
        mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);

    if (all == MAP_FAILED) {
        return tmsg_error_errno(TMSG_ERR_IO, "a ring cannot be mapped");
    }
    (void)madvise(all, ALL_BYTES, MADV_DONTFORK);
    ring->head = all;
    ring->room = (uint8_t *)all + HEAD_BYTES;
    ring->own = ring->sends ? &ring->head->sender : &ring->head->receiver;
    ring->others = ring->sends ? &ring->head->receiver : &ring->head->sender;
    return TMSG_OK;
}

static tmsg_ring_t *begin(bool sends)
{
    tmsg_ring_t *ring = calloc(1, sizeof(*ring));

    if (ring == NULL) {
        tmsg_error_memory("a ring");
        return NULL;
    }
    ring->sends = sends;
    ring->fd = -1;
    ring->pid = getpid();
    return ring;
}

/* Kernels since 6.3 may ask for the seal, which those before do not know. */
static int make_file(void)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("tensormsg", flags | MFD_NOEXEC_SEAL);

    return fd < 0 && errno == EINVAL ? memfd_create("tensormsg", flags) : fd;
}

/* More than a file may have here would be a signal. */
static bool take_pages(int fd)
{
    struct rlimit most;
    int rc;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < ALL_BYTES) {
        errno = EFBIG;
        return false;
    }
    do {
        rc = fallocate(fd, 0, 0, (off_t)ALL_BYTES);
    } while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/* Pages are taken here and now: one that is missing later is a signal. */
static tmsg_status_t make_memory(tmsg_ring_t *ring)
{
    ring->fd = make_file();
    if (ring->fd < 0 || !take_pages(ring->fd) ||
        fcntl(ring->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "no memory for a ring");
    }
    return map(ring);
}

tmsg_status_t tmsg_ring_create(tmsg_ring_t **ring_p)
{
    tmsg_ring_t *ring = begin(true);
    tmsg_status_t status;

    if (ring == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = make_memory(ring);
    if (status != TMSG_OK) {
        tmsg_ring_free(ring);
        return status;
    }
    randombytes_buf(ring->head->mark, TMSG_RING_MARK_BYTES);
    *ring_p = ring;
    return TMSG_OK;
}

int tmsg_ring_fd(const tmsg_ring_t *ring) { return ring->fd; }

const uint8_t *tmsg_ring_mark(const tmsg_ring_t *ring)
{
    return ring->head->mark;
}

void tmsg_ring_close_fd(tmsg_ring_t *ring)
{
    if (ring->fd >= 0) {
        close(ring->fd);
        ring->fd = -1;
    }
}

/* Whether it is memory of that length, for now. */
static bool is_memory(int fd)
{
    struct stat about;
    struct statfs system;

    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
           about.st_size == (off_t)ALL_BYTES && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

/* And stays it: to be shorter would be a signal, whenever the peer likes. What
 * is measured first may be cut off before it is sealed. */
static bool is_memory_for_good(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && is_memory(fd);
}

/* To open a device does something, and to wait for who has a lease of the file
 * is what a peer may want. */
static int open_file(pid_t pid, int fd)
{
    char path[64];
    int found, error, opened = -1;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    found = open(path, O_PATH | O_CLOEXEC);
    if (found < 0) {
        return -1;
    }
    errno = EINVAL;
    if (is_memory(found)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
        opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    error = errno;
    close(found);
    errno = error;
    return opened;
}

static tmsg_status_t find_memory(tmsg_ring_t *ring, pid_t pid, int fd)
{
    ring->fd = open_file(pid, fd);
    if (ring->fd < 0) {
        return tmsg_error_errno(TMSG_ERR_IO,
                                "the peer's ring cannot be opened here");
    }
    if (!is_memory_for_good(ring->fd)) {
        return tmsg_error_set(TMSG_ERR_IO, "what the peer offers is no ring");
    }
    return map(ring);
}

tmsg_status_t tmsg_ring_open(pid_t pid, int fd, const uint8_t *mark,
                             tmsg_ring_t **ring_p)
{
    tmsg_ring_t *ring = begin(false);
    tmsg_status_t status;

    if (ring == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = find_memory(ring, pid, fd);
    tmsg_ring_close_fd(ring);
    if (status == TMSG_OK &&
        sodium_memcmp(ring->head->mark, mark, TMSG_RING_MARK_BYTES) != 0) {
        status = tmsg_error_set(TMSG_ERR_IO, "the ring is another's");
    }
    if (status != TMSG_OK) {
        tmsg_ring_free(ring);
        return status;
    }
    *ring_p = ring;
    return TMSG_OK;
}

void tmsg_ring_free(tmsg_ring_t *ring)
{
    if (ring == NULL) {
        return;
    }
    tmsg_ring_close_fd(ring);
    if (ring->head != NULL && ring->pid == getpid()) {
        munmap(ring->head, ALL_BYTES);
    }
    free(ring);
}

/* Bytes that may be moved now, or WRONG. */
static size_t movable(const tmsg_ring_t *ring)
{
    uint64_t other =
        atomic_load_explicit(&ring->others->at, memory_order_acquire);
    uint64_t used = ring->sends ? ring->at - other : other - ring->at;

    if (used > ROOM_BYTES) {
        return TMSG_RING_WRONG;
    }
    return ring->sends ? ROOM_BYTES - (size_t)used : (size_t)used;
}

/* The other side polls where it stands: it is left alone for nothing. */
static void publish(tmsg_ring_t *ring, size_t moved)
{
    if (moved > 0) {
        atomic_store_explicit(&ring->own->at, ring->at, memory_order_release);
    }
}

/* NULL: they are thrown away. */
static void copy(tmsg_ring_t *ring, uint8_t *bytes, size_t count)
{
    uint8_t *place = ring->room + ring->at % ROOM_BYTES;

    if (ring->sends) {
        memcpy(place, bytes, count);
    } else if (bytes != NULL) {
        memcpy(bytes, place, count);
    }
    ring->at += count;
}

/* One step at most; 0: none can be moved. */
static size_t step(tmsg_ring_t *ring, uint8_t *bytes, size_t most,
                   size_t *movable_p)
{
    size_t to_end = ROOM_BYTES - (size_t)(ring->at % ROOM_BYTES);
    size_t count = most < STEP_BYTES ? most : STEP_BYTES;

    if (*movable_p < count) { /* more, perhaps, by now */
        *movable_p = movable(ring);
        if (*movable_p == TMSG_RING_WRONG) {
            return TMSG_RING_WRONG;
        }
    }
    count = count < *movable_p ? count : *movable_p;
    count = count < to_end ? count : to_end;
    copy(ring, bytes, count);
    *movable_p -= count;
    return count;
}

static size_t move(tmsg_ring_t *ring, const struct iovec *list, size_t count)
{
    size_t left = 0, told = 0, all = 0;

    for (size_t i = 0; i < count; i++) {
        size_t done = 0;

        while (done < list[i].iov_len) {
            uint8_t *bytes = list[i].iov_base == NULL
                                 ? NULL
                                 : (uint8_t *)list[i].iov_base + done;
            size_t some = step(ring, bytes, list[i].iov_len - done, &left);

            if (some == TMSG_RING_WRONG) {
                return TMSG_RING_WRONG;
            }
            if (some == 0) {
                publish(ring, all - told);
                return all;
            }
            done += some;
            all += some;
            if (all - told >= STEP_BYTES) {
                publish(ring, all - told);
                told = all;
            }
        }
    }
    publish(ring, all - told);
    return all;
}

size_t tmsg_ring_write(tmsg_ring_t *ring, const struct iovec *from,
                       size_t count)
{
    return move(ring, from, count);
}

size_t tmsg_ring_read(tmsg_ring_t *ring, const struct iovec *into, size_t count)
{
    return move(ring, into, count);
}

size_t tmsg_ring_skip(tmsg_ring_t *ring, uint64_t most)
{
    const struct iovec nowhere = {NULL, most < ROOM_BYTES ? (size_t)most
                                                          : ROOM_BYTES};

    return move(ring, &nowhere, 1);
}

bool tmsg_ring_await(tmsg_ring_t *ring)
{
    atomic_store(&ring->own->waits, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return movable(ring) == 0; /* and not WRONG */
}

bool tmsg_ring_is_awaited(tmsg_ring_t *ring)
{
    atomic_thread_fence(memory_order_seq_cst); /* after what was published */
    return atomic_load_explicit(&ring->others->waits, memory_order_relaxed) !=
               0 &&
           atomic_exchange(&ring->others->waits, 0) != 0;
}
