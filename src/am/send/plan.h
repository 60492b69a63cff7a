/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/plan.h - plans how a map's payload is handed to UCX. */
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

/* A plan of more bytes is not copied: see tmsg_plan_own(). */
#define TMSG_PLAN_OWN_MOST (16ULL << 20)

/* Measures a map. `large` is tmsg_way_large(), and `small` as in gather.h.
 * Errors: LIMIT_EXCEEDED (bytes). */
tmsg_status_t tmsg_plan_measure(const tmsg_map_t *map, uint64_t large,
                                uint64_t small, tmsg_measures_t *measures_p);

/* Sets bit i % 8 of byte i / 8 for each tensor i that cannot travel with the
 * others because its memory is not the host's, and it is not gathered. */
void tmsg_plan_name_foreign(const tmsg_map_t *map, uint64_t small,
                            uint8_t *bits);

/* A strategy makes the plan of a payload that is not empty. To add one, add its
 * function, and a line to tmsg_strategy_of() in plan.c. */
typedef struct {
    const char *name;
    tmsg_status_t (*make)(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                          tmsg_plan_t *plan);
} tmsg_strategy_t;

const tmsg_strategy_t *tmsg_strategy_of(tmsg_way_t way);

/* Packs a tensor that does not lie in memory as it travels into `to`. The error
 * names the tensor. */
tmsg_status_t tmsg_plan_pack(const tmsg_map_entry_t *entry, void *to);

/* Writes which tensor of the map has the unreadable memory at `at`: "tensor
 * 'x': its memory cannot be read". */
void tmsg_plan_say_unreadable(const tmsg_map_t *map, const void *at, char *why,
                              size_t why_bytes);

/* Writes the checksum of a tensor that is at `data` as it will lie in the
 * payload, if checksums are asked for. Device memory is left out: its checksums
 * are there already. */
void tmsg_plan_note_checksum(const tmsg_payload_t *payload, size_t index,
                             const void *data, uint64_t bytes);

/* Copies the plan's bytes, so that UCX is lent no memory of the map's. Over TCP
 * the kernel reads such memory inside UCX. If the memory is gone by then, UCX
 * ends the connection, or completes one operation twice (1.13 to 1.22), which
 * ends the process. Plans of more than 16 MiB are not copied: only peers that
 * take no fragments are sent them. A plan that fits into payload->spare is
 * copied there unchecked: memory that cannot be read then ends the process. Of
 * *payload only the spare and the map are read. Errors: IO (names the tensor
 * that cannot be read), NO_MEMORY. */
tmsg_status_t tmsg_plan_own(tmsg_plan_t *plan, const tmsg_payload_t *payload,
                            tmsg_pool_t *pool);

/* Copies `bytes` bytes to `to`, and survives memory that cannot be read. With
 * count > 1 `data` is a list of that many struct iovec. Returns the first
 * address that could not be read, or NULL. */
const void *tmsg_plan_copy(const void *data, size_t count, uint64_t bytes,
                           void *to);

/* Plans a payload without its fragments, and writes the checksums. Bytes that
 * have to be copied go into memory of the pool, or into the spare. Errors:
 * NO_MEMORY, UNSUPPORTED, and those of tmsg_plan_own(). */
tmsg_status_t tmsg_plan_make(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan);
/* Plans a payload that is a spilled body, or nothing. Errors: NO_MEMORY. */
tmsg_status_t tmsg_plan_body(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan);
void tmsg_plan_free(tmsg_plan_t *plan, tmsg_pool_t *pool);

#endif
