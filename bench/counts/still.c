/* SPDX-License-Identifier: BSD-3-Clause */
#include "still.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define NS_PER_S 1000000000LL

/* UCX's thread asks for the time, too. */
static atomic_llong shown;  /* ns, where the clock stands; 0: it goes */
static atomic_llong behind; /* ns by which it goes before the real one */
static atomic_uint random_state = 1;
static atomic_bool counting;
static atomic_ulong ours, in_ucx;

static int real_time(clockid_t clock, struct timespec *now)
{
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static bool goes_forward(clockid_t clock)
{
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    long long ns = shown;

    if (!goes_forward(clock)) {
        return real_time(clock, now);
    }
    if (ns == 0) {
        real_time(clock, now);
        ns = now->tv_sec * NS_PER_S + now->tv_nsec + behind;
    }
    now->tv_sec = ns / NS_PER_S;
    now->tv_nsec = ns % NS_PER_S;
    return 0;
}

void still_stop_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    shown = now.tv_sec * NS_PER_S + now.tv_nsec;
}

void still_start_clock(void)
{
    struct timespec now;
    long long ns;

    real_time(CLOCK_MONOTONIC, &now);
    ns = now.tv_sec * NS_PER_S + now.tv_nsec;
    behind = shown > ns ? shown - ns : 0;
    shown = 0;
}

void still_pass(uint64_t ns) { shown += (long long)ns; }

EXPORT ssize_t getrandom(void *buffer, size_t bytes, unsigned flags)
{
    uint8_t *to = buffer;

    (void)flags;
    for (size_t i = 0; i < bytes; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        to[i] = (uint8_t)(random_state >> 24);
    }
    return (ssize_t)bytes;
}

static void tally(size_t bytes, const void *caller)
{
    const char *name = "";
    Dl_info info;

    if (!atomic_load_explicit(&counting, memory_order_relaxed)) {
        return;
    }
    if (dladdr(caller, &info) != 0 && info.dli_fname != NULL) {
        name = strrchr(info.dli_fname, '/');
        name = name == NULL ? info.dli_fname : name + 1;
    }
    if (strncmp(name, "libuc", strlen("libuc")) == 0) {
        in_ucx += bytes;
    } else {
        ours += bytes;
    }
}

void still_copies_start(void)
{
    ours = 0;
    in_ucx = 0;
    counting = true;
}

void still_copies_stop(still_copies_t *copies_p)
{
    counting = false;
    *copies_p = (still_copies_t){ours, in_ucx};
}

typedef void *(*copy_fn)(void *to, const void *from, size_t bytes);

static copy_fn real_copy; /* memmove() */

/* Before this program's constructors have run, or where dlsym() copies. */
static void *copy_slowly(void *to, const void *from, size_t bytes)
{
    volatile uint8_t *out = to;
    const uint8_t *in = from;

    for (size_t i = 0; i < bytes; i++) {
        size_t at = out <= in ? i : bytes - 1 - i;

        out[at] = in[at];
    }
    return to;
}

__attribute__((constructor)) static void find(void)
{
    *(void **)&real_copy = dlsym(RTLD_NEXT, "memmove");
}

static void *copy(void *to, const void *from, size_t bytes, const void *caller)
{
    tally(bytes, caller);
    return (real_copy == NULL ? copy_slowly : real_copy)(to, from, bytes);
}

EXPORT void *memcpy(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, CALLER);
}

EXPORT void *memmove(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, CALLER);
}

EXPORT void *mempcpy(void *to, const void *from, size_t bytes)
{
    return (uint8_t *)copy(to, from, bytes, CALLER) + bytes;
}

/* With _FORTIFY_SOURCE. The names are the C library's. */
void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room);
void *__memmove_chk(void *to, const void *from, size_t bytes, size_t room);

EXPORT void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room)
{
    (void)room;
    return copy(to, from, bytes, CALLER);
}

EXPORT void *__memmove_chk(void *to, const void *from, size_t bytes,
                           size_t room)
{
    (void)room;
    return copy(to, from, bytes, CALLER);
}

EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *to,
                                unsigned long to_count,
                                const struct iovec *from,
                                unsigned long from_count, unsigned long flags)
{
    ssize_t bytes = (ssize_t)syscall(SYS_process_vm_readv, pid, to, to_count,
                                     from, from_count, flags);

    tally(bytes > 0 ? (size_t)bytes : 0, CALLER);
    return bytes;
}

EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *from,
                                 unsigned long from_count,
                                 const struct iovec *to, unsigned long to_count,
                                 unsigned long flags)
{
    ssize_t bytes = (ssize_t)syscall(SYS_process_vm_writev, pid, from,
                                     from_count, to, to_count, flags);

    tally(bytes > 0 ? (size_t)bytes : 0, CALLER);
    return bytes;
}
