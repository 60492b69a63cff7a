/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the simulated driver gives and takes, and pinned memory of the
 * host. */
#include "gpu/sim/inside.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

static bool is_of_ucx(void *caller)
{
    Dl_info info;

    return dladdr(caller, &info) != 0 && info.dli_fname != NULL &&
           strstr(info.dli_fname, "libuct_cuda") != NULL;
}

static int take(address_t *address_p, size_t bytes, kind_t kind, void *caller)
{
    block_t *block;
    int result;

    IN_CONTEXT;
    if (bytes == 0) {
        return INVALID_VALUE; /* "If bytesize is 0" */
    }
    result = sim_unsafe();
    if (result != OK) {
        return result;
    }
    block = sim_take(sim_current()->device, bytes, kind, sim_current());
    if (block == NULL) {
        return OUT_OF_MEMORY;
    }
    block->of_ucx = is_of_ucx(caller);
    COUNT(allocs);
    *address_p = block->base;
    return OK;
}

API int cuMemAlloc_v2(address_t *address, size_t bytes)
{
    return take(address, bytes, PLAIN, __builtin_return_address(0));
}

API int cuMemAllocManaged(address_t *address, size_t bytes, unsigned flags)
{
    return flags != 1 && flags != 2 ? INVALID_VALUE
                                    : take(address, bytes, MANAGED, NULL);
}

/* The device is waited for, as the driver does before it unmaps ("Implicit
 * synchronization"): a program whose kernel waits for what the program does
 * after cuMemFree() waits for ever. */
API int cuMemFree_v2(address_t address)
{
    block_t *block;
    int result;

    IN_CONTEXT;
    if (address == 0) {
        return OK;
    }
    block = sim_find(address);
    if (block == NULL || block->base != address ||
        (block->kind != PLAIN && block->kind != MANAGED &&
         block->kind != POOLED)) {
        return INVALID_VALUE;
    }
    result = sim_unsafe();
    if (result != OK) {
        return result;
    }
    result = sim_wait_context(sim_current());
    if (result != OK) {
        return result;
    }
    block = sim_find(address);
    COUNT(frees);
    if (block != NULL && block->kind == POOLED) {
        sim_pool_gave(block);
    } else if (block != NULL) {
        sim_give(block);
    }
    return OK;
}

/* "Returns the base address and size of the allocation"; CUDA_ERROR_NOT_FOUND
 * for another pointer. UCX asks for the range of pinned memory, too
 * (cudamem.c, ucm_cuda_dispatch_mem_free()). */
API int cuMemGetAddressRange_v2(address_t *base, size_t *bytes,
                                address_t address)
{
    const block_t *block;

    IN_CONTEXT;
    block = sim_find(address);
    if (block == NULL) {
        return NOT_FOUND;
    }
    if (base != NULL) {
        *base = block->base;
    }
    if (bytes != NULL) {
        *bytes = block->bytes;
    }
    return OK;
}

API int cuMemGetInfo_v2(size_t *free_p, size_t *total_p)
{
    int device;

    IN_CONTEXT;
    device = sim_current()->device;
    *total_p = (size_t)sim_number("SIM_CUDA_MEMORY_MIB", 16384) * (size_t)MIB;
    *free_p = *total_p - sim_held(device);
    return OK;
}

/* Memory of the host. */

static bool overlaps(address_t base, size_t bytes)
{
    for (address_t at = base; at < base + bytes; at += 4096) {
        if (sim_find(at) != NULL) {
            return true;
        }
    }
    return sim_find(base + bytes - 1) != NULL;
}

API int cuMemHostRegister_v2(void *data, size_t bytes, unsigned flags)
{
    int result;

    IN_CONTEXT;
    if (data == NULL || bytes == 0 || flags > 15) {
        return INVALID_VALUE;
    }
    result = sim_unsafe();
    if (result != OK) {
        return result;
    }
    if (getenv("SIM_CUDA_PIN_WAITS") != NULL) {
        result = sim_wait_context(sim_current());
        if (result != OK) {
            return result;
        }
    }
    if (overlaps((address_t)(uintptr_t)data, bytes)) {
        return ALREADY_REGISTERED;
    }
    COUNT(pins);
    COUNT_BYTES(pinned_bytes, bytes);
    return sim_add(&(block_t){.base = (address_t)(uintptr_t)data,
                              .bytes = bytes,
                              .kind = PINNED,
                              .device = sim_current()->device,
                              .context = sim_current(),
                              .view = data}) == NULL
               ? OUT_OF_MEMORY
               : OK;
}

/* "The base address must be the same one specified to cuMemHostRegister()." */
API int cuMemHostUnregister(void *data)
{
    block_t *block;
    int result;

    IN_CONTEXT;
    block = sim_find((address_t)(uintptr_t)data);
    if (block == NULL || block->kind != PINNED ||
        block->base != (address_t)(uintptr_t)data) {
        return NOT_REGISTERED;
    }
    result = sim_unsafe();
    if (result == OK) {
        result = sim_wait_context(sim_current());
        block = sim_find((address_t)(uintptr_t)data);
    }
    if (result == OK && block != NULL) {
        COUNT_BYTES(pinned_bytes, -block->bytes);
        sim_remove(block);
    }
    return result;
}

API int cuMemHostAlloc(void **data, size_t bytes, unsigned flags)
{
    void *memory;
    int result;

    IN_CONTEXT;
    if (bytes == 0 || flags > 7) {
        return INVALID_VALUE;
    }
    result = sim_unsafe();
    if (result != OK) {
        return result;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED ||
        sim_add(&(block_t){.base = (address_t)(uintptr_t)memory,
                           .bytes = bytes,
                           .kind = HOST,
                           .device = sim_current()->device,
                           .context = sim_current(),
                           .view = memory}) == NULL) {
        return OUT_OF_MEMORY;
    }
    *data = memory;
    return OK;
}

API int cuMemAllocHost_v2(void **data, size_t bytes)
{
    return cuMemHostAlloc(data, bytes, 0);
}

API int cuMemFreeHost(void *data)
{
    size_t bytes;
    block_t *block;

    IN_CONTEXT;
    block = sim_find((address_t)(uintptr_t)data);
    if (block == NULL || block->kind != HOST || block->view != data) {
        return INVALID_VALUE;
    }
    sim_wait_context(sim_current());
    block = sim_find((address_t)(uintptr_t)data);
    bytes = block->bytes;
    sim_remove(block);
    munmap(data, bytes);
    return OK;
}

API int cuMemHostGetDevicePointer_v2(address_t *address, void *data,
                                     unsigned flags)
{
    const block_t *block;

    IN_CONTEXT;
    block = sim_find((address_t)(uintptr_t)data);
    if (flags != 0 || block == NULL || sim_is_device(block)) {
        return INVALID_VALUE;
    }
    *address = (address_t)(uintptr_t)data; /* "Unified Addressing" */
    return OK;
}
