/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/move.h - sends that go by the endpoint which takes the place of
 * theirs. Lock held. */
#ifndef TMSG_AM_SEND_MOVE_H
#define TMSG_AM_SEND_MOVE_H

#include "am/send/send.h"

/* Gives the heir those sends that wait at the old endpoint, which has ended,
 * and mean nothing for its session: messages of the application and of
 * publishers, and requests of calls. The others stay, and end with it. Returns
 * how many went. */
size_t tmsg_sends_move(tmsg_endpoint_t *heir, tmsg_endpoint_t *old);

/* Gives the heir a send that is in no queue, and was never posted. It keeps its
 * message id. Errors: NO_MEMORY (nothing has happened). */
tmsg_status_t tmsg_send_move(tmsg_send_t *send, tmsg_endpoint_t *heir);

/* Returns how many messages of the application the peer has not answered. */
size_t tmsg_sends_unanswered(const tmsg_endpoint_t *endpoint);

#endif
