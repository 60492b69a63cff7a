/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/shareable.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/error.h"
#include "core/params.h"
#include "core/refs.h"
#include "memory/available.h"
#include "memory/device_ipc.h"
#include "memory/memfd.h"

/* To look what is available takes as long as the pages of so many bytes. */
#define LOOK_LEAST ((size_t)1 << 20)
/* While a draft is written it is looked again after so many bytes. */
#define LOOK_AGAIN ((uint64_t)64 << 20)
#define MOST_BYTES ((uint64_t)1 << 62)

struct tmsg_shareable {
    tmsg_refs_t refs;
    uint8_t *memory;
    size_t bytes;
    int fd;
    bool mapped;
    unsigned forks; /* that had been when it was made */
    atomic_uint loans;
    atomic_bool freed;
};

/* The application's segments, by address. */
static struct {
    pthread_mutex_t lock;
    tmsg_shareable_t **segments;
    size_t count;
    size_t room;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_size_t registered; /* registry.count, for who has no lock */
static atomic_uint forks;        /* from the first process to this one */

static void before_fork(void) { pthread_mutex_lock(&registry.lock); }

static void in_parent(void) { pthread_mutex_unlock(&registry.lock); }

static void in_child(void)
{
    atomic_fetch_add(&forks, 1);
    pthread_mutex_unlock(&registry.lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static tmsg_status_t refuse_file(void)
{
    if (errno == ENOSYS || errno == EPERM || errno == EACCES) {
        return tmsg_error_errno(TMSG_ERR_UNSUPPORTED,
                                "shareable memory: this process is not allowed "
                                "to call memfd_create() (seccomp?)");
    }
    return tmsg_error_errno(errno == ENOMEM ? TMSG_ERR_NO_MEMORY : TMSG_ERR_IO,
                            "shareable memory: memfd_create()");
}

static tmsg_status_t refuse_length(size_t bytes)
{
    struct rlimit most = {0};

    getrlimit(RLIMIT_FSIZE, &most);
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "%zu bytes of shareable memory: it is a file, and a "
                          "file is limited to %llu bytes here (RLIMIT_FSIZE)",
                          bytes, (unsigned long long)most.rlim_cur);
}

static tmsg_status_t refuse_mapping(size_t bytes)
{
    struct rlimit most = {.rlim_cur = RLIM_INFINITY};

    if (errno == ENOMEM && getrlimit(RLIMIT_AS, &most) == 0 &&
        most.rlim_cur != RLIM_INFINITY) {
        return tmsg_error_set(
            TMSG_ERR_NO_MEMORY,
            "%zu bytes of shareable memory: the address space of this process "
            "is limited to %llu bytes (RLIMIT_AS)",
            bytes, (unsigned long long)most.rlim_cur);
    }
    return tmsg_error_errno(errno == ENOMEM ? TMSG_ERR_NO_MEMORY : TMSG_ERR_IO,
                            "%zu bytes of shareable memory cannot be mapped",
                            bytes);
}

static tmsg_status_t refuse_seals(void)
{
    if (errno == EINVAL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "shareable memory: this kernel (before Linux "
                              "5.1) cannot seal memory against writes");
    }
    return tmsg_error_errno(TMSG_ERR_IO, "shareable memory cannot be sealed");
}

static tmsg_status_t refuse_pages(size_t bytes)
{
    if (errno == EFBIG) {
        return refuse_length(bytes);
    }
    if ((errno == ENOMEM || errno == ENOSPC) && tmsg_available_is_strict("")) {
        return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                              "%zu bytes of shareable memory: the machine has "
                              "reached its commit limit (vm.overcommit_memory "
                              "is 2; see CommitLimit in /proc/meminfo)",
                              bytes);
    }
    return tmsg_error_errno(
        errno == ENOMEM || errno == ENOSPC ? TMSG_ERR_NO_MEMORY : TMSG_ERR_IO,
        "%zu bytes of shareable memory", bytes);
}

