/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/share.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/measures.h"
#include "core/error.h"
#include "serialize/checksum.h"

tmsg_share_t *tmsg_share_create(void)
{
    tmsg_share_t *share = malloc(sizeof(*share));

    if (share != NULL) {
        memset(share, 0, offsetof(tmsg_share_t, small));
        share->refs = 1;
    }
    return share;
}

void tmsg_share_hold(tmsg_share_t *share) { share->refs++; }

void tmsg_share_drop(tmsg_share_t *share, tmsg_pool_t *pool)
{
    if (--share->refs == 0) {
        tmsg_plan_free(&share->plan, pool);
        tmsg_body_shared_free(&share->body);
        tmsg_written_free(&share->written, pool);
        tmsg_map_destroy(share->kept);
        free(share->checksums);
        free(share);
    }
}

static size_t checksum_bytes(const tmsg_payload_t *payload)
{
    return payload->checksums == NULL
               ? 0
               : tmsg_map_size(payload->map) * payload->extra->checksum->bytes;
}

static tmsg_status_t make_share(tmsg_share_t *share, tmsg_payload_t *payload,
                                tmsg_pool_t *pool)
{
    size_t bytes = checksum_bytes(payload);
    tmsg_status_t status;

    payload->spare = share->small;
    payload->spare_bytes = sizeof(share->small);
    status = tmsg_plan_make(payload, pool, &share->plan);
    if (status == TMSG_OK && bytes > 0) {
        share->checksums = malloc(bytes);
        if (share->checksums == NULL) {
            status = tmsg_error_memory("a message's checksums");
        } else {
            memcpy(share->checksums, payload->checksums, bytes);
        }
    }
    if (status != TMSG_OK) {
        tmsg_plan_free(&share->plan, pool);
        return status;
    }
    share->made = payload->map;
    share->way = payload->way;
    share->large = payload->measures->large;
    share->owned = payload->owned;
    return TMSG_OK;
}

/* Returns whether what was made for another send is what this one needs. */
static bool share_suits(const tmsg_share_t *share,
                        const tmsg_payload_t *payload)
{
    return share->made == payload->map &&
           share->way.gather == payload->way.gather &&
           share->way.fragments == payload->way.fragments &&
           share->large == payload->measures->large &&
           share->owned == payload->owned &&
           (payload->checksums == NULL || share->checksums != NULL);
}

tmsg_status_t tmsg_share_plan(tmsg_share_t *share, tmsg_payload_t *payload,
                              tmsg_pool_t *pool, tmsg_plan_t *plan)
{
    size_t bytes = checksum_bytes(payload);
    tmsg_status_t status =
        share->made != NULL ? TMSG_OK : make_share(share, payload, pool);

    if (status != TMSG_OK) {
        return status;
    }
    if (!share_suits(share, payload)) {
        return tmsg_plan_make(payload, pool, plan);
    }
    if (bytes > 0) {
        memcpy(payload->checksums, share->checksums, bytes);
    }
    *plan = share->plan;
    plan->shared = true;
    return TMSG_OK;
}
