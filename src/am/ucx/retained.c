/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/retained.h"

#include "am/ucx/ucx_am.h"

/* This is written over a payload that nobody looks at any more. */
struct tmsg_lifted {
    struct tmsg_lifted *next;
};

bool tmsg_ucx_lift(tmsg_ucx_t *ucx, void *data)
{
    struct tmsg_lifted *lifted = data;
    struct tmsg_lifted *before =
        atomic_load_explicit(&ucx->lifted, memory_order_relaxed);
    bool first = before == NULL;

    lifted->next = before;
    while (!atomic_compare_exchange_weak_explicit(&ucx->lifted, &lifted->next,
                                                  lifted, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    return first;
}

void tmsg_ucx_release_lifted(tmsg_ucx_t *ucx)
{
    struct tmsg_lifted *lifted =
        atomic_exchange_explicit(&ucx->lifted, NULL, memory_order_acquire);

    while (lifted != NULL) {
        struct tmsg_lifted *next = lifted->next;

        tmsg_ucx_am_release(ucx, lifted);
        lifted = next;
    }
}
