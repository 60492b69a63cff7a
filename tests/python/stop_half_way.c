/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded into the command by LD_PRELOAD: stops the process, once, before it
 * takes more than TMSG_STOP_AFTER bytes from its peer, by a socket or from the
 * peer's memory. What a test does to it then is done half-way, on a machine of
 * any speed. */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_size_t taken;
static atomic_flag stopped = ATOMIC_FLAG_INIT;

/* Before `more` bytes are taken, where that is known, else 1. */
static void gate(size_t more)
{
    const char *after = getenv("TMSG_STOP_AFTER");

    if (after != NULL && taken + more > strtoul(after, NULL, 10) &&
        !atomic_flag_test_and_set(&stopped)) {
        kill(getpid(), SIGSTOP);
    }
}

static ssize_t count(ssize_t bytes)
{
    if (bytes > 0) {
        taken += (size_t)bytes;
    }
    return bytes;
}

/* The function that ours stands before. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((visibility("default"))) ssize_t recv(int fd, void *data,
                                                    size_t bytes, int flags)
{
    gate(1);
    return count(NEXT(recv)(fd, data, bytes, flags));
}

__attribute__((visibility("default"))) ssize_t
recvmsg(int fd, struct msghdr *message, int flags)
{
    gate(1);
    return count(NEXT(recvmsg)(fd, message, flags));
}

__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *to, unsigned long to_count,
                 const struct iovec *from, unsigned long from_count,
                 unsigned long flags)
{
    size_t bytes = 0;

    for (unsigned long i = 0; i < from_count; i++) {
        bytes += from[i].iov_len;
    }
    gate(bytes);
    return count(
        NEXT(process_vm_readv)(pid, to, to_count, from, from_count, flags));
}
