/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools of the simulated driver: "Stream Ordered Memory Allocator". */
#include "gpu/sim/inside.h"

#include <stdlib.h>

#define POOL_MAGIC 0x506f6f6cu
#define KEPT 64 /* blocks that a pool keeps */

enum {
    RELEASE_THRESHOLD = 4,
    RESERVED_CURRENT = 5,
    RESERVED_HIGH = 6,
    USED_CURRENT = 7,
    USED_HIGH = 8
};

struct pool {
    uint32_t magic;
    int device;
    uint64_t handle_types, threshold, reserved, reserved_high, used, used_high;
    struct {
        address_t base;
        size_t bytes;
    } kept[KEPT];
};

static pool_t defaults[DEVICES];

pool_t *sim_default_pool(int device)
{
    pool_t *pool = &defaults[device];

    pool->magic = POOL_MAGIC;
    pool->device = device;
    return pool;
}

uint64_t sim_pool_handle_types(const pool_t *pool)
{
    return pool->handle_types;
}

static void grow(uint64_t *current, uint64_t *high, uint64_t bytes)
{
    *current += bytes;
    *high = *high > *current ? *high : *current;
}

/* A block that was freed is given out again as it is; its address then means
 * another allocation (BUFFER_ID). */
static block_t *take_kept(pool_t *pool, size_t bytes)
{
    for (int i = 0; i < KEPT; i++) {
        if (pool->kept[i].base != 0 && pool->kept[i].bytes == bytes) {
            block_t *block = sim_find(pool->kept[i].base);

            pool->kept[i].base = 0;
            sim_renew(block);
            block->dying = false;
            return block;
        }
    }
    return NULL;
}

int sim_take_from_pool(pool_t *pool, size_t bytes, stream_t *stream,
                       address_t *address_p)
{
    size_t chunks = (bytes + CHUNK - 1) / CHUNK * CHUNK;
    block_t *block = take_kept(pool, bytes);

    if (block == NULL) {
        block = sim_take(pool->device, bytes, POOLED, NULL);
        if (block == NULL) {
            return OUT_OF_MEMORY;
        }
        grow(&pool->reserved, &pool->reserved_high, chunks);
    }
    grow(&pool->used, &pool->used_high, bytes);
    block->pool = pool;
    block->unborn = true;
    sim_submit(stream, &(op_t){.work = BORN, .to = block->base});
    COUNT(allocs_pool);
    *address_p = block->base;
    return OK;
}

static void release(pool_t *pool, block_t *block)
{
    pool->reserved -= (block->bytes + CHUNK - 1) / CHUNK * CHUNK;
    sim_give(block);
}

/* "When more than the release threshold bytes of memory are held by the memory
 * pool, the allocator will try to release memory back to the OS on the next
 * call to stream, event or context synchronize": here at once. */
void sim_pool_gave(block_t *block)
{
    pool_t *pool = block->pool;

    pool->used -= block->bytes;
    for (int i = 0; i < KEPT && pool->reserved <= pool->threshold; i++) {
        if (pool->kept[i].base == 0) {
            pool->kept[i].base = block->base;
            pool->kept[i].bytes = block->bytes;
            block->dying = true;
            block->unborn = true;
            return;
        }
    }
    release(pool, block);
}

static int alloc(address_t *address, size_t bytes, pool_t *pool, void *handle)
{
    stream_t *stream;
    bool node;
    int result;

    IN_CONTEXT;
    if (bytes == 0) {
        return INVALID_VALUE;
    }
    if (pool == NULL) { /* "from the memory pool current to the device" */
        pool = sim_default_pool(sim_current()->device);
    }
    if (pool->magic != POOL_MAGIC) {
        return INVALID_VALUE;
    }
    result = sim_stream_for_work(handle, &stream, &node);
    if (result != OK) {
        return result;
    }
    /* A graph would own the memory ("Graph memory nodes"), which nobody needs
     * here. */
    return node ? NOT_SUPPORTED
                : sim_take_from_pool(pool, bytes, stream, address);
}

API int cuMemAllocAsync(address_t *address, size_t bytes, void *stream)
{
    return alloc(address, bytes, NULL, stream);
}

API int cuMemAllocFromPoolAsync(address_t *address, size_t bytes, void *pool,
                                void *stream)
{
    return pool == NULL ? INVALID_VALUE : alloc(address, bytes, pool, stream);
}

/* Also of memory of cuMemAlloc(): "the memory can be freed by
 * cuMemFreeAsync()". */
API int cuMemFreeAsync(address_t address, void *handle)
{
    stream_t *stream;
    block_t *block;
    bool node;
    int result;

    IN_CONTEXT;
    block = sim_find(address);
    if (block == NULL || block->base != address || block->kind != POOLED ||
        block->dying) {
        return INVALID_VALUE;
    }
    result = sim_stream_for_work(handle, &stream, &node);
    if (result == OK && !node) {
        block->dying = true;
        COUNT(frees);
        sim_submit(stream, &(op_t){.work = GIVE, .to = address});
    }
    return result;
}

