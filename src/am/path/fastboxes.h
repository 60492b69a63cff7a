/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/fastboxes.h - fast boxes carry small messages over shared memory,
 * past UCX: one fast box for the messages of this side, and one for the peer's.
 * Each side makes its own fast box when it has sent a few messages, and offers
 * it by an active message. The other side takes or refuses it; nothing waits
 * for that. The rules are docs/wire/connection.md, "Fast boxes". Lock held, for
 * all functions here.
 *
 * Messages by fast box and by UCX keep one order. A message in a fast box says
 * how many active messages of its connection went to UCX before it, and stays
 * there until as many have come. Before the receiver looks at an active
 * message, it takes all messages that were put into the fast box before that.
 */
#ifndef TMSG_AM_PATH_FASTBOXES_H
#define TMSG_AM_PATH_FASTBOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/shm/fastbox.h"
#include "core/list.h"

typedef struct tmsg_endpoint tmsg_endpoint_t;
typedef struct tmsg_ucx tmsg_ucx_t;
typedef struct tmsg_worker tmsg_worker_t;

/* Returns what describe() says of the fast box for messages to the peer:
 * "stands", "offered", or "none", perhaps with the reason. */
const char *tmsg_fastboxes_words(const tmsg_endpoint_t *endpoint);

/* Returns whether a message of these lengths is one for a fast box. */
bool tmsg_fastboxes_are_for(const tmsg_endpoint_t *endpoint,
                            size_t header_bytes, size_t payload_bytes);

/* Returns the fast box for such a message if it may go by that now, else NULL.
 * Makes and offers a fast box after some messages. */
tmsg_fastbox_t *tmsg_fastboxes_choose(tmsg_endpoint_t *endpoint);

/* Puts the message that was written into the fast box, and wakes its receiver
 * if that sleeps. */
void tmsg_fastboxes_put(tmsg_endpoint_t *endpoint, size_t payload_bytes);

/* Wakes the peers that nap on a fast box and to which UCX may have sent what it
 * had kept back. Called in progress, while worker->fastboxes_unreported is set.
 */
void tmsg_fastboxes_moved(tmsg_worker_t *worker);

/* tmsg_fastboxes_offered() takes or refuses the fast box that the peer tells
 * of. tmsg_fastboxes_answered() notes the peer's answer to this side's offer.
 */
void tmsg_fastboxes_offered(tmsg_endpoint_t *endpoint,
                            const tmsg_segment_offer_t *offer);
void tmsg_fastboxes_answered(tmsg_endpoint_t *endpoint, bool taken);

/* tmsg_fastboxes_next() gives the next message in the peer's fast box, which
 * stays there until tmsg_fastboxes_take(). Returns false if there is none, or
 * if UCX has yet to bring a message that goes before it. */
bool tmsg_fastboxes_next(tmsg_endpoint_t *endpoint,
                         tmsg_fastbox_message_t *fastboxed);
void tmsg_fastboxes_take(tmsg_endpoint_t *endpoint);

/* Returns whether that message is for the endpoint, which ends if it is not. */
bool tmsg_fastboxes_check(tmsg_endpoint_t *endpoint,
                          const tmsg_fastbox_message_t *fastboxed);

/* Notes on which core the peer runs, after messages were taken. */
void tmsg_fastboxes_note_core(const tmsg_endpoint_t *endpoint);

/* Tells the senders of all fast boxes that this side does not sleep any more.
 * Called in progress. */
void tmsg_fastboxes_wake(tmsg_worker_t *worker);

/* Returns the endpoint of a node of worker->fastboxes. */
tmsg_endpoint_t *tmsg_fastboxes_endpoint(tmsg_node_t *node);

/* tmsg_fastboxes_receiver() returns the endpoint that an active message is for,
 * and whose fast box comes before it; NULL: it is for none here.
 * tmsg_fastboxes_count() then counts the message, because the peer's next
 * message in the fast box says how many came before it. Both are called inside
 * UCX. */
tmsg_endpoint_t *tmsg_fastboxes_receiver(tmsg_ucx_t *ucx, const void *header,
                                         size_t bytes);
void tmsg_fastboxes_count(tmsg_endpoint_t *endpoint);

/* Asks the senders of all fast boxes to wake the worker, before it sleeps.
 * Returns false if something is to be done already. */
bool tmsg_fastboxes_arm(tmsg_worker_t *worker);

/* Returns whether nobody else wrote to either fast box; see fastbox.h. */
bool tmsg_fastboxes_are_intact(const tmsg_endpoint_t *endpoint);

/* Frees both fast boxes of a connection that is over. */
void tmsg_fastboxes_end(tmsg_endpoint_t *endpoint);

/* Returns whether UCX has nothing to do for the endpoints that have fast boxes.
 * A nap may begin only then, because UCX's events do not end it. */
bool tmsg_fastboxes_are_quiet(const tmsg_worker_t *worker);

#endif
