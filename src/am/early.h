/* SPDX-License-Identifier: BSD-3-Clause */
/* am/early.h - messages that wait for those before them, to come or to have
 * their memory, before they ask for their own: it would lie idle meanwhile, and
 * out of the processor's cache when it is written at last. Lock held, all of
 * it. */
#ifndef TMSG_AM_EARLY_H
#define TMSG_AM_EARLY_H

#include "am/message.h"

/* Puts one that asks for memory among them, where it is too early. */
bool tmsg_early_keep(tmsg_message_t *message);

/* Whether one that has just come is to be among them. */
bool tmsg_early_is(const tmsg_message_t *message);

/* Moves those whose time has come to those that wait for memory, before what
 * came later, which may wait for what these are to have. */
void tmsg_early_look(tmsg_worker_t *worker);

/* Whether there is one to be moved. */
bool tmsg_early_is_due(tmsg_worker_t *worker);

/* Takes one that waits for memory, or for those before it, from the list that
 * has it. */
void tmsg_message_wait_no_more(tmsg_message_t *message);

#endif
