/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the CUDA domain allocates, and host memory that it registers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/list.h"
#include "memory/aside.h"
#include "memory/cuda.h"

#define ALIGNMENT 256 /* alignment that the driver guarantees */
#define PORTABLE 1    /* CU_MEMHOSTREGISTER_PORTABLE: for all contexts */

static atomic_bool sharing;

void tmsg_cuda_share(void) { atomic_store(&sharing, true); }

bool tmsg_cuda_shares(void) { return atomic_load(&sharing); }

/* A block that is freed while a stream still uses it is retired, unless it is
 * of a pool: it is released once the stream's work has ended. So is a block of
 * any kind whose stream is being captured, where no event can be recorded:
 * `event` is NULL until one can. Each allocation looks for such blocks. */
typedef struct retired {
    struct retired *next;
    tmsg_device_t device;
    tmsg_stream_t stream;
    uint32_t epoch;
    void *data;
    void *event;
} retired_t;

/* A block that cuMemFree() frees beside the caller, for that may wait for all
 * that the device does. */
typedef struct {
    tmsg_aside_job_t job;
    tmsg_device_t device;
    uint32_t epoch;
    void *data;
} freed_t;

static const tmsg_stream_t none;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static retired_t *retired;
static tmsg_aside_t freeing;

bool tmsg_cuda_settle(uint64_t ms) { return tmsg_aside_wait(&freeing, ms); }

static tmsg_cu_address_t address_of(const void *data)
{
    return (tmsg_cu_address_t)(uintptr_t)data;
}

static void free_now(tmsg_device_t device, void *data)
{
    tmsg_cuda_scope_t scope;

    if (tmsg_cuda_enter(device, none, TMSG_CUDA_ALLOCATIONS, &scope) ==
        TMSG_OK) {
        scope.own = false; /* cuMemFree() uses no stream */
        tmsg_cuda_leave(&scope, scope.fn->cuMemFree(address_of(data)),
                        "cuMemFree");
    }
}

static void run_free(tmsg_aside_job_t *job)
{
    freed_t *freed = TMSG_CONTAINER_OF(job, freed_t, job);

    if (freed->epoch == tmsg_cuda_epoch(freed->device)) {
        free_now(freed->device, freed->data);
    }
    free(freed);
}

void tmsg_cuda_free_beside(tmsg_device_t device, void *data)
{
    freed_t *freed = malloc(sizeof(*freed));

    if (freed == NULL) {
        free_now(device, data);
        return;
    }
    *freed =
        (freed_t){{.run = run_free}, device, tmsg_cuda_epoch(device), data};
    tmsg_aside(&freeing, &freed->job);
}

/* Frees a block of no pool. */
static void free_plain(tmsg_device_t device, void *data)
{
    if (tmsg_cuda_shares()) {
        tmsg_cuda_free_beside(device, data);
    } else {
        free_now(device, data);
    }
}

/* Returns whether a block is to be freed to a pool. Where blocks are shared a
 * device has both kinds. cuMemFree() takes a block that the driver does not
 * tell of, whatever it is. */
static bool is_pooled(const tmsg_cuda_scope_t *scope, const void *data)
{
    tmsg_memory_t memory;
    void *pool;

    return tmsg_cuda_has_pools(scope, &pool) &&
           (!tmsg_cuda_shares() ||
            (tmsg_cuda_classify(NULL, data, &memory) == TMSG_OK &&
             memory.kind == TMSG_MEMORY_POOL));
}

static bool retire_block(tmsg_device_t device, void *data, tmsg_stream_t stream)
{
    retired_t *each = malloc(sizeof(*each));
    tmsg_status_t status;

    if (each == NULL) {
        return false;
    }
    *each = (retired_t){.device = device,
                        .stream = stream,
                        .epoch = tmsg_cuda_epoch(device),
                        .data = data};
    status = tmsg_cuda_event_record(NULL, device, stream, &each->event);
    if (status != TMSG_OK && status != TMSG_ERR_BUSY) {
        free(each);
        return false;
    }
    pthread_mutex_lock(&lock);
    each->next = retired;
    retired = each;
    pthread_mutex_unlock(&lock);
    return true;
}

