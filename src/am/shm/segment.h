/* SPDX-License-Identifier: BSD-3-Clause */
/* am/shm/segment.h - memory that two processes share. The process that makes it
 * tells the other a descriptor and a mark. By the mark the other knows that it
 * has found the right memory. The memory begins with the mark; the rest is zero
 * at first, and later the other side may write anything there.
 *
 * Memory that lost a page may be a signal where it is touched: the page must be
 * taken anew, and the machine may have none left. So each side, when it has
 * mapped the memory, seals it: then no page can be given back any more. It
 * takes those that were given back before, and only then touches the memory. */
#ifndef TMSG_AM_SHM_SEGMENT_H
#define TMSG_AM_SHM_SEGMENT_H

#include <stdbool.h>
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
    /* The other side has mapped the memory, too, and it may be touched. */
    bool settled;
    bool sealed; /* no page of it can be given back any more */
} tmsg_segment_t;

/* Says in words what it means that a settled segment is not sealed. */
extern const char tmsg_segment_unsealed[];

/* Says where memory of another process is found. */
typedef struct {
    bool passed;         /* the descriptor was passed to this process */
    int fd;              /* here if it was passed, else of process `pid` */
    pid_t pid;           /* not used if it was passed */
    const uint8_t *mark; /* TMSG_SEGMENT_MARK_BYTES */
} tmsg_segment_offer_t;

/* Creates the memory. Until it is settled only its creator may have touched it.
 * Errors: IO. */
tmsg_status_t tmsg_segment_create(tmsg_segment_t *segment, size_t bytes);

/* Seals memory that was created here, when the other side has mapped it, and
 * closes the descriptor. Errors: IO (the other side keeps pages from it). */
tmsg_status_t tmsg_segment_settle(tmsg_segment_t *segment);

/* Opens the memory of another process, and seals it. A descriptor that was
 * passed stays the caller's, and is not needed any more. Errors: IO (it cannot
 * be opened, is no such memory, or its pages are not to be had). */
tmsg_status_t tmsg_segment_open(tmsg_segment_t *segment, size_t bytes,
                                const tmsg_segment_offer_t *offer);

/* Closes the descriptor, which stays open until the other side has the
 * memory. */
void tmsg_segment_close_fd(tmsg_segment_t *segment);

/* Frees memory that tmsg_segment_create() or tmsg_segment_open() has made. Not
 * to be called for any other. */
void tmsg_segment_free(tmsg_segment_t *segment);

#endif
