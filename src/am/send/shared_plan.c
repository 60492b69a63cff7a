/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/shared_plan.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/measures.h"
#include "am/path/loans.h"
#include "core/error.h"
#include "serialize/checksum.h"

tmsg_shared_plan_t *tmsg_shared_plan_create(void)
{
    tmsg_shared_plan_t *shared_plan = malloc(sizeof(*shared_plan));

    if (shared_plan != NULL) {
        memset(shared_plan, 0, offsetof(tmsg_shared_plan_t, small));
        shared_plan->refs = 1;
    }
    return shared_plan;
}

void tmsg_shared_plan_hold(tmsg_shared_plan_t *shared_plan)
{
    shared_plan->refs++;
}

void tmsg_shared_plan_drop(tmsg_shared_plan_t *shared_plan, tmsg_pool_t *pool)
{
    if (--shared_plan->refs == 0) {
        tmsg_plan_free(&shared_plan->plan, pool);
        tmsg_body_shared_free(&shared_plan->body);
        tmsg_written_free(&shared_plan->written, pool);
        tmsg_lending_drop(shared_plan->lending);
        tmsg_map_destroy(shared_plan->kept);
        free(shared_plan->checksums);
        free(shared_plan);
    }
}

void tmsg_shared_plan_unlend(tmsg_shared_plan_t *shared_plan)
{
    tmsg_lending_drop(shared_plan->lending);
    shared_plan->lending = NULL;
}

static size_t checksum_bytes(const tmsg_payload_t *payload)
{
    return payload->checksums == NULL
               ? 0
               : tmsg_map_size(payload->map) * payload->extra->checksum->bytes;
}

static tmsg_status_t make_first_plan(tmsg_shared_plan_t *shared_plan,
                                     tmsg_payload_t *payload, tmsg_pool_t *pool)
{
    size_t bytes = checksum_bytes(payload);
    tmsg_status_t status;

    payload->spare = shared_plan->small;
    payload->spare_bytes = sizeof(shared_plan->small);
    status = tmsg_plan_make(payload, pool, &shared_plan->plan);
    if (status == TMSG_OK && bytes > 0) {
        shared_plan->checksums = malloc(bytes);
        if (shared_plan->checksums == NULL) {
            status = tmsg_error_memory("a message's checksums");
        } else {
            memcpy(shared_plan->checksums, payload->checksums, bytes);
        }
    }
    if (status != TMSG_OK) {
        tmsg_plan_free(&shared_plan->plan, pool);
        return status;
    }
    shared_plan->made = payload->map;
    shared_plan->way = payload->way;
    shared_plan->large = payload->measures->large;
    shared_plan->owned = payload->owned;
    return TMSG_OK;
}

/* Returns whether what was made for another send is what this one needs. */
static bool shared_plan_suits(const tmsg_shared_plan_t *shared_plan,
                              const tmsg_payload_t *payload)
{
    return shared_plan->made == payload->map &&
           shared_plan->way.gather == payload->way.gather &&
           shared_plan->way.fragments == payload->way.fragments &&
           shared_plan->large == payload->measures->large &&
           shared_plan->owned == payload->owned &&
           (payload->checksums == NULL || shared_plan->checksums != NULL);
}

tmsg_status_t tmsg_shared_plan_make(tmsg_shared_plan_t *shared_plan,
                                    tmsg_payload_t *payload, tmsg_pool_t *pool,
                                    tmsg_plan_t *plan)
{
    size_t bytes = checksum_bytes(payload);
    tmsg_status_t status = shared_plan->made != NULL
                               ? TMSG_OK
                               : make_first_plan(shared_plan, payload, pool);

    if (status != TMSG_OK) {
        return status;
    }
    if (!shared_plan_suits(shared_plan, payload)) {
        return tmsg_plan_make(payload, pool, plan);
    }
    if (bytes > 0) {
        memcpy(payload->checksums, shared_plan->checksums, bytes);
    }
    *plan = shared_plan->plan;
    plan->shared = true;
    return TMSG_OK;
}
