/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes malloc's place in the whole program and counts who calls it. What
 * UCX's libraries ask for is theirs; all the rest counts as ours, what libc
 * and msgpack-c do for us included. The bench itself allocates nothing while
 * it counts. Bytes that are held: what was allocated since the start and is
 * not freed, each piece by the same. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static atomic_bool counting;
static atomic_ulong elsewhere;
static atomic_ulong in_ucx;
static atomic_long held;

void bench_counts_start(void)
{
    elsewhere = 0;
    in_ucx = 0;
    held = 0;
    counting = true;
}

void bench_counts_stop(unsigned long *elsewhere_p, unsigned long *in_ucx_p)
{
    counting = false;
    *elsewhere_p = elsewhere;
    *in_ucx_p = in_ucx;
}

long bench_counts_held(void) { return held; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool bench_counts_available(void) { return false; }
#else
bool bench_counts_available(void) { return true; }

#define EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *data);

static bool is_counting(void)
{
    return atomic_load_explicit(&counting, memory_order_relaxed);
}

/* libucp, libuct, libucs, libucm and their plug-ins */
static bool is_ucx(const void *caller)
{
    const char *name = "";
    Dl_info info;

    if (dladdr(caller, &info) != 0 && info.dli_fname != NULL) {
        name = strrchr(info.dli_fname, '/');
        name = name == NULL ? info.dli_fname : name + 1;
    }
    return strncmp(name, "libuc", strlen("libuc")) == 0;
}

static void *tally(void *data, const void *caller)
{
    if (!is_counting()) {
        return data;
    }
    if (is_ucx(caller)) {
        in_ucx++;
    } else {
        elsewhere++;
        held += (long)malloc_usable_size(data);
    }
    return data;
}

static void forget(void *data, const void *caller)
{
    if (is_counting() && data != NULL && !is_ucx(caller)) {
        held -= (long)malloc_usable_size(data);
    }
}

EXPORT void *malloc(size_t bytes)
{
    return tally(__libc_malloc(bytes), __builtin_return_address(0));
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    return tally(__libc_calloc(count, bytes), __builtin_return_address(0));
}

EXPORT void *realloc(void *data, size_t bytes)
{
    forget(data, __builtin_return_address(0));
    return tally(__libc_realloc(data, bytes), __builtin_return_address(0));
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    return tally(__libc_memalign(alignment, bytes),
                 __builtin_return_address(0));
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return tally(__libc_memalign(alignment, bytes),
                 __builtin_return_address(0));
}

EXPORT int posix_memalign(void **data_p, size_t alignment, size_t bytes)
{
    void *data =
        tally(__libc_memalign(alignment, bytes), __builtin_return_address(0));

    if (data == NULL) {
        return ENOMEM;
    }
    *data_p = data;
    return 0;
}

EXPORT void free(void *data)
{
    forget(data, __builtin_return_address(0));
    __libc_free(data);
}
#endif
