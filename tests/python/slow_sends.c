/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded into the command by LD_PRELOAD: each 60 KiB of a payload take 20 ms
 * before they go to a socket, as if they were read from a slow disk. The
 * receiver is then always ready for the next ones, and UCX, or the library,
 * goes on without a pause. */
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>

#define PAYLOAD_LEAST 4096 /* what is smaller is not of a payload */
#define PIECE_BYTES ((size_t)60 * 1024)
#define PIECE_NS 20000000LL

static void delay(size_t bytes)
{
    long long ns =
        (long long)((bytes + PIECE_BYTES - 1) / PIECE_BYTES) * PIECE_NS;
    const struct timespec time = {.tv_sec = ns / 1000000000,
                                  .tv_nsec = ns % 1000000000};

    if (bytes >= PAYLOAD_LEAST) {
        nanosleep(&time, NULL);
    }
}

/* The function that ours stands before. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data,
                                                    size_t bytes, int flags)
{
    delay(bytes);
    return NEXT(send)(fd, data, bytes, flags);
}

__attribute__((visibility("default"))) ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t bytes = 0;

    for (size_t i = 0; i < message->msg_iovlen; i++) {
        bytes += message->msg_iov[i].iov_len;
    }
    delay(bytes);
    return NEXT(sendmsg)(fd, message, flags);
}
