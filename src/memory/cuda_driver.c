/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "memory/domain.h"
#include "memory/symbols.h"

#define NEWEST_KNOWN 13000 /* newest CUDA version that the table covers */
#define LEGACY_STREAM 1    /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */

/* cuGetProcAddress() takes the name of a symbol and the CUDA version whose
 * signature is expected. A later version with another signature then does no
 * harm. */
typedef struct {
    int (*cuGetProcAddress)(const char *name, tmsg_symbol_fn *found,
                            int version, uint64_t flags, int *why);
    void *library;
} lookup_t;

static tmsg_symbol_fn raw_get_proc_address;

/* Before CUDA 12 cuGetProcAddress() had no parameter `why`. */
static int get_proc_address_11_3(const char *name, tmsg_symbol_fn *found,
                                 int version, uint64_t flags, int *why)
{
    int (*raw)(const char *, tmsg_symbol_fn *, int, uint64_t);

    *why = 0;
    raw = (int (*)(const char *, tmsg_symbol_fn *, int,
                   uint64_t))raw_get_proc_address;
    return raw(name, found, version, flags);
}

#define AS_FN(function) ((tmsg_symbol_fn)(function))

static const tmsg_symbol_t lookups[] = {
    {"cuGetProcAddress",
     offsetof(lookup_t, cuGetProcAddress),
     false,
     {{"cuGetProcAddress_v2", 12000, NULL, NULL},
      {"cuGetProcAddress", 11030, AS_FN(get_proc_address_11_3),
       &raw_get_proc_address}}},
};

#define NEEDED(name, ...)                                                      \
    {                                                                          \
#name, offsetof(tmsg_cuda_functions_t, name), true, { __VA_ARGS__ }    \
    }
#define OPTIONAL(name, ...)                                                    \
    {                                                                          \
#name, offsetof(tmsg_cuda_functions_t, name), false, { __VA_ARGS__ }   \
    }
#define SYMBOL(symbol, version)                                                \
    {                                                                          \
        symbol, version, NULL, NULL                                            \
    }

