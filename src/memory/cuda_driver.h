/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/cuda_driver.h - opens the CUDA driver and NVML at run time.
 *
 * The library links neither of them and needs none of their headers, so one
 * binary runs on machines with and without a GPU. The types follow the
 * documented binary interface on 64-bit Linux. */
#ifndef TMSG_MEMORY_CUDA_DRIVER_H
#define TMSG_MEMORY_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* Tells what the library found when it looked for the driver. */
typedef enum {
    TMSG_CUDA_READY = 0,
    TMSG_CUDA_NO_DRIVER,   /* no libcuda.so.1 can be loaded */
    TMSG_CUDA_STUB,        /* a stub of the CUDA toolkit, only for linking */
    TMSG_CUDA_OLD_DRIVER,  /* the driver lacks a required function */
    TMSG_CUDA_INIT_FAILED, /* the driver loads but does not work */
    TMSG_CUDA_NO_DEVICE    /* the driver works but shows no GPU */
} tmsg_cuda_outcome_t;

/* Returns a name for each outcome: "ready", "no driver", "stub", ... */
const char *tmsg_cuda_outcome_name(tmsg_cuda_outcome_t outcome);

/* CUresult has these values; the library uses no others by name. */
enum {
    TMSG_CU_SUCCESS = 0,
    TMSG_CU_INVALID_VALUE = 1,
    TMSG_CU_OUT_OF_MEMORY = 2,
    TMSG_CU_STUB_LIBRARY = 34,
    TMSG_CU_NO_DEVICE = 100,
    TMSG_CU_INVALID_CONTEXT = 201,
    TMSG_CU_NOT_READY = 600,
    TMSG_CU_CONTEXT_DESTROYED = 709,
    TMSG_CU_ALREADY_REGISTERED = 712,
    TMSG_CU_CAPTURE_IMPLICIT = 906
};

typedef uint64_t tmsg_cu_address_t; /* CUdeviceptr */

typedef struct {
    unsigned char bytes[16];
} tmsg_cu_uuid_t;

/* CUmemPoolProps: what a pool is of. */
typedef struct {
    int type;         /* CUmemAllocationType */
    int handle_types; /* 0: nobody else can have its memory */
    int place;        /* CUmemLocationType */
    int device;
    void *security; /* Windows has a use for it */
    size_t most;    /* 0: as the driver has it */
    unsigned char reserved[56];
} tmsg_cu_pool_t;

/* CUmemcpyAttributes; the places are hints that only managed memory needs. */
typedef struct {
    int source_order; /* TMSG_CU_SOURCE_* */
    struct {
        int type, id;
    } source, destination;
    unsigned flags;
} tmsg_cu_copy_attributes_t;

enum { TMSG_CU_SOURCE_IN_STREAM_ORDER = 1 };

typedef struct {
    unsigned char bytes[64];
} tmsg_cu_ipc_handle_t; /* CUipcMemHandle */

/* Holds the driver's functions under their names in NVIDIA's reference.
 * CUcontext, CUstream, CUevent and CUmemoryPool are pointers; CUdevice is an
 * int. Functions marked "optional" are NULL if the driver lacks them. The first
 * three functions, those whose names begin with cuDevice, cuCtx or cuThread,
 * and cuPointerGetAttributes need no current context. All others need one. */
