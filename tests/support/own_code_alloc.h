/* SPDX-License-Identifier: BSD-3-Clause */
/* support/own_code_alloc.h - counts what this program's own code, msgpack-c,
 * cJSON and libzip allocate, and makes the n-th of it fail; the allocations of
 * UCX and of the C library succeed as ever. Include it in the one file of a
 * test program that wants it: it takes the place of the allocator.
 *
 *     for (watched_alloc_arm(1); ...; watched_alloc_arm(++n))
 */
#ifndef TMSG_TESTS_OWN_CODE_ALLOC_H
#define TMSG_TESTS_OWN_CODE_ALLOC_H

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/must.h"

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED_REAL(name) __interceptor_##name
#define WATCHED_MEMALIGN __interceptor_memalign
#else
#define WATCHED_REAL(name) __libc_##name
#define WATCHED_MEMALIGN __libc_memalign
#endif

#define WATCHED_BUCKETS 4096
#define WATCHED_HERE (uintptr_t) __builtin_return_address(0)

void *WATCHED_REAL(malloc)(size_t bytes);
void *WATCHED_REAL(calloc)(size_t count, size_t bytes);
void *WATCHED_REAL(realloc)(void *data, size_t bytes);
void *WATCHED_MEMALIGN(size_t alignment, size_t bytes);
void WATCHED_REAL(free)(void *data);

extern const char __executable_start, etext;

static struct {
    uintptr_t from, to;
} watched_ranges[8];
static size_t watched_range_count; /* 0: nothing is watched */

static pthread_mutex_t watched_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long watched_left; /* 0: none fails */
static uintptr_t watched_failed;   /* the caller, of this program as linked */

typedef struct watched_piece {
    struct watched_piece *next;
    uintptr_t hidden; /* ~address: LeakSanitizer must not see it */
    uintptr_t caller;
    size_t bytes;
} watched_piece_t;

static watched_piece_t *watched_pieces[WATCHED_BUCKETS];
static size_t watched_live, watched_bytes;

static int watched_add_library(struct dl_phdr_info *info, size_t size,
                               void *arg)
{
    static const char *const names[] = {"/libmsgpack", "/libcjson", "/libzip"};

    (void)size;
    (void)arg;
    for (size_t i = 0; i < 3; i++) {
        if (strstr(info->dlpi_name, names[i]) == NULL) {
            continue;
        }
        for (ElfW(Half) j = 0; j < info->dlpi_phnum; j++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[j];

            if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
                watched_ranges[watched_range_count].from =
                    info->dlpi_addr + part->p_vaddr;
                watched_ranges[watched_range_count++].to =
                    info->dlpi_addr + part->p_vaddr + part->p_memsz;
            }
        }
    }
    return 0;
}

/* To be called before anything else here. */
static void watched_alloc_start(void)
{
    dl_iterate_phdr(watched_add_library, NULL);
    watched_ranges[watched_range_count].from = (uintptr_t)&__executable_start;
    watched_ranges[watched_range_count++].to = (uintptr_t)&etext;
}

/* The n-th allocation from now on fails, on whatever thread, once. */
__attribute__((unused)) static void watched_alloc_arm(unsigned long n)
{
    pthread_mutex_lock(&watched_lock);
    watched_left = n;
    watched_failed = 0;
    pthread_mutex_unlock(&watched_lock);
}

/* Lets all succeed again and says where one failed, for addr2line; 0: none
 * did. */
__attribute__((unused)) static uintptr_t watched_alloc_disarm(void)
{
    uintptr_t failed;

    pthread_mutex_lock(&watched_lock);
    watched_left = 0;
    failed = watched_failed;
    pthread_mutex_unlock(&watched_lock);
    return failed;
}

/* Pieces that are allocated and not freed. */
__attribute__((unused)) static size_t watched_alloc_live(void)
{
    size_t live;

    pthread_mutex_lock(&watched_lock);
    live = watched_live;
    pthread_mutex_unlock(&watched_lock);
    return live;
}

/* Their bytes. */
__attribute__((unused)) static size_t watched_alloc_bytes(void)
{
    size_t bytes;

    pthread_mutex_lock(&watched_lock);
    bytes = watched_bytes;
    pthread_mutex_unlock(&watched_lock);
    return bytes;
}

static uintptr_t watched_place(uintptr_t caller)
{
    uintptr_t start = (uintptr_t)&__executable_start;

    return caller > start ? caller - start : caller;
}

/* Where each of them comes from, on standard error. */
__attribute__((unused)) static void watched_alloc_report(void)
{
    pthread_mutex_lock(&watched_lock);
    for (size_t i = 0; i < WATCHED_BUCKETS; i++) {
        const watched_piece_t *piece = watched_pieces[i];

        for (; piece != NULL; piece = piece->next) {
            fprintf(stderr, "  %#zx, allocated at %#zx\n", ~piece->hidden,
                    watched_place(piece->caller));
        }
    }
    pthread_mutex_unlock(&watched_lock);
}

/* Dies unless as many are live as are wanted, soon: lookups end in threads of
 * their own. `n`: which was to fail. */
__attribute__((unused)) static void watched_alloc_expect(size_t wanted,
                                                         unsigned long n)
{
    const struct timespec nap = {0, 1000000};

    for (int i = 0; watched_alloc_live() != wanted; i++) {
        if (i > 5000) {
            watched_alloc_report();
            die("allocation %lu: %zu are left, %zu were there", n,
                watched_alloc_live(), wanted);
        }
        nanosleep(&nap, NULL);
    }
}

/* Fails each in turn. once() does something with its n-th failing; false: it
 * has not as many. *ok_p: whether it did what it was to do. */
