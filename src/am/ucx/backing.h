/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/backing.h - the file system that UCX takes its shared memory from.
 *
 * A UCX worker writes some 4 MiB there when it opens. If they are not free, the
 * UCX worker is opened without shared memory. */
#ifndef TMSG_AM_UCX_BACKING_H
#define TMSG_AM_UCX_BACKING_H

#include <stddef.h>
#include <stdint.h>

#include "am/ucx/config.h"

#define TMSG_BACKING_BYTES 200

/* Names the reason why UCX gets no shared memory. */
typedef enum {
    TMSG_LACK_BYTES, /* too few bytes are free */
    TMSG_LACK_ALLOC, /* the user's variables make UCX take it from elsewhere */
    TMSG_LACK_OTHER, /* rights, inodes, or a limit of System V */
    TMSG_LACKS
} tmsg_lack_t;

/* Returns why UCX got no shared memory with these keys, as far as can be
 * told. */
tmsg_lack_t tmsg_backing_lack(const tmsg_ucx_keys_t *keys);

/* Returns a few words for the peers of a UCX worker that was opened without
 * shared memory. The text is constant. */
const char *tmsg_backing_apart(tmsg_lack_t lack);

/* Returns the folder: /dev/shm, or what UCX_POSIX_DIR names. */
const char *tmsg_backing_path(const tmsg_ucx_keys_t *keys);

/* The pool of segments that UCX receives into. Both fields count segments. */
typedef struct {
    uint64_t queued; /* in use while nothing is received */
    uint64_t grows;  /* added at a time */
} tmsg_backing_pool_t;

tmsg_backing_pool_t tmsg_backing_pool(const tmsg_ucx_keys_t *keys);

/* Returns how many bytes a UCX worker with these keys takes there when it opens
 * or grows, rounded up. 0: it takes nothing. */
uint64_t tmsg_backing_needs(const tmsg_ucx_keys_t *keys);

/* Returns whether as many bytes are free there as the keys need. */
bool tmsg_backing_suffices(const tmsg_ucx_keys_t *keys);

/* Writes how much is free there and how much is needed. If enough is free, it
 * writes why else UCX may get no shared memory. Returns `text`. */
const char *tmsg_backing_text(const tmsg_ucx_keys_t *keys, char *text,
                              size_t bytes);

#endif
