/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/map_await.h - waits for the streams of a map that a message is copied
 * into: device memory is written when the work is done that its stream held
 * before. Nobody stands still for that, as the work may itself wait for a
 * message. */
#ifndef TMSG_AM_RECV_MAP_AWAIT_H
#define TMSG_AM_RECV_MAP_AWAIT_H

#include "am/worker/worker.h"
#include "core/map.h"

typedef struct tmsg_map_await tmsg_map_await_t;

/* Lock held, for all functions here.
 *
 * Records an event on each stream of `ours` whose tensor `theirs` has, too.
 * *await_p is NULL if there is no such stream. over(arg), if it is not NULL, is
 * called by the worker's progress when all are done, or one has failed. Errors:
 * NO_MEMORY, INVALID_PARAM (memory without streams), the drivers'. */
tmsg_status_t tmsg_map_await_begin(tmsg_worker_t *worker,
                                   const tmsg_map_t *theirs,
                                   const tmsg_map_t *ours,
                                   void (*over)(void *arg), void *arg,
                                   tmsg_map_await_t **await_p);

bool tmsg_map_await_is_over(const tmsg_map_await_t *await);

/* Ends the wait, and frees it. Returns, with its words, the error of a stream
 * that has failed. NULL is ended, too. */
tmsg_status_t tmsg_map_await_end(tmsg_map_await_t *await);

#endif