/* Asked for more than there is, the kernel would kill somebody. */
static tmsg_status_t check_available(size_t bytes)
{
    tmsg_available_t available;

    if (!tmsg_memfd_may_have(bytes)) {
        return refuse_length(bytes);
    }
    if (bytes < LOOK_LEAST) {
        return TMSG_OK;
    }
    available = tmsg_available_look("");
    if (available.bytes >= bytes) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        TMSG_ERR_NO_MEMORY, "%zu bytes of shareable memory: %s has %llu left",
        bytes, available.what, (unsigned long long)available.bytes);
}

static tmsg_status_t map_memory(tmsg_shareable_t *segment)
{
    void *memory = MAP_FAILED;

    if (ftruncate(segment->fd, (off_t)segment->bytes) == 0) {
        memory = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      segment->fd, 0);
    }
    if (memory == MAP_FAILED) {
        return refuse_mapping(segment->bytes);
    }
    segment->memory = memory;
    segment->mapped = true;
    return TMSG_OK;
}

/* Touches the pages, which are there. Until then the kernel tells of them as of
 * a hole, and borrowers refuse a hole (am/shm/lent.h). */
static void touch_pages(const tmsg_shareable_t *segment)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint8_t *memory = segment->memory;

    for (size_t at = 0; at < segment->bytes; at += page) {
        memory[at] = 0;
    }
}

static tmsg_status_t make_file(tmsg_shareable_t *segment, int seals)
{
    tmsg_status_t status = check_available(segment->bytes);

    if (status != TMSG_OK) {
        return status;
    }
    segment->fd = tmsg_memfd_make();
    if (segment->fd < 0) {
        return refuse_file();
    }
    status = map_memory(segment);
    if (status != TMSG_OK) {
        return status;
    }
    return fcntl(segment->fd, F_ADD_SEALS, seals) == 0 ? TMSG_OK
                                                       : refuse_seals();
}

/* Takes the pages of a file that was sealed before: it can lose none of them.
 */
static tmsg_status_t take_pages(tmsg_shareable_t *segment)
{
    if (!tmsg_memfd_take_pages(segment->fd, segment->bytes)) {
        return refuse_pages(segment->bytes);
    }
    touch_pages(segment);
    return TMSG_OK;
}

static void unmap(tmsg_shareable_t *segment)
{
    if (segment->mapped) {
        munmap(segment->memory, segment->bytes);
        segment->mapped = false;
    }
}

static void destroy(tmsg_shareable_t *segment)
{
    tmsg_memfd_drop(segment->fd, segment->mapped ? segment->memory : NULL,
                    segment->bytes);
    free(segment);
}

static tmsg_status_t refuse_bytes(uint64_t bytes)
{
    if (bytes == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "shareable memory of 0 bytes");
    }
    return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                          "%llu bytes of shareable memory are more than any "
                          "machine has",
                          (unsigned long long)bytes);
}

static tmsg_status_t create(size_t bytes, int seals, bool whole,
                            tmsg_shareable_t **segment_p)
{
    tmsg_shareable_t *segment;
    tmsg_status_t status;

    if (bytes == 0 || bytes > MOST_BYTES) {
        return refuse_bytes(bytes);
    }
    segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return tmsg_error_memory("a segment of shareable memory");
    }
    segment->bytes = bytes;
    segment->fd = -1;
    segment->forks = atomic_load(&forks);
    tmsg_refs_init(&segment->refs, 1);
    status = make_file(segment, seals);
    if (status == TMSG_OK && whole) {
        status = take_pages(segment);
    }
    if (status != TMSG_OK) {
        destroy(segment);
        return status;
    }
    *segment_p = segment;
    return TMSG_OK;
}

tmsg_status_t tmsg_shareable_create(size_t bytes, tmsg_shareable_t **segment_p)
{
    return create(bytes, TMSG_MEMFD_SEALS, true, segment_p);
}

tmsg_status_t tmsg_shareable_create_draft(size_t bytes,
                                          tmsg_shareable_t **segment_p)
{
    return create(bytes, TMSG_MEMFD_LENGTH_SEALS, false, segment_p);
}

static tmsg_status_t refuse_bytes_of_draft(size_t bytes)
{
    switch (errno) {
    case EFAULT:
        return tmsg_error_set(TMSG_ERR_IO, "its memory cannot be read");
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
        return refuse_pages(bytes);
    default:
        return tmsg_error_errno(TMSG_ERR_UNSUPPORTED,
                                "shareable memory cannot be written to");
    }
}