typedef struct {
    int (*cuInit)(unsigned flags);
    int (*cuDriverGetVersion)(int *version);
    int (*cuGetErrorString)(int error, const char **text);

    int (*cuDeviceGetCount)(int *count);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int bytes, int device);
    int (*cuDeviceGetUuid)(tmsg_cu_uuid_t *uuid, int device); /* optional */
    int (*cuDeviceGetPCIBusId)(char *id, int bytes, int device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);

    int (*cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease)(int device);
    int (*cuCtxPushCurrent)(void *context);
    int (*cuCtxPopCurrent)(void **context);
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxGetDevice)(int *device);
    int (*cuCtxGetId)(void *context, unsigned long long *id); /* optional */

    int (*cuPointerGetAttributes)(unsigned count, const int *attributes,
                                  void **values, tmsg_cu_address_t address);
    int (*cuMemRetainAllocationHandle)(uint64_t *handle,
                                       void *address); /* optional */
    int (*cuMemRelease)(uint64_t handle);              /* optional */

    int (*cuMemAlloc)(tmsg_cu_address_t *address, size_t bytes);
    int (*cuMemFree)(tmsg_cu_address_t address);
    int (*cuMemAllocAsync)(tmsg_cu_address_t *address, size_t bytes,
                           void *stream); /* optional */
    int (*cuMemFreeAsync)(tmsg_cu_address_t address,
                          void *stream); /* optional */
    int (*cuMemAllocFromPoolAsync)(tmsg_cu_address_t *address, size_t bytes,
                                   void *pool, void *stream); /* optional */
    int (*cuMemPoolCreate)(void **pool,
                           const tmsg_cu_pool_t *made); /* optional */
    int (*cuMemPoolSetAttribute)(void *pool, int attribute,
                                 void *value); /* optional */
    int (*cuMemPoolDestroy)(void *pool);       /* optional */
    int (*cuIpcGetMemHandle)(tmsg_cu_ipc_handle_t *handle,
                             tmsg_cu_address_t address); /* optional */
    int (*cuIpcOpenMemHandle)(tmsg_cu_address_t *address,
                              tmsg_cu_ipc_handle_t handle,
                              unsigned flags);             /* optional */
    int (*cuIpcCloseMemHandle)(tmsg_cu_address_t address); /* optional */
    int (*cuMemHostRegister)(void *data, size_t bytes, unsigned flags);
    int (*cuMemHostUnregister)(void *data);
    int (*cuMemHostGetDevicePointer)(tmsg_cu_address_t *address, void *data,
                                     unsigned flags); /* optional */

    int (*cuMemcpyHtoDAsync)(tmsg_cu_address_t to, const void *from,
                             size_t bytes, void *stream);
    int (*cuMemcpyDtoHAsync)(void *to, tmsg_cu_address_t from, size_t bytes,
                             void *stream);
    int (*cuMemcpyAsync)(tmsg_cu_address_t to, tmsg_cu_address_t from,
                         size_t bytes, void *stream);

    int (*cuMemcpyBatchAsync)(tmsg_cu_address_t *to, tmsg_cu_address_t *from,
                              size_t *bytes, size_t count,
                              tmsg_cu_copy_attributes_t *attributes,
                              size_t *first_of_attributes,
                              size_t attributes_count, size_t *failed,
                              void *stream); /* optional; CUDA 12.8's form */

    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy)(void *stream);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
    int (*cuStreamGetCtx)(void *stream, void **context);   /* optional */
    int (*cuStreamIsCapturing)(void *stream, int *status); /* optional */
    int (*cuThreadExchangeStreamCaptureMode)(int *mode);   /* optional */
    int (*cuStreamWaitValue64)(void *stream, tmsg_cu_address_t address,
                               uint64_t value, unsigned flags); /* optional */
    int (*cuStreamWriteValue32)(void *stream, tmsg_cu_address_t address,
                                uint32_t value, unsigned flags); /* optional */
    int (*cuFlushGPUDirectRDMAWrites)(int target, int scope);    /* optional */
    int (*cuLaunchHostFunc)(void *stream, void (*call)(void *arg),
                            void *arg); /* optional */
    int (*cuEventCreate)(void **event, unsigned flags);
    int (*cuEventDestroy)(void *event);
    int (*cuEventRecord)(void *event, void *stream);
    int (*cuEventQuery)(void *event);
} tmsg_cuda_functions_t;

typedef struct {
    tmsg_cuda_outcome_t outcome;
    int version;   /* CUDA version: 12040 is 12.4, 0 is unknown */
    bool forked;   /* this process is a child of the one that opened it */
    int devices;   /* number that CUDA_VISIBLE_DEVICES leaves visible */
    char why[256]; /* one line: what was found, and what follows from it */
    tmsg_cuda_functions_t fn; /* complete if the outcome is READY */
} tmsg_cuda_driver_t;

/* Opens the driver on the first call; later calls return the same result. Any
 * thread may call this function. The driver is never closed. This function
 * creates no context. */
const tmsg_cuda_driver_t *tmsg_cuda_driver(void);

/* Opens the library at `path` as the driver. Tests use it. */
void tmsg_cuda_driver_open(tmsg_cuda_driver_t *driver, const char *path);

/* Returns TMSG_OK if the call succeeded. Otherwise sets an error such as
 * "cuMemAlloc: out of memory (2)", and returns NO_MEMORY or IO. */
tmsg_status_t tmsg_cuda_check(const tmsg_cuda_driver_t *driver, int result,
                              const char *call);

/* NVML lists every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says, and
 * creates no context. nvmlDevice_t is a pointer; nvmlReturn_t is an int, and 0
 * means success. */
typedef struct {
    unsigned domain, bus, device;
} tmsg_nvml_pci_t;

typedef struct {
    int (*nvmlInit)(void);
    int (*nvmlDeviceGetCount)(unsigned *count);
    int (*nvmlDeviceGetHandleByIndex)(unsigned index, void **device);
    int (*nvmlDeviceGetUUID)(void *device, char *uuid, unsigned bytes);
    int (*nvmlDeviceGetName)(void *device, char *name, unsigned bytes);
    /* Calls nvmlDeviceGetPciInfo, whose structure differs between versions. */
    int (*pci)(void *device, tmsg_nvml_pci_t *pci);
    int (*nvmlDeviceGetNumaNodeId)(void *device, unsigned *node); /* optional */
    int (*nvmlSystemGetDriverVersion)(char *version, unsigned bytes);
    const char *(*nvmlErrorString)(int result);
} tmsg_nvml_functions_t;

typedef struct {
    int ready;
    char version[80]; /* version of the kernel driver, "580.65.06" */
    char why[256];    /* one line: what was found */
    tmsg_nvml_functions_t fn;
} tmsg_nvml_t;

/* tmsg_nvml() opens NVML once, as tmsg_cuda_driver() opens the driver.
 * tmsg_nvml_open() opens the library at `path`, for tests. */
const tmsg_nvml_t *tmsg_nvml(void);
void tmsg_nvml_open(tmsg_nvml_t *nvml, const char *path);

#endif
