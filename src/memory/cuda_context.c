/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "memory/cuda.h"
#include "memory/device.h"

#define NON_BLOCKING 1             /* CU_STREAM_NON_BLOCKING */
#define MEMORY_POOLS_SUPPORTED 115 /* a CUdevice_attribute */
#define LAST_DEFAULT_STREAM 2      /* 1: legacy, 2: per thread */
#define RELAXED 2                  /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define PINNED 1                   /* CU_MEM_ALLOCATION_TYPE_PINNED */
#define ON_DEVICE 1                /* CU_MEM_LOCATION_TYPE_DEVICE */
#define RELEASE_THRESHOLD 4        /* a CUmemPool_attribute */

typedef struct {
    bool named; /* tmsg_domain_use() has named the device */
    bool asked; /* `pools` is known, and does not change any more */
    bool pools;
    void *pool; /* the domain's own; NULL: the device's default pool */
    int handle;
    void *primary; /* the retained primary context, or NULL */
    uint64_t id;   /* of that context; 0: unknown */
    uint32_t epoch;
    void *streams[TMSG_CUDA_OWN_STREAMS];
} device_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_t devices[TMSG_CUDA_DEVICES];

static tmsg_status_t get_driver(const tmsg_cuda_driver_t **driver_p)
{
    *driver_p = tmsg_cuda_driver();
    if ((*driver_p)->outcome != TMSG_CUDA_READY) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", (*driver_p)->why);
    }
    return TMSG_OK;
}

static tmsg_status_t get_device(tmsg_device_t device,
                                const tmsg_cuda_driver_t **driver_p)
{
    tmsg_status_t status = get_driver(driver_p);

    if (status == TMSG_OK &&
        (device.id < 0 || device.id >= (*driver_p)->devices ||
         device.id >= TMSG_CUDA_DEVICES)) {
        status = tmsg_error_set(
            TMSG_ERR_NOT_FOUND,
            "there is no CUDA device %d: the driver shows %d devices",
            device.id, (*driver_p)->devices);
    }
    return status;
}

uint64_t tmsg_cuda_context_id(const tmsg_cuda_functions_t *fn, void *context)
{
    unsigned long long id = 0;
    int result;

    if (fn->cuCtxGetId == NULL) {
        return 0;
    }
    result = fn->cuCtxGetId(context, &id);
    return result == TMSG_CU_SUCCESS ? id
           : result == TMSG_CU_INVALID_CONTEXT ||
                   result == TMSG_CU_CONTEXT_DESTROYED
               ? TMSG_CUDA_GONE
               : 0;
}

/* Tells whether the application has destroyed the primary context, as by
 * cudaDeviceReset(). It may have made another one, at the same address. */
static bool is_reset(const tmsg_cuda_functions_t *fn, const device_t *device)
{
    uint64_t id = tmsg_cuda_context_id(fn, device->primary);
    int active = 1;
    unsigned flags;

    return (id != 0 && device->id != 0 && id != device->id) ||
           (fn->cuDevicePrimaryCtxGetState(device->handle, &flags, &active) ==
                TMSG_CU_SUCCESS &&
            !active);
}

/* Forgets a primary context that was destroyed, if one was. Streams and pool
 * have ended with it; the reference to it has not. Lock held. */
static void notice_reset(const tmsg_cuda_functions_t *fn, device_t *device)
{
    if (device->primary != NULL && is_reset(fn, device)) {
        fn->cuDevicePrimaryCtxRelease(device->handle);
        *device = (device_t){.named = device->named,
                             .handle = device->handle,
                             .epoch = device->epoch + 1};
    }
}

uint32_t tmsg_cuda_epoch(tmsg_device_t device)
{
    uint32_t epoch;

    if (device.id < 0 || device.id >= TMSG_CUDA_DEVICES) {
        return 0; /* of which nothing can be had */
    }
    if (tmsg_cuda_driver()->forked) {
        return UINT32_MAX;
    }
    pthread_mutex_lock(&lock);
    notice_reset(&tmsg_cuda_driver()->fn, &devices[device.id]);
    epoch = devices[device.id].epoch;
    pthread_mutex_unlock(&lock);
    return epoch;
}

