/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/backing.h - the file system that UCX takes its shared memory from.
 *
 * A worker of UCX's writes some 4 MiB there when it opens. Where they are not
 * free it is opened without shared memory. */
#ifndef TMSG_AM_UCX_BACKING_H
#define TMSG_AM_UCX_BACKING_H

#include <stddef.h>
#include <stdint.h>

#include "am/ucx/ucx_config.h"

#define TMSG_BACKING_BYTES 200

/* Why UCX gets none. */
typedef enum {
    TMSG_LACK_BYTES, /* too few are free */
    TMSG_LACK_ALLOC, /* the user's variables say where to take it from */
    TMSG_LACK_OTHER, /* rights, inodes, a limit of System V's */
    TMSG_LACKS
} tmsg_lack_t;

/* As far as can be told, of keys that UCX got none with. */
tmsg_lack_t tmsg_backing_lack(const tmsg_ucx_keys_t *keys);

/* In a few words, which last, for the peers of a worker that was opened
 * without. */
const char *tmsg_backing_apart(tmsg_lack_t lack);

/* /dev/shm, or what UCX_POSIX_DIR names. */
const char *tmsg_backing_path(const tmsg_ucx_keys_t *keys);

/* The pool of segments that UCX receives into. */
typedef struct {
    uint64_t queued; /* in use while nothing is received */
    uint64_t grows;  /* segments at a time */
} tmsg_backing_pool_t;

tmsg_backing_pool_t tmsg_backing_pool(const tmsg_ucx_keys_t *keys);

/* What a worker with these keys takes there when it opens or grows, rounded up;
 * 0: nothing. */
uint64_t tmsg_backing_needs(const tmsg_ucx_keys_t *keys);

/* Whether that is free. */
bool tmsg_backing_suffices(const tmsg_ucx_keys_t *keys);

/* Writes what is free there and what is needed, or what else it may be that UCX
 * gets none. Returns `text`. */
const char *tmsg_backing_text(const tmsg_ucx_keys_t *keys, char *text,
                              size_t bytes);

#endif
