/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/cuda.h - shared declarations of the CUDA domain's files.
 *
 * Driver functions are called within a scope. During a scope a context is
 * current that fits the stream; the end of the scope restores the previous
 * context. The scope chooses the context like this:
 *
 *   - created stream: the stream's context, if the driver can tell it;
 *   - default stream, or the driver cannot tell: the current context if it
 *     belongs to that device, else the device's primary context;
 *   - TMSG_STREAM_NONE: the device's primary context.
 *
 * While another thread captures a stream into a graph, in the mode that is the
 * default (torch.cuda.graph() uses it), calls as innocent as cuEventQuery() of
 * any thread invalidate the capture. Within a scope they do not: its thread is
 * in the relaxed mode. A stream that is captured itself gets no work of ours:
 * it would be recorded, and not done.
 *
 * A primary context is retained, and so stays alive, only if the application
 * uses the device. It does if the primary context is active or
 * tmsg_domain_use() has named the device. Otherwise the scope creates nothing
 * on that device and fails. */
#ifndef TMSG_MEMORY_CUDA_H
#define TMSG_MEMORY_CUDA_H

#include <stdbool.h>

#include "memory/cuda_driver.h"
#include "memory/domain.h"

#define TMSG_CUDA_DEVICES 64

typedef enum {
    TMSG_CUDA_COPIES,      /* the domain's stream for copies */
    TMSG_CUDA_ALLOCATIONS, /* the domain's stream for allocating and freeing */
    TMSG_CUDA_OWN_STREAMS
} tmsg_cuda_own_t;

typedef struct {
    const tmsg_cuda_functions_t *fn;
    int device;  /* ordinal; -1 means any device */
    bool pushed; /* the scope has pushed a context, and pops it at its end */
    bool own; /* the stream is the domain's own, and the caller waits for it */
    void *stream; /* CUstream */
    void *context;
    bool relaxed;     /* `capture_mode` is to be given back */
    int capture_mode; /* of this thread, before the scope */
} tmsg_cuda_scope_t;

/* Begins a scope for a stream. If `stream` is TMSG_STREAM_NONE, the scope uses
 * the domain's stream `own`. Errors: UNSUPPORTED (no driver, or the application
 * does not use the device), NOT_FOUND (no such device), INVALID_PARAM (a stream
 * of another kind, or the handle 0), BUSY (the stream is being captured), IO,
 * NO_MEMORY. */
tmsg_status_t tmsg_cuda_enter(tmsg_device_t device, tmsg_stream_t stream,
                              tmsg_cuda_own_t own, tmsg_cuda_scope_t *scope_p);

/* Begins a scope for work that a stream which is being captured may record.
 * Errors: those of tmsg_cuda_enter(), without BUSY. */
tmsg_status_t tmsg_cuda_enter_to_record(tmsg_device_t device,
                                        tmsg_stream_t stream,
                                        tmsg_cuda_scope_t *scope_p);

/* Begins a scope with any context of a device in use, for calls that belong to
 * no device. Errors: NOT_FOUND (no device is in use), and those of
 * tmsg_cuda_enter(). */
tmsg_status_t tmsg_cuda_enter_any(tmsg_cuda_scope_t *scope_p);

/* Returns the id of a context, which no other context ever has; 0 if the driver
 * cannot tell, and TMSG_CUDA_GONE if there is no such context any more. */
#define TMSG_CUDA_GONE UINT64_MAX
uint64_t tmsg_cuda_context_id(const tmsg_cuda_functions_t *fn, void *context);

/* Begins a scope with the given context. */
tmsg_status_t tmsg_cuda_enter_context(void *context,
                                      tmsg_cuda_scope_t *scope_p);

/* Waits for one of the domain's own streams, and returns the first result of
 * the driver. If that is an error of earlier work, the driver may not have
 * waited; the function then waits once more. */
int tmsg_cuda_wait(const tmsg_cuda_functions_t *fn, void *stream);

