/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/cuda_driver.h - the CUDA driver and NVML, opened at run time.
 *
 * Nothing of ours links them and no header of theirs is needed: one binary
 * runs on machines with and without a GPU. The types are those of the
 * documented binary interface on 64-bit Linux. */
#ifndef TMSG_MEMORY_CUDA_DRIVER_H
#define TMSG_MEMORY_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* What was met where the driver should be. */
typedef enum {
    TMSG_CUDA_READY = 0,
    TMSG_CUDA_NO_DRIVER,   /* no libcuda.so.1 that can be loaded */
    TMSG_CUDA_STUB,        /* the toolkit's, which only satisfies a linker */
    TMSG_CUDA_OLD_DRIVER,  /* it lacks a function that is needed */
    TMSG_CUDA_INIT_FAILED, /* it loads and does not work */
    TMSG_CUDA_NO_DEVICE    /* it works and sees no GPU */
} tmsg_cuda_outcome_t;

/* A word for each: "ready", "no driver", "stub", ... */
const char *tmsg_cuda_outcome_name(tmsg_cuda_outcome_t outcome);

/* CUresult, of which these are known here by name. */
enum {
    TMSG_CU_SUCCESS = 0,
    TMSG_CU_INVALID_VALUE = 1,
    TMSG_CU_OUT_OF_MEMORY = 2,
    TMSG_CU_STUB_LIBRARY = 34,
    TMSG_CU_NO_DEVICE = 100,
    TMSG_CU_INVALID_CONTEXT = 201,
    TMSG_CU_NOT_READY = 600,
    TMSG_CU_ALREADY_REGISTERED = 712
};

typedef uint64_t tmsg_cu_address_t; /* CUdeviceptr */

typedef struct {
    unsigned char bytes[16];
} tmsg_cu_uuid_t;

/* The functions, by the names in NVIDIA's reference. CUcontext, CUstream,
 * CUevent and CUmemoryPool are pointers; CUdevice is an int. Those called
 * optional are NULL with a driver that has them not. None but the first three,
 * those of devices and cuPointerGetAttributes may be called with no context
 * current. */
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
    int (*cuMemHostRegister)(void *data, size_t bytes, unsigned flags);
    int (*cuMemHostUnregister)(void *data);

    int (*cuMemcpyHtoDAsync)(tmsg_cu_address_t to, const void *from,
                             size_t bytes, void *stream);
    int (*cuMemcpyDtoHAsync)(void *to, tmsg_cu_address_t from, size_t bytes,
                             void *stream);
    int (*cuMemcpyAsync)(tmsg_cu_address_t to, tmsg_cu_address_t from,
                         size_t bytes, void *stream);

    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy)(void *stream);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
    int (*cuStreamGetCtx)(void *stream, void **context); /* optional */
    int (*cuEventCreate)(void **event, unsigned flags);
    int (*cuEventDestroy)(void *event);
    int (*cuEventRecord)(void *event, void *stream);
    int (*cuEventQuery)(void *event);
} tmsg_cuda_functions_t;

typedef struct {
    tmsg_cuda_outcome_t outcome;
    int version;   /* of CUDA that the driver speaks: 12040 is 12.4; 0 */
    int devices;   /* that it shows us, after CUDA_VISIBLE_DEVICES */
    char why[256]; /* one line: what was met, and what follows */
    tmsg_cuda_functions_t fn; /* whole where the outcome is READY */
} tmsg_cuda_driver_t;

/* Opens the driver on the first call, from any thread, and answers the same
 * ever after; it is never closed. Makes no context. */
const tmsg_cuda_driver_t *tmsg_cuda_driver(void);

/* The same, of the library at `path`, for tests. */
void tmsg_cuda_driver_open(tmsg_cuda_driver_t *driver, const char *path);

/* TMSG_OK, or the error of a call: "cuMemAlloc: out of memory (2)". */
tmsg_status_t tmsg_cuda_check(const tmsg_cuda_driver_t *driver, int result,
                              const char *call);

/* NVML sees every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says, and
 * makes no context. nvmlDevice_t is a pointer, nvmlReturn_t an int, 0 good. */
typedef struct {
    unsigned domain, bus, device;
} tmsg_nvml_pci_t;

typedef struct {
    int (*nvmlInit)(void);
    int (*nvmlDeviceGetCount)(unsigned *count);
    int (*nvmlDeviceGetHandleByIndex)(unsigned index, void **device);
    int (*nvmlDeviceGetUUID)(void *device, char *uuid, unsigned bytes);
    int (*nvmlDeviceGetName)(void *device, char *name, unsigned bytes);
    /* nvmlDeviceGetPciInfo, whose structure has changed twice */
    int (*pci)(void *device, tmsg_nvml_pci_t *pci);
    int (*nvmlDeviceGetNumaNodeId)(void *device, unsigned *node); /* optional */
    int (*nvmlSystemGetDriverVersion)(char *version, unsigned bytes);
    const char *(*nvmlErrorString)(int result);
} tmsg_nvml_functions_t;

typedef struct {
    int ready;
    char version[80]; /* of the kernel's driver, "580.65.06" */
    char why[256];    /* what was met */
    tmsg_nvml_functions_t fn;
} tmsg_nvml_t;

/* As tmsg_cuda_driver(). */
const tmsg_nvml_t *tmsg_nvml(void);
void tmsg_nvml_open(tmsg_nvml_t *nvml, const char *path);

#endif