/* cuInit must stay the first entry: find_start() relies on it. */
static const tmsg_symbol_t symbols[] = {
    NEEDED(cuInit, SYMBOL("cuInit", 2000)),
    NEEDED(cuDriverGetVersion, SYMBOL("cuDriverGetVersion", 2020)),
    NEEDED(cuGetErrorString, SYMBOL("cuGetErrorString", 6000)),
    NEEDED(cuDeviceGetCount, SYMBOL("cuDeviceGetCount", 2000)),
    NEEDED(cuDeviceGet, SYMBOL("cuDeviceGet", 2000)),
    NEEDED(cuDeviceGetName, SYMBOL("cuDeviceGetName", 2000)),
    OPTIONAL(cuDeviceGetUuid, SYMBOL("cuDeviceGetUuid_v2", 11040),
             SYMBOL("cuDeviceGetUuid", 9020)),
    NEEDED(cuDeviceGetPCIBusId, SYMBOL("cuDeviceGetPCIBusId", 4010)),
    NEEDED(cuDeviceGetAttribute, SYMBOL("cuDeviceGetAttribute", 2000)),
    NEEDED(cuDevicePrimaryCtxGetState,
           SYMBOL("cuDevicePrimaryCtxGetState", 7000)),
    NEEDED(cuDevicePrimaryCtxRetain, SYMBOL("cuDevicePrimaryCtxRetain", 7000)),
    NEEDED(cuDevicePrimaryCtxRelease,
           SYMBOL("cuDevicePrimaryCtxRelease_v2", 11000),
           SYMBOL("cuDevicePrimaryCtxRelease", 7000)),
    NEEDED(cuCtxPushCurrent, SYMBOL("cuCtxPushCurrent_v2", 4000)),
    NEEDED(cuCtxPopCurrent, SYMBOL("cuCtxPopCurrent_v2", 4000)),
    NEEDED(cuCtxGetCurrent, SYMBOL("cuCtxGetCurrent", 4000)),
    NEEDED(cuCtxGetDevice, SYMBOL("cuCtxGetDevice", 2000)),
    OPTIONAL(cuCtxGetId, SYMBOL("cuCtxGetId", 12000)),
    NEEDED(cuPointerGetAttributes, SYMBOL("cuPointerGetAttributes", 7000)),
    OPTIONAL(cuMemRetainAllocationHandle,
             SYMBOL("cuMemRetainAllocationHandle", 11000)),
    OPTIONAL(cuMemRelease, SYMBOL("cuMemRelease", 10020)),
    NEEDED(cuMemAlloc, SYMBOL("cuMemAlloc_v2", 3020)),
    NEEDED(cuMemFree, SYMBOL("cuMemFree_v2", 3020)),
    OPTIONAL(cuMemAllocAsync, SYMBOL("cuMemAllocAsync", 11020)),
    OPTIONAL(cuMemFreeAsync, SYMBOL("cuMemFreeAsync", 11020)),
    OPTIONAL(cuMemAllocFromPoolAsync, SYMBOL("cuMemAllocFromPoolAsync", 11020)),
    OPTIONAL(cuMemPoolCreate, SYMBOL("cuMemPoolCreate", 11020)),
    OPTIONAL(cuMemPoolSetAttribute, SYMBOL("cuMemPoolSetAttribute", 11020)),
    OPTIONAL(cuMemPoolDestroy, SYMBOL("cuMemPoolDestroy", 11020)),
    OPTIONAL(cuIpcGetMemHandle, SYMBOL("cuIpcGetMemHandle", 4010)),
    OPTIONAL(cuIpcOpenMemHandle, SYMBOL("cuIpcOpenMemHandle_v2", 11000),
             SYMBOL("cuIpcOpenMemHandle", 4010)),
    OPTIONAL(cuIpcCloseMemHandle, SYMBOL("cuIpcCloseMemHandle", 4010)),
    NEEDED(cuMemHostRegister, SYMBOL("cuMemHostRegister_v2", 6050)),
    NEEDED(cuMemHostUnregister, SYMBOL("cuMemHostUnregister", 4000)),
    OPTIONAL(cuMemHostGetDevicePointer,
             SYMBOL("cuMemHostGetDevicePointer_v2", 3020)),
    NEEDED(cuMemcpyHtoDAsync, SYMBOL("cuMemcpyHtoDAsync_v2", 3020)),
    NEEDED(cuMemcpyDtoHAsync, SYMBOL("cuMemcpyDtoHAsync_v2", 3020)),
    NEEDED(cuMemcpyAsync, SYMBOL("cuMemcpyAsync", 4000)),
    OPTIONAL(cuMemcpyBatchAsync, SYMBOL("cuMemcpyBatchAsync", 12080)),
    NEEDED(cuStreamCreate, SYMBOL("cuStreamCreate", 2000)),
    NEEDED(cuStreamDestroy, SYMBOL("cuStreamDestroy_v2", 4000)),
    NEEDED(cuStreamSynchronize, SYMBOL("cuStreamSynchronize", 2000)),
    NEEDED(cuStreamWaitEvent, SYMBOL("cuStreamWaitEvent", 3020)),
    OPTIONAL(cuStreamGetCtx, SYMBOL("cuStreamGetCtx", 9020)),
    OPTIONAL(cuStreamIsCapturing, SYMBOL("cuStreamIsCapturing", 10000)),
    OPTIONAL(cuThreadExchangeStreamCaptureMode,
             SYMBOL("cuThreadExchangeStreamCaptureMode", 10010)),
    OPTIONAL(cuStreamWaitValue64, SYMBOL("cuStreamWaitValue64_v2", 11070)),
    OPTIONAL(cuStreamWriteValue32, SYMBOL("cuStreamWriteValue32_v2", 11070)),
    OPTIONAL(cuFlushGPUDirectRDMAWrites,
             SYMBOL("cuFlushGPUDirectRDMAWrites", 11030)),
    OPTIONAL(cuLaunchHostFunc, SYMBOL("cuLaunchHostFunc", 10000)),
    NEEDED(cuEventCreate, SYMBOL("cuEventCreate", 2000)),
    NEEDED(cuEventDestroy, SYMBOL("cuEventDestroy_v2", 4000)),
    NEEDED(cuEventRecord, SYMBOL("cuEventRecord", 2000)),
    NEEDED(cuEventQuery, SYMBOL("cuEventQuery", 2000)),
};