/* Ends a scope. `result` is what the driver returned for `call`. If the scope
 * uses the domain's own stream in place of the caller's, the function waits for
 * it first. It also waits if the call failed, because the driver may have done
 * the work all the same. */
tmsg_status_t tmsg_cuda_leave(const tmsg_cuda_scope_t *scope, int result,
                              const char *call);

/* Bytes that the domain's own pool of a device keeps though they are free. */
#define TMSG_CUDA_POOL_BYTES (256ULL << 20)

/* Tells whether the device has memory pools. *pool_p is the one that the domain
 * allocates from, or NULL: the device's default pool. */
bool tmsg_cuda_has_pools(const tmsg_cuda_scope_t *scope, void **pool_p);

/* Tells whether the scope's stream is the domain's own stream for copies on
 * that device. */
bool tmsg_cuda_is_own(const tmsg_cuda_scope_t *scope);

tmsg_status_t tmsg_cuda_use(void *arg, tmsg_device_t device);
tmsg_status_t tmsg_cuda_identify(void *arg, tmsg_device_t device,
                                 tmsg_device_identity_t *identity_p);

/* This function of tmsg_domain_cuda is in cuda_memory.c. */
tmsg_status_t tmsg_cuda_classify(void *arg, const void *data,
                                 tmsg_memory_t *memory_p);

/* These functions of tmsg_domain_cuda are in cuda_alloc.c. */
tmsg_status_t tmsg_cuda_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                              uint64_t alignment, tmsg_stream_t stream,
                              void **data_p);
void tmsg_cuda_free(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream);
/* Frees memory of cuMemAlloc() that nothing uses, on a thread beside. */
void tmsg_cuda_free_beside(tmsg_device_t device, void *data);
tmsg_status_t tmsg_cuda_pin(void *arg, void *host, uint64_t bytes);
void tmsg_cuda_unpin(void *arg, void *host, uint64_t bytes);

/* These functions of tmsg_domain_cuda are in cuda_stream.c. */
tmsg_status_t tmsg_cuda_event_record(void *arg, tmsg_device_t device,
                                     tmsg_stream_t stream, void **event_p);
tmsg_status_t tmsg_cuda_event_query(void *arg, void *event);
tmsg_status_t tmsg_cuda_event_wait(void *arg, tmsg_device_t device, void *event,
                                   tmsg_stream_t stream);
void tmsg_cuda_event_free(void *arg, void *event);

/* Allocate, name, open and close memory that another process can open
 * (cuda_ipc.c). A handle is opened in the primary context of the device: CUDA
 * lets only one context a device open the handles of another process. The name
 * is the device's UUID, by which the other process finds it. Errors: those of
 * tmsg_cuda_enter(), UNSUPPORTED (no such functions, no UUID), NO_MEMORY, IO
 * (the driver refuses, as for parts of a GPU and on Tegra). */
tmsg_status_t tmsg_cuda_ipc_alloc(tmsg_device_t device, uint64_t bytes,
                                  tmsg_cu_ipc_handle_t *handle_p,
                                  void **data_p);
void tmsg_cuda_ipc_free(tmsg_device_t device, void *data);
tmsg_status_t tmsg_cuda_ipc_open(tmsg_device_t device,
                                 const tmsg_cu_ipc_handle_t *handle,
                                 uint64_t bytes, void **data_p);
void tmsg_cuda_ipc_close(tmsg_device_t device, void *data);

/* Finds the device that has this UUID here. Errors: NOT_FOUND. */
tmsg_status_t tmsg_cuda_find_uuid(const char *uuid, tmsg_device_t *device_p);

/* Has the driver write to an eventfd when an event of the scope's context is
 * done, if it is no error. `id` is the context's. Returns false if it cannot.
 * This function is in cuda_signal.c. */
bool tmsg_cuda_ring(const tmsg_cuda_scope_t *scope, uint64_t id, void *event,
                    int event_fd);

/* Releases the contexts and streams that the domain keeps for all devices, and
 * the events that it keeps. Only tests call them. */
void tmsg_cuda_forget(void);
void tmsg_cuda_forget_events(void);

#endif
