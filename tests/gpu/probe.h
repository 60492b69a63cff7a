/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/probe.h - the driver's functions as probe.c and its parts use them, and
 * how an answer is printed. */
#ifndef TMSG_TESTS_GPU_PROBE_H
#define TMSG_TESTS_GPU_PROBE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t words[8];
} ipc_handle_t;

/* Each is looked up by its exported name, which is the version that is meant.
 */
#define PROBE_FUNCTIONS(F)                                                     \
    F(cuInit, (unsigned flags))                                                \
    F(cuGetErrorName, (int error, const char **name))                          \
    F(cuDriverGetVersion, (int *version))                                      \
    F(cuGetProcAddress_v2, (const char *name, void **function, int version,    \
                            uint64_t flags, int *why))                         \
    F(cuDeviceGetCount, (int *count))                                          \
    F(cuDeviceGetName, (char *name, int bytes, int device))                    \
    F(cuDevicePrimaryCtxRetain, (void **context, int device))                  \
    F(cuDevicePrimaryCtxRelease_v2, (int device))                              \
    F(cuDevicePrimaryCtxReset_v2, (int device))                                \
    F(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active))  \
    F(cuCtxPushCurrent_v2, (void *context))                                    \
    F(cuCtxPopCurrent_v2, (void **context))                                    \
    F(cuCtxGetCurrent, (void **context))                                       \
    F(cuCtxGetDevice, (int *device))                                           \
    F(cuCtxGetId, (void *context, unsigned long long *id))                     \
    F(cuCtxSynchronize, (void))                                                \
    F(cuMemAlloc_v2, (uint64_t * address, size_t bytes))                       \
    F(cuMemFree_v2, (uint64_t address))                                        \
    F(cuMemAllocManaged, (uint64_t * address, size_t bytes, unsigned flags))   \
    F(cuMemAllocAsync, (uint64_t * address, size_t bytes, void *stream))       \
    F(cuMemFreeAsync, (uint64_t address, void *stream))                        \
    F(cuMemHostAlloc, (void **data, size_t bytes, unsigned flags))             \
    F(cuMemHostRegister_v2, (void *data, size_t bytes, unsigned flags))        \
    F(cuMemHostUnregister, (void *data))                                       \
    F(cuMemGetAddressRange_v2,                                                 \
      (uint64_t * base, size_t * bytes, uint64_t address))                     \
    F(cuMemCreate,                                                             \
      (uint64_t * handle, size_t bytes, const void *props, uint64_t flags))    \
    F(cuMemRelease, (uint64_t handle))                                         \
    F(cuMemAddressReserve, (uint64_t * base, size_t bytes, size_t alignment,   \
                            uint64_t wanted, uint64_t flags))                  \
    F(cuMemMap, (uint64_t base, size_t bytes, size_t offset, uint64_t handle,  \
                 uint64_t flags))                                              \
    F(cuMemSetAccess,                                                          \
      (uint64_t base, size_t bytes, const void *access, size_t count))         \
    F(cuMemRetainAllocationHandle, (uint64_t * handle, void *data))            \
    F(cuPointerGetAttribute, (void *value, int attribute, uint64_t address))   \
    F(cuPointerGetAttributes, (unsigned count, const int *attributes,          \
                               void **values, uint64_t address))               \
    F(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t bytes, void *stream)) \
    F(cuMemcpyDtoDAsync_v2,                                                    \
      (uint64_t to, uint64_t from, size_t bytes, void *stream))                \
    F(cuMemcpyHtoDAsync_v2,                                                    \
      (uint64_t to, const void *from, size_t bytes, void *stream))             \
    F(cuMemcpyDtoHAsync_v2,                                                    \
      (void *to, uint64_t from, size_t bytes, void *stream))                   \
    F(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes))                \
    F(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))          \
    F(cuMemsetD8_v2, (uint64_t to, unsigned char value, size_t bytes))         \
    F(cuStreamCreate, (void **stream, unsigned flags))                         \
    F(cuStreamDestroy_v2, (void *stream))                                      \
    F(cuStreamQuery, (void *stream))                                           \
    F(cuStreamSynchronize, (void *stream))                                     \
    F(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))          \
    F(cuStreamGetCtx, (void *stream, void **context))                          \
    F(cuLaunchHostFunc, (void *stream, void (*function)(void *), void *arg))   \
    F(cuStreamAddCallback,                                                     \
      (void *stream, void (*function)(void *, int, void *), void *arg,         \
       unsigned flags))                                                        \
    F(cuStreamBeginCapture_v2, (void *stream, int mode))                       \
    F(cuStreamEndCapture, (void *stream, void **graph))                        \
    F(cuStreamIsCapturing, (void *stream, int *status))                        \
    F(cuThreadExchangeStreamCaptureMode, (int *mode))                          \
    F(cuEventCreate, (void **event, unsigned flags))                           \
    F(cuEventDestroy_v2, (void *event))                                        \
    F(cuEventRecord, (void *event, void *stream))                              \
    F(cuEventQuery, (void *event))                                             \
    F(cuEventSynchronize, (void *event))                                       \
    F(cuIpcGetMemHandle, (ipc_handle_t * handle, uint64_t address))            \
    F(cuIpcOpenMemHandle_v2,                                                   \
      (uint64_t * address, ipc_handle_t handle, unsigned flags))               \
    F(cuIpcCloseMemHandle, (uint64_t address))                                 \
    F(cuIpcGetEventHandle, (ipc_handle_t * handle, void *event))               \
    F(cuIpcOpenEventHandle, (void **event, ipc_handle_t handle))               \
    F(cuModuleLoadData, (void **module, const void *image))                    \
    F(cuModuleGetFunction, (void **function, void *module, const char *name))  \
    F(cuLaunchKernel, (void *function, unsigned gx, unsigned gy, unsigned gz,  \
                       unsigned bx, unsigned by, unsigned bz, unsigned shared, \
                       void *stream, void **args, void **extra))

typedef struct {
#define PROBE_FUNCTION(name, args) int(*name) args;
    PROBE_FUNCTIONS(PROBE_FUNCTION)
#undef PROBE_FUNCTION
} driver_t;

extern driver_t cu;

/* The name of a CUresult, without CUDA_ERROR_. */
const char *named(int result);
/* "question | answer" */
__attribute__((format(printf, 2, 3))) void answer(const char *question,
                                                  const char *format, ...);
#define ASK(question, call) answer(question, "%s", named(call))
/* What has to succeed for the questions that follow. */
void need(int result, const char *call);
#define NEED(call) need((call), #call)

void *begin(void);      /* cuInit(), and the primary context made current */
void *new_stream(void); /* CU_STREAM_NON_BLOCKING */
void *new_event(void);  /* CU_EVENT_DISABLE_TIMING */
uint64_t new_memory(size_t bytes);
/* A kernel that waits until *go is not 0 (5 s at most), one that writes to an
 * illegal address. `go` is of cuMemHostAlloc(). */
int *new_go(void);
int hold(void *stream, int *go);
int fault(void *stream);

/* probe_parts.c, probe_share.c: each runs in a process of its own. */
void ask_contexts(void);
void ask_kinds(void);
void ask_order(void);
void ask_host(void);
void ask_capture(void);
void ask_reset(void);
void ask_fork(void);
void ask_sticky(void);
void ask_sharing(void);
void ask_sharing_events(void);

#endif
