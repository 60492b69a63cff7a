/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/probe.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kernel's set of signals has this many bytes. */
#define WORD 8
#define NO_WAY (-1)

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Returns the bytes that are left of the page. */
static size_t left_of_page(const void *at)
{
    size_t page = page_bytes();

    return page - (uintptr_t)at % page;
}

/* Returns whether the word at `at` can be read. The kernel reads a set of
 * signals there before it finds that NO_WAY is no way of applying it. */
static bool is_word_readable(const void *at)
{
    uintptr_t word = (uintptr_t)at & ~(uintptr_t)(WORD - 1);

    return syscall(SYS_rt_sigprocmask, NO_WAY, word, NULL, (size_t)WORD) == 0 ||
           errno != EFAULT;
}

const void *tmsg_probe(const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        size_t some = left_of_page(at);

        if (!is_word_readable(at)) {
            return at;
        }
        some = some < bytes ? some : bytes;
        at += some;
        bytes -= some;
    }
    return NULL;
}

static ssize_t read_own(void *to, const void *from, size_t bytes)
{
    const struct iovec local = {to, bytes};
    const struct iovec remote = {(void *)(uintptr_t)from, bytes};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
}

/* Copies at most the rest of a page. The kernel cannot read pages that a driver
 * has mapped, but the processor can. */
static size_t copy_page(void *to, const void *from, size_t bytes)
{
    size_t some = left_of_page(from);

    some = some < bytes ? some : bytes;
    if (!is_word_readable(from)) {
        return 0;
    }
    memcpy(to, from, some);
    return some;
}

size_t tmsg_probe_copy(void *to, const void *from, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        uint8_t *into = (uint8_t *)to + done;
        const uint8_t *at = (const uint8_t *)from + done;
        ssize_t some = read_own(into, at, bytes - done);

        if (some < 0 && errno != EFAULT) {
            memcpy(into, at, bytes - done);
            return bytes;
        }
        if (some <= 0) {
            some = (ssize_t)copy_page(into, at, bytes - done);
        }
        if (some == 0) {
            break;
        }
        done += (size_t)some;
    }
    return done;
}
