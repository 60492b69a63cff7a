/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/posted.h - a map that the next message of an endpoint is received
 * into.
 *
 * The map is posted while tmsg_endpoint_recv_into() waits. It stays posted
 * while a message that has taken it is under way. If that message is given up,
 * the map stays until a callback has released it or the next call takes it up
 * again. A CALL's map belongs to the message from its beginning (calls.h). */
#ifndef TMSG_AM_RECV_POSTED_H
#define TMSG_AM_RECV_POSTED_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>

#include "am/worker/worker.h"

/* Lock held for all functions that do not say otherwise. */

/* Places those tensors of a message that the posted map has, if the message is
 * the next to be received and fits. A CALL has a map of its own, and must be
 * compatible with it. Errors: NO_MEMORY, LIMIT_EXCEEDED; INVALID_PARAM (a CALL
 * that does not fit its map). */
tmsg_status_t tmsg_posted_take(tmsg_message_t *message);

/* Returns whether the posted map lies in host memory and on_header need not be
 * asked. No other part of this room looks for the message's memory then. */
bool tmsg_posted_is_simple(const tmsg_message_t *message);

/* Returns whether a CALL that is copied into its map has to wait for streams
 * of the map first. If so, message->due is due again when they are done, or
 * with message->refusal. Called once, without the lock. */
bool tmsg_posted_awaits(tmsg_message_t *message);

/* Ends such waits of a face that is given back: the messages are due. Lock
 * held. */
void tmsg_posted_end_awaits(tmsg_endpoint_t *endpoint);

/* Without the lock: copies a whole CALL into its map, if it was not received
 * there directly. Errors: UNSUPPORTED (devices). */
tmsg_status_t tmsg_posted_finish(tmsg_message_t *message);

/* Any thread: checks whether a map may be posted. Errors: UNSUPPORTED, BUSY. */
tmsg_status_t tmsg_posted_check(const tmsg_map_t *map);

/* The steps of a receive into a map, for a caller that does not wait in it. The
 * endpoint is the handle's.
 *
 * tmsg_posted_post() posts a map. A map that an earlier call gave up and that
 * was not released yet makes room, and is *stale_p. Errors: INVALID_PARAM,
 * BUSY, UNSUPPORTED. */
tmsg_status_t tmsg_posted_post(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_map_t **stale_p);

/* Returns whether there is a message for the posted map, or never will be. */
bool tmsg_posted_is_settled(const tmsg_endpoint_t *endpoint);

/* Takes the message for a posted map, or, where `status` is an error, gives the
 * receive up. Device memory is written whatever its streams hold. The lock is
 * let go while the message is copied. A message that is not `wanted` may end
 * here, and *message_p stays as it is. *spent_p is a map to let go of. Errors:
 * those of tmsg_endpoint_recv_into(); there may be a *message_p all the same,
 * which is the caller's to destroy. CANCEL_PENDING: a message is under way into
 * the map, which stays posted. */
tmsg_status_t tmsg_posted_settle(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map, tmsg_status_t status,
                                 bool wanted, tmsg_message_t **message_p,
                                 const tmsg_map_t **spent_p);

/* Without the lock, because the release function is the application's: releases
 * a map, if it is not NULL. */
void tmsg_posted_let_go(const tmsg_map_t *map);

/* Gives the posted map to the message that took it, now that it is delivered.
 * Does nothing for other messages. */
void tmsg_posted_delivered(tmsg_message_t *message);

/* Takes the posted map back from a message that will never be delivered. Does
 * nothing while something may still write into the map. */
void tmsg_posted_return(tmsg_message_t *message);

#endif