/* Tells whether UCX patches that function to hear of memory that comes and
 * goes. It patches the symbol that the library exports. */
static bool is_watched(const tmsg_symbol_t *symbol)
{
    return strncmp(symbol->name, "cuMemAlloc", strlen("cuMemAlloc")) == 0 ||
           strncmp(symbol->name, "cuMemFree", strlen("cuMemFree")) == 0;
}

static tmsg_symbol_fn get_proc_address(void *arg, const tmsg_symbol_t *symbol,
                                       const tmsg_symbol_version_t *version)
{
    const lookup_t *lookup = arg;
    tmsg_symbol_fn found = NULL, exported;
    int why;
    int result = lookup->cuGetProcAddress(
        symbol->name, &found, version->version, LEGACY_STREAM, &why);

    if (result != TMSG_CU_SUCCESS) {
        return NULL;
    }
    exported = is_watched(symbol)
                   ? tmsg_symbols_dlsym(lookup->library, symbol, version)
                   : NULL;
    return exported == NULL ? found : exported;
}

const char *tmsg_cuda_outcome_name(tmsg_cuda_outcome_t outcome)
{
    static const char *const names[] = {
        "ready", "no driver", "stub", "old driver", "init failed", "no device"};

    return names[outcome];
}

__attribute__((format(printf, 3, 4))) static void
tell_outcome(tmsg_cuda_driver_t *driver, tmsg_cuda_outcome_t outcome,
             const char *format, ...)
{
    va_list args;

    driver->outcome = outcome;
    va_start(args, format);
    vsnprintf(driver->why, sizeof(driver->why), format, args);
    va_end(args);
}

/* Returns the driver's own text for an error if it has one. */
static const char *driver_error_text(const tmsg_cuda_driver_t *driver,
                                     int result)
{
    const char *text = NULL;

    if (driver->fn.cuGetErrorString == NULL ||
        driver->fn.cuGetErrorString(result, &text) != TMSG_CU_SUCCESS ||
        text == NULL) {
        return "an unnamed error";
    }
    return text;
}

static void fail_init(tmsg_cuda_driver_t *driver, const char *call, int result)
{
    if (result == TMSG_CU_STUB_LIBRARY) {
        tell_outcome(
            driver, TMSG_CUDA_STUB,
            "libcuda.so.1 is the stub of the CUDA toolkit, no driver; GPUs "
            "are not used until the loader finds the driver's library first");
    } else if (result == TMSG_CU_NO_DEVICE) {
        tell_outcome(
            driver, TMSG_CUDA_NO_DEVICE,
            "the CUDA driver works and shows no GPU (CUDA_VISIBLE_DEVICES may "
            "hide them); GPUs are not used");
    } else {
        tell_outcome(driver, TMSG_CUDA_INIT_FAILED,
                     "the CUDA driver does not work, %s returned %d: %s; GPUs "
                     "are not used",
                     call, result, driver_error_text(driver, result));
    }
}

/* Tells what follows from the functions that a working driver has. */
static const char *driver_consequence(const tmsg_cuda_driver_t *driver)
{
    if (driver->version / 1000 > NEWEST_KNOWN / 1000) {
        return "newer than this library knows, and used as CUDA 13";
    }
    if (driver->fn.cuMemAllocAsync == NULL ||
        driver->fn.cuMemFreeAsync == NULL) {
        return "without memory pools (CUDA 11.2), so allocating and freeing "
               "GPU memory may wait for the GPU";
    }
    return "it has all that this library uses";
}

static void count_devices(tmsg_cuda_driver_t *driver, int result)
{
    if (result == TMSG_CU_SUCCESS) {
        result = driver->fn.cuDeviceGetCount(&driver->devices);
    }
    if (result == TMSG_CU_SUCCESS && driver->devices <= 0) {
        result = TMSG_CU_NO_DEVICE;
    }
    if (result != TMSG_CU_SUCCESS) {
        driver->devices = 0;
        fail_init(driver, "cuDeviceGetCount", result);
        return;
    }
    tell_outcome(
        driver, TMSG_CUDA_READY, "a driver of CUDA %d.%d with %d GPU%s; %s",
        driver->version / 1000, driver->version % 1000 / 10, driver->devices,
        driver->devices == 1 ? "" : "s", driver_consequence(driver));
}

