/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/pipe/pipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/pipe/pipe_struct.h"
#include "core/bytes.h"
#include "core/error.h"

static ssize_t read_socket(void *io, const struct iovec *into, size_t count)
{
    struct msghdr call = {.msg_iov = (struct iovec *)(uintptr_t)into,
                          .msg_iovlen = count};

    return recvmsg((int)(intptr_t)io, &call, MSG_DONTWAIT);
}

static ssize_t write_socket(void *io, const struct iovec *from, size_t count)
{
    const struct msghdr call = {.msg_iov = (struct iovec *)(uintptr_t)from,
                                .msg_iovlen = count};

    return sendmsg((int)(intptr_t)io, &call, MSG_DONTWAIT | MSG_NOSIGNAL);
}

const tmsg_io_t tmsg_pipe_plain_io = {
    .read = read_socket,
    .write = write_socket,
};

tmsg_status_t tmsg_pipes_init(tmsg_pipes_t *pipes)
{
    pipes->buffer = malloc(TMSG_PIPE_BUFFER_BYTES);
    if (pipes->buffer == NULL) {
        return tmsg_error_memory("pipes");
    }
    pipes->fd = epoll_create1(EPOLL_CLOEXEC);
    if (pipes->fd < 0) {
        free(pipes->buffer);
        return tmsg_error_errno(TMSG_ERR_IO, "the pipes' epoll descriptor");
    }
    return TMSG_OK;
}

void tmsg_pipes_free(tmsg_pipes_t *pipes)
{
    close(pipes->fd);
    free(pipes->buffer);
}

void tmsg_pipe_stir(tmsg_pipe_t *pipe)
{
    if (!pipe->busy && !pipe->over) {
        tmsg_list_push(&pipe->pipes->busy, &pipe->busy_node);
        pipe->busy = true;
    }
}

static void leave_busy(tmsg_pipe_t *pipe)
{
    if (pipe->busy) {
        tmsg_list_remove(&pipe->pipes->busy, &pipe->busy_node);
        pipe->busy = false;
    }
}

/* Gives a pipe its turn. Of what is left then, nothing may tell: what `io` has
 * read ahead, the socket does not show. */
static unsigned turn_pipe(tmsg_pipe_t *pipe, bool reads)
{
    bool more = false;
    size_t moved;

    reads |= pipe->busy;
    leave_busy(pipe);
    moved = reads ? tmsg_pipe_read(pipe, &more) : 0;
    moved += tmsg_pipe_write(pipe);
    if (more || tmsg_pipe_has_output(pipe)) {
        tmsg_pipe_stir(pipe);
    }
    return moved > 0;
}

/* The callbacks stir pipes, and close none. */
unsigned tmsg_pipes_progress(tmsg_pipes_t *pipes)
{
    struct epoll_event events[TMSG_LOOP_BATCH];
    unsigned count = 0;
    int ready;

    if (pipes->all.count == 0) {
        return 0;
    }
    for (size_t i = pipes->busy.count; i > 0; i--) {
        count += turn_pipe(
            TMSG_CONTAINER_OF(pipes->busy.head, tmsg_pipe_t, busy_node), true);
    }
    ready = epoll_wait(pipes->fd, events, TMSG_LOOP_BATCH, 0);
    for (int i = 0; i < ready; i++) {
        tmsg_pipe_t *pipe = events[i].data.ptr;

        if (events[i].events & EPOLLOUT) {
            tmsg_pipe_wait(pipe, false);
        }
        count += turn_pipe(pipe, events[i].events & ~(uint32_t)EPOLLOUT);
    }
    return count;
}

bool tmsg_pipes_arm(const tmsg_pipes_t *pipes)
{
    return pipes->busy.count == 0;
}

static int control(tmsg_pipe_t *pipe, int what, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = pipe};

    return epoll_ctl(pipe->pipes->fd, what, pipe->fd, &event);
}

void tmsg_pipe_wait(tmsg_pipe_t *pipe, bool waits)
{
    if (pipe->waits != waits && !pipe->over) {
        pipe->waits = waits;
        control(pipe, EPOLL_CTL_MOD,
                EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0));
    }
}

