/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/place.h - where the tensors of a message are to lie.
 *
 * That is said before any byte of the payload is taken: from then on the data
 * of each tensor of message->map is its place, NULL only where it has no
 * bytes. Of a body that is spilled into a rendezvous nothing is known before:
 * its payload comes into the message's block and is placed there. */
#ifndef TMSG_AM_RECV_PLACE_H
#define TMSG_AM_RECV_PLACE_H

#include "am/recv/message.h"

/* Bytes that tensors without a place take, as tmsg_payload_place() lays them.
 */
uint64_t tmsg_place_missing(const tmsg_map_t *map);

/* Of a payload that is in message->block as it travelled: copies what was
 * placed elsewhere, and leaves the rest where it is. */
void tmsg_place_landed(tmsg_message_t *message);

/* The payload as pieces of memory, in the order of its bytes: a spilled body,
 * the tensors, the gaps between them where nothing else would take them in.
 * What lies as in the payload is one piece. Kept by the message. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_place_pieces(tmsg_message_t *message,
                                const struct iovec **pieces_p, size_t *count_p);

/* The same of what comes in slices; then the payload itself has no tensor. Both
 * are kept until the next call of either, so where there are slices until the
 * message's end. Errors: NO_MEMORY. */
tmsg_status_t tmsg_place_slices(tmsg_message_t *message,
                                const struct iovec **pieces_p, size_t *count_p);

/* Copies a payload that is here, as it travelled, to where its tensors belong.
 * Errors: NO_MEMORY. */
tmsg_status_t tmsg_place_copy(tmsg_message_t *message, const void *payload);

#endif