/* To write to the file is faster than to write to its memory: the kernel need
 * not clear a page first that is filled, nor map it. */
tmsg_status_t tmsg_shareable_write(tmsg_shareable_t *segment, uint64_t offset,
                                   const void *data, size_t bytes)
{
    const uint8_t *from = data;
    tmsg_status_t status =
        offset / LOOK_AGAIN == (offset + bytes) / LOOK_AGAIN
            ? TMSG_OK
            : check_available(segment->bytes - (size_t)offset);

    while (status == TMSG_OK && bytes > 0) {
        ssize_t some = pwrite(segment->fd, from, bytes, (off_t)offset);

        if (some > 0) {
            from += some;
            offset += (uint64_t)some;
            bytes -= (size_t)some;
        } else if (some == 0 || errno != EINTR) {
            status = refuse_bytes_of_draft(segment->bytes);
        }
    }
    return status;
}

tmsg_status_t tmsg_shareable_seal(tmsg_shareable_t *segment)
{
    return fcntl(segment->fd, F_ADD_SEALS, TMSG_MEMFD_SEALS) == 0
               ? TMSG_OK
               : refuse_seals();
}

tmsg_status_t tmsg_shareable_freeze(tmsg_shareable_t *segment)
{
    unmap(segment);
    if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        return refuse_seals();
    }
    return TMSG_OK;
}

/* Returns the index of the first segment that ends behind the address. The lock
 * is held. */
static size_t find_place(const uint8_t *address)
{
    size_t from = 0, to = registry.count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const tmsg_shareable_t *segment = registry.segments[middle];

        if (address < segment->memory + segment->bytes) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

/* Returns the segment in which the bytes lie, or NULL. The lock is held. */
static tmsg_shareable_t *find_segment(const uint8_t *address, size_t bytes)
{
    size_t place = find_place(address);
    tmsg_shareable_t *segment =
        place < registry.count ? registry.segments[place] : NULL;
    size_t offset;

    if (segment == NULL || address < segment->memory) {
        return NULL;
    }
    offset = (size_t)(address - segment->memory);
    return bytes <= segment->bytes - offset ? segment : NULL;
}

static void note_count(size_t count)
{
    registry.count = count;
    atomic_store_explicit(&registered, count, memory_order_relaxed);
}

static tmsg_status_t make_room(void)
{
    size_t room = registry.room == 0 ? 16 : 2 * registry.room;
    tmsg_shareable_t **segments;

    if (registry.count < registry.room) {
        return TMSG_OK;
    }
    segments = realloc(registry.segments, room * sizeof(*segments));
    if (segments == NULL) {
        return tmsg_error_memory("the list of shareable memory");
    }
    registry.segments = segments;
    registry.room = room;
    return TMSG_OK;
}

static tmsg_status_t add_segment(tmsg_shareable_t *segment)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsg_status_t status;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&registry.lock);
    status = make_room();
    if (status == TMSG_OK) {
        size_t place = find_place(segment->memory);

        memmove(&registry.segments[place + 1], &registry.segments[place],
                (registry.count - place) * sizeof(segment));
        registry.segments[place] = segment;
        note_count(registry.count + 1);
    }
    pthread_mutex_unlock(&registry.lock);
    return status;
}

/* Returns the segment that begins there and is listed no more, or NULL. */
static tmsg_shareable_t *remove_segment(const uint8_t *memory)
{
    tmsg_shareable_t *segment;

    pthread_mutex_lock(&registry.lock);
    segment = find_segment(memory, 1);
    if (segment != NULL && segment->memory != memory) {
        segment = NULL;
    }
    if (segment != NULL) {
        size_t place = find_place(memory);

        memmove(&registry.segments[place], &registry.segments[place + 1],
                (registry.count - place - 1) * sizeof(segment));
        note_count(registry.count - 1);
    }
    pthread_mutex_unlock(&registry.lock);
    return segment;
}