/* The cuGetProcAddress() of a stub finds no symbol. The stub's cuInit() is then
 * looked up by dlsym(), because its result tells that it is a stub. */
static void find_start(void *library, tmsg_cuda_functions_t *fn)
{
    if (fn->cuInit == NULL) {
        tmsg_symbols_fill(symbols, 1, tmsg_symbols_dlsym, library, fn);
    }
}

/* The error of cuInit() tells that the driver is a stub or broken. So it is
 * reported before a missing function. */
static void start_driver(tmsg_cuda_driver_t *driver,
                         const tmsg_symbol_t *missing)
{
    const tmsg_cuda_functions_t *fn = &driver->fn;
    int result = fn->cuInit == NULL ? TMSG_CU_SUCCESS : fn->cuInit(0);

    if (result != TMSG_CU_SUCCESS && result != TMSG_CU_NO_DEVICE) {
        fail_init(driver, "cuInit", result);
        return;
    }
    if (fn->cuDriverGetVersion == NULL ||
        fn->cuDriverGetVersion(&driver->version) != TMSG_CU_SUCCESS) {
        driver->version = 0;
    }
    if (missing != NULL) {
        tell_outcome(
            driver, TMSG_CUDA_OLD_DRIVER,
            "the driver is of CUDA %d.%d and has no %s; GPUs are not used "
            "until it is of CUDA 7.0 or newer",
            driver->version / 1000, driver->version % 1000 / 10, missing->name);
        return;
    }
    count_devices(driver, result);
}

void tmsg_cuda_driver_open(tmsg_cuda_driver_t *driver, const char *path)
{
    const tmsg_symbol_t *missing;
    lookup_t lookup;
    void *library;

    *driver = (tmsg_cuda_driver_t){.outcome = TMSG_CUDA_NO_DRIVER};
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();

        tell_outcome(driver, TMSG_CUDA_NO_DRIVER,
                     "no CUDA driver: %s; GPUs are not used",
                     why == NULL ? path : why);
        return;
    }
    tmsg_symbols_fill(lookups, sizeof(lookups) / sizeof(lookups[0]),
                      tmsg_symbols_dlsym, library, &lookup);
    lookup.library = library;
    missing = tmsg_symbols_fill(
        symbols, sizeof(symbols) / sizeof(symbols[0]),
        lookup.cuGetProcAddress != NULL ? get_proc_address : tmsg_symbols_dlsym,
        lookup.cuGetProcAddress != NULL ? (void *)&lookup : library,
        &driver->fn);
    find_start(library, &driver->fn);
    start_driver(driver, missing);
}

static tmsg_cuda_driver_t process_driver;

/* A lock of the domain may have been held when the process was forked. So the
 * child does not get as far as that. */
static void refuse_child(void)
{
    if (process_driver.outcome == TMSG_CUDA_READY) {
        process_driver.forked = true;
        tell_outcome(&process_driver, TMSG_CUDA_INIT_FAILED,
                     "CUDA does not work in the child of a fork() whose parent "
                     "has used it: start the child by exec() (in Python by "
                     "'spawn' or 'forkserver'); GPUs are not used");
    }
}

static void open_process_driver(void)
{
    tmsg_cuda_driver_open(&process_driver, "libcuda.so.1");
    pthread_atfork(NULL, NULL, refuse_child);
}

const tmsg_cuda_driver_t *tmsg_cuda_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_process_driver);
    return &process_driver;
}

const char *tmsg_cuda_report(void) { return tmsg_cuda_driver()->why; }

bool tmsg_cuda_is_ready(void)
{
    return tmsg_cuda_driver()->outcome == TMSG_CUDA_READY;
}

tmsg_status_t tmsg_cuda_check(const tmsg_cuda_driver_t *driver, int result,
                              const char *call)
{
    if (result == TMSG_CU_SUCCESS) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        result == TMSG_CU_OUT_OF_MEMORY ? TMSG_ERR_NO_MEMORY : TMSG_ERR_IO,
        "%s: %s (%d)", call, driver_error_text(driver, result), result);
}
