/* SPDX-License-Identifier: BSD-3-Clause */
/* support/failing_alloc.h - makes the n-th allocation fail. Include it in the
 * one file of a test program that wants it: it takes the place of malloc,
 * calloc, realloc and aligned_alloc in the whole program, libraries included.
 *
 *     for (failing_alloc_arm(1); ...; failing_alloc_arm(++n))
 */
#ifndef TMSG_TESTS_FAILING_ALLOC_H
#define TMSG_TESTS_FAILING_ALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define FAILING_ALLOC_REAL(name) __interceptor_##name
#else
#define FAILING_ALLOC_REAL(name) __libc_##name
#endif

void *FAILING_ALLOC_REAL(malloc)(size_t bytes);
void *FAILING_ALLOC_REAL(calloc)(size_t count, size_t bytes);
void *FAILING_ALLOC_REAL(realloc)(void *data, size_t bytes);
void *FAILING_ALLOC_REAL(memalign)(size_t alignment, size_t bytes);

static _Thread_local unsigned long failing_alloc_left; /* 0: none fails */
static _Thread_local bool failing_alloc_failed;

/* The n-th allocation of this thread from now on fails, once. */
static void failing_alloc_arm(unsigned long n)
{
    failing_alloc_left = n;
    failing_alloc_failed = false;
}

/* Lets all succeed again and says whether one failed. */
static bool failing_alloc_disarm(void)
{
    failing_alloc_left = 0;
    return failing_alloc_failed;
}

static bool failing_alloc_now(void)
{
    if (failing_alloc_left == 0 || --failing_alloc_left > 0) {
        return false;
    }
    failing_alloc_failed = true;
    errno = ENOMEM;
    return true;
}

/* The build hides symbols, and what is hidden takes no library's malloc(). */
#pragma GCC visibility push(default)

/* LeakSanitizer knows what ld.so keeps by its caller, which is now us. Before
 * the include FAILING_ALLOC_LEAKS may name more: "leak:libx.so\n". */
#ifndef FAILING_ALLOC_LEAKS
#define FAILING_ALLOC_LEAKS ""
#endif
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:ld-linux\n" FAILING_ALLOC_LEAKS;
}

void *malloc(size_t bytes)
{
    return failing_alloc_now() ? NULL : FAILING_ALLOC_REAL(malloc)(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return failing_alloc_now() ? NULL
                               : FAILING_ALLOC_REAL(calloc)(count, bytes);
}

void *realloc(void *data, size_t bytes)
{
    return failing_alloc_now() ? NULL
                               : FAILING_ALLOC_REAL(realloc)(data, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return failing_alloc_now() ? NULL
                               : FAILING_ALLOC_REAL(memalign)(alignment, bytes);
}

#pragma GCC visibility pop

#endif
