/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/stage_out.h - tensors of device memory on their way out.
 *
 * What the application's streams hold when a map is sent is waited for first.
 * Then UCX reads the memory itself, or it is copied, chunk by chunk, as parts:
 * while UCX has one the next is being copied. A send of host memory alone has
 * none of this: send->stage is NULL. */
#ifndef TMSG_AM_SEND_STAGE_OUT_H
#define TMSG_AM_SEND_STAGE_OUT_H

#include "am/endpoint/measures.h"
#include "am/send/send.h"
#include "serialize/split.h"

/* Lock held, all of these. */

/* In the send call, on its thread: records an event on each stream of the
 * map's. On error send->stage is NULL. Errors: NO_MEMORY, the drivers'. */
tmsg_status_t tmsg_stage_out_create(tmsg_send_t *send);
void tmsg_stage_out_free(tmsg_send_t *send); /* with nothing under way */

/* The endpoint stands: says which tensors UCX reads. Errors: UNSUPPORTED (what
 * only the CPU could do; a path that is required). */
tmsg_status_t tmsg_stage_out_check(tmsg_send_t *send);

/* Of one with checksums: those of device memory, which is read before it is
 * sent, go to payload->checksums. Errors: IN_PROGRESS (it is worth another try
 * when the endpoint has a chore), NO_MEMORY. */
tmsg_status_t tmsg_stage_out_sum(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload);

/* Whether they are not known yet. */
bool tmsg_stage_out_sums(const tmsg_send_t *send);

/* The largest part of a message, if its chunk would be `chunk`. */
uint64_t tmsg_stage_out_chunk(const tmsg_send_t *send, uint64_t chunk);

/* The parts begin, or begin anew; `split` lives as long as they do. */
void tmsg_stage_out_begin(tmsg_send_t *send, const tmsg_split_t *split);

/* Copies what there is room for; `must`: the others may wait for it, so that
 * there is always room for a chunk. */
void tmsg_stage_out_pump(tmsg_send_t *send, bool must);

/* Whether a part of tensor `index`, the next in order, can go to UCX. */
bool tmsg_stage_out_ready(const tmsg_send_t *send, size_t index);

/* Where that part is, and what UCX is to take it for. What it is in is held
 * (NULL: nothing is) until tmsg_stage_out_reported(). */
typedef struct tmsg_fill tmsg_fill_t;
const uint8_t *tmsg_stage_out_take(tmsg_send_t *send, size_t index,
                                   uint64_t offset, uint64_t bytes,
                                   int *memory_type_p, tmsg_fill_t **fill_p);
void tmsg_stage_out_reported(tmsg_send_t *send, tmsg_fill_t *fill);

/* No more is sent. */
void tmsg_stage_out_stop(tmsg_send_t *send);

/* Whether something is being copied still: the map's memory is read. */
bool tmsg_stage_out_copies(const tmsg_send_t *send);

#endif
