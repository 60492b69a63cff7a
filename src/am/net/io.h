/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/io.h - how the bytes of a connection are moved: as they are, or
 * encrypted. */
#ifndef TMSG_AM_NET_IO_H
#define TMSG_AM_NET_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tensormsg/status.h>

/* Moves the bytes of a nonblocking socket. read() and write() return as readv()
 * and writev() do. errno is EAGAIN if nothing can be moved now, EPROTO if
 * failed() tells the reason. */
typedef struct {
    /* Reads until the places are full, or the socket has no more. */
    ssize_t (*read)(void *io, const struct iovec *into, size_t count);
    ssize_t (*write)(void *io, const struct iovec *from, size_t count);
    /* Returns whether the socket has all that write() took. If not it tries
     * again, which is worth it when the socket is writable. NULL: it has. */
    bool (*flush)(void *io);
    /* Returns the error that ended the connection, with its message. NULL if
     * errno is never EPROTO. */
    tmsg_status_t (*failed)(void *io);
    /* Frees what belongs to `io`. The socket stays open. NULL: nothing does. */
    void (*free)(void *io);
} tmsg_io_t;

#endif
