/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.h - streams as Go holds them. */
#ifndef TENSORMSG_GO_STREAM_H
#define TENSORMSG_GO_STREAM_H

#include "hub.h"

enum { TMSGGO_STREAM_QUEUE = 64 }; /* messages that wait for the reader */

/* What a handler is given, with one more handle; NULL: no memory. */
tmsggo_stream_t *tmsggo_stream_keep(tmsg_call_stream_t *handle);
int tmsggo_stream_is_over(const tmsggo_stream_t *stream);
int tmsggo_stream_is_readable(const tmsggo_stream_t *stream);

/* Opens a stream. The map is lent: TMSGGO_LENT is a wait for its end. */
tmsggo_result_t tmsggo_stream_open(tmsg_endpoint_t *endpoint,
                                   const char *method, const tmsg_map_t *map,
                                   int timeout_ms, tmsggo_stream_t **stream_p);

/* As tmsggo_send(). It never waits: WOULD_BLOCK. */
tmsggo_sent_t tmsggo_stream_send(tmsggo_stream_t *stream, const tmsg_map_t *map,
                                 uint32_t flags, int timeout_ms);
tmsggo_result_t tmsggo_stream_finish(tmsggo_stream_t *stream);

/* As tmsggo_recv(). IN_PROGRESS: nothing is here. OK without a message: the
 * other side sends no more. By one goroutine at a time. */
tmsggo_received_t tmsggo_stream_recv(tmsggo_hub_t *hub, tmsggo_stream_t *stream,
                                     uint32_t spin_us, tmsggo_over_t *over);

/* How it ended, with the number and the details (NULL: none) that its server
 * gave. */
tmsggo_result_t tmsggo_stream_outcome(const tmsggo_stream_t *stream,
                                      int32_t *code_p,
                                      const tmsg_map_t **details_p);

/* At the opener, of one that failed: 0 where no handler saw it. */
int tmsggo_stream_may_have_run(const tmsggo_stream_t *stream);

/* At the server: the map that it was opened with, what is left of its time, and
 * its end. `details` (NULL: none) have memory of their own. */
tmsg_endpoint_t *tmsggo_stream_endpoint(const tmsggo_stream_t *stream);
const tmsg_map_t *tmsggo_stream_map(const tmsggo_stream_t *stream);
int tmsggo_stream_remaining_ms(const tmsggo_stream_t *stream);
void tmsggo_stream_end(tmsggo_stream_t *stream, tmsg_status_t status,
                       int32_t code, const char *words,
                       const tmsg_map_t *details);

void tmsggo_stream_cancel(tmsggo_stream_t *stream);
/* Ends the connection of the stream. */
void tmsggo_stream_abort(tmsggo_stream_t *stream, const char *words);

/* The waits for it are over, and nothing tells of it any more. No other call of
 * the worker may run meanwhile. */
void tmsggo_stream_leave(tmsggo_hub_t *hub, tmsggo_stream_t *stream);
/* After that, or after the worker is gone. Nothing may be lent to it. */
void tmsggo_stream_destroy(tmsggo_stream_t *stream);

#endif
