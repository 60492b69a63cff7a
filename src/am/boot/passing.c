/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors travel by SCM_RIGHTS (unix(7)). A write that has one holds bytes
 * of its frame alone, and a read ends with the bytes of the write by which a
 * descriptor came. So it belongs to the frame that has the last byte of that
 * read, whatever else was read with it. */
#include "am/boot/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/net/unwanted.h"
#include "core/error.h"

/* A read has room for as many as a write may have (SCM_MAX_FD): the kernel
 * would close what has none inside of the read, and a close may last. */
#define READ_FDS 253

typedef union {
    struct cmsghdr head; /* for its alignment */
    uint8_t bytes[CMSG_SPACE(READ_FDS * sizeof(int))];
} control_t;

void tmsg_passing_init(tmsg_passing_t *passing)
{
    *passing =
        (tmsg_passing_t){.wrong = TMSG_ERR_MALFORMED, .fd = TMSG_FRAME_FD_NONE};
}

void tmsg_passing_move(tmsg_passing_t *to, tmsg_passing_t *from)
{
    *to = *from;
    tmsg_passing_init(from);
}

void tmsg_passing_close_fd(tmsg_passing_t *passing)
{
    tmsg_unwanted_close(passing->fd);
    passing->fd = TMSG_FRAME_FD_NONE;
}

void tmsg_passing_close_came(tmsg_passing_t *passing)
{
    for (unsigned i = 0; i < passing->came_count; i++) {
        tmsg_unwanted_close(passing->came[i].fd);
    }
    passing->came_count = 0;
    tmsg_passing_close_fd(passing);
}

/* Closes the first that is to go: it has gone, or cannot. */
static void close_leaving(tmsg_passing_t *passing)
{
    close(passing->leaving[0].fd);
    passing->leaving_count--;
    memmove(passing->leaving, passing->leaving + 1,
            passing->leaving_count * sizeof(*passing->leaving));
    if (passing->leaving_count == 0) {
        free(passing->leaving);
        passing->leaving = NULL;
    }
}

void tmsg_passing_close(tmsg_passing_t *passing)
{
    tmsg_passing_close_came(passing);
    while (passing->leaving_count > 0) {
        close_leaving(passing);
    }
}

tmsg_status_t tmsg_passing_keep(tmsg_passing_t *passing, int fd, uint64_t first,
                                size_t bytes)
{
    int copy;

    if (passing->leaving_count == TMSG_PASSING_MOST) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the peer does not read: %u descriptors wait for "
                              "it",
                              passing->leaving_count);
    }
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "a descriptor for the peer");
    }
    if (passing->leaving == NULL) {
        passing->leaving =
            malloc(TMSG_PASSING_MOST * sizeof(*passing->leaving));
    }
    if (passing->leaving == NULL) {
        close(copy);
        return tmsg_error_memory("a descriptor for the peer");
    }
    passing->leaving[passing->leaving_count++] =
        (tmsg_passed_t){first, first + bytes - 1, copy};
    return TMSG_OK;
}

/* Returns what sendmsg() does with a descriptor. */
static ssize_t write_with_fd(int sock, struct iovec *bytes, int fd)
{
    control_t control;
    const struct msghdr message = {.msg_iov = bytes,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = CMSG_SPACE(sizeof(int))};

    memset(&control, 0, sizeof(control));
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
    return sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool would_wait(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

ssize_t tmsg_passing_write(tmsg_passing_t *passing, int sock, void *data,
                           size_t bytes, uint64_t first)
{
    const tmsg_passed_t *next = passing->leaving;
    struct iovec frame = {.iov_base = data};
    ssize_t n;

    if (next == NULL || next->first != first) {
        return send(sock, data, next == NULL ? bytes : next->first - first,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    frame.iov_len = next->last - next->first + 1;
    n = write_with_fd(sock, &frame, next->fd);
    if (would_wait(n)) {
        return n;
    }
    close_leaving(passing);
    if (n < 0) {
        errno = EINTR; /* an error of the socket shows again without it */
    }
    return n;
}

/* Takes the descriptors out of a message that was read. Returns how many there
 * are, up to READ_FDS. */
static unsigned unpack(struct msghdr *message, int *fds)
{
    unsigned count = 0;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
            count = (unsigned)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(head), count * sizeof(int));
        }
    }
    return count;
}

/* Keeps the descriptor that came with the byte of that number. */
static tmsg_status_t keep_came(tmsg_passing_t *passing, struct msghdr *message,
                               uint64_t last)
{
    bool cut = (message->msg_flags & MSG_CTRUNC) != 0;
    int fds[READ_FDS] = {TMSG_FRAME_FD_LOST};
    unsigned count = unpack(message, fds);

    if (count == 0 && !cut) {
        return TMSG_OK;
    }
    if (count + cut <= 1 && passing->takes != 0 && passing->came_count < 2) {
        passing->came[passing->came_count++] =
            (tmsg_passed_t){last, last, fds[0]};
        return TMSG_OK;
    }
    for (unsigned i = 0; i < count; i++) {
        tmsg_unwanted_close(fds[i]);
    }
    return tmsg_error_set(passing->wrong,
                          passing->takes == 0
                              ? "a descriptor came where none is taken"
                              : "several descriptors came with a frame");
}

/* Where no descriptor is taken there is no room for any, and the kernel drops
 * what comes. */
ssize_t tmsg_passing_read(tmsg_passing_t *passing, int sock, void *data,
                          size_t bytes, uint64_t first, tmsg_status_t *status_p)
{
    bool takes = passing->takes != 0;
    struct iovec room = {data, bytes};
    control_t control;
    struct msghdr message = {.msg_iov = &room,
                             .msg_iovlen = 1,
                             .msg_control = takes ? &control : NULL,
                             .msg_controllen = takes ? sizeof(control) : 0};
    ssize_t n = recvmsg(sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *status_p =
        n > 0 ? keep_came(passing, &message, first + (size_t)n - 1) : TMSG_OK;
    return n;
}

void tmsg_passing_drain(tmsg_passing_t *passing, int sock)
{
    uint8_t data[4096];
    tmsg_status_t status;

    while (passing->takes != 0 &&
           tmsg_passing_read(passing, sock, data, sizeof(data), 0, &status) >
               0) {
        tmsg_passing_close_came(passing);
    }
}

tmsg_status_t tmsg_passing_give(tmsg_passing_t *passing, uint8_t type,
                                uint64_t end)
{
    unsigned count = 0;

    while (count < passing->came_count && passing->came[count].last < end) {
        count++;
    }
    if (count == 0) {
        return TMSG_OK;
    }
    if (count > 1) {
        return tmsg_error_set(passing->wrong,
                              "%u descriptors came with a frame of type %u",
                              count, type);
    }
    if (type > 63 || (passing->takes >> type & 1) == 0) {
        return tmsg_error_set(passing->wrong,
                              "a descriptor came with a frame of type %u, "
                              "which takes none",
                              type);
    }
    passing->fd = passing->came[0].fd;
    passing->came[0] = passing->came[1];
    passing->came_count--;
    return TMSG_OK;
}
