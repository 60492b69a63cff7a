/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/scatter.h - where the bytes of a payload go.
 *
 * The places are decided before any byte of the payload is taken. From then on
 * the data of each tensor of message->map is its place, and NULL only for
 * tensors without bytes. If a body is spilled into a rendezvous, its map is not
 * known before: its payload comes into the message's block, and is placed
 * there. */
#ifndef TMSG_AM_RECV_SCATTER_H
#define TMSG_AM_RECV_SCATTER_H

#include "am/recv/message.h"

/* Returns the bytes that tensors without a place take, as tmsg_payload_place()
 * lays them out. */
uint64_t tmsg_scatter_missing(const tmsg_map_t *map);

/* Places a payload that is in message->block as it travelled: copies the
 * tensors that were placed elsewhere, and leaves the others where they are. */
void tmsg_scatter_landed(tmsg_message_t *message);

/* Places the tensors of a loan where they lie, unless they were placed
 * elsewhere: those are copied. If all of them are, the loan is given back. */
void tmsg_scatter_loan(tmsg_message_t *message);

/* Lists the payload as pieces of memory, in the order of its bytes: a spilled
 * body, the tensors, and gaps that no other piece covers. Neighbours that lie
 * as in the payload are one piece. The message keeps the list. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_scatter_pieces(tmsg_message_t *message,
                                  const struct iovec **pieces_p,
                                  size_t *count_p);

/* Lists what travels in slices in the same way; the payload itself has no
 * tensor then. The message keeps either list until the next call of either
 * function, so a list of slices stays until the message ends. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_scatter_slices(tmsg_message_t *message,
                                  const struct iovec **pieces_p,
                                  size_t *count_p);

/* Copies a payload that has come, as it travelled, to the places of its
 * tensors. Errors: NO_MEMORY. */
tmsg_status_t tmsg_scatter_copy(tmsg_message_t *message, const void *payload);

#endif
