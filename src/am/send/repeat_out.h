/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/repeat_out.h - messages that are sent and are like the last one. */
#ifndef TMSG_AM_SEND_REPEAT_OUT_H
#define TMSG_AM_SEND_REPEAT_OUT_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/endpoint/repeat.h"
#include "am/send/send.h"

/* A message is prepared, and sure to be sent: may it be repeated? What
 * was chosen for it is in *payload. */
void tmsg_repeat_note_out(const tmsg_send_t *send,
                          const tmsg_payload_t *payload);

/* Sends a map, if that repeats a message and can be sent at once: as
 * tmsg_send_begin(), of which nothing has failed then; `params` are not looked
 * at where it is a call. False: nothing has happened. Lock held. */
bool tmsg_repeat_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                      const tmsg_send_params_t *params,
                      const tmsg_call_send_t *call, tmsg_request_t **request_p);

/* A schema of the channel is about to be another, or the connection is gone. */
void tmsg_repeat_forget_out(tmsg_channel_t *channel);

/* An endpoint leaves its worker, after its last message. Lock held. */
void tmsg_repeat_leave(const tmsg_endpoint_t *endpoint);

/* The worker ends, before its store. */
void tmsg_repeat_close(tmsg_worker_t *worker);

/* The channel ends, its worker may have before. */
void tmsg_repeat_free(tmsg_channel_t *channel);

#endif
