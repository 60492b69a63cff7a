/* SPDX-License-Identifier: BSD-3-Clause */
/* cuGetProcAddress() of the libcuda.so.1 that is none. It answers with the
 * newest function that is no newer than the version that is asked for, as the
 * driver's does; those of a shape that we do not expect end the process. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_CUDA_AGE
#define FAKE_CUDA_AGE 13000
#endif

#define API __attribute__((visibility("default")))

#if FAKE_CUDA_AGE >= 11030

enum {
    OK = 0,
    INVALID_VALUE = 1,
    STUB_LIBRARY = 34,
    NOT_FOUND = 500,
    LEGACY_STREAM = 1
};

API int fake_another_shape(void)
{
    fprintf(stderr, "a function was called that has another shape\n");
    abort();
}

/* The driver may answer with code behind the symbol that it exports. Who
 * patches that symbol, as UCX does, does not see what is freed so. */
API int fake_inner_free(uint64_t address)
{
    (void)address;
    fprintf(stderr, "memory was freed past UCX's hooks\n");
    abort();
}

static const struct {
    const char *name;
    int version;
    const char *symbol;
} procs[] = {
    {"cuInit", 2000, "cuInit"},
    {"cuDriverGetVersion", 2020, "cuDriverGetVersion"},
    {"cuGetErrorName", 6000, "cuGetErrorName"},
    {"cuGetErrorString", 6000, "cuGetErrorString"},
    {"cuDeviceGetCount", 2000, "cuDeviceGetCount"},
    {"cuDeviceGet", 2000, "cuDeviceGet"},
    {"cuDeviceGetName", 2000, "cuDeviceGetName"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetPCIBusId", 4010, "cuDeviceGetPCIBusId"},
    {"cuDeviceGetAttribute", 2000, "cuDeviceGetAttribute"},
    {"cuDevicePrimaryCtxGetState", 7000, "cuDevicePrimaryCtxGetState"},
    {"cuDevicePrimaryCtxRetain", 7000, "cuDevicePrimaryCtxRetain"},
    {"cuDevicePrimaryCtxRelease", 7000, "fake_another_shape"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuCtxPushCurrent", 2000, "fake_another_shape"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuCtxGetCurrent", 4000, "cuCtxGetCurrent"},
    {"cuCtxGetId", 12000, "cuCtxGetId"},
    {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
    {"cuCtxGetDevice", 13000, "fake_another_shape"},
    {"cuPointerGetAttributes", 7000, "cuPointerGetAttributes"},
    {"cuMemRetainAllocationHandle", 11000, "cuMemRetainAllocationHandle"},
    {"cuMemRelease", 10020, "cuMemRelease"},
    {"cuMemAlloc", 2000, "fake_another_shape"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemFree", 3020, "fake_inner_free"},
    {"cuMemAllocAsync", 11020, "cuMemAllocAsync"},
    {"cuMemFreeAsync", 11020, "cuMemFreeAsync"},
    {"cuMemAllocFromPoolAsync", 11020, "cuMemAllocFromPoolAsync"},
    {"cuMemPoolCreate", 11020, "cuMemPoolCreate"},
    {"cuMemPoolSetAttribute", 11020, "cuMemPoolSetAttribute"},
    {"cuMemPoolDestroy", 11020, "cuMemPoolDestroy"},
    {"cuIpcGetMemHandle", 4010, "cuIpcGetMemHandle"},
    {"cuIpcOpenMemHandle", 4010, "fake_another_shape"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuIpcCloseMemHandle", 4010, "cuIpcCloseMemHandle"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemHostUnregister", 4000, "cuMemHostUnregister"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyAsync", 4000, "cuMemcpyAsync"},
    {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
    {"cuMemcpyBatchAsync", 13000, "fake_another_shape"},
    {"cuStreamCreate", 2000, "cuStreamCreate"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamSynchronize", 2000, "cuStreamSynchronize"},
    {"cuStreamWaitEvent", 3020, "cuStreamWaitEvent"},
    {"cuStreamGetCtx", 9020, "cuStreamGetCtx"},
    {"cuStreamGetCtx", 12050, "fake_another_shape"},
    {"cuStreamIsCapturing", 10000, "cuStreamIsCapturing"},
    {"cuThreadExchangeStreamCaptureMode", 10010,
     "cuThreadExchangeStreamCaptureMode"},
    {"cuEventCreate", 2000, "cuEventCreate"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuEventRecord", 2000, "cuEventRecord"},
    {"cuEventQuery", 2000, "cuEventQuery"},
};

static int is_missing(const char *name)
{
    const char *list = getenv("FAKE_CUDA_MISSING");
    const char *at = list == NULL ? NULL : strstr(list, name);
    size_t bytes = strlen(name);

    return at != NULL && (at[bytes] == '\0' || at[bytes] == ',');
}

static void *symbol_here(const char *symbol)
{
    static const char here;
    Dl_info info;

    if (dladdr(&here, &info) == 0) {
        abort();
    }
    return dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), symbol);
}

static int get_proc(const char *name, void **found, int version, uint64_t flags)
{
    int best = 0;

    *found = NULL;
    if (getenv("FAKE_CUDA_INIT") != NULL &&
        atoi(getenv("FAKE_CUDA_INIT")) == STUB_LIBRARY) {
        return STUB_LIBRARY;
    }
    if (flags != LEGACY_STREAM) {
        return INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof(procs) / sizeof(procs[0]); i++) {
        if (strcmp(procs[i].name, name) == 0 && procs[i].version <= version &&
            procs[i].version <= FAKE_CUDA_AGE && procs[i].version > best &&
            !is_missing(name)) {
            best = procs[i].version;
            *found = symbol_here(procs[i].symbol);
        }
    }
    return *found == NULL ? NOT_FOUND : OK;
}

#if FAKE_CUDA_AGE >= 12000
API int cuGetProcAddress_v2(const char *name, void **found, int version,
                            uint64_t flags, int *why)
{
    int result = get_proc(name, found, version, flags);

    *why = result == OK ? 0 : 1;
    return result;
}
#endif

API int cuGetProcAddress(const char *name, void **found, int version,
                         uint64_t flags)
{
    return get_proc(name, found, version, flags);
}

#else
typedef int nothing_t;
#endif