/* Requires that the caller holds the lock. */
static tmsg_status_t retain_primary(const tmsg_cuda_driver_t *driver, int id,
                                    device_t *device)
{
    const tmsg_cuda_functions_t *fn = &driver->fn;
    int active = 0, result;
    void *primary = NULL;
    unsigned flags;

    notice_reset(fn, device);
    if (device->primary != NULL) {
        return TMSG_OK;
    }
    result = fn->cuDeviceGet(&device->handle, id);
    if (result != TMSG_CU_SUCCESS) {
        return tmsg_cuda_check(driver, result, "cuDeviceGet");
    }
    result = fn->cuDevicePrimaryCtxGetState(device->handle, &flags, &active);
    if (result != TMSG_CU_SUCCESS) {
        return tmsg_cuda_check(driver, result, "cuDevicePrimaryCtxGetState");
    }
    if (!active && !device->named) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "CUDA device %d is not in use here: its primary "
                              "context is not active, and no tmsg_domain_use() "
                              "has named it",
                              id);
    }
    result = fn->cuDevicePrimaryCtxRetain(&primary, device->handle);
    if (result == TMSG_CU_SUCCESS) {
        device->primary = primary;
        device->id = tmsg_cuda_context_id(fn, primary);
    }
    return tmsg_cuda_check(driver, result, "cuDevicePrimaryCtxRetain");
}

/* Any driver call may return the error of earlier work, whether or not the call
 * itself was done. So this function repeats a call that failed. */
static int get_current(const tmsg_cuda_functions_t *fn, void **context_p)
{
    int result;

    *context_p = NULL;
    result = fn->cuCtxGetCurrent(context_p);
    return result == TMSG_CU_SUCCESS ? result : fn->cuCtxGetCurrent(context_p);
}

/* The results of the driver do not matter here: only a successful call writes
 * that context to `current`. */
static bool is_now(const tmsg_cuda_functions_t *fn, const void *context)
{
    void *current;

    (void)get_current(fn, &current);
    return current == context;
}

static void pop_context(const tmsg_cuda_scope_t *scope)
{
    void *context = NULL;

    if (scope->pushed &&
        scope->fn->cuCtxPopCurrent(&context) != TMSG_CU_SUCCESS &&
        context != scope->context && is_now(scope->fn, scope->context)) {
        scope->fn->cuCtxPopCurrent(&context);
    }
}

/* Puts this thread into the relaxed mode of capture. A call that failed with
 * the error of earlier work may have been done: it is repeated, and what is not
 * RELAXED then is the mode before. */
static void relax_capture(tmsg_cuda_scope_t *scope)
{
    const tmsg_cuda_functions_t *fn = scope->fn;
    int mode = RELAXED, again = RELAXED, result;

    if (fn->cuThreadExchangeStreamCaptureMode == NULL) {
        return;
    }
    result = fn->cuThreadExchangeStreamCaptureMode(&mode);
    if (result != TMSG_CU_SUCCESS) {
        fn->cuThreadExchangeStreamCaptureMode(&again);
    }
    scope->capture_mode = again != RELAXED ? again : mode;
    scope->relaxed = scope->capture_mode != RELAXED;
}

static void restore_capture(const tmsg_cuda_functions_t *fn, int mode)
{
    int again = mode;

    if (fn->cuThreadExchangeStreamCaptureMode(&again) != TMSG_CU_SUCCESS &&
        again != RELAXED) { /* else it was done */
        fn->cuThreadExchangeStreamCaptureMode(&mode);
    }
}

static void end_scope(const tmsg_cuda_scope_t *scope)
{
    pop_context(scope);
    if (scope->relaxed) {
        restore_capture(scope->fn, scope->capture_mode);
    }
}

