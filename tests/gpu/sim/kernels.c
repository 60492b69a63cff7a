/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of the simulated driver, and what is no driver's (sim.h). A module is
 * not compiled: its kernels are known by their names, those of gpu/probe.c.
 * "hold" waits until the number that its argument points to is not 0, "fault"
 * writes to an illegal address. */
#include "gpu/sim/inside.h"

typedef struct {
    const char *name;
    work_t work;
} kernel_t;

static const kernel_t kernels[] = {{"hold", HOLD}, {"fault", FAULT}};

API int cuModuleLoadData(void **module, const void *image)
{
    IN_CONTEXT;
    *module = (void *)(uintptr_t)image;
    return image == NULL ? INVALID_VALUE : OK;
}

API int cuModuleUnload(void *module)
{
    IN_CONTEXT;
    return module == NULL ? INVALID_VALUE : OK;
}

API int cuModuleGetFunction(void **function, void *module, const char *name)
{
    IN_CONTEXT;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (module != NULL && strcmp(kernels[i].name, name) == 0) {
            *function = (void *)(uintptr_t)&kernels[i];
            return OK;
        }
    }
    return NOT_FOUND;
}

/* No context need be current but for a default stream. */
static int give(const op_t *op, void *handle)
{
    stream_t *stream;
    bool node;
    int result;

    ANYWHERE;
    if (sim_current() == NULL && handle <= (void *)2) {
        return INVALID_CONTEXT;
    }
    COUNT(launches);
    COUNT(kernels);
    result = sim_stream_for_work(handle, &stream, &node);
    if (result == OK) {
        sim_give_work(stream, node, op);
    }
    return result;
}

API int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y,
                       unsigned grid_z, unsigned block_x, unsigned block_y,
                       unsigned block_z, unsigned shared_bytes, void *stream,
                       void **args, void **extra)
{
    const kernel_t *kernel = function;
    op_t op = {.work = kernel->work};

    (void)shared_bytes;
    if (grid_x * grid_y * grid_z * block_x * block_y * block_z == 0 ||
        extra != NULL) {
        return INVALID_VALUE;
    }
    if (kernel->work == HOLD) {
        uint64_t address;

        memcpy(&address, args[0], sizeof(address));
        op.go = (const int *)(uintptr_t)address;
    }
    return give(&op, stream);
}

static int launch(sim_kernel_fn kernel, void *arg, void *stream)
{
    return give(&(op_t){.work = KERNEL, .kernel = kernel, .arg = arg}, stream);
}

static int hold(const volatile int *go, void *stream)
{
    return give(&(op_t){.work = HOLD, .go = go}, stream);
}

static int fault(void *stream) { return give(&(op_t){.work = FAULT}, stream); }

static void *reach(uint64_t address, size_t bytes)
{
    block_t *block;
    char *view;
    bool found;

    pthread_mutex_lock(&sim_lock);
    found = sim_reach(address, bytes, &view, &block) &&
            (block == NULL || !block->unborn);
    pthread_mutex_unlock(&sim_lock);
    return found ? view : NULL;
}

static int peek(void *to, uint64_t from, size_t bytes)
{
    void *view = reach(from, bytes);

    if (view == NULL) {
        return bytes == 0 ? OK : ILLEGAL_ADDRESS;
    }
    memcpy(to, view, bytes);
    return OK;
}

static int poke(uint64_t to, const void *from, size_t bytes)
{
    void *view = reach(to, bytes);

    if (view == NULL) {
        return bytes == 0 ? OK : ILLEGAL_ADDRESS;
    }
    memcpy(view, from, bytes);
    return OK;
}

static void set_delay(unsigned delay_us) { sim_delay_us = delay_us; }

API const sim_cuda_t *sim_cuda(void)
{
    static sim_cuda_t sim;

    sim = (sim_cuda_t){.counts = sim_counts,
                       .launch = launch,
                       .hold = hold,
                       .fault = fault,
                       .reach = reach,
                       .peek = peek,
                       .poke = poke,
                       .set_delay = set_delay,
                       .complaint = sim_complaint};
    return &sim;
}
