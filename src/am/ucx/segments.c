/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/segments.h"

#include "am/ucx/backing.h"
#include "core/error.h"

/* Returns how many kept segments UCX has room for: it still has the memory that
 * it needed for the most that were ever kept. */
static uint64_t kept_at_most(const tmsg_ucx_t *ucx)
{
    const tmsg_backing_pool_t *pool = &ucx->pool;
    uint64_t needed = pool->queued + ucx->segments_most;

    return (needed + pool->grows - 1) / pool->grows * pool->grows -
           pool->queued;
}

bool tmsg_segments_suffice(const tmsg_ucx_t *ucx)
{
    return ucx->segments < kept_at_most(ucx) ||
           tmsg_backing_suffices(&ucx->keys);
}

tmsg_status_t tmsg_segments_missing(const tmsg_ucx_t *ucx)
{
    char text[TMSG_BACKING_BYTES];

    return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                          "%llu messages wait to be read, and %s",
                          (unsigned long long)ucx->segments,
                          tmsg_backing_text(&ucx->keys, text, sizeof(text)));
}

void tmsg_segment_keep(tmsg_ucx_t *ucx)
{
    ucx->segments++;
    if (ucx->segments > ucx->segments_most) {
        ucx->segments_most = ucx->segments;
    }
}

void tmsg_segment_give(tmsg_ucx_t *ucx) { ucx->segments--; }