tmsg_shareable_t *tmsg_shareable_find(const void *address, size_t bytes)
{
    tmsg_shareable_t *segment;

    if (atomic_load_explicit(&registered, memory_order_relaxed) == 0) {
        return NULL;
    }
    pthread_mutex_lock(&registry.lock);
    segment = find_segment(address, bytes);
    if (segment != NULL && segment->forks != atomic_load(&forks)) {
        segment = NULL;
    }
    if (segment != NULL) {
        tmsg_refs_take(&segment->refs);
    }
    pthread_mutex_unlock(&registry.lock);
    return segment;
}

void tmsg_shareable_hold(tmsg_shareable_t *segment)
{
    tmsg_refs_take(&segment->refs);
}

void tmsg_shareable_drop(tmsg_shareable_t *segment)
{
    if (segment != NULL && tmsg_refs_drop(&segment->refs)) {
        destroy(segment);
    }
}

uint8_t *tmsg_shareable_memory(const tmsg_shareable_t *segment)
{
    return segment->memory;
}

size_t tmsg_shareable_bytes(const tmsg_shareable_t *segment)
{
    return segment->bytes;
}

int tmsg_shareable_fd(const tmsg_shareable_t *segment) { return segment->fd; }

void tmsg_shareable_lend(tmsg_shareable_t *segment)
{
    atomic_fetch_add(&segment->loans, 1);
}

void tmsg_shareable_return(tmsg_shareable_t *segment)
{
    atomic_fetch_sub(&segment->loans, 1);
}

bool tmsg_shareable_is_lent_now(const tmsg_shareable_t *segment)
{
    return atomic_load(&segment->loans) > 0;
}

bool tmsg_shareable_is_freed(const tmsg_shareable_t *segment)
{
    return atomic_load(&segment->freed);
}

void tmsg_shareable_retire(tmsg_shareable_t *segment)
{
    atomic_store(&segment->freed, true);
}

bool tmsg_shareable_is_alone(const tmsg_shareable_t *segment)
{
    return tmsg_refs_are(&segment->refs, 1);
}

tmsg_status_t tmsg_shareable_alloc(uint64_t bytes,
                                   const tmsg_shareable_params_t *params,
                                   void **memory_p)
{
    tmsg_shareable_t *segment;
    tmsg_status_t status;

    if (memory_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "shareable memory: memory_p is NULL");
    }
    if (params != NULL &&
        (params->field_mask & ~(uint64_t)TMSG_SHAREABLE_PARAM_DEVICE) != 0) {
        return tmsg_params_unknown("shareable memory",
                                   params->field_mask &
                                       ~(uint64_t)TMSG_SHAREABLE_PARAM_DEVICE);
    }
    if (params != NULL && params->field_mask & TMSG_SHAREABLE_PARAM_DEVICE &&
        params->device.type != TMSG_DEVICE_CPU) {
        return bytes == 0 ? refuse_bytes(bytes)
                          : tmsg_ipc_alloc_own(params->device, bytes, memory_p);
    }
    if (bytes > MOST_BYTES) {
        return refuse_bytes(bytes);
    }
    status = tmsg_shareable_create((size_t)bytes, &segment);
    if (status != TMSG_OK) {
        return status;
    }
    status = add_segment(segment);
    if (status != TMSG_OK) {
        destroy(segment);
        return status;
    }
    *memory_p = segment->memory;
    return TMSG_OK;
}

tmsg_status_t tmsg_shareable_free(void *memory)
{
    tmsg_shareable_t *segment;

    if (memory == NULL || tmsg_ipc_give_up(memory)) {
        return TMSG_OK;
    }
    segment = remove_segment(memory);
    if (segment == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "no block of shareable memory begins at %p; was "
                              "it freed already?",
                              memory);
    }
    tmsg_shareable_retire(segment);
    unmap(segment);
    tmsg_shareable_drop(segment);
    return TMSG_OK;
}

int tmsg_shareable_is_lent(const void *memory)
{
    tmsg_shareable_t *segment;
    bool lent;

    if (atomic_load_explicit(&registered, memory_order_relaxed) == 0) {
        return 0;
    }
    pthread_mutex_lock(&registry.lock);
    segment = find_segment(memory, 1);
    lent = segment != NULL && (segment->forks != atomic_load(&forks) ||
                               tmsg_shareable_is_lent_now(segment));
    pthread_mutex_unlock(&registry.lock);
    return lent;
}
