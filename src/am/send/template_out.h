/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/template_out.h - sends messages by a template. */
#ifndef TMSG_AM_SEND_TEMPLATE_OUT_H
#define TMSG_AM_SEND_TEMPLATE_OUT_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/endpoint/template.h"
#include "am/send/send.h"

/* Makes the channel's template from a message that is prepared and sure to be
 * sent, if the next ones may repeat it. *payload says what was chosen for it.
 */
void tmsg_template_note_out(const tmsg_send_t *send,
                            const tmsg_payload_t *payload);

/* Sends a map at once by its channel's template, if the map fits it and may go
 * now. The effects are those of a tmsg_send_begin() that succeeds. For a call
 * `params` are not looked at. Returns false if nothing has happened. Lock held.
 */
bool tmsg_template_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                        const tmsg_send_params_t *params,
                        const tmsg_call_send_t *call,
                        tmsg_request_t **request_p);

/* Forgets the channel's template. Called when a schema of the channel is about
 * to change, and when the connection is gone. */
void tmsg_template_forget_out(tmsg_channel_t *channel);

/* Makes the worker forget the channels of an endpoint that leaves it, after its
 * last message. Lock held. */
void tmsg_template_leave(const tmsg_endpoint_t *endpoint);

/* Frees what the worker keeps for templates. Called when the worker ends,
 * before its memory budget. */
void tmsg_template_close(tmsg_worker_t *worker);

/* Frees the templates of a channel that ends, in both directions. Its
 * worker may have ended before. */
void tmsg_template_free(tmsg_channel_t *channel);

#endif
