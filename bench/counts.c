/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes malloc's place in the whole program and counts who calls it. What
 * UCX's libraries ask for is theirs; all the rest counts as ours, what libc
 * and msgpack-c do for us included. The bench itself allocates nothing while
 * it counts. */
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

void bench_counts_start(void)
{
    elsewhere = 0;
    in_ucx = 0;
    counting = true;
}

void bench_counts_stop(unsigned long *elsewhere_p, unsigned long *in_ucx_p)
{
    counting = false;
    *elsewhere_p = elsewhere;
    *in_ucx_p = in_ucx;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool bench_counts_available(void) { return false; }
#else
bool bench_counts_available(void) { return true; }

#define EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void tally(const void *caller)
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
    /* libucp, libuct, libucs, libucm and their plug-ins */
    if (strncmp(name, "libuc", strlen("libuc")) == 0) {
        in_ucx++;
    } else {
        elsewhere++;
    }
}

EXPORT void *malloc(size_t bytes)
{
    tally(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    tally(__builtin_return_address(0));
    return __libc_calloc(count, bytes);
}

EXPORT void *realloc(void *data, size_t bytes)
{
    tally(__builtin_return_address(0));
    return __libc_realloc(data, bytes);
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    tally(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    tally(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

EXPORT int posix_memalign(void **data_p, size_t alignment, size_t bytes)
{
    void *data;

    tally(__builtin_return_address(0));
    data = __libc_memalign(alignment, bytes);
    if (data == NULL) {
        return ENOMEM;
    }
    *data_p = data;
    return 0;
}
#endif
