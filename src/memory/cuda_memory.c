/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>

#include "core/error.h"
#include "memory/cuda.h"

/* These are values of CUpointer_attribute. */
enum {
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_IPC_CAPABLE = 10,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    MEMPOOL_HANDLE = 17
};

#define TYPE_HOST 1 /* CU_MEMORYTYPE_HOST */

/* The driver writes an attribute of 1, 4 or 8 bytes into this union. */
typedef union {
    void *pointer;
    size_t size;
    unsigned number;
    int ordinal;
    uint64_t all;
} value_t;

typedef struct {
    value_t context, type, managed, ordinal, shared, base, bytes, pool;
} facts_t;

/* Older drivers refuse a whole query if they do not know one of its attributes.
 * These are the numbers of attributes that drivers know: current ones, those of
 * CUDA 10.2, and older ones. */
static const unsigned counts[] = {8, 7, 4};

static int query_attributes(const tmsg_cuda_functions_t *fn, const void *data,
                            unsigned count, facts_t *facts)
{
    static const int attributes[] = {CONTEXT,
                                     MEMORY_TYPE,
                                     IS_MANAGED,
                                     DEVICE_ORDINAL,
                                     RANGE_START,
                                     RANGE_SIZE,
                                     IS_LEGACY_IPC_CAPABLE,
                                     MEMPOOL_HANDLE};
    void *values[] = {&facts->context, &facts->type, &facts->managed,
                      &facts->ordinal, &facts->base, &facts->bytes,
                      &facts->shared,  &facts->pool};

    *facts = (facts_t){.type.all = 0};
    return fn->cuPointerGetAttributes(count, attributes, values,
                                      (tmsg_cu_address_t)(uintptr_t)data);
}

static int query_known_attributes(const tmsg_cuda_functions_t *fn,
                                  const void *data, facts_t *facts)
{
    static atomic_int level;
    int result = TMSG_CU_INVALID_VALUE;

    for (int i = atomic_load_explicit(&level, memory_order_relaxed); i < 3;
         i++) {
        result = query_attributes(fn, data, counts[i], facts);
        if (result == TMSG_CU_SUCCESS) {
            atomic_store_explicit(&level, i, memory_order_relaxed);
        }
        if (result != TMSG_CU_INVALID_VALUE) {
            break;
        }
    }
    return result;
}

/* Memory that belongs to no context is mapped by pieces or comes from a pool. A
 * driver may have pools without having the attribute for them, or may have
 * neither. */
static int32_t kind_without_context(const tmsg_cuda_functions_t *fn,
                                    const void *data)
{
    uint64_t handle;
    void *address = (void *)(uintptr_t)data;

    if (fn->cuMemRetainAllocationHandle == NULL || fn->cuMemRelease == NULL) {
        return TMSG_MEMORY_MAPPED;
    }
    if (fn->cuMemRetainAllocationHandle(&handle, address) != TMSG_CU_SUCCESS) {
        return TMSG_MEMORY_POOL;
    }
    fn->cuMemRelease(handle);
    return TMSG_MEMORY_MAPPED;
}

static tmsg_memory_t conclude_memory(const tmsg_cuda_functions_t *fn,
                                     const void *data, const facts_t *facts)
{
    tmsg_memory_t memory = {
        .device = {TMSG_DEVICE_CUDA, facts->ordinal.ordinal},
        .base = facts->base.pointer,
        .bytes = facts->bytes.size};

    if (facts->managed.number != 0) {
        memory.device.type = TMSG_DEVICE_CUDA_MANAGED;
        memory.kind = TMSG_MEMORY_MANAGED;
    } else if (facts->type.number == TYPE_HOST) {
        memory.device = (tmsg_device_t){TMSG_DEVICE_CUDA_HOST, 0};
        memory.kind = TMSG_MEMORY_PINNED;
    } else if (facts->pool.pointer != NULL) {
        memory.kind = TMSG_MEMORY_POOL;
    } else if (facts->context.pointer == NULL) {
        memory.kind = kind_without_context(fn, data);
    } else {
        memory.kind = TMSG_MEMORY_DEVICE;
        memory.shared = facts->shared.number != 0;
    }
    return memory;
}

static int count_loads(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    unsigned long long *loads = arg;

    *loads =
        bytes >= offsetof(struct dl_phdr_info, dlpi_subs) ? info->dlpi_adds : 0;
    return 1;
}

/* dlopen() searches every folder for the file to find this out. So the result
 * is kept until the process loads another library. */
bool tmsg_cuda_is_loaded(void)
{
    static atomic_bool loaded;
    static atomic_ullong missed_at;
    unsigned long long loads = 0;
    void *library;

    if (atomic_load_explicit(&loaded, memory_order_relaxed)) {
        return true;
    }
    dl_iterate_phdr(count_loads, &loads);
    if (loads != 0 &&
        loads == atomic_load_explicit(&missed_at, memory_order_relaxed)) {
        return false;
    }
    library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) {
        atomic_store_explicit(&missed_at, loads, memory_order_relaxed);
        return false;
    }
    dlclose(library);
    atomic_store_explicit(&loaded, true, memory_order_relaxed);
    return true;
}

/* If there is no context to enter, the function asks the driver all the same.
 * The memory may belong to a context of the application that is not current
 * here. */
tmsg_status_t tmsg_cuda_classify(void *arg, const void *data,
                                 tmsg_memory_t *memory_p)
{
    tmsg_cuda_scope_t scope = {.device = -1};
    tmsg_memory_t memory = {.kind = TMSG_MEMORY_UNKNOWN};
    tmsg_status_t status;
    facts_t facts;
    int result;

    (void)arg;
    if (tmsg_cuda_is_loaded() && tmsg_cuda_driver()->forked) {
        /* It may be the parent's, which is not the host's. */
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s",
                              tmsg_cuda_driver()->why);
    }
    if (!tmsg_cuda_is_loaded() ||
        tmsg_cuda_driver()->outcome != TMSG_CUDA_READY) {
        return TMSG_ERR_NOT_FOUND;
    }
    scope.fn = &tmsg_cuda_driver()->fn;
    status = tmsg_cuda_enter_any(&scope);
    if (status != TMSG_OK && status != TMSG_ERR_NOT_FOUND) {
        return status;
    }
    result = query_known_attributes(scope.fn, data, &facts);
    if (result == TMSG_CU_SUCCESS && facts.type.number != 0) {
        memory = conclude_memory(scope.fn, data, &facts);
    }
    if (status != TMSG_OK && result == TMSG_CU_INVALID_CONTEXT) {
        return TMSG_ERR_NOT_FOUND;
    }
    status = tmsg_cuda_leave(&scope, result, "cuPointerGetAttributes");
    if (status != TMSG_OK) {
        return status;
    }
    if (memory.kind == TMSG_MEMORY_UNKNOWN) {
        return TMSG_ERR_NOT_FOUND;
    }
    *memory_p = memory;
    return TMSG_OK;
}
