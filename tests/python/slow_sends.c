/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded into the command by LD_PRELOAD: each piece of a payload takes 20 ms
 * before it goes to a socket, as if it were read from a slow disk. The receiver
 * is then always ready for the next one, and UCX goes on without a pause. */
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>

#define PIECE_BYTES 4096 /* what is smaller is not of a payload */

static void delay(size_t bytes)
{
    const struct timespec time = {.tv_nsec = 20000000};

    if (bytes >= PIECE_BYTES) {
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
