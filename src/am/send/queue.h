/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/queue.h - sends that wait for the connection or for credit. Lock
 * held, for all functions here except tmsg_queue_read(). */
#ifndef TMSG_AM_SEND_QUEUE_H
#define TMSG_AM_SEND_QUEUE_H

#include <cjson/cJSON.h>

#include "am/send/send.h"

/* Reads *params over *queue. Fields that are not set stay, and on an error
 * *queue is left as it was. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_queue_read(const tmsg_queue_params_t *params,
                              tmsg_queue_params_t *queue);

/* These bounds hold for queues for which nobody sets any. */
extern const tmsg_queue_params_t tmsg_queue_usual;

/* Queues a send that cannot go at once. If there is no room, the queue's policy
 * says what becomes of it. Returns IN_PROGRESS if the caller is to look again:
 * there is room now, or the endpoint has changed. Lets the lock go while it
 * blocks. Errors: BUSY, WOULD_BLOCK, TIMED_OUT, CLOSED. */
tmsg_status_t tmsg_queue_enter(tmsg_send_t *send);

/* Returns whether a send of that map would find room in the queue. */
bool tmsg_queue_takes(tmsg_endpoint_t *endpoint, const tmsg_map_t *map);

/* Queues a send whatever the bounds. Its queued_bytes are set. */
void tmsg_queue_push(tmsg_send_t *send);

/* Returns whether the window of its queue has a place for a send. */
bool tmsg_queue_lets_go(const tmsg_send_t *send);

/* tmsg_queue_went() has a send take its place in the window, if it needs one.
 * tmsg_queue_landed() gives the place back: the peer's application has the
 * message, or never will. */
void tmsg_queue_went(const tmsg_send_t *send);
void tmsg_queue_landed(tmsg_send_t *send);

/* tmsg_queue_pop() takes off the send that has waited longest on a channel.
 * tmsg_queue_remove() takes off a certain one. */
tmsg_send_t *tmsg_queue_pop(tmsg_channel_t *channel);
void tmsg_queue_remove(tmsg_send_t *send);

/* Hands over the sends that can go now. */
void tmsg_sends_flush(tmsg_endpoint_t *endpoint);

/* Adds what an endpoint's queue holds and did to `object`. Returns false
 * without memory. */
bool tmsg_queue_describe(cJSON *object, const tmsg_endpoint_t *endpoint);

#endif
