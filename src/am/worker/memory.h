/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/memory.h - whether a worker lacks memory for messages that came. */
#ifndef TMSG_AM_WORKER_MEMORY_H
#define TMSG_AM_WORKER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "am/worker/worker.h"

#define TMSG_STARVING_WORDS 200 /* bytes; the words fit */

/* Writes in words that a message waits for memory, with the figures. Lock held.
 */
void tmsg_worker_starving_words(const tmsg_worker_t *worker, char *words,
                                size_t room);

/* Returns whether a message waits for memory that other messages hold. Lock
 * held. Writes an explanation into `why`, or an empty text if no message waits.
 * `room` is the size of `why` in bytes and may be 0. */
bool tmsg_worker_is_starving(const tmsg_worker_t *worker, char *why,
                             size_t room);

/* Returns whether a message asks for memory, or is the next to ask. */
static inline bool tmsg_fetch_asks(const tmsg_worker_t *worker)
{
    const tmsg_list_t *in = worker->fetch.in;

    return in[TMSG_FETCH_ASKING].count + in[TMSG_FETCH_ARRIVED].count > 0;
}

#endif
