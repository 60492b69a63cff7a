/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/stage_in.h - tensors that come to device memory.
 *
 * A message without any has none of this: message->stage is NULL. Else each of
 * its tensors has a destination, decided step by step: by the header, by the
 * application's word, by the map that is received into, and at last by what
 * memory there is. */
#ifndef TMSG_AM_RECV_STAGE_IN_H
#define TMSG_AM_RECV_STAGE_IN_H

#include "am/recv/message.h"
#include "am/staging/stage.h"
#include "am/worker/staging.h"

/* The map was decoded: says which tensors stay on the device that they were
 * sent from, as far as there is such memory here. Errors: REFUSED (there is
 * none, and the policy is strict), NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_stage_in_decoded(tmsg_message_t *message);

/* The application's word, or that of the map that is received into: tensor
 * `index` lies on that device. Makes message->stage. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED, NOT_FOUND (no domain holds the device). */
tmsg_status_t tmsg_stage_in_choose(tmsg_message_t *message, size_t index,
                                   tmsg_device_t device, tmsg_stream_t stream);

/* Memory was given for tensor `index`, which is the host's unless a device was
 * chosen for it. */
void tmsg_stage_in_placed(tmsg_message_t *message, size_t index);

/* Finds memory for what has none and is to have a device's; what comes to the
 * host after all has none then. No lock held. Errors: IN_PROGRESS (over the
 * budget), REFUSED, those of allocators and domains. */
tmsg_status_t tmsg_stage_in_find(tmsg_message_t *message);

/* What it has of held_bytes: what the message needs beside that must fit. */
uint64_t tmsg_stage_in_held(const tmsg_message_t *message);

/* Where UCX, or we, put tensor `index` that travels in the message itself. */
uint8_t *tmsg_stage_in_host(const tmsg_message_t *message, size_t index);

/* It is there already: in the payload as it travelled. False: it is no
 * device's. */
bool tmsg_stage_in_lies(tmsg_message_t *message, size_t index, uint8_t *host);

/* All tensors have their memory: parts are fetched as soon as that may be
 * written. Lock held, as with all that follow. On error nothing is. */
tmsg_status_t tmsg_stage_in_begin(tmsg_message_t *message);

/* Whether a part may be fetched now, for which there is a chunk if it needs
 * one: it does if UCX, or whoever fetches it (`by_host`), cannot write the
 * device's memory. */
bool tmsg_stage_in_has_room(tmsg_message_t *message, size_t index,
                            uint64_t bytes, bool by_host);

/* Where a part is fetched to, and what UCX is to take it for. */
uint8_t *tmsg_stage_in_target(tmsg_message_t *message, size_t index,
                              uint64_t offset, bool by_host, int *memory_type_p,
                              tmsg_chunk_t **chunk_p);

/* Copies it on to its place. On error nothing is under way. */
tmsg_status_t tmsg_stage_in_copy(tmsg_message_t *message, size_t index,
                                 uint64_t offset, const tmsg_chunk_t *chunk,
                                 uint64_t bytes, tmsg_copy_t *copy);

/* Whether what has come of it is of any use yet. */
bool tmsg_stage_in_is_wanted(const tmsg_message_t *message);

/* Refuses it, where it is wanted, for what tmsg_error_message() says. */
void tmsg_stage_in_failed(tmsg_message_t *message, tmsg_status_t status);

/* All that travelled is here. True: what the message itself brought is still
 * to be copied, or checksums to be read; tmsg_message_fetched() is called
 * again. */
bool tmsg_stage_in_copies(tmsg_message_t *message);

/* As tmsg_checksum_known_fn, of a message. */
bool tmsg_stage_in_sum(const void *message, size_t index, uint64_t *value_p);

/* Nothing is waited for any more; copies under way go on. */
void tmsg_stage_in_stop(tmsg_message_t *message);

/* From any thread, after that. */
void tmsg_stage_in_free(tmsg_message_t *message);

/* Waits: copies a tensor that lies on one device, or the host, to another. */
tmsg_status_t tmsg_stage_in_move(const tmsg_tensor_t *to, tmsg_stream_t stream,
                                 const tmsg_tensor_t *from, uint64_t bytes);

#endif
