/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether libcuda is loaded is asked for each tensor whose device is not said,
 * in a program that has a memory domain: the loader looks for it in every
 * folder once, and again when something was loaded. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "memory/cuda.h"
#include "support/must.h"

static size_t looked;

#pragma GCC visibility push(default)

/* The library's, too: it is a part of this program. */
void *dlopen(const char *path, int flags)
{
    void *(*real)(const char *path, int flags);

    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    looked += (flags & RTLD_NOLOAD) != 0;
    return real(path, flags);
}

#pragma GCC visibility pop

static void ask_often(bool wanted, size_t most)
{
    looked = 0;
    for (int i = 0; i < 1000; i++) {
        must_true(tmsg_cuda_is_loaded() == wanted);
    }
    cr_assert(le(sz, looked, most));
}

Test(cuda_loaded, is_looked_for_once)
{
    ask_often(false, 1);
    ask_often(false, 0);
}

Test(cuda_loaded, is_found_when_it_was_loaded_later)
{
    ask_often(false, 1);
    must_true(dlopen("libm.so.6", RTLD_NOW) != NULL);
    must_true(dlopen(FAKES "/new/libnvidia-ml.so.1", RTLD_NOW) != NULL);
    ask_often(false, 1);
    must_true(dlopen(FAKES "/new/libcuda.so.1", RTLD_NOW) != NULL);
    ask_often(true, 1);
    ask_often(true, 0);
}
