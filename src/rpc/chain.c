/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the interceptors of a worker. */
#include <stdlib.h>

#include "core/params.h"
#include "rpc/intercept.h"

/* Returns the chain of a side, or `made` if the side has none yet; NULL: the
 * chain is full. Lock held. */
static tmsg_chain_t *chain_with_room(const tmsg_hub_t *hub, tmsg_side_t side,
                                     tmsg_chain_t *made)
{
    tmsg_chain_t *chain = atomic_load(&hub->chains[side - 1]);

    chain = chain == NULL ? made : chain;
    return chain->count < TMSG_INTERCEPTORS_MOST ? chain : NULL;
}

/* Adds the interceptor to the chain of a side, which is not full. Returns true
 * if `made` has become that chain. Lock held. */
static bool append_interceptor(tmsg_hub_t *hub, tmsg_side_t side,
                               tmsg_chain_t *made,
                               const tmsg_interceptor_t *interceptor)
{
    tmsg_chain_t *chain = chain_with_room(hub, side, made);

    chain->of[chain->count++] = *interceptor;
    atomic_store_explicit(&hub->chains[side - 1], chain, memory_order_release);
    return chain == made;
}

tmsg_status_t tmsg_chains_add(tmsg_hub_t *hub, unsigned sides,
                              const tmsg_interceptor_t *interceptor)
{
    const tmsg_side_t all[] = {TMSG_SIDE_CALLER, TMSG_SIDE_SERVER};
    tmsg_chain_t *made[2] = {calloc(1, sizeof(tmsg_chain_t)),
                             calloc(1, sizeof(tmsg_chain_t))};
    bool used[2] = {false, false};
    bool full = false;

    if (made[0] == NULL || made[1] == NULL) {
        free(made[0]);
        free(made[1]);
        return tmsg_error_memory("interceptors");
    }
    tmsg_hub_lock(hub);
    for (int i = 0; i < 2; i++) {
        full = full || (sides & 1u << all[i] &&
                        chain_with_room(hub, all[i], made[i]) == NULL);
    }
    for (int i = 0; i < 2 && !full; i++) {
        used[i] = sides & 1u << all[i] &&
                  append_interceptor(hub, all[i], made[i], interceptor);
    }
    tmsg_hub_unlock(hub);
    for (int i = 0; i < 2; i++) {
        if (!used[i]) {
            free(made[i]);
        }
    }
    return full ? tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                 "interceptors: a side has %d at most",
                                 TMSG_INTERCEPTORS_MOST)
                : TMSG_OK;
}

/* Copies the hooks that the application set. Errors: INVALID_PARAM (unknown
 * bit). */
static tmsg_status_t read_hooks(const tmsg_interceptor_t *interceptor,
                                tmsg_interceptor_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_interceptor_t, TMSG_INTERCEPTOR_BEGIN, begin),
        TMSG_PARAM(tmsg_interceptor_t, TMSG_INTERCEPTOR_MESSAGE, message),
        TMSG_PARAM(tmsg_interceptor_t, TMSG_INTERCEPTOR_END, end),
        TMSG_PARAM(tmsg_interceptor_t, TMSG_INTERCEPTOR_REFUSED, refused)};
    uint64_t mask = interceptor->field_mask;

    *read = (tmsg_interceptor_t){.field_mask = mask, .arg = interceptor->arg};
    return tmsg_params_read("interceptor", interceptor, mask, rows,
                            sizeof(rows) / sizeof(rows[0]), read);
}

tmsg_status_t tmsg_worker_intercept(tmsg_worker_t *worker, tmsg_side_t side,
                                    const tmsg_interceptor_t *interceptor)
{
    tmsg_interceptor_t read;
    tmsg_status_t status;
    void *hub;

    if (worker == NULL || interceptor == NULL ||
        (side != TMSG_SIDE_CALLER && side != TMSG_SIDE_SERVER)) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "interceptor: %s",
            worker == NULL ? "worker is NULL"
            : interceptor == NULL
                ? "interceptor is NULL"
                : "side is neither TMSG_SIDE_CALLER nor TMSG_SIDE_SERVER");
    }
    status = read_hooks(interceptor, &read);
    if (status == TMSG_OK) {
        status = tmsg_calls_start(worker, &tmsg_hub_ops, &hub);
    }
    return status == TMSG_OK ? tmsg_chains_add(hub, 1u << side, &read) : status;
}