int tmsg_cuda_relax(void)
{
    tmsg_cuda_scope_t scope = {.fn = &tmsg_cuda_driver()->fn};

    relax_capture(&scope);
    return scope.relaxed ? scope.capture_mode : RELAXED;
}

void tmsg_cuda_restore(int mode)
{
    if (mode != RELAXED) {
        restore_capture(&tmsg_cuda_driver()->fn, mode);
    }
}

/* A context that is current already is not pushed. Nothing is pushed either if
 * the current context is unknown. So if `context` is current after
 * cuCtxPushCurrent(), that call has pushed it, whatever the driver returned. */
static tmsg_status_t push_context(const tmsg_cuda_driver_t *driver,
                                  void *context, tmsg_cuda_scope_t *scope)
{
    const tmsg_cuda_functions_t *fn = &driver->fn;
    void *before;
    int result = get_current(fn, &before);

    scope->context = context;
    if (result != TMSG_CU_SUCCESS || before == context) {
        return tmsg_cuda_check(driver, result, "cuCtxGetCurrent");
    }
    result = fn->cuCtxPushCurrent(context);
    scope->pushed = result == TMSG_CU_SUCCESS || is_now(fn, context);
    if (result != TMSG_CU_SUCCESS) {
        pop_context(scope);
        scope->pushed = false;
    }
    return tmsg_cuda_check(driver, result, "cuCtxPushCurrent");
}

static tmsg_status_t push_primary(const tmsg_cuda_driver_t *driver, int id,
                                  tmsg_cuda_scope_t *scope)
{
    tmsg_status_t status;
    void *primary;

    pthread_mutex_lock(&lock);
    status = retain_primary(driver, id, &devices[id]);
    primary = devices[id].primary;
    pthread_mutex_unlock(&lock);
    return status == TMSG_OK ? push_context(driver, primary, scope) : status;
}

/* Requires that the primary context is current. */
static tmsg_status_t take_own_stream(const tmsg_cuda_driver_t *driver, int id,
                                     tmsg_cuda_own_t own,
                                     tmsg_cuda_scope_t *scope)
{
    void **stream_p = &devices[id].streams[own], *stream = NULL;
    int result = TMSG_CU_SUCCESS;

    pthread_mutex_lock(&lock);
    if (*stream_p == NULL) {
        result = driver->fn.cuStreamCreate(&stream, NON_BLOCKING);
        *stream_p = result == TMSG_CU_SUCCESS ? stream : NULL;
    }
    scope->stream = *stream_p;
    scope->own = true;
    pthread_mutex_unlock(&lock);
    return tmsg_cuda_check(driver, result, "cuStreamCreate");
}

/* Tells whether the current context belongs to that device. */
static bool is_current(const tmsg_cuda_driver_t *driver, int id, void **context)
{
    int device, wanted;

    return get_current(&driver->fn, context) == TMSG_CU_SUCCESS &&
           *context != NULL &&
           driver->fn.cuCtxGetDevice(&device) == TMSG_CU_SUCCESS &&
           driver->fn.cuDeviceGet(&wanted, id) == TMSG_CU_SUCCESS &&
           device == wanted;
}

static tmsg_status_t enter_stream(const tmsg_cuda_driver_t *driver,
                                  tmsg_stream_t stream,
                                  tmsg_cuda_scope_t *scope)
{
    void *context = NULL;

    scope->stream = (void *)(uintptr_t)stream.handle;
    if (stream.handle > LAST_DEFAULT_STREAM &&
        driver->fn.cuStreamGetCtx != NULL) {
        tmsg_status_t status = tmsg_cuda_check(
            driver, driver->fn.cuStreamGetCtx(scope->stream, &context),
            "cuStreamGetCtx");

        return status == TMSG_OK ? push_context(driver, context, scope)
                                 : status;
    }
    if (is_current(driver, scope->device, &context)) {
        scope->context = context;
        return TMSG_OK;
    }
    return push_primary(driver, scope->device, scope);
}

