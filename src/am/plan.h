/* SPDX-License-Identifier: BSD-3-Clause */
/* am/plan.h - how a map's payload is handed to UCX. */
#ifndef TMSG_AM_PLAN_H
#define TMSG_AM_PLAN_H

#include <stdbool.h>

#include <ucp/api/ucp.h>

#include <tensormsg/map.h>

#include "memory/pool.h"
#include "serialize/header.h"

/* What is to be moved. */
typedef struct {
    const tmsg_map_t *map;
    tmsg_body_extra_t *extra; /* of the body, or NULL */
    size_t spill; /* bytes of the body where it heads the payload, else 0 */
    uint8_t *checksums; /* where extra->checksum puts them, if it is set */
} tmsg_payload_t;

/* A payload as one piece or as a scatter list. All zero bits: empty. */
typedef struct {
    uint64_t bytes;
    const void *contiguous; /* with iov_count 0 */
    ucp_dt_iov_t *iov;
    size_t iov_count;
    tmsg_pool_block_t staging; /* gathered or packed tensors, a spilled body */
} tmsg_plan_t;

/* A way to move a payload. Adding one is a function and a line of the table in
 * plan.c, whose first entry that takes a payload makes the plan. */
typedef struct {
    const char *name;
    /* Whether it is good for `tensors` non-empty tensors of `bytes` in all, of
     * which `packed` bytes do not lie as they travel. */
    bool (*takes)(size_t tensors, uint64_t bytes, uint64_t packed);
    tmsg_status_t (*make)(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                          tmsg_plan_t *plan);
} tmsg_strategy_t;

/* The strategy for a payload: a pure function of its measures. */
const tmsg_strategy_t *tmsg_strategy_choose(size_t tensors, uint64_t bytes,
                                            uint64_t packed);

/* The bytes that a map's payload will have, headed by a spilled body of `spill`
 * bytes if any. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_plan_measure(const tmsg_map_t *map, size_t spill,
                                uint64_t *bytes_p);

/* Plans such a payload of plan->bytes; what has to be copied goes into memory
 * of the pool's. Writes the checksums. Errors: NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_plan_make(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan);
void tmsg_plan_free(tmsg_plan_t *plan, tmsg_pool_t *pool);

#endif
