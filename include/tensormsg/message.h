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
 * belongs to whoever pulled it or got it in a handler. It lives until
 * tmsg_message_destroy(), which any thread may call, and outlives its endpoint,
 * worker and context. Its memory counts against held_bytes until then. */
typedef struct tmsg_message tmsg_message_t;

/* Returns the map. It may be read and sent on with tmsg_endpoint_send(), and
 * lives as long as the message. Tensor data may be written. They are aligned to
 * one element, at least to 16 bytes and at most to 64. A tensor whose strides
 * are not NULL lies as they say. Its dimensions may be in another order. If a
 * stride is 0, each element is there once for all places along that dimension,
 * so that the tensor has fewer bytes than tmsg_tensor_bytes().
 * tmsg_tensor_pack() copies any of them to C order. */
TMSG_API const tmsg_map_t *tmsg_message_map(const tmsg_message_t *message);

/* Returns 1 if tensors lie in memory of the sender, which lends it
 * (TMSG_SEND_LEND, TMSG_WORKER_BORROW); else 0. All tensors are lent except
 * those that the application placed and those on a device, which are copies.
 *
 * Do not write to lent tensors: that is a signal, and DLPack says READ_ONLY of
 * them. The sender promises not to change them while they are lent. They stay,
 * even if the sender dies, until the message is destroyed, which gives the
 * memory back. Keep such a message for a short time, or copy: the sender cannot
 * reuse the memory before. Its memory is not this side's, and does not count
 * against held_bytes. A receive into a map copies the message there, and gives
 * it back afterwards. */
TMSG_API int tmsg_message_is_lent(const tmsg_message_t *message);

/* Returns the endpoint that the message came over, to answer the sender. Valid
 * as long as the message, even if the application has destroyed its own handle:
 * sends on it then return CLOSED. */
TMSG_API tmsg_endpoint_t *tmsg_message_endpoint(const tmsg_message_t *message);

/* Returns the channel that it came on: 0 unless its sender chose another. */
TMSG_API uint16_t tmsg_message_channel(const tmsg_message_t *message);

/* Gives the header as it travelled, for tmsg_header_to_json() and for files:
 * the preamble and the body behind it, also if the body came at the head of the
 * payload. It describes the whole map, as a worker with TMSG_WORKER_CAPTURE
 * asks its peers to send repeated parts each time. *header_p lives as long as
 * the message.
 * Errors:
 *   NOT_FOUND - the worker was made without that flag */
TMSG_API tmsg_status_t tmsg_message_header(const tmsg_message_t *message,
                                           const void **header_p,
                                           size_t *header_bytes_p);

/* Gives the memory of tensor `index` back, for an application that keeps other
 * tensors of the message for long. Do not use its data any more. Whole pages of
 * memory that the library allocated go back to the system at once, those at the
 * ends with the tensor beside them, and no longer count against held_bytes.
 * Other memory stays until the message is destroyed: short tensors, long
 * payloads that came eagerly, memory of devices or of an allocator, and memory
 * that was placed. To give a tensor back twice is no error. By one thread at a
 * time.
 * Errors:
 *   NOT_FOUND - the index is out of range
 *   BUSY - the map is being sent, or a tensor of it is given out
 *   INVALID_PARAM - message is NULL
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_message_give_back(tmsg_message_t *message,
                                              size_t index);

/* Releases the map and all its tensors, once no send of the map is under way.
 * From any thread. NULL is allowed. */
TMSG_API void tmsg_message_destroy(tmsg_message_t *message);

#ifdef __cplusplus
}
#endif

#endif