static tmsg_status_t refuse_captured(const tmsg_cuda_scope_t *scope)
{
    int capturing = 0, result;

    if (scope->fn->cuStreamIsCapturing == NULL) {
        return TMSG_OK;
    }
    result = scope->fn->cuStreamIsCapturing(scope->stream, &capturing);
    if (result != TMSG_CU_CAPTURE_IMPLICIT && capturing == 0) {
        return TMSG_OK; /* another error is told by the calls that follow */
    }
    return tmsg_error_set(
        TMSG_ERR_BUSY,
        "the CUDA stream is being captured into a graph%s: its work would be "
        "recorded, not executed; use another stream, or end the capture first",
        result == TMSG_CU_CAPTURE_IMPLICIT
            ? " (another stream of its context is, which the "
              "legacy default stream joins)"
            : "");
}

static tmsg_status_t check_cuda_stream(tmsg_stream_t stream)
{
    if (stream.kind == TMSG_STREAM_NONE) {
        return TMSG_OK;
    }
    if (stream.kind != TMSG_STREAM_CUDA) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "a stream of kind %d is not a CUDA stream",
                              stream.kind);
    }
    if (stream.handle == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "a CUDA stream of handle 0 may mean either "
                              "default stream: 1 is the legacy one, 2 that of "
                              "the thread");
    }
    return TMSG_OK;
}

/* `records`: the stream may be one that is captured. */
static tmsg_status_t enter(tmsg_device_t device, tmsg_stream_t stream,
                           tmsg_cuda_own_t own, bool records,
                           tmsg_cuda_scope_t *scope_p)
{
    tmsg_cuda_scope_t scope = {.device = device.id};
    const tmsg_cuda_driver_t *driver;
    tmsg_status_t status = check_cuda_stream(stream);

    if (status == TMSG_OK) {
        status = get_device(device, &driver);
    }
    if (status != TMSG_OK) {
        return status;
    }
    scope.fn = &driver->fn;
    relax_capture(&scope);
    if (stream.kind == TMSG_STREAM_CUDA) {
        status = enter_stream(driver, stream, &scope);
        if (status == TMSG_OK && !records) {
            status = refuse_captured(&scope);
        }
    } else {
        status = push_primary(driver, device.id, &scope);
        if (status == TMSG_OK) {
            status = take_own_stream(driver, device.id, own, &scope);
        }
    }
    if (status != TMSG_OK) {
        end_scope(&scope);
        return status;
    }
    *scope_p = scope;
    return TMSG_OK;
}

tmsg_status_t tmsg_cuda_enter(tmsg_device_t device, tmsg_stream_t stream,
                              tmsg_cuda_own_t own, tmsg_cuda_scope_t *scope_p)
{
    return enter(device, stream, own, false, scope_p);
}

tmsg_status_t tmsg_cuda_enter_to_record(tmsg_device_t device,
                                        tmsg_stream_t stream,
                                        tmsg_cuda_scope_t *scope_p)
{
    return enter(device, stream, TMSG_CUDA_COPIES, true, scope_p);
}

/* Makes the context of some device current that is in use. */
static tmsg_status_t push_any(const tmsg_cuda_driver_t *driver,
                              tmsg_cuda_scope_t *scope)
{
    if (get_current(&driver->fn, &scope->context) == TMSG_CU_SUCCESS &&
        scope->context != NULL) {
        return TMSG_OK;
    }
    for (int id = 0; id < driver->devices && id < TMSG_CUDA_DEVICES; id++) {
        tmsg_status_t status = push_primary(driver, id, scope);

        /* UNSUPPORTED means that the device is not in use; the loop goes on. */
        if (status != TMSG_ERR_UNSUPPORTED) {
            return status;
        }
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                          "no CUDA device is in use here: no primary context "
                          "is active, and no tmsg_domain_use() has named one");
}

