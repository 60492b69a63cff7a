/* SPDX-License-Identifier: BSD-3-Clause */
/* am/session/resume.h - an endpoint that outlives its connection.
 * docs/connection.md has the rules.
 *
 * OPEN or CLOSING -> AWAY, when the connection of a session breaks: the socket
 * is shut and the UCX endpoint forced closed. Once UCX has reported all of it,
 * the dialling side dials (CONNECTING), and the dialled side takes the socket
 * of a new connection that knows the session's id (CONNECTING as well) -> OPEN,
 * or AWAY again. */
#ifndef TMSG_AM_SESSION_RESUME_H
#define TMSG_AM_SESSION_RESUME_H

#include "am/endpoint/endpoint.h"
#include "am/send/send.h"

/* Before the first connection. Errors: NO_MEMORY, INVALID_PARAM. */
tmsg_status_t tmsg_resume_request(tmsg_endpoint_t *endpoint,
                                  const tmsg_reconnect_t *params,
                                  int connect_timeout_ms);
void tmsg_resume_free(tmsg_endpoint_t *endpoint);

/* Fills in what our hello says of it. */
void tmsg_resume_hello(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);

/* The endpoint is to end. True: it is away instead. Else it ends with
 * *status_p, which may have been changed. */
bool tmsg_resume_catches(tmsg_endpoint_t *endpoint, tmsg_status_t *status_p,
                         const char *why);

/* It ends for good: its peer is told while the socket is still there. */
void tmsg_resume_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                     const char *error);

/* This side will not have it back: where it is away, the next end is one. */
void tmsg_resume_forgo(tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: where an endpoint is away and has nothing in UCX any
 * more, it may get its next connection. */
void tmsg_resume_settled(tmsg_endpoint_t *endpoint);

/* The connection stands, for the first time or again. */
void tmsg_resume_opened(tmsg_endpoint_t *endpoint);

/* The peer refuses the connection. */
void tmsg_resume_refused(tmsg_endpoint_t *endpoint, tmsg_status_t status);

/* The peer's hello has come. The dialling side may find that the session cannot
 * go on; on the dialled side one may begin. Errors: PEER_LOST, NO_MEMORY. */
tmsg_status_t tmsg_resume_recognize(tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs);
/* The dialling side: the frame RESUME. From there on it is asking. */
tmsg_status_t tmsg_resume_ask(tmsg_endpoint_t *endpoint);
/* The frames RESUME and RESUMED. */
tmsg_status_t tmsg_resume_asked(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);
tmsg_status_t tmsg_resume_granted(tmsg_endpoint_t *endpoint,
                                  const uint8_t *data, size_t bytes);
/* A chore: the RESUME that waits for its session, if any. */
void tmsg_resume_look(tmsg_endpoint_t *endpoint);

/* A connection ends as malformed: so does the session that it asked for. */
void tmsg_resume_disown(tmsg_endpoint_t *connection, const char *why);

/* Both sides' state, as the frames carry it: see resume_state.c. */
tmsg_status_t tmsg_resume_encode(tmsg_endpoint_t *endpoint, uint8_t *buffer,
                                 size_t capacity, size_t *bytes_p);
/* Compares the peer's with ours. Errors: MALFORMED, NO_MEMORY. */
tmsg_status_t tmsg_resume_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);
/* Ends the sends that it settles and marks the others; skips the turns of what
 * the peer cannot send again. It was judged. Errors: NO_MEMORY. */
tmsg_status_t tmsg_resume_apply(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);

#endif
