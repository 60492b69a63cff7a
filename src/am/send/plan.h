/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/plan.h - how a map's payload is handed to UCX. */
#ifndef TMSG_AM_SEND_PLAN_H
#define TMSG_AM_SEND_PLAN_H

#include <stdbool.h>

#include <tensormsg/map.h>

#include "am/endpoint/measures.h"
#include "am/send/method.h"
#include "am/worker/way.h"
#include "core/map.h"
#include "memory/pool.h"
#include "serialize/header.h"

/* `large`: tmsg_way_large(). Errors: LIMIT_EXCEEDED (bytes). */
tmsg_status_t tmsg_plan_measure(const tmsg_map_t *map, uint64_t large,
                                tmsg_measures_t *measures_p);

/* Sets bit i % 8 of byte i / 8 for each tensor i that cannot travel with the
 * others, for its memory is another. */
void tmsg_plan_name_foreign(const tmsg_map_t *map, uint8_t *bits);

/* Makes the plan of a payload that is not empty. Adding one is a function and
 * a line of the table in plan.c. */
typedef struct {
    const char *name;
    tmsg_status_t (*make)(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                          tmsg_plan_t *plan);
} tmsg_strategy_t;

const tmsg_strategy_t *tmsg_strategy_of(tmsg_way_t way);

/* Writes a tensor that does not lie as it travels to where it does, with its
 * name in what is wrong. */
tmsg_status_t tmsg_plan_pack(const tmsg_map_entry_t *entry, void *to);

/* "tensor 'x': its memory cannot be read": which of the map's is at `at`. */
void tmsg_plan_say_unreadable(const tmsg_map_t *map, const void *at, char *why,
                              size_t why_bytes);

/* A tensor is at `data` as it will lie in the payload: writes its checksum, if
 * there are to be any; that of device memory is there already. */
void tmsg_plan_note_checksum(const tmsg_payload_t *payload, size_t index,
                             const void *data, uint64_t bytes);

/* Has the plan lend UCX no memory of the map's: over TCP the kernel reads it in
 * the midst of UCX, and where it is gone by then UCX ends the connection, or
 * completes one operation twice (1.13 to 1.22), which ends the process. Not of
 * more than 16 MiB, which only peers are sent that take no parts. What fits
 * into payload->spare is copied there unasked: where it cannot be read the
 * process ends. Of a payload only these and its map are looked at. Errors: IO
 * (with the tensor that cannot be read), NO_MEMORY. */
tmsg_status_t tmsg_plan_own(tmsg_plan_t *plan, const tmsg_payload_t *payload,
                            tmsg_pool_t *pool);

/* The same of a piece: with count > 1 it is a list of so many struct iovec.
 * Gives where it could not be read, or NULL. */
const void *tmsg_plan_copy(const void *data, size_t count, uint64_t bytes,
                           void *to);

/* Plans a payload but for its parts: what has to be copied goes into memory of
 * the pool's, or into the spare. Writes the checksums. Errors: NO_MEMORY,
 * UNSUPPORTED. */
tmsg_status_t tmsg_plan_make(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan);
void tmsg_plan_free(tmsg_plan_t *plan, tmsg_pool_t *pool);

#endif
