/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fetch_queue.h - messages that have arrived and are not fetched yet.
 * What one holds is released when it is delivered, so whoever has memory must
 * wait for nobody who has none. On a channel memory is taken in the order of
 * the numbers, but by what is delivered in any; and in that of their heads by
 * messages whose parts come by UCX, for in that order they find room in its
 * window. A message whose bytes are not to come soon takes none yet: it would
 * lie idle, and out of the processor's cache when it is written at last. Lock
 * held, all of it. */
#ifndef TMSG_AM_RECV_FETCH_QUEUE_H
#define TMSG_AM_RECV_FETCH_QUEUE_H

#include "am/recv/message.h"

/* Lists one that is to have memory, when all before it on its channel have
 * come. */
void tmsg_fetch_ask(tmsg_message_t *message);

/* Lists those of a channel that waited for what has come now. */
void tmsg_fetch_close_gap(tmsg_channel_t *channel);

/* Lists one that needs no memory, or has it: it goes before all that ask. */
void tmsg_fetch_go_on(tmsg_message_t *message);

/* Puts back one that found none: it asks again before all others. */
void tmsg_fetch_put_back(tmsg_message_t *message);

/* Takes one that waits from where it does. */
void tmsg_fetch_leave(tmsg_message_t *message);

/* Whether one that has just come will not be fetched at once. */
bool tmsg_fetch_is_late(const tmsg_message_t *message);

/* Gives those leave to ask that are not early any more. */
void tmsg_fetch_look(tmsg_worker_t *worker);

/* The next one, taken off; one that asks for memory with `may_ask`. NULL: none.
 */
tmsg_message_t *tmsg_fetch_next(tmsg_worker_t *worker, bool may_ask);

/* Whether there is something to be done, now. */
bool tmsg_fetch_is_due(tmsg_worker_t *worker);

/* All but those behind a gap. */
static inline size_t tmsg_fetch_count(const tmsg_worker_t *worker)
{
    const tmsg_fetch_queue_t *queue = &worker->fetch;

    return queue->first.count + queue->asking.count + queue->arrived.count +
           queue->early.count;
}

#endif
