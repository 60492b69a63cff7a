/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/stage_in.h - tensors that arrive for device memory.
 *
 * If a message has no such tensor, message->stage is NULL. Otherwise each
 * tensor has a destination. It is decided step by step: by the header, by the
 * application's choice, by the map that is received into, and finally by the
 * memory that there is. */
#ifndef TMSG_AM_RECV_STAGE_IN_H
#define TMSG_AM_RECV_STAGE_IN_H

#include "am/recv/message.h"
#include "am/staging/copy.h"
#include "am/worker/staging.h"

/* Decides which tensors of a decoded map stay on the device that they were sent
 * from, as far as there is such memory here. Errors: REFUSED (there is none,
 * and the policy is strict), UNSUPPORTED (there is none, and the context
 * requires a path), NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_stage_in_decoded(tmsg_message_t *message);

/* Puts tensor `index` on that device, as the application or the map that is
 * received into says. Makes message->stage. Errors: NO_MEMORY, LIMIT_EXCEEDED,
 * NOT_FOUND (no domain holds the device). */
tmsg_status_t tmsg_stage_in_choose(tmsg_message_t *message, size_t index,
                                   tmsg_device_t device, tmsg_stream_t stream);

/* Notes that the application gave memory for tensor `index`. It is host memory
 * unless a device was chosen for the tensor. */
void tmsg_stage_in_placed(tmsg_message_t *message, size_t index);

/* Finds device memory for each tensor that is to have it and has none. A tensor
 * that goes to the host after all gets no memory here. Called without the lock.
 * Errors: IN_PROGRESS (over the budget), REFUSED, UNSUPPORTED (a path is
 * required), LIMIT_EXCEEDED (fragments larger than the chunks), those of
 * allocators and domains. */
tmsg_status_t tmsg_stage_in_find(tmsg_message_t *message);

/* Returns what the stage has of held_bytes. The message's further memory must
 * fit beside that. */
uint64_t tmsg_stage_in_held(const tmsg_message_t *message);

/* Returns where the host bytes of tensor `index` go, which travels in the
 * message itself. */
uint8_t *tmsg_stage_in_host(const tmsg_message_t *message, size_t index);

/* Notes that the bytes of tensor `index` lie at `host` already, in the payload
 * as it travelled. Returns false if the tensor does not go to a device through
 * the host. */
bool tmsg_stage_in_lies(tmsg_message_t *message, size_t index, uint8_t *host);

/* Begins the transfer: all tensors have their memory, and fragments are fetched
 * as soon as it may be written. Lock held, as for all functions below. On error
 * nothing is begun. */
tmsg_status_t tmsg_stage_in_begin(tmsg_message_t *message);

/* Returns whether a fragment may be fetched now, and gets a chunk if the
 * fragment needs one. It needs one if UCX, or with `by_host` the CPU that
 * fetches it, cannot write the device's memory. */
bool tmsg_stage_in_has_room(tmsg_message_t *message, size_t index,
                            uint64_t bytes, bool by_host);

/* Returns whether UCX writes tensor `index` to the memory of its device. */
bool tmsg_stage_in_is_direct(const tmsg_message_t *message, size_t index);

/* Returns where a fragment is fetched to, and as which memory type UCX is to
 * treat that. Without a chunk tmsg_stage_in_returned() is called when the
 * fragment was fetched. */
uint8_t *tmsg_stage_in_target(tmsg_message_t *message, size_t index,
                              uint64_t offset, bool by_host, int *memory_type_p,
                              tmsg_chunk_t **chunk_p);
void tmsg_stage_in_returned(tmsg_message_t *message, size_t index,
                            tmsg_ucx_status_t ucs);

/* Returns whether nothing of the message is under way but to memory of a device
 * that has failed, which nobody writes any more. */
bool tmsg_stage_in_is_lost(const tmsg_message_t *message);

/* Copies a fragment of a message, with a stage or none, from device memory of
 * the sender's to its place. On error nothing is under way. */
tmsg_status_t tmsg_stage_in_copy_from(tmsg_message_t *message, size_t index,
                                      uint64_t offset,
                                      const tmsg_cma_in_t *place,
                                      uint64_t bytes, tmsg_copy_t *copy);

/* Copies a fragment from its chunk to its place. On error nothing is under way.
 */
tmsg_status_t tmsg_stage_in_copy(tmsg_message_t *message, size_t index,
                                 uint64_t offset, const tmsg_chunk_t *chunk,
                                 uint64_t bytes, tmsg_copy_t *copy);

/* Returns whether the data that came is still of use. */
bool tmsg_stage_in_is_wanted(const tmsg_message_t *message);

/* Refuses the message with tmsg_error_message(), if it is still wanted. */
void tmsg_stage_in_failed(tmsg_message_t *message, tmsg_status_t status);

/* Goes on once all that travelled is here. Returns true if the tensors of the
 * message itself are still to be copied, or checksums to be read;
 * tmsg_message_fetched() is called again then. */
bool tmsg_stage_in_copies(tmsg_message_t *message);

/* Returns whether a tensor's checksum was read back from its device, and the
 * checksum. The function is a tmsg_checksum_known_fn for a message. */
bool tmsg_stage_in_sum(const void *message, size_t index, uint64_t *value_p);

/* Stops waiting for streams, chunks and checksums. Copies that are under way go
 * on. */
void tmsg_stage_in_stop(tmsg_message_t *message);

/* Frees the stage, after tmsg_stage_in_stop(). Any thread. */
void tmsg_stage_in_free(tmsg_message_t *message);

/* Copies a tensor that lies on one device, or the host, to another, and waits
 * until that is done. Both may be touched at once. */
tmsg_status_t tmsg_stage_in_move(const tmsg_tensor_t *to,
                                 const tmsg_tensor_t *from, uint64_t bytes);

#endif
