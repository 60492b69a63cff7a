/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/error.h"
#include "memory/cuda.h"

#define ALIGNMENT 256 /* alignment that the driver guarantees */
#define PORTABLE 1    /* CU_MEMHOSTREGISTER_PORTABLE: for all contexts */

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

/* A retired block was freed while a stream still used it, and comes from no
 * pool. It is released once the stream's work has ended. Each allocation looks
 * for such blocks. */
typedef struct retired {
    struct retired *next;
    tmsg_device_t device;
    void *data;
    void *event;
} retired_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static retired_t *retired;

static void free_now(tmsg_device_t device, void *data)
{
    static const tmsg_stream_t none;
    tmsg_cuda_scope_t scope;

    if (tmsg_cuda_enter(device, none, TMSG_CUDA_ALLOCATIONS, &scope) ==
        TMSG_OK) {
        tmsg_cuda_leave(&scope,
                        scope.fn->cuMemFree((tmsg_cu_address_t)(uintptr_t)data),
                        "cuMemFree");
    }
}

static void free_retired(void)
{
    retired_t *done = NULL;

    pthread_mutex_lock(&lock);
    for (retired_t **at = &retired; *at != NULL;) {
        retired_t *each = *at;

        if (tmsg_cuda_event_query(NULL, each->event) == TMSG_IN_PROGRESS) {
            at = &each->next;
            continue;
        }
        *at = each->next;
        each->next = done;
        done = each;
    }
    pthread_mutex_unlock(&lock);
    while (done != NULL) {
        retired_t *each = done;

        done = each->next;
        free_now(each->device, each->data);
        tmsg_cuda_event_free(NULL, each->event);
        free(each);
    }
}

static bool retire_block(tmsg_device_t device, void *data, tmsg_stream_t stream)
{
    retired_t *each = malloc(sizeof(*each));

    if (each == NULL) {
        return false;
    }
    *each = (retired_t){.device = device, .data = data};
    if (tmsg_cuda_event_record(NULL, device, stream, &each->event) != TMSG_OK) {
        free(each);
        return false;
    }
    pthread_mutex_lock(&lock);
    each->next = retired;
    retired = each;
    pthread_mutex_unlock(&lock);
    return true;
}

tmsg_status_t tmsg_cuda_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                              uint64_t alignment, tmsg_stream_t stream,
                              void **data_p)
{
    tmsg_cu_address_t address = 0;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status;

    (void)arg;
    if (alignment > ALIGNMENT || device.type != TMSG_DEVICE_CUDA) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "CUDA memory is allocated on a CUDA device, at "
                              "multiples of %d: not on device type %d, of %llu",
                              ALIGNMENT, device.type,
                              (unsigned long long)alignment);
    }
    free_retired();
    status = tmsg_cuda_enter(device, stream, TMSG_CUDA_ALLOCATIONS, &scope);
    if (status != TMSG_OK) {
        return status;
    }
    bytes = bytes == 0 ? 1 : bytes;
    if (tmsg_cuda_has_pools(&scope)) {
        int result = scope.fn->cuMemAllocAsync(&address, bytes, scope.stream);

        status = tmsg_cuda_leave(&scope, result, "cuMemAllocAsync");
        if (status != TMSG_OK && result == TMSG_CU_SUCCESS) {
            tmsg_cuda_free(NULL, device, (void *)(uintptr_t)address, bytes,
                           stream);
        }
    } else {
        scope.own = false; /* cuMemAlloc() uses no stream */
        status = tmsg_cuda_leave(&scope, scope.fn->cuMemAlloc(&address, bytes),
                                 "cuMemAlloc");
    }
    if (status == TMSG_OK) {
        *data_p = (void *)(uintptr_t)address;
    }
    return status;
}

void tmsg_cuda_free(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream)
{
    tmsg_cuda_scope_t scope;
    bool pools;

    (void)arg;
    (void)bytes;
    if (tmsg_cuda_enter(device, stream, TMSG_CUDA_ALLOCATIONS, &scope) !=
        TMSG_OK) {
        return; /* The context no longer exists, nor does its memory. */
    }
    pools = tmsg_cuda_has_pools(&scope);
    if (pools) {
        scope.own = false; /* Nobody waits for the end of this call. */
        tmsg_cuda_leave(&scope,
                        scope.fn->cuMemFreeAsync(
                            (tmsg_cu_address_t)(uintptr_t)data, scope.stream),
                        "cuMemFreeAsync");
        return;
    }
    if (stream.kind != TMSG_STREAM_NONE && retire_block(device, data, stream)) {
        tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
        return;
    }
    /* The function waits for the stream of a block that it cannot retire. */
    scope.own = true;
    tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
    free_now(device, data);
}

tmsg_status_t tmsg_cuda_pin(void *arg, void *host, uint64_t bytes)
{
    tmsg_cuda_scope_t scope;
    tmsg_status_t status = tmsg_cuda_enter_any(&scope);
    int result;

    (void)arg;
    if (status != TMSG_OK) {
        return status;
    }
    result = scope.fn->cuMemHostRegister(host, bytes, PORTABLE);
    if (result != TMSG_CU_SUCCESS && result != TMSG_CU_ALREADY_REGISTERED) {
        /* The failed call may have registered the range all the same. */
        scope.fn->cuMemHostUnregister(host);
    }
    status = tmsg_cuda_leave(&scope, result, "cuMemHostRegister");
    return result == TMSG_CU_ALREADY_REGISTERED
               ? tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                                "that host memory is registered already")
               : status;
}

void tmsg_cuda_unpin(void *arg, void *host, uint64_t bytes)
{
    tmsg_cuda_scope_t scope;

    (void)arg;
    (void)bytes;
    if (tmsg_cuda_enter_any(&scope) == TMSG_OK) {
        tmsg_cuda_leave(&scope, scope.fn->cuMemHostUnregister(host),
                        "cuMemHostUnregister");
    }
}
