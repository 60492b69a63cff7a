/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/stage_out.h - tensors of device memory on their way out.
 *
 * A send first waits for what the application's streams hold when it begins.
 * Then UCX reads the memory itself, or the library copies it to the host, chunk
 * by chunk, as fragments: while UCX has one chunk the next is being copied. A
 * send of host memory alone has none of this: send->stage is NULL. */
#ifndef TMSG_AM_SEND_STAGE_OUT_H
#define TMSG_AM_SEND_STAGE_OUT_H

#include "am/endpoint/measures.h"
#include "am/send/send.h"
#include "serialize/split.h"

/* The lock is held in all of these functions. */

/* Records an event on each stream of the map's. Called in the send call, on its
 * thread. On error send->stage is NULL. Errors: NO_MEMORY, the drivers'. */
tmsg_status_t tmsg_stage_out_create(tmsg_send_t *send);
void tmsg_stage_out_free(tmsg_send_t *send); /* with nothing under way */

/* Returns whether a tensor is copied within its device before UCX moves it over
 * this open endpoint. */
bool tmsg_stage_out_detours(const tmsg_endpoint_t *endpoint,
                            const tmsg_map_entry_t *entry);

/* Finds out which way the tensors go, once the endpoint stands. Errors:
 * IN_PROGRESS (the peer has yet to open device memory; worth another try when
 * the endpoint has a chore), UNSUPPORTED (work that only the CPU could do; or a
 * path is required). */
tmsg_status_t tmsg_stage_out_check(tmsg_send_t *send);

/* Writes the checksums of device memory into payload->checksums, for a send
 * with checksums. That memory is read before the message is sent. Errors:
 * IN_PROGRESS (worth another try when the endpoint has a chore), NO_MEMORY. */
tmsg_status_t tmsg_stage_out_sum(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload);

/* Copies the small tensors to the host, if some are gathered, and says where in
 * payload->gathered; that is there until tmsg_stage_out_gathered(). Errors:
 * IN_PROGRESS (as above), NO_MEMORY, those of the driver. */
tmsg_status_t tmsg_stage_out_gather(const tmsg_send_t *send,
                                    tmsg_payload_t *payload);
void tmsg_stage_out_gathered(const tmsg_send_t *send);

/* Counts the tensors of a payload that is made. */
void tmsg_stage_out_note(const tmsg_send_t *send,
                         const tmsg_payload_t *payload);

/* Has the send fail in the next progress, with tmsg_error_message(). */
void tmsg_stage_out_fail(const tmsg_send_t *send, tmsg_status_t status);

/* Returns whether the send waits for checksums that are not known yet. */
bool tmsg_stage_out_sums(const tmsg_send_t *send);

/* Returns whether some of the map's device memory passes through the host's. */
bool tmsg_stage_out_stages(const tmsg_send_t *send);

/* Returns whether what UCX does not read goes by device memory that the peer
 * opens. */
bool tmsg_stage_out_is_ipc(const tmsg_send_t *send);

/* Returns whether some of that is copied into slots. */
bool tmsg_stage_out_has_slots(const tmsg_send_t *send);

/* Returns the largest fragment of a message whose chunk would be `chunk`
 * otherwise. */
uint64_t tmsg_stage_out_chunk(const tmsg_send_t *send, uint64_t chunk);

/* Begins the fragments, or begins them anew. `split` lives as long as they do.
 */
void tmsg_stage_out_begin(tmsg_send_t *send, const tmsg_split_t *split);

/* Copies the fragments that there is room for. `must`: other messages may wait
 * for this one, so that there is always room for one chunk of it. */
void tmsg_stage_out_pump(tmsg_send_t *send, bool must);

/* Returns whether a fragment of tensor `index`, the next in order, can go to
 * UCX. */
bool tmsg_stage_out_ready(const tmsg_send_t *send, size_t index);

/* Returns where that fragment is, and sets *memory_type_p if it is no host
 * tensor. *fill_p is the copy that the fragment lies in, or NULL. The copy is
 * held until tmsg_stage_out_reported(). */
typedef struct tmsg_fill tmsg_fill_t;
const uint8_t *tmsg_stage_out_take(tmsg_send_t *send, size_t index,
                                   uint64_t offset, uint64_t bytes,
                                   int *memory_type_p, tmsg_fill_t **fill_p);
void tmsg_stage_out_reported(tmsg_send_t *send, tmsg_fill_t *fill);

/* Returns whether UCX gets memory with that fragment which the CPU cannot read.
 * If so, tmsg_stage_out_returned() is called when UCX has reported. */
bool tmsg_stage_out_hands_over(tmsg_send_t *send, size_t index,
                               const tmsg_fill_t *fill);
void tmsg_stage_out_returned(tmsg_send_t *send);

/* Fails a send, and the connection: UCX did not read such a fragment. The peer
 * would wait for it, and UCX for what the peer has of it. May be inside UCX. */
void tmsg_stage_out_unread(tmsg_send_t *send, tmsg_ucx_status_t ucs);

/* Returns whether UCX has nothing of the send but memory of a device that has
 * failed, which nobody reads any more. */
bool tmsg_stage_out_is_lost(const tmsg_send_t *send);

/* Returns the memory that the peer copies a fragment of tensor `index` out of
 * (path/ipc.h), which lies in `fill` if that is not NULL. NULL: it does not. */
typedef struct tmsg_ipc_memory tmsg_ipc_memory_t;
const tmsg_ipc_memory_t *tmsg_stage_out_memory(const tmsg_send_t *send,
                                               size_t index,
                                               const tmsg_fill_t *fill);

/* Stops the copies: no more of the message is sent. */
void tmsg_stage_out_stop(tmsg_send_t *send);

/* Returns whether a copy is still under way, so that the map's memory is
 * read. */
bool tmsg_stage_out_copies(const tmsg_send_t *send);

#endif
