/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver as the tests know the fakes (fakes/cuda.h), so that
 * those of the engine and of staging run on either. Calls cannot be made to
 * fail here. */
#include "gpu/sim/inside.h"

#include <stdlib.h>

#include "fakes/cuda.h"

#define HELD 16 /* streams that are blocked at a time */

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamIsCapturing(void *stream, int *status);
int cuMemAlloc_v2(address_t *address, size_t bytes);
int cuMemAllocAsync(address_t *address, size_t bytes, void *stream);
int cuMemAllocManaged(address_t *address, size_t bytes, unsigned flags);
int cuMemHostAlloc(void **data, size_t bytes, unsigned flags);
int cuMemCreate(uint64_t *handle, size_t bytes, const void *props,
                uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuMemAddressReserve(address_t *base, size_t bytes, size_t alignment,
                        address_t wanted, uint64_t flags);
int cuMemMap(address_t base, size_t bytes, size_t offset, uint64_t handle,
             uint64_t flags);
int cuMemSetAccess(address_t base, size_t bytes, const void *access,
                   size_t many);

static void must(int result)
{
    if (result != OK) {
        abort();
    }
}

static struct {
    void *stream;
    volatile int go;
} held[HELD];

static void block(void *stream)
{
    for (int i = 0; i < HELD; i++) {
        if (held[i].stream == NULL) {
            held[i].stream = stream;
            held[i].go = 0;
            must(sim_cuda()->hold(&held[i].go, stream));
            return;
        }
    }
    abort();
}

static void unblock(void *stream)
{
    for (int i = 0; i < HELD; i++) {
        if (held[i].stream == stream) {
            held[i].go = 1;
            held[i].stream = NULL;
        }
    }
}

static const char *fault(void)
{
    for (int i = 0; i < sim_devices; i++) {
        context_t *context = sim_primary(i);

        if (context != NULL && context->sticky != OK) {
            return "a context of the simulated driver has an error";
        }
    }
    return sim_complaint();
}

/* A test makes streams before the library has opened the driver. */
static void push(int device)
{
    void *context;

    setenv("FAKE_CUDA_DEVICES", "4", 0);
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxPushCurrent_v2(context));
}

static void pop(void)
{
    void *context;

    must(cuCtxPopCurrent_v2(&context));
}

static uintptr_t map_memory(int device, size_t bytes)
{
    const struct {
        int type, handle_types, location_type, location_id;
        uint64_t rest[3];
    } props = {1, 0, 1, device, {0}};
    const int access[] = {1, device, 3};
    address_t address;
    uint64_t handle;

    bytes = (bytes + CHUNK - 1) / CHUNK * CHUNK;
    must(cuMemCreate(&handle, bytes, &props, 0));
    must(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    must(cuMemMap(address, bytes, 0, handle, 0));
    must(cuMemSetAccess(address, bytes, access, 1));
    must(cuMemRelease(handle));
    return (uintptr_t)address;
}

static uintptr_t app_alloc(int device, size_t bytes, fake_kind_t kind)
{
    address_t address = 0;
    void *data;

    push(device);
    switch (kind) {
    case FAKE_PLAIN:
        must(cuMemAlloc_v2(&address, bytes));
        break;
    case FAKE_POOL:
        must(cuMemAllocAsync(&address, bytes, NULL));
        must(cuStreamSynchronize(NULL));
        break;
    case FAKE_MAPPED:
        address = map_memory(device, bytes);
        break;
    case FAKE_MANAGED:
        must(cuMemAllocManaged(&address, bytes, 1));
        break;
    case FAKE_PINNED:
        must(cuMemHostAlloc(&data, bytes, 0));
        address = (address_t)(uintptr_t)data;
        break;
    }
    pop();
    return (uintptr_t)address;
}

static void *app_stream(int device)
{
    void *stream;

    push(device);
    must(cuStreamCreate(&stream, 1));
    pop();
    return stream;
}

static void *app_context(int device)
{
    void *context;

    must(cuCtxCreate_v2(&context, 0, device));
    pop();
    return context;
}

static void *captured_stream;

static void capture(void *stream)
{
    void *graph;

    push(0);
    if (stream != NULL) {
        must(cuStreamBeginCapture_v2(stream, 0));
    } else {
        cuStreamEndCapture(captured_stream, &graph);
    }
    pop();
    captured_stream = stream;
}

static bool captured(void)
{
    int status = 0;

    push(0);
    if (captured_stream != NULL) {
        must(cuStreamIsCapturing(captured_stream, &status));
    }
    pop();
    return status == 1;
}

static void peek(void *to, uintptr_t from, size_t bytes)
{
    must(sim_cuda()->peek(to, from, bytes));
}

static void poke(uintptr_t to, const void *from, size_t bytes)
{
    must(sim_cuda()->poke(to, from, bytes));
}

API const fake_cuda_t *fake_cuda(void);
const fake_cuda_t *fake_cuda(void)
{
    static const fake_cuda_t control = {
        .fault = fault,
        .blocks = sim_blocks,
        .events = sim_events,
        .peek = peek,
        .poke = poke,
        .block = block,
        .unblock = unblock,
        .finish = sim_finish,
        .primary_uses = sim_primary_uses,
        .depth = sim_depth,
        .alloc = app_alloc,
        .stream = app_stream,
        .capture = capture,
        .captured = captured,
        .context = app_context,
    };

    return &control;
}
