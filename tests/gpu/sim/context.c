/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts of the simulated driver. */
#include "gpu/sim/inside.h"

#include <stdlib.h>

#define DEPTH 64

static context_t primaries[DEVICES];
static uint64_t ids;
static _Thread_local context_t *stack[DEPTH];
static _Thread_local int depth;

context_t *sim_current(void) { return depth == 0 ? NULL : stack[depth - 1]; }

int sim_depth(void) { return depth; }

int sim_primary_uses(int device) { return (int)primaries[device].uses; }

bool sim_is_alive(const context_t *context, uint64_t id)
{
    return context->alive && context->id == id;
}

context_t *sim_primary(int device)
{
    return primaries[device].alive ? &primaries[device] : NULL;
}

static void begin_context(context_t *context)
{
    context->alive = true;
    context->sticky = OK;
    context->id = ++ids;
    context->legacy = NULL;
}

/* cuCtxDestroy(), cuDevicePrimaryCtxReset(): "destroys all allocations and
 * resets all state". */
static void end_context(context_t *context)
{
    sim_end_context(context);
    sim_remove_all(context);
    context->alive = false;
    context->flags = 0;
}

#define CHECK_DEVICE(device)                                                   \
    if ((device) < 0 || (device) >= sim_devices) {                             \
        return INVALID_DEVICE;                                                 \
    }                                                                          \
    (void)0

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    ANYWHERE;
    CHECK_DEVICE(device);
    *flags = primaries[device].flags;
    *active = primaries[device].alive;
    return OK;
}

/* cuDevicePrimaryCtxRetain(): "the context is not pushed to the stack". */
API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    context_t *primary;

    ANYWHERE;
    CHECK_DEVICE(device);
    primary = &primaries[device];
    if (!primary->alive) {
        primary->device = device;
        primary->primary = true;
        begin_context(primary);
    }
    primary->uses++;
    *context = primary;
    return OK;
}

/* "The primary context is automatically reset once the last reference to it is
 * released." */
API int cuDevicePrimaryCtxRelease_v2(int device)
{
    context_t *primary;

    ANYWHERE;
    CHECK_DEVICE(device);
    primary = &primaries[device];
    if (primary->uses == 0) {
        return INVALID_CONTEXT;
    }
    if (--primary->uses == 0 && primary->alive) {
        end_context(primary);
    }
    return OK;
}

API int cuDevicePrimaryCtxRelease(int device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

/* cuDevicePrimaryCtxReset(): references are not released by it; the context is
 * active again with the next call of cuDevicePrimaryCtxRetain(). */
API int cuDevicePrimaryCtxReset_v2(int device)
{
    ANYWHERE;
    CHECK_DEVICE(device);
    if (primaries[device].alive) {
        end_context(&primaries[device]);
    }
    return OK;
}

API int cuDevicePrimaryCtxReset(int device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

/* cuCtxCreate(): "the context is made current to the calling thread". */
API int cuCtxCreate_v2(void **context_p, unsigned flags, int device)
{
    context_t *context;

    ANYWHERE;
    CHECK_DEVICE(device);
    context = calloc(1, sizeof(*context));
    if (context == NULL || depth == DEPTH) {
        free(context);
        return OUT_OF_MEMORY;
    }
    context->device = device;
    context->flags = flags;
    begin_context(context);
    stack[depth++] = context;
    *context_p = context;
    return OK;
}

API int cuCtxCreate_v4(void **context, void *params, unsigned flags, int device)
{
    (void)params;
    return cuCtxCreate_v2(context, flags, device);
}

/* The handle stays, so that a later use is told. A primary context is not
 * destroyed so: "cuDevicePrimaryCtxRelease() should be used". */
API int cuCtxDestroy_v2(void *context)
{
    ANYWHERE;
    if (context == NULL || ((context_t *)context)->primary ||
        !((context_t *)context)->alive) {
        return INVALID_CONTEXT;
    }
    end_context(context);
    if (sim_current() == context) {
        depth--;
    }
    return OK;
}

API int cuCtxPushCurrent_v2(void *context)
{
    ANYWHERE;
    if (context == NULL || depth == DEPTH) {
        return INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return OK;
}

API int cuCtxPopCurrent_v2(void **context)
{
    ANYWHERE;
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    depth--;
    if (context != NULL) {
        *context = stack[depth];
    }
    return OK;
}

/* "If no context is bound to the calling CPU thread then *pctx is set to NULL
 * and CUDA_SUCCESS is returned." */
API int cuCtxGetCurrent(void **context)
{
    ANYWHERE;
    *context = sim_current();
    return OK;
}

/* "If there exists a CUDA context stack on the calling CPU thread, this will
 * replace the top of that stack"; NULL pops. */
API int cuCtxSetCurrent(void *context)
{
    ANYWHERE;
    if (depth > 0) {
        depth--;
    }
    if (context != NULL) {
        stack[depth++] = context;
    }
    return OK;
}

API int cuCtxGetDevice(int *device)
{
    ANYWHERE;
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *device = sim_current()->device;
    return OK;
}

/* "Returns a unique Id associated with the given context"; NULL is the current
 * one. UCX asks it to learn that a context is another one now (cuda_iface.c,
 * uct_cuda_base_ctx_cmp()). */
API int cuCtxGetId(void *context, unsigned long long *id)
{
    context_t *asked;

    ANYWHERE;
    asked = context == NULL ? sim_current() : context;
    if (asked == NULL) {
        return INVALID_CONTEXT;
    }
    if (!asked->alive) {
        return CONTEXT_IS_DESTROYED;
    }
    *id = asked->id;
    return OK;
}

API int cuCtxGetFlags(unsigned *flags)
{
    IN_CONTEXT;
    *flags = sim_current()->flags;
    return OK;
}

API int cuCtxSetFlags(unsigned flags)
{
    IN_CONTEXT;
    sim_current()->flags = flags;
    return OK;
}

API int cuCtxSynchronize(void)
{
    int unsafe;

    IN_CONTEXT;
    unsafe = sim_unsafe();
    COUNT(synchronized);
    return unsafe != OK ? unsafe : sim_wait_context(sim_current());
}
