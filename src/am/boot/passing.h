/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/passing.h - the descriptors that pass with the frames of a Unix
 * socket: those that wait for their frame to go, and those that came.
 * docs/wire/bootstrap.md, "Descriptors", has the rules. The bytes of either
 * direction are counted from 0, and these numbers tell which frame a descriptor
 * belongs to. */
#ifndef TMSG_AM_BOOT_PASSING_H
#define TMSG_AM_BOOT_PASSING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/status.h>

/* What stands for a descriptor where there is none. */
#define TMSG_FRAME_FD_NONE (-1) /* none came with the frame */
#define TMSG_FRAME_FD_LOST                                                     \
    (-2) /* one came that this process could not take                          \
          */

#define TMSG_PASSING_MOST 64 /* descriptors that may wait to go */

typedef struct {
    uint64_t first; /* bytes of its frame; of one that came, where it came */
    uint64_t last;
    int fd; /* or TMSG_FRAME_FD_LOST */
} tmsg_passed_t;

typedef struct {
    tmsg_status_t wrong;    /* the error of a descriptor that may not come */
    uint64_t takes;         /* bit n: a frame of type n may have one */
    tmsg_passed_t came[2];  /* of frames that are not whole yet, or not read */
    unsigned came_count;    /* of those */
    int fd;                 /* of the frame that was read last */
    tmsg_passed_t *leaving; /* NULL: none */
    unsigned leaving_count; /* of those */
} tmsg_passing_t;

void tmsg_passing_init(tmsg_passing_t *passing);

/* Moves all descriptors to one that has none. */
void tmsg_passing_move(tmsg_passing_t *to, tmsg_passing_t *from);

/* Closes all descriptors, or those that came, or that of the latest frame. */
void tmsg_passing_close(tmsg_passing_t *passing);
void tmsg_passing_close_came(tmsg_passing_t *passing);
void tmsg_passing_close_fd(tmsg_passing_t *passing);

/* Keeps a duplicate of a descriptor for a frame of so many bytes. Errors: BUSY
 * (TMSG_PASSING_MOST wait), NO_MEMORY, IO and LIMIT_EXCEEDED (no duplicate). */
tmsg_status_t tmsg_passing_keep(tmsg_passing_t *passing, int fd, uint64_t first,
                                size_t bytes);

/* Writes some of the bytes that wait, the first of which has the number
 * `first`, and the descriptor of the frame that begins there, if it has one. If
 * the kernel does not let that pass, it is closed, and the errno is EINTR: call
 * again. Otherwise this returns what send() does. */
ssize_t tmsg_passing_write(tmsg_passing_t *passing, int sock, void *data,
                           size_t bytes, uint64_t first);

/* Reads bytes, the first of which gets the number `first`, and keeps the
 * descriptor that comes with them. Returns what recv() does. *status_p is
 * passing->wrong if descriptors came that may not, which are closed; else OK.
 */
ssize_t tmsg_passing_read(tmsg_passing_t *passing, int sock, void *data,
                          size_t bytes, uint64_t first,
                          tmsg_status_t *status_p);

/* Takes and drops what lies in a socket that is about to be closed, if
 * descriptors may lie there: the kernel would wait for their close. */
void tmsg_passing_drain(tmsg_passing_t *passing, int sock);

/* Makes the descriptor that came with a frame passing->fd. The frame is of that
 * type, and is the next, up to the byte before number `end`. Errors:
 * passing->wrong (it may have none, or several came). */
tmsg_status_t tmsg_passing_give(tmsg_passing_t *passing, uint8_t type,
                                uint64_t end);

#endif
