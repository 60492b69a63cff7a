/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of the simulated driver, its devices, and its errors. */
#include "gpu/sim/inside.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define VERSION 13000

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
static sim_counts_t own_counts;
sim_counts_t *sim_counts = &own_counts;
int sim_devices;
static bool ready, forked, ended;
static size_t memory_bytes;
static char complaint[256];

int sim_number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : atoi(text);
}

void sim_undefined(const char *words, ...)
{
    va_list args;

    COUNT(undefined);
    if (complaint[0] == '\0') {
        va_start(args, words);
        vsnprintf(complaint, sizeof(complaint), words, args);
        va_end(args);
        fprintf(stderr, "simulated CUDA driver, process %d: %s\n", getpid(),
                complaint);
    }
}

const char *sim_complaint(void)
{
    return complaint[0] == '\0' ? NULL : complaint;
}

int sim_begin(bool needs_context)
{
    context_t *context;
    int result = OK;

    if (forked || !ready) {
        return NOT_INITIALIZED;
    }
    if (ended) {
        return DEINITIALIZED;
    }
    if (sim_on_device) { /* cuLaunchHostFunc(): no CUDA within the function */
        return NOT_PERMITTED;
    }
    pthread_mutex_lock(&sim_lock);
    context = sim_current();
    if (needs_context) {
        result = context == NULL   ? INVALID_CONTEXT
                 : !context->alive ? CONTEXT_IS_DESTROYED
                                   : context->sticky;
    }
    if (result != OK) {
        pthread_mutex_unlock(&sim_lock);
    }
    return result;
}

void sim_unlock(int *begun)
{
    if (*begun == OK) {
        pthread_mutex_unlock(&sim_lock);
    }
}

static void open_counts(void)
{
    const char *path = getenv("SIM_CUDA_COUNTS");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *counts;

    if (fd >= 0 && ftruncate(fd, sizeof(*sim_counts)) == 0) {
        counts = mmap(NULL, sizeof(*sim_counts), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
        sim_counts = counts == MAP_FAILED ? &own_counts : counts;
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* "Fork": a process that was forked after cuInit() has no CUDA. */
static void in_child(void) { forked = ready; }

/* cuInit() */
API int cuInit(unsigned flags)
{
    static bool hooked;
    int result = OK;

    if (forked) {
        return NOT_INITIALIZED;
    }
    pthread_mutex_lock(&sim_lock);
    if (!ready) {
        sim_devices =
            sim_number("SIM_CUDA_DEVICES", sim_number("FAKE_CUDA_DEVICES", 1));
        sim_devices = sim_devices > DEVICES ? DEVICES : sim_devices;
        memory_bytes =
            (size_t)sim_number("SIM_CUDA_MEMORY_MIB", 16384) * (size_t)MIB;
        sim_delay_us = (unsigned)sim_number("SIM_CUDA_DELAY_US", 0);
        if (flags != 0) {
            result = INVALID_VALUE;
        } else if (sim_devices <= 0) {
            result = NO_DEVICE;
        } else if (!sim_memory_open(memory_bytes)) {
            result = OUT_OF_MEMORY;
        } else {
            open_counts();
            ready = true;
        }
        if (!hooked) {
            hooked = pthread_atfork(NULL, NULL, in_child) == 0;
        }
    }
    pthread_mutex_unlock(&sim_lock);
    return result;
}

/* The driver's own words for a call that comes when the process ends. */
__attribute__((destructor)) static void at_end(void) { ended = true; }

API int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return OK;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {MAP_FAILED_, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another "
     "thread"},
};

static int tell_error(int code, bool name, const char **text)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            *text = name ? errors[i].name : errors[i].text;
            return OK;
        }
    }
    *text = NULL; /* cuGetErrorString(): "set to the NULL address" */
    return INVALID_VALUE;
}

API int cuGetErrorName(int code, const char **text)
{
    return tell_error(code, true, text);
}

API int cuGetErrorString(int code, const char **text)
{
    return tell_error(code, false, text);
}

API int cuDeviceGetCount(int *count)
{
    ANYWHERE;
    *count = sim_devices;
    return OK;
}

static bool is_device(int device)
{
    return device >= 0 && device < sim_devices;
}

API int cuDeviceGet(int *device, int ordinal)
{
    ANYWHERE;
    if (!is_device(ordinal)) {
        return INVALID_DEVICE;
    }
    *device = ordinal;
    return OK;
}

API int cuDeviceGetName(char *name, int bytes, int device)
{
    ANYWHERE;
    snprintf(name, (size_t)bytes, "Simulated GPU");
    return is_device(device) ? OK : INVALID_DEVICE;
}

API int cuDeviceGetUuid_v2(unsigned char *bytes, int device)
{
    ANYWHERE;
    memset(bytes, 0x51, 16);
    bytes[15] = (unsigned char)device;
    return is_device(device) ? OK : INVALID_DEVICE;
}

API int cuDeviceGetUuid(unsigned char *bytes, int device)
{
    return cuDeviceGetUuid_v2(bytes, device);
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ANYWHERE;
    *bytes = memory_bytes;
    return is_device(device) ? OK : INVALID_DEVICE;
}

API int cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    ANYWHERE;
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", 0x33 + device);
    return is_device(device) ? OK : INVALID_DEVICE;
}

/* CUdevice_attribute; all others are 0. */
static const struct {
    int attribute, value;
} attributes[] = {
    {10, 32}, /* WARP_SIZE */
    {31, 1},  /* CONCURRENT_KERNELS */
    {34, 0},  /* PCI_DEVICE_ID; PCI_BUS_ID depends on the device */
    {40, 3},  /* ASYNC_ENGINE_COUNT */
    {41, 1},  /* UNIFIED_ADDRESSING */
    {75, 9},  /* COMPUTE_CAPABILITY_MAJOR */
    {83, 1},  /* MANAGED_MEMORY */
    {89, 1},  /* CONCURRENT_MANAGED_ACCESS */
    {91, 1},  /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
    {99, 1},  /* HOST_REGISTER_SUPPORTED */
    {102, 1}, /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    {103, 1}, /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
    {115, 1}, /* MEMORY_POOLS_SUPPORTED */
    {119, 1}, /* MEMPOOL_SUPPORTED_HANDLE_TYPES: a file descriptor */
};

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ANYWHERE;
    if (!is_device(device)) {
        return INVALID_DEVICE;
    }
    *value = attribute == 33 ? 0x33 + device : 0;
    if (attribute == 125) { /* IPC_EVENT_SUPPORTED */
        *value = getenv("SIM_CUDA_NO_IPC") == NULL;
    }
    if (attribute == 122) { /* CAN_USE_64_BIT_STREAM_MEM_OPS */
        *value = getenv("SIM_CUDA_NO_MEMOPS") == NULL;
    }
    if (attribute == 117) { /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: HOST */
        *value = 1;
    }
    if (attribute == 118) { /* GPU_DIRECT_RDMA_WRITES_ORDERING */
        *value = getenv("SIM_CUDA_UNORDERED") == NULL ? 200 : 0;
    }
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        if (attributes[i].attribute == attribute) {
            *value = attributes[i].value;
        }
    }
    return OK;
}

API int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    ANYWHERE;
    *can = is_device(device) && is_device(peer) && device != peer;
    return is_device(device) && is_device(peer) ? OK : INVALID_DEVICE;
}