void tmsg_pipe_end(tmsg_pipe_t *pipe, tmsg_status_t status, const char *why)
{
    if (!pipe->over) {
        pipe->over = true;
        leave_busy(pipe);
        control(pipe, EPOLL_CTL_DEL, 0);
        pipe->pipes->ended(pipe->pipes->arg, pipe, status, why);
    }
}

static tmsg_status_t keep_come(tmsg_pipe_t *pipe, const void *come,
                               size_t bytes)
{
    if (bytes == 0) {
        return TMSG_OK;
    }
    if (bytes > TMSG_PIPE_BUFFER_BYTES / 2) {
        return tmsg_error_set(TMSG_ERR_IO, "too much came with the claim");
    }
    pipe->kept = malloc(bytes);
    if (pipe->kept == NULL) {
        return tmsg_error_memory("a pipe");
    }
    memcpy(pipe->kept, come, bytes);
    pipe->kept_bytes = bytes;
    pipe->kept_room = bytes;
    return TMSG_OK;
}

tmsg_status_t tmsg_pipe_open(tmsg_pipes_t *pipes, int fd, const tmsg_io_t *io,
                             void *io_arg, const void *come, size_t come_bytes,
                             tmsg_pipe_t **pipe_p)
{
    tmsg_pipe_t *pipe = calloc(1, sizeof(*pipe));
    tmsg_status_t status;

    if (pipe == NULL) {
        return tmsg_error_memory("a pipe");
    }
    pipe->pipes = pipes;
    pipe->io = io;
    pipe->io_arg = io_arg;
    pipe->fd = fd;
    pipe->moved.read = come_bytes;
    status = keep_come(pipe, come, come_bytes);
    if (status == TMSG_OK) {
        status = control(pipe, EPOLL_CTL_ADD, EPOLLIN) == 0
                     ? TMSG_OK
                     : tmsg_error_errno(TMSG_ERR_IO, "epoll_ctl");
    }
    if (status != TMSG_OK) {
        free(pipe->kept);
        free(pipe);
        return status;
    }
    tmsg_list_push(&pipes->all, &pipe->node);
    tmsg_pipe_stir(pipe);
    *pipe_p = pipe;
    return TMSG_OK;
}

void tmsg_pipe_close(tmsg_pipe_t *pipe)
{
    if (!pipe->over) {
        control(pipe, EPOLL_CTL_DEL, 0);
    }
    leave_busy(pipe);
    tmsg_list_remove(&pipe->pipes->all, &pipe->node);
    pipe->over = true; /* for the callbacks */
    tmsg_pipe_leave_offers(pipe);
    shutdown(pipe->fd, SHUT_RDWR); /* a child may have it, too */
    close(pipe->fd);
    if (pipe->io->free != NULL) {
        pipe->io->free(pipe->io_arg);
    }
    tmsg_pipe_cancel_out(pipe);
    tmsg_pipe_cancel_in(pipe);
    free(pipe->kept);
    free(pipe);
}

tmsg_pipe_moved_t tmsg_pipe_moved(const tmsg_pipe_t *pipe)
{
    return pipe->moved;
}

int tmsg_pipe_fd(const tmsg_pipe_t *pipe) { return pipe->fd; }

bool tmsg_pipe_is_plain(const tmsg_pipe_t *pipe)
{
    return pipe->io == &tmsg_pipe_plain_io;
}

bool tmsg_pipe_grow(void ***table, uint32_t *room, uint32_t at)
{
    uint32_t more = *room == 0 ? 8 : *room;
    void **grown;

    if (at < *room) {
        return true;
    }
    while (more <= at) {
        more *= 2;
    }
    grown = realloc(*table, more * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    memset(grown + *room, 0, (more - *room) * sizeof(*grown));
    *table = grown;
    *room = more;
    return true;
}

void tmsg_pipe_fill_frame(uint8_t frame[TMSG_PIPE_FRAME_BYTES], uint8_t type,
                          size_t header_bytes, uint32_t id, uint64_t bytes)
{
    frame[0] = type;
    frame[1] = 0;
    tmsg_put_le(frame + 2, header_bytes, 2);
    tmsg_put_le(frame + 4, id, 4);
    tmsg_put_le(frame + 8, bytes, 8);
}
