/* SPDX-License-Identifier: BSD-3-Clause */
/* am/session/heir.h - an endpoint takes the place of one whose session is over.
 *
 * Nothing of a session's state is reset. The old endpoint ends as any other,
 * and another one connects in its place: its heir. The application keeps the
 * handle that it has, of the first of them, the face. What is the handle's own
 * stays at the face: the application's word and callbacks, and the messages
 * that wait to be pulled. Functions that take a handle begin with
 * tmsg_endpoint_now(); what gives an endpoint to the application gives the
 * face. */
#ifndef TMSG_AM_SESSION_HEIR_H
#define TMSG_AM_SESSION_HEIR_H

#include "am/endpoint/endpoint.h"

/* Makes the heir of an endpoint that ends with `status`. It waits until UCX has
 * nothing of the old endpoint any more, and connects. Returns NULL if the end
 * is the handle's, too: nobody wants another session, or there is no memory for
 * one. Lock held. */
tmsg_endpoint_t *tmsg_heir_create(tmsg_endpoint_t *old, tmsg_status_t status,
                                  const char *error);

/* Has the heir stand for the handle in the old endpoint's place. If that is not
 * the face, it is let go of in a callback, when whoever ends it no longer uses
 * it. Lock held. */
void tmsg_heir_succeed(tmsg_endpoint_t *heir, tmsg_endpoint_t *old);

#endif