tmsg_status_t tmsg_cuda_enter_any(tmsg_cuda_scope_t *scope_p)
{
    tmsg_cuda_scope_t scope = {.device = -1};
    const tmsg_cuda_driver_t *driver;
    tmsg_status_t status = get_driver(&driver);

    if (status != TMSG_OK) {
        return status;
    }
    scope.fn = &driver->fn;
    relax_capture(&scope);
    status = push_any(driver, &scope);
    if (status == TMSG_OK) {
        *scope_p = scope;
    } else {
        end_scope(&scope);
    }
    return status;
}

void tmsg_cuda_within(void (*call)(void *arg), void *arg)
{
    tmsg_cuda_scope_t scope;
    bool entered = tmsg_cuda_enter_any(&scope) == TMSG_OK;

    call(arg);
    if (entered) {
        end_scope(&scope);
    }
}

tmsg_status_t tmsg_cuda_enter_context(void *context, tmsg_cuda_scope_t *scope_p)
{
    const tmsg_cuda_driver_t *driver;
    tmsg_cuda_scope_t scope = {.device = -1};
    tmsg_status_t status = get_driver(&driver);

    if (status != TMSG_OK) {
        return status;
    }
    scope.fn = &driver->fn;
    relax_capture(&scope);
    status = push_context(driver, context, &scope);
    if (status == TMSG_OK) {
        *scope_p = scope;
    } else {
        end_scope(&scope);
    }
    return status;
}

int tmsg_cuda_wait(const tmsg_cuda_functions_t *fn, void *stream)
{
    int result = fn->cuStreamSynchronize(stream);

    if (result != TMSG_CU_SUCCESS) {
        fn->cuStreamSynchronize(stream);
    }
    return result;
}

tmsg_status_t tmsg_cuda_leave(const tmsg_cuda_scope_t *scope, int result,
                              const char *call)
{
    int waited =
        scope->own ? tmsg_cuda_wait(scope->fn, scope->stream) : TMSG_CU_SUCCESS;

    if (result == TMSG_CU_SUCCESS) {
        result = waited;
        call = waited == TMSG_CU_SUCCESS ? call : "cuStreamSynchronize";
    }
    end_scope(scope);
    return tmsg_cuda_check(tmsg_cuda_driver(), result, call);
}

/* Makes a pool of the domain's own. A pool returns memory that is free to the
 * driver with each wait for a stream, beyond a threshold that is 0 in the
 * device's default pool, which the application may set as it likes. Without a
 * pool of its own the domain uses that one. */
static void make_pool(const tmsg_cuda_functions_t *fn, device_t *device)
{
    const tmsg_cu_pool_t made = {
        .type = PINNED, .place = ON_DEVICE, .device = device->handle};
    uint64_t kept = TMSG_CUDA_POOL_BYTES;
    void *pool = NULL;

    if (fn->cuMemPoolCreate == NULL || fn->cuMemPoolSetAttribute == NULL ||
        fn->cuMemPoolDestroy == NULL || fn->cuMemAllocFromPoolAsync == NULL) {
        return;
    }
    (void)fn->cuMemPoolCreate(&pool, &made);
    if (pool != NULL && fn->cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD,
                                                  &kept) != TMSG_CU_SUCCESS) {
        fn->cuMemPoolDestroy(pool);
        pool = NULL;
    }
    device->pool = pool;
}

/* Memory from a pool must be freed to a pool. So the first answer about a
 * device holds until the end. */
bool tmsg_cuda_has_pools(const tmsg_cuda_scope_t *scope, void **pool_p)
{
    const tmsg_cuda_functions_t *fn = scope->fn;
    device_t *device = &devices[scope->device];
    int pools = 0;
    bool answer;

    if (fn->cuMemAllocAsync == NULL || fn->cuMemFreeAsync == NULL) {
        return false;
    }
    pthread_mutex_lock(&lock);
    if (!device->asked) {
        device->asked = true;
        device->pools =
            fn->cuDeviceGet(&device->handle, scope->device) ==
                TMSG_CU_SUCCESS &&
            fn->cuDeviceGetAttribute(&pools, MEMORY_POOLS_SUPPORTED,
                                     device->handle) == TMSG_CU_SUCCESS &&
            pools != 0;
        if (device->pools) {
            make_pool(fn, device);
        }
    }
    answer = device->pools;
    *pool_p = device->pool;
    pthread_mutex_unlock(&lock);
    return answer;
}

