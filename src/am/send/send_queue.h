/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/send_queue.h - sends that wait for the connection or for credit. */
#ifndef TMSG_AM_SEND_SEND_QUEUE_H
#define TMSG_AM_SEND_SEND_QUEUE_H

#include <cjson/cJSON.h>

#include "am/send/send.h"

/* Reads *params over *queue, which is left as it was on an error: fields that
 * are not set stay. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_queue_read(const tmsg_queue_params_t *params,
                              tmsg_queue_params_t *queue);

/* What holds where nobody says otherwise. */
extern const tmsg_queue_params_t tmsg_queue_usual;

/* A send that cannot go at once: it waits, or the policy says what becomes of
 * it. IN_PROGRESS: there was no room and there is now, or the endpoint has
 * changed; look again. Lets the lock go while it blocks. Errors: BUSY,
 * WOULD_BLOCK, TIMED_OUT, CLOSED. */
tmsg_status_t tmsg_queue_enter(tmsg_send_t *send);

/* Takes off the one of a channel that has waited longest; a certain one. */
tmsg_send_t *tmsg_queue_pop(tmsg_channel_t *channel);
void tmsg_queue_remove(tmsg_send_t *send);

/* Hands over what can go now. */
void tmsg_sends_flush(tmsg_endpoint_t *endpoint);

/* Adds what an endpoint's queue holds and did. False: no memory. */
bool tmsg_queue_describe(cJSON *object, const tmsg_endpoint_t *endpoint);

#endif
