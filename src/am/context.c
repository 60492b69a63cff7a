/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/ucx_known.h"
#include "core/error.h"
#include "core/limits.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_CONTEXT_PARAM_LIMITS | TMSG_CONTEXT_PARAM_UCX_CONFIG))

static tmsg_status_t read_params(const tmsg_context_params_t *params,
                                 tmsg_context_t *context)
{
    tmsg_status_t status = TMSG_OK;

    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "context: unknown field_mask bits 0x%llx",
            (unsigned long long)(params->field_mask & ~PARAMS_KNOWN));
    }
    if ((params->field_mask & TMSG_CONTEXT_PARAM_LIMITS) &&
        params->limits != NULL) {
        status = tmsg_limits_merge(params->limits, &context->limits);
    }
    if (status == TMSG_OK &&
        (params->field_mask & TMSG_CONTEXT_PARAM_UCX_CONFIG) &&
        params->ucx_config != NULL) {
        status = tmsg_ucx_config_check(params->ucx_config);
        if (status == TMSG_OK) {
            status = tmsg_ucx_known_early(params->ucx_config);
        }
        if (status != TMSG_OK) {
            return status;
        }
        context->ucx_config = strdup(params->ucx_config);
        if (context->ucx_config == NULL) {
            return tmsg_error_memory("the UCX configuration");
        }
    }
    return status;
}

tmsg_status_t tmsg_context_create(const tmsg_context_params_t *params,
                                  tmsg_context_t **context_p)
{
    tmsg_context_t *context = calloc(1, sizeof(*context));
    tmsg_status_t status = TMSG_OK;

    if (context == NULL) {
        return tmsg_error_memory("a context");
    }
    atomic_init(&context->refs, 1);
    context->limits = tmsg_limits_usual();
    if (params != NULL) {
        status = read_params(params, context);
    }
    if (status == TMSG_OK &&
        getrandom(context->instance_id, TMSG_INSTANCE_BYTES, 0) !=
            TMSG_INSTANCE_BYTES) {
        status = tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    if (status != TMSG_OK) {
        tmsg_context_destroy(context);
        return status;
    }
    *context_p = context;
    return TMSG_OK;
}

void tmsg_context_hold(tmsg_context_t *context)
{
    atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
}

void tmsg_context_destroy(tmsg_context_t *context)
{
    if (context != NULL && atomic_fetch_sub_explicit(
                               &context->refs, 1, memory_order_acq_rel) == 1) {
        free(context->ucx_config);
        free(context);
    }
}
