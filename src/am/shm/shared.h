/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/shared.h - memory that two processes have. The one that makes it tells
 * the other a descriptor and a mark, by which that one knows that it has found
 * the right one. It begins with the mark; the rest is zero at first, and
 * whatever stands there later is what the other side likes. */
#ifndef TMSG_AM_SHM_SHARED_H
#define TMSG_AM_SHM_SHARED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/status.h>

#define TMSG_SHARED_MARK_BYTES 16

typedef struct {
    uint8_t *memory; /* NULL: none */
    size_t bytes;
    int fd;    /* < 0: closed */
    pid_t pid; /* in a child of ours there is something else */
} tmsg_shared_t;

/* Errors: IO. */
tmsg_status_t tmsg_shared_create(tmsg_shared_t *shared, size_t bytes);

/* That of another process, by its descriptor. Errors: IO (it cannot be opened,
 * or is no such memory). */
tmsg_status_t tmsg_shared_open(tmsg_shared_t *shared, size_t bytes, pid_t pid,
                               int fd, const uint8_t *mark);

/* The descriptor is open until the other side has it. */
void tmsg_shared_close_fd(tmsg_shared_t *shared);

/* What neither of the two has made is nothing to be freed. */
void tmsg_shared_free(tmsg_shared_t *shared);

#endif
