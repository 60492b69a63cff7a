/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fetch_queue.h - messages that have arrived and are not fetched yet.
 *
 * A message releases its memory only after its delivery. So a message that has
 * memory must never wait for one that has none.
 *
 * - The ordered messages of a channel take memory in the order of their
 *   numbers. Messages that may overtake do not wait for that.
 *
 * - Messages whose fragments come by UCX take memory in the order of their
 *   heads: in that order the fragments find room in UCX's window.
 *
 * - A message whose bytes do not come soon takes no memory yet ("early"). Its
 *   memory would lie idle, and would have left the processor's cache when it is
 *   written.
 *
 * Early messages lie in the order of their turns in a list of their channel,
 * unless they may overtake, and those that fill UCX's window also in one of
 * their endpoint. A look at what is early no more asks the first of each list
 * alone. So its time grows with the channels that have early messages, and not
 * with these. Each message that is early no more costs one such look.
 *
 * The states of a message (tmsg_fetch_state_t):
 *
 *      comes ---------> ARRIVED ----------------------------+
 *        |                 | early                          |
 *        v                 v                                v
 *      GAPPED ---------> EARLY ---------> ASKING -------> fetched
 *             gap closed       not early  ^   |             ^
 *             any more                    +---+             |
 *                                    no memory              |
 *      any, needs no memory or has it ---> READY -----------+
 *
 * Lock held, for all functions. */
#ifndef TMSG_AM_RECV_FETCH_QUEUE_H
#define TMSG_AM_RECV_FETCH_QUEUE_H

#include "am/recv/message.h"

/* Lists a message that is to have memory as soon as all earlier ones of its
 * channel have come. */
void tmsg_fetch_ask(tmsg_message_t *message);

/* Makes those messages of a channel early that waited for the one that came
 * now. */
void tmsg_fetch_close_gap(tmsg_channel_t *channel);

/* Lists a message that needs no memory, or has it. It goes before all that ask.
 */
void tmsg_fetch_go_on(tmsg_message_t *message);

/* Puts back a message that found no memory. It asks again before all others. */
void tmsg_fetch_put_back(tmsg_message_t *message);

/* Takes a message that waits out of the queue. */
void tmsg_fetch_leave(tmsg_message_t *message);

/* Returns whether a message that has just come will not be fetched at once. */
bool tmsg_fetch_is_late(const tmsg_message_t *message);

/* Lets those messages ask for memory that are not early any more. */
void tmsg_fetch_look(tmsg_worker_t *worker);

/* Takes the next message out of the queue and returns it, or NULL if there is
 * none.
 * Only with `may_ask` does it return one that asks for memory. */
tmsg_message_t *tmsg_fetch_next(tmsg_worker_t *worker, bool may_ask);

/* Returns whether there is something to do now. */
bool tmsg_fetch_is_due(tmsg_worker_t *worker);

/* Returns how many messages wait, without those behind a gap. */
static inline size_t tmsg_fetch_count(const tmsg_worker_t *worker)
{
    const tmsg_list_t *in = worker->fetch.in;

    return in[TMSG_FETCH_READY].count + in[TMSG_FETCH_ASKING].count +
           in[TMSG_FETCH_ARRIVED].count + in[TMSG_FETCH_EARLY].count;
}

/* tmsg_fetch_starves() notes that a message began to wait for memory.
 * tmsg_fetch_starving_ns() returns for how long messages have done so, one
 * after the other, and none has got any; 0: no message waits for memory. */
void tmsg_fetch_starves(tmsg_worker_t *worker);
uint64_t tmsg_fetch_starving_ns(const tmsg_worker_t *worker);

#endif