/* CUmemPoolProps */
typedef struct {
    int alloc_type, handle_types, location_type, location_id;
    void *security;
    size_t max_bytes;
    unsigned short usage;
} props_t;

API int cuMemPoolCreate(void **pool_p, const void *wanted)
{
    const props_t *props = wanted;
    pool_t *pool;

    ANYWHERE;
    if (props->alloc_type != 1 || props->location_type != 1 ||
        props->location_id < 0 || props->location_id >= sim_devices ||
        (props->handle_types & ~1) != 0) {
        return INVALID_VALUE;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return OUT_OF_MEMORY;
    }
    pool->magic = POOL_MAGIC;
    pool->device = props->location_id;
    pool->handle_types = (uint64_t)props->handle_types;
    *pool_p = pool;
    return OK;
}

#define CHECK_POOL(pool)                                                       \
    if ((pool) == NULL || ((pool_t *)(pool))->magic != POOL_MAGIC) {           \
        return INVALID_VALUE;                                                  \
    }                                                                          \
    (void)0

static void trim(pool_t *pool, size_t keep)
{
    for (int i = 0; i < KEPT; i++) {
        if (pool->kept[i].base != 0 && pool->reserved > keep) {
            block_t *block = sim_find(pool->kept[i].base);

            pool->kept[i].base = 0;
            release(pool, block);
        }
    }
}

/* "If any pointers obtained from this pool haven't been freed, the pool will
 * be destroyed when they are": it stays then. */
API int cuMemPoolDestroy(void *handle)
{
    ANYWHERE;
    CHECK_POOL(handle);
    if (handle >= (void *)&defaults[0] && handle < (void *)&defaults[DEVICES]) {
        return INVALID_VALUE;
    }
    trim(handle, 0);
    ((pool_t *)handle)->threshold = 0;
    return OK;
}

API int cuMemPoolTrimTo(void *pool, size_t keep)
{
    ANYWHERE;
    CHECK_POOL(pool);
    trim(pool, keep);
    return OK;
}

static uint64_t *field(pool_t *pool, int attribute)
{
    switch (attribute) {
    case RELEASE_THRESHOLD:
        return &pool->threshold;
    case RESERVED_CURRENT:
        return &pool->reserved;
    case RESERVED_HIGH:
        return &pool->reserved_high;
    case USED_CURRENT:
        return &pool->used;
    case USED_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

/* The first three attributes are of reuse, and are numbers of 4 bytes. */
API int cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    ANYWHERE;
    CHECK_POOL(pool);
    if (attribute >= 1 && attribute < RELEASE_THRESHOLD) {
        *(int *)value = 1;
        return OK;
    }
    if (field(pool, attribute) == NULL) {
        return INVALID_VALUE;
    }
    *(uint64_t *)value = *field(pool, attribute);
    return OK;
}

API int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    ANYWHERE;
    CHECK_POOL(pool);
    if (attribute >= 1 && attribute < RELEASE_THRESHOLD) {
        return OK;
    }
    if (field(pool, attribute) == NULL ||
        (attribute != RELEASE_THRESHOLD && *(uint64_t *)value != 0)) {
        return INVALID_VALUE; /* "the high watermarks can only be reset" */
    }
    *field(pool, attribute) = *(uint64_t *)value;
    return OK;
}

API int cuDeviceGetDefaultMemPool(void **pool, int device)
{
    ANYWHERE;
    if (device < 0 || device >= sim_devices) {
        return INVALID_DEVICE;
    }
    *pool = sim_default_pool(device);
    return OK;
}

API int cuDeviceGetMemPool(void **pool, int device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

API int cuMemPoolSetAccess(void *pool, const void *access, size_t many)
{
    (void)access;
    (void)many;
    ANYWHERE;
    CHECK_POOL(pool);
    return OK;
}

/* A pool that was not made for it cannot be shared. What is exported here
 * nobody imports: UCX shares pools by fabric handles alone (cuda_ipc_md.c,
 * uct_cuda_ipc_mem_add_reg()), which this device has none of. */
API int cuMemPoolExportToShareableHandle(void *handle, void *pool, int type,
                                         uint64_t flags)
{
    (void)handle;
    (void)flags;
    ANYWHERE;
    CHECK_POOL(pool);
    return ((pool_t *)pool)->handle_types == 0 || type != 1 ? INVALID_VALUE
                                                            : NOT_SUPPORTED;
}

API int cuMemPoolImportFromShareableHandle(void **pool, void *handle, int type,
                                           uint64_t flags)
{
    (void)pool;
    (void)handle;
    (void)type;
    (void)flags;
    ANYWHERE;
    return NOT_SUPPORTED;
}

API int cuMemPoolExportPointer(void *data, address_t address)
{
    (void)data;
    (void)address;
    ANYWHERE;
    return NOT_SUPPORTED;
}

API int cuMemPoolImportPointer(address_t *address, void *pool, void *data)
{
    (void)address;
    (void)pool;
    (void)data;
    ANYWHERE;
    return NOT_SUPPORTED;
}