/* Returns whether a retired block can be freed. A failure of its event, or of
 * its stream, says that it will never be known. */
static bool is_over(retired_t *each)
{
    if (each->event == NULL) {
        tmsg_status_t status = tmsg_cuda_event_record(
            NULL, each->device, each->stream, &each->event);

        return status != TMSG_OK && status != TMSG_ERR_BUSY;
    }
    return tmsg_cuda_event_query(NULL, each->event) != TMSG_IN_PROGRESS;
}

static void free_retired(void)
{
    retired_t *done = NULL;

    pthread_mutex_lock(&lock);
    for (retired_t **at = &retired; *at != NULL;) {
        retired_t *each = *at;

        if (!is_over(each)) {
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
        if (each->epoch == tmsg_cuda_epoch(each->device)) {
            tmsg_cuda_free(NULL, each->device, each->data, 0, none);
        }
        if (each->event != NULL) {
            tmsg_cuda_event_free(NULL, each->event);
        }
        free(each);
    }
}

/* Allocates in the order of the scope's stream. */
static int alloc_from_pool(const tmsg_cuda_scope_t *scope, void *pool,
                           uint64_t bytes, tmsg_cu_address_t *address_p)
{
    return pool == NULL
               ? scope->fn->cuMemAllocAsync(address_p, bytes, scope->stream)
               : scope->fn->cuMemAllocFromPoolAsync(address_p, bytes, pool,
                                                    scope->stream);
}

tmsg_status_t tmsg_cuda_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                              uint64_t alignment, tmsg_stream_t stream,
                              void **data_p)
{
    tmsg_cu_address_t address = 0;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status;
    void *pool;

    (void)arg;
    if (alignment > ALIGNMENT || device.type != TMSG_DEVICE_CUDA) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "CUDA memory needs a CUDA device and an alignment of at most %d, "
            "not device type %d and alignment %llu",
            ALIGNMENT, device.type, (unsigned long long)alignment);
    }
    free_retired();
    status = tmsg_cuda_enter(device, stream, TMSG_CUDA_ALLOCATIONS, &scope);
    if (status != TMSG_OK) {
        return status;
    }
    bytes = bytes == 0 ? 1 : bytes;
    if (!tmsg_cuda_shares() && tmsg_cuda_has_pools(&scope, &pool)) {
        int result = alloc_from_pool(&scope, pool, bytes, &address);

        status = tmsg_cuda_leave(&scope, result,
                                 pool == NULL ? "cuMemAllocAsync"
                                              : "cuMemAllocFromPoolAsync");
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

/* A stream that was destroyed meanwhile holds nothing that can be waited for.
 */
void tmsg_cuda_free(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream)
{
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, stream, TMSG_CUDA_ALLOCATIONS, &scope);

    (void)arg;
    (void)bytes;
    if (status == TMSG_ERR_BUSY && retire_block(device, data, stream)) {
        return;
    }
    if (status != TMSG_OK && stream.kind != TMSG_STREAM_NONE) {
        stream = none;
        status = tmsg_cuda_enter(device, stream, TMSG_CUDA_ALLOCATIONS, &scope);
    }
    if (status != TMSG_OK) {
        return; /* The context no longer exists, nor does its memory. */
    }
    scope.own = false; /* Nobody waits for the end of this call. */
    if (is_pooled(&scope, data)) {
        tmsg_cuda_leave(
            &scope, scope.fn->cuMemFreeAsync(address_of(data), scope.stream),
            "cuMemFreeAsync");
        return;
    }
    tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
    if (stream.kind == TMSG_STREAM_NONE ||
        !retire_block(device, data, stream)) {
        free_plain(device, data); /* cuMemFree() waits for the device */
    }
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