bool tmsg_cuda_is_own(const tmsg_cuda_scope_t *scope)
{
    bool own;

    pthread_mutex_lock(&lock);
    own = scope->stream == devices[scope->device].streams[TMSG_CUDA_COPIES];
    pthread_mutex_unlock(&lock);
    return own;
}

tmsg_status_t tmsg_cuda_use(void *arg, tmsg_device_t device)
{
    const tmsg_cuda_driver_t *driver;
    tmsg_status_t status = get_device(device, &driver);

    (void)arg;
    if (status == TMSG_OK) {
        pthread_mutex_lock(&lock);
        devices[device.id].named = true;
        pthread_mutex_unlock(&lock);
    }
    return status;
}

/* Writes it as NVML and CUDA_VISIBLE_DEVICES do. A part of a GPU (MIG) has an
 * identity of its own; only its name tells that it is a part. */
static void write_uuid(const tmsg_cu_uuid_t *uuid, const char *name, char *text,
                       size_t bytes)
{
    const unsigned char *b = uuid->bytes;

    snprintf(text, bytes,
             "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
             "%02x%02x%02x%02x%02x%02x",
             strstr(name, " MIG ") != NULL ? "MIG" : "GPU", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
             b[13], b[14], b[15]);
}

/* This function needs no context. Fields that an older driver cannot tell stay
 * empty. */
tmsg_status_t tmsg_cuda_identify(void *arg, tmsg_device_t device,
                                 tmsg_device_identity_t *identity_p)
{
    tmsg_device_identity_t identity = {.name = ""};
    const tmsg_cuda_driver_t *driver;
    tmsg_status_t status = get_device(device, &driver);
    char said[32], bus_id[TMSG_DEVICE_BUS_ID_BYTES];
    tmsg_cu_uuid_t uuid;
    int handle;

    (void)arg;
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_cuda_check(driver, driver->fn.cuDeviceGet(&handle, device.id),
                             "cuDeviceGet");
    if (status != TMSG_OK) {
        return status;
    }
    if (driver->fn.cuDeviceGetName(identity.name, sizeof(identity.name),
                                   handle) != TMSG_CU_SUCCESS) {
        identity.name[0] = '\0';
    }
    if (driver->fn.cuDeviceGetUuid != NULL &&
        driver->fn.cuDeviceGetUuid(&uuid, handle) == TMSG_CU_SUCCESS) {
        write_uuid(&uuid, identity.name, identity.uuid, sizeof(identity.uuid));
    }
    if (driver->fn.cuDeviceGetPCIBusId(said, sizeof(said), handle) ==
            TMSG_CU_SUCCESS &&
        tmsg_device_bus_id(said, bus_id)) {
        memcpy(identity.bus_id, bus_id, sizeof(bus_id));
    }
    *identity_p = identity;
    return TMSG_OK;
}

void tmsg_cuda_forget(void)
{
    const tmsg_cuda_functions_t *fn = &tmsg_cuda_driver()->fn;
    void *context;

    tmsg_cuda_forget_events();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < TMSG_CUDA_DEVICES; i++) {
        device_t *device = &devices[i];

        if (device->pool != NULL) {
            fn->cuMemPoolDestroy(device->pool);
        }
        device->pool = NULL;
        device->asked = false;
        if (device->primary == NULL) {
            continue;
        }
        fn->cuCtxPushCurrent(device->primary);
        for (int j = 0; j < TMSG_CUDA_OWN_STREAMS; j++) {
            if (device->streams[j] != NULL) {
                fn->cuStreamDestroy(device->streams[j]);
            }
        }
        fn->cuCtxPopCurrent(&context);
        fn->cuDevicePrimaryCtxRelease(device->handle);
        *device = (device_t){.named = false};
    }
    pthread_mutex_unlock(&lock);
}
