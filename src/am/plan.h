/* SPDX-License-Identifier: BSD-3-Clause */
/* am/plan.h - how a map's payload is handed to UCX. */
#ifndef TMSG_AM_PLAN_H
#define TMSG_AM_PLAN_H

#include <stdbool.h>

#include <ucp/api/ucp.h>

#include <tensormsg/map.h>

#include "memory/pool.h"
#include "serialize/header.h"

/* What a map's layout amounts to, which stays while the map's stamp does. */
typedef struct {
    uint64_t stamp;
    uint64_t bytes;  /* of the tensors, with the gaps between them */
    uint64_t packed; /* of tensors that do not lie as they travel */
    size_t tensors;  /* that are not empty */
} tmsg_measures_t;

/* Errors: LIMIT_EXCEEDED (bytes). */
tmsg_status_t tmsg_plan_measure(const tmsg_map_t *map,
                                tmsg_measures_t *measures_p);

/* What is to be moved. */
typedef struct {
    const tmsg_map_t *map;
    const tmsg_measures_t *measures;
    tmsg_body_extra_t *extra; /* of the body, or NULL */
    size_t spill; /* bytes of the body where it heads the payload, else 0 */
    uint8_t *checksums; /* where extra->checksum puts them, if it is set */
    void *spare;        /* memory for what is gathered, where it is enough */
    size_t spare_bytes;
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

/* Plans a payload: what has to be copied goes into memory of the pool's, or
 * into the spare. Writes the checksums. Errors: NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_plan_make(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan);
void tmsg_plan_free(tmsg_plan_t *plan, tmsg_pool_t *pool);

#endif
