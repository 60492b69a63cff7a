/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/message.h - a map that has arrived, with its sender.
 *
 * A message comes from tmsg_worker_recv(), tmsg_endpoint_recv() or a worker's
 * handler, and belongs to who received it.
 *
 *     tmsg_worker_recv(worker, 1000, &message);
 *     received = tmsg_message_map(message);
 *     peer = tmsg_message_endpoint(message); // to answer
 *     tmsg_message_destroy(message);         // and its tensors
 */
#ifndef TENSORMSG_MESSAGE_H
#define TENSORMSG_MESSAGE_H

#include <stddef.h>

#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tmsg_endpoint tmsg_endpoint_t;

/* A received map with its sender. It is whole: every byte has arrived. It
 * belongs to whoever pulled it or was handed it, lives until
 * tmsg_message_destroy(), from any thread, and outlives its endpoint, worker
 * and context. Its memory counts against held_bytes until then. */
typedef struct tmsg_message tmsg_message_t;

/* The map: to read, to send on with tmsg_endpoint_send(), and to keep no longer
 * than the message. Tensor data is
 * writable, aligned to at least 16 bytes and to one element up to 64. A tensor
 * whose strides are not NULL lies as these say: in another order, or, where one
 * is 0, with each element once for all places along that dimension, so that
 * there are fewer bytes than tmsg_tensor_bytes(). tmsg_tensor_pack() copies any
 * of them to C order. */
TMSG_API const tmsg_map_t *tmsg_message_map(const tmsg_message_t *message);

/* Returns 1 if tensors lie in memory of the sender's that it lends
 * (TMSG_SEND_LEND, TMSG_WORKER_BORROW), else 0. They are all tensors but those
 * that the application placed, or that are on a device: these are copies. The
 * others must not be written to, which would be a signal; DLPack says READ_ONLY
 * of them. What they hold is the sender's promise: it may not change them while
 * they are lent. They stay as they are, even if the sender dies, until the
 * message is destroyed, which gives the memory back. Keep it short, or copy:
 * the sender cannot reuse the memory before. Such a message is no memory of
 * this side's, and does not count against held_bytes. A message that is
 * received into a map is copied there, and given back when all of it was. */
TMSG_API int tmsg_message_is_lent(const tmsg_message_t *message);

/* The endpoint it came over, to answer the sender. Valid as long as the
 * message is, even where the application has destroyed its own handle: then
 * sends on it answer CLOSED. */
TMSG_API tmsg_endpoint_t *tmsg_message_endpoint(const tmsg_message_t *message);

/* The channel it came on, 0 unless its sender asked for another. */
TMSG_API uint16_t tmsg_message_channel(const tmsg_message_t *message);

/* The header as it travelled, for tmsg_header_to_json() and for files: the
 * preamble and the body behind it, also where the body came at the head of the
 * payload. It says all of the map, for a worker with TMSG_WORKER_CAPTURE asks
 * its peers to send what repeats each time again. *header_p lives as long as
 * the message. Errors: NOT_FOUND (the worker was made without that flag). */
TMSG_API tmsg_status_t tmsg_message_header(const tmsg_message_t *message,
                                           const void **header_p,
                                           size_t *header_bytes_p);

/* Gives the memory of tensor `index` back, for who keeps others of the same
 * message for long. Its data must not be used any more. Whole pages of memory
 * that the library allocated go back to the system at once, those at its ends
 * with the tensor beside it, and no longer count against held_bytes. The rest
 * stays until the message is destroyed: short tensors, long payloads that came
 * eagerly, and memory of devices, of an allocator's, or that was placed. It is
 * no error to give a tensor back twice. By one thread at a time. Errors:
 * NOT_FOUND (index), BUSY (the map is being sent, or a tensor of it is given
 * out), INVALID_PARAM (NULL), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_message_give_back(tmsg_message_t *message,
                                              size_t index);

/* Releases the map and all its tensors, once no send of it is under way. From
 * any thread. NULL is allowed. */
TMSG_API void tmsg_message_destroy(tmsg_message_t *message);

#ifdef __cplusplus
}
#endif

#endif
