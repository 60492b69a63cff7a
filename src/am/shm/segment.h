/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/segment.h - memory that two processes share. The process that makes it
 * tells the other a descriptor and a mark. By the mark the other knows that it
 * has found the right memory. The memory begins with the mark; the rest is zero
 * at first, and later the other side may write anything there. */
#ifndef TMSG_AM_SHM_SEGMENT_H
#define TMSG_AM_SHM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/status.h>

#define TMSG_SEGMENT_MARK_BYTES 16

typedef struct {
    uint8_t *memory; /* NULL: none */
    size_t bytes;
    int fd;    /* < 0: closed */
    pid_t pid; /* that mapped it; a child may have something else there */
} tmsg_segment_t;

/* Creates the memory. Errors: IO. */
tmsg_status_t tmsg_segment_create(tmsg_segment_t *segment, size_t bytes);

/* Opens the memory of another process, by its descriptor there. Errors: IO (it
 * cannot be opened, or is no such memory). */
tmsg_status_t tmsg_segment_open(tmsg_segment_t *segment, size_t bytes,
                                pid_t pid, int fd, const uint8_t *mark);

/* Closes the descriptor, which stays open until the other side has the
 * memory. */
void tmsg_segment_close_fd(tmsg_segment_t *segment);

/* Frees memory that tmsg_segment_create() or tmsg_segment_open() has made. Not
 * to be called for any other. */
void tmsg_segment_free(tmsg_segment_t *segment);

#endif
