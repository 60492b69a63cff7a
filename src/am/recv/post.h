/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/post.h - a map that the next message of an endpoint is received into.
 *
 * It is there while tmsg_endpoint_recv_into() waits, and beyond that while a
 * message that has taken it is under way, and, where that is given up, until a
 * callback has let it go or the next call takes it up again. A CALL's map is
 * the message's from its beginning (calls.h). */
#ifndef TMSG_AM_RECV_POST_H
#define TMSG_AM_RECV_POST_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/worker/worker.h"

/* Lock held, all of these. */

/* Places what the map that is posted has of a message's tensors, if the message
 * is the next to be received and fits; a CALL has a map of its own, and is to
 * fit. Errors: NO_MEMORY, LIMIT_EXCEEDED; INVALID_PARAM (a CALL that does
 * not). */
tmsg_status_t tmsg_post_take(tmsg_message_t *message);

/* Whether there is memory for a message that another part of this room is not
 * to look for: of the host, and posted. */
bool tmsg_post_is_simple(const tmsg_message_t *message);

/* Without a lock: a CALL that was to be received into a map, and is whole, but
 * lies elsewhere is copied there. Errors: UNSUPPORTED, of devices. */
tmsg_status_t tmsg_post_finish(tmsg_message_t *message);

/* Any thread: whether a map may be posted. Errors: UNSUPPORTED, BUSY. */
tmsg_status_t tmsg_post_check(const tmsg_map_t *map);

/* A message that may have taken it is delivered, and has the map from now on.
 */
void tmsg_post_delivered(tmsg_message_t *message);

/* Or it never will be. Does nothing while something may write into it. */
void tmsg_post_return(tmsg_message_t *message);

#endif