__attribute__((unused)) static void watched_alloc_fail_each(
    bool (*once)(const void *arg, unsigned long n, bool *ok_p), const void *arg)
{
    unsigned long n = 0, errors = 0;
    bool ok;

    once(arg, 0, &ok); /* what is made once and kept for ever */
    must_true(ok);
    while (once(arg, ++n, &ok)) {
        errors += !ok;
    }
    must_true(ok);
    must_true(errors > 0);
    fprintf(stderr, "%lu allocations, %lu errors\n", n - 1, errors);
}

/* Fails each in turn, `most` at most. play() does something with its n-th
 * failing; false: it has not as many. Dies where more is live afterwards than
 * before. Returns how many plays there were. */
__attribute__((unused)) static unsigned long
watched_alloc_play_each(bool (*play)(const void *arg, unsigned long n),
                        const void *arg, unsigned long most)
{
    unsigned long n = 1;
    size_t live;

    play(arg, 0); /* what is made once and kept for ever */
    live = watched_alloc_live();
    while (play(arg, n)) {
        if (watched_alloc_live() != live) {
            watched_alloc_report();
            die("allocation %lu left something behind", n);
        }
        must_true(++n < most);
    }
    return n;
}

static bool watched_is_ours(uintptr_t caller)
{
    for (size_t i = 0; i < watched_range_count; i++) {
        if (caller >= watched_ranges[i].from && caller < watched_ranges[i].to) {
            return true;
        }
    }
    return false;
}

/* Whether the allocation at hand is the one to fail. */
static bool watched_fails(uintptr_t caller)
{
    bool fails = false;

    if (!watched_is_ours(caller)) {
        return false;
    }
    pthread_mutex_lock(&watched_lock);
    if (watched_left > 0 && --watched_left == 0) {
        watched_failed = watched_place(caller);
        fails = true;
        errno = ENOMEM;
    }
    pthread_mutex_unlock(&watched_lock);
    return fails;
}

static watched_piece_t **watched_bucket(const void *data)
{
    return &watched_pieces[((uintptr_t)data >> 4) % WATCHED_BUCKETS];
}

static void *watched_keep(void *data, uintptr_t caller)
{
    watched_piece_t **bucket = watched_bucket(data), *piece;

    if (data == NULL || !watched_is_ours(caller)) {
        return data;
    }
    piece = WATCHED_REAL(malloc)(sizeof(*piece));
    piece->hidden = ~(uintptr_t)data;
    piece->caller = caller;
    piece->bytes = malloc_usable_size(data);
    pthread_mutex_lock(&watched_lock);
    piece->next = *bucket;
    *bucket = piece;
    watched_live++;
    watched_bytes += piece->bytes;
    pthread_mutex_unlock(&watched_lock);
    return data;
}

static void watched_forget(const void *data)
{
    watched_piece_t **link = watched_bucket(data), *piece;

    if (watched_range_count == 0 || data == NULL) {
        return;
    }
    pthread_mutex_lock(&watched_lock);
    while (*link != NULL && (*link)->hidden != ~(uintptr_t)data) {
        link = &(*link)->next;
    }
    piece = *link;
    if (piece != NULL) {
        *link = piece->next;
        watched_live--;
        watched_bytes -= piece->bytes;
    }
    pthread_mutex_unlock(&watched_lock);
    WATCHED_REAL(free)(piece);
}

/* The build hides symbols, and what is hidden takes no library's malloc(). */
#pragma GCC visibility push(default)

/* LeakSanitizer knows what ld.so keeps by its caller, which is now us. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:ld-linux\n"; }

void *malloc(size_t bytes)
{
    return watched_fails(WATCHED_HERE)
               ? NULL
               : watched_keep(WATCHED_REAL(malloc)(bytes), WATCHED_HERE);
}

void *calloc(size_t count, size_t bytes)
{
    return watched_fails(WATCHED_HERE)
               ? NULL
               : watched_keep(WATCHED_REAL(calloc)(count, bytes), WATCHED_HERE);
}

static void *watched_realloc(void *data, size_t bytes, uintptr_t caller)
{
    void *larger;

    if (watched_fails(caller)) {
        return NULL;
    }
    watched_forget(data); /* before another thread is given it */
    larger = WATCHED_REAL(realloc)(data, bytes);
    watched_keep(larger == NULL && bytes > 0 ? data : larger, caller);
    return larger;
}

void *realloc(void *data, size_t bytes)
{
    return watched_realloc(data, bytes, WATCHED_HERE);
}

void *reallocarray(void *data, size_t count, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return watched_realloc(data, total, WATCHED_HERE);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return watched_fails(WATCHED_HERE)
               ? NULL
               : watched_keep(WATCHED_MEMALIGN(alignment, bytes), WATCHED_HERE);
}

int posix_memalign(void **data_p, size_t alignment, size_t bytes)
{
    void *data =
        watched_fails(WATCHED_HERE)
            ? NULL
            : watched_keep(WATCHED_MEMALIGN(alignment, bytes), WATCHED_HERE);

    if (data == NULL) {
        return ENOMEM;
    }
    *data_p = data;
    return 0;
}

char *strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy =
        watched_fails(WATCHED_HERE) ? NULL : WATCHED_REAL(malloc)(bytes);

    return copy == NULL ? NULL
                        : watched_keep(memcpy(copy, text, bytes), WATCHED_HERE);
}

FILE *open_memstream(char **text_p, size_t *bytes_p)
{
    FILE *(*real)(char **text_p, size_t *bytes_p) = NULL;

    if (watched_fails(WATCHED_HERE)) {
        return NULL;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "open_memstream");
    return real(text_p, bytes_p);
}

void free(void *data)
{
    watched_forget(data);
    WATCHED_REAL(free)(data);
}

#pragma GCC visibility pop

#endif
