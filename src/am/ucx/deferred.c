/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/deferred.h"

#include <stdatomic.h>

#include "am/ucx/fork_guard.h"
#include "am/ucx/linger.h"

#define UCX_MOST 16
#define PEERS_MOST 64 /* peers that do not hang up: each has a socket */

static _Atomic(tmsg_ucx_t *) deferred;
static atomic_uint count;

static void push_deferred(tmsg_ucx_t *ucx)
{
    ucx->next = atomic_load(&deferred);
    while (!atomic_compare_exchange_weak(&deferred, &ucx->next, ucx)) {
    }
}

void tmsg_deferred_take(tmsg_ucx_t *ucx)
{
    atomic_fetch_add(&count, 1);
    push_deferred(ucx);
}

/* UCX workers of the parent are not closed in the child of a fork(). */
void tmsg_deferred_sweep(void)
{
    tmsg_ucx_t *ucx, *next;

    if (atomic_load(&count) == 0 || tmsg_fork_guard_check() != TMSG_OK) {
        return;
    }
    for (ucx = atomic_exchange(&deferred, NULL); ucx != NULL; ucx = next) {
        next = ucx->next;
        if (tmsg_linger_is_late(ucx)) {
            push_deferred(ucx);
        } else {
            atomic_fetch_sub(&count, 1);
            tmsg_ucx_let_go(ucx);
        }
    }
}

bool tmsg_deferred_is_full(const tmsg_ucx_t *first)
{
    unsigned coming = 0;

    tmsg_deferred_sweep();
    for (const tmsg_ucx_t *ucx = first; ucx != NULL; ucx = ucx->next) {
        coming += ucx->retired && ucx->lingering.count + ucx->late.count > 0;
    }
    return atomic_load(&count) + coming >= UCX_MOST ||
           tmsg_linger_count_late() >= PEERS_MOST;
}
