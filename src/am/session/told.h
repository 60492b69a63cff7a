/* SPDX-License-Identifier: BSD-3-Clause */
/* am/session/told.h - tells the application what becomes of a session. */
#ifndef TMSG_AM_SESSION_TOLD_H
#define TMSG_AM_SESSION_TOLD_H

#include "am/endpoint/endpoint.h"

/* Has on_session of the endpoint's face called, if there is one. Lock held. */
void tmsg_session_tell(tmsg_endpoint_t *endpoint, tmsg_session_event_t event,
                       const char *words);

#endif
