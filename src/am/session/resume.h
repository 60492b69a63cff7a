/* SPDX-License-Identifier: BSD-3-Clause */
/* am/session/resume.h - an endpoint that survives its connection.
 * docs/wire/connection.md has the rules.
 *
 * An endpoint that is OPEN or CLOSING becomes AWAY when the connection of its
 * session breaks: its socket is shut down, and its UCX endpoint is closed by
 * force. Once UCX has reported all operations, the endpoint gets its next
 * connection (CONNECTING). The dialling side dials. The dialled side takes over
 * the socket of a new connection that knows the session's id. The endpoint then
 * becomes OPEN, or AWAY again. */
#ifndef TMSG_AM_SESSION_RESUME_H
#define TMSG_AM_SESSION_RESUME_H

#include "am/endpoint/endpoint.h"
#include "am/send/send.h"

/* Asks for a session, before the first connection. `flags` are
 * TMSG_ENDPOINT_*. Errors: NO_MEMORY, INVALID_PARAM. */
tmsg_status_t tmsg_resume_request(tmsg_endpoint_t *endpoint,
                                  const tmsg_reconnect_t *params,
                                  uint32_t flags, int connect_timeout_ms);
void tmsg_resume_free(tmsg_endpoint_t *endpoint);

/* Fills in what this side's hello says of the session. */
void tmsg_resume_hello(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello);

/* Makes the session of an endpoint that takes the place of `old`, whose session
 * is over. `error` says why. Errors: NO_MEMORY. */
tmsg_status_t tmsg_resume_inherit(tmsg_endpoint_t *heir, tmsg_endpoint_t *old,
                                  const char *error);

/* Called when the endpoint is to end. Returns true if it is away instead.
 * Otherwise the endpoint ends with *status_p, which may have been changed. */
bool tmsg_resume_catches(tmsg_endpoint_t *endpoint, tmsg_status_t *status_p,
                         const char *why);

/* Ends the session for good, and tells the peer while the socket is still
 * there. */
void tmsg_resume_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                     const char *error);

/* Gives the session up at this side: if the endpoint is away, its next end is
 * final. */
void tmsg_resume_forgo(tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: lets an endpoint that is away get its next
 * connection, if it has nothing in UCX any more. */
void tmsg_resume_settled(tmsg_endpoint_t *endpoint);

/* Notes that the connection stands, for the first time or again. */
void tmsg_resume_opened(tmsg_endpoint_t *endpoint);

/* Notes that the peer refuses the connection. */
void tmsg_resume_refused(tmsg_endpoint_t *endpoint, tmsg_status_t status);

/* Examines the peer's hello. On the dialling side it may find that the session
 * cannot go on. On the dialled side a session may begin. Errors: PEER_LOST,
 * NO_MEMORY. */
tmsg_status_t tmsg_resume_recognize(tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs);
/* Sends the frame RESUME; called by the dialling side, which is asking from
 * then on. */
tmsg_status_t tmsg_resume_ask(tmsg_endpoint_t *endpoint);
/* These functions handle the frames RESUME and RESUMED. */
tmsg_status_t tmsg_resume_asked(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);
tmsg_status_t tmsg_resume_granted(tmsg_endpoint_t *endpoint,
                                  const uint8_t *data, size_t bytes);
/* Handles the RESUME that waits for its session, if there is one. Called as a
 * chore. */
void tmsg_resume_look(tmsg_endpoint_t *endpoint);

/* Ends the session that a connection asked for, because the connection ends as
 * malformed. */
void tmsg_resume_disown(tmsg_endpoint_t *connection, const char *why);

/* Encodes this side's state, as the frames carry it; see resume_state.c.
 * Errors: UNSUPPORTED (the state is too long). */
tmsg_status_t tmsg_resume_encode(tmsg_endpoint_t *endpoint, uint8_t *buffer,
                                 size_t capacity, size_t *bytes_p);
/* Compares the peer's state with ours. Errors: MALFORMED, NO_MEMORY. */
tmsg_status_t tmsg_resume_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);
/* Applies the peer's state, which was judged: ends the sends that it settles,
 * marks the others to be sent again, and skips the turns of messages that the
 * peer cannot send again. Errors: NO_MEMORY. */
tmsg_status_t tmsg_resume_apply(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);

#endif
