/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/share.h - what the sends of one map to several peers have in common.
 *
 * The payload (gathered, packed or listed) and its checksums are made by the
 * first of them, and so is what the bodies say of tensors and metadata. What
 * is left of the header is each peer's own: it has that peer's numbers. */
#ifndef TMSG_AM_SEND_SHARE_H
#define TMSG_AM_SEND_SHARE_H

#include "am/endpoint/measures.h"
#include "am/send/plan.h"
#include "am/send/write_out.h"

#define TMSG_SHARE_SMALL 576

/* Its references are counted under the worker's lock. */
typedef struct {
    unsigned refs;
    const tmsg_map_t *made; /* what the plan is of; NULL: there is none */
    tmsg_way_t way;         /* of these: */
    uint64_t large;
    bool owned;
    tmsg_plan_t plan;
    uint8_t *checksums; /* NULL: nobody wanted any */
    tmsg_body_shared_t body;
    tmsg_written_t written; /* for peers that take nothing broadcast */
    tmsg_map_t *kept;       /* for those that take spans, if that is asked */
    uint8_t small[TMSG_SHARE_SMALL];
} tmsg_share_t;

/* With one reference, or NULL without memory. */
tmsg_share_t *tmsg_share_create(void);
void tmsg_share_hold(tmsg_share_t *share);
void tmsg_share_drop(tmsg_share_t *share, tmsg_pool_t *pool);

/* As tmsg_plan_make(); what *plan points to is the share's, unless this send
 * goes another way than the first. */
tmsg_status_t tmsg_share_plan(tmsg_share_t *share, tmsg_payload_t *payload,
                              tmsg_pool_t *pool, tmsg_plan_t *plan);

#endif
