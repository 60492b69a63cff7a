/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/shared_plan.h - what the sends of one map to several peers have in
 * common.
 *
 * The first of these sends makes the payload (gathered, packed or listed), its
 * checksums, and what the bodies say of tensors and metadata. The rest of a
 * header is each peer's own, because it has that peer's numbers. */
#ifndef TMSG_AM_SEND_SHARED_PLAN_H
#define TMSG_AM_SEND_SHARED_PLAN_H

#include "am/endpoint/measures.h"
#include "am/send/broadcast.h"
#include "am/send/plan.h"

#define TMSG_SHARED_PLAN_SMALL 576

/* Counts the messages of a publisher that were lent, and those that were to be
 * lent and were not. */
typedef struct {
    uint64_t lent, not_lent;
    char why[160]; /* the last one was not; "": it was */
} tmsg_lend_counts_t;

/* Holds what the sends share. References are counted under the worker's
 * lock. */
typedef struct {
    unsigned refs;
    const tmsg_map_t *made; /* the map that the plan is of; NULL: no plan yet */
    tmsg_way_t way;         /* the plan's, as are `large` and `owned` */
    uint64_t large;
    bool owned;
    tmsg_plan_t plan;
    uint8_t *checksums; /* NULL: nobody wanted any */
    tmsg_body_shared_t body;
    tmsg_written_t written; /* for peers that take no broadcast tensors */
    /* What the tensors lie in that are lent; NULL: none are. */
    struct tmsg_lending *lending;
    uint64_t group;                  /* the number of the publisher, above 0 */
    tmsg_lend_counts_t *lend_counts; /* NULL: nobody counts */
    tmsg_map_t *kept; /* for peers that take spans, if that is asked */
    uint8_t small[TMSG_SHARED_PLAN_SMALL];
} tmsg_shared_plan_t;

/* Creates a shared plan with one reference; NULL without memory. Lock held, as
 * for all functions here. */
tmsg_shared_plan_t *tmsg_shared_plan_create(void);
void tmsg_shared_plan_hold(tmsg_shared_plan_t *shared_plan);
void tmsg_shared_plan_drop(tmsg_shared_plan_t *shared_plan, tmsg_pool_t *pool);

/* Lets go of what is lent: no send of these goes on. A further send lends anew.
 */
void tmsg_shared_plan_unlend(tmsg_shared_plan_t *shared_plan);

/* Plans a payload as tmsg_plan_make() does. What *plan points to belongs to the
 * shared plan, unless this send goes another way than the first. */
tmsg_status_t tmsg_shared_plan_make(tmsg_shared_plan_t *shared_plan,
                                    tmsg_payload_t *payload, tmsg_pool_t *pool,
                                    tmsg_plan_t *plan);

#endif
