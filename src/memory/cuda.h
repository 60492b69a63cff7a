/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/cuda.h - what the files of the CUDA domain share.
 *
 * Whoever calls a function of the driver is in a scope: a context is current
 * that fits the stream, and what was current before comes back at its end. The
 * context is the stream's own; for the default streams, which have none, the
 * current one if it is of that device; else the device's primary one. That is
 * retained, and so kept, if the application uses the device: it is active, or
 * was named by tmsg_domain_use(). Otherwise nothing is made there. */
#ifndef TMSG_MEMORY_CUDA_H
#define TMSG_MEMORY_CUDA_H

#include <stdbool.h>

#include "memory/cuda_driver.h"
#include "memory/domain.h"

#define TMSG_CUDA_DEVICES 64

typedef enum {
    TMSG_CUDA_COPIES,      /* own stream for copies */
    TMSG_CUDA_ALLOCATIONS, /* own stream for what comes and goes */
    TMSG_CUDA_OWN_STREAMS
} tmsg_cuda_own_t;

typedef struct {
    const tmsg_cuda_functions_t *fn;
    int device;   /* ordinal; -1: of some device */
    bool pushed;  /* a context, which is popped at the end */
    bool own;     /* the stream is the domain's, and the caller waits for it */
    void *stream; /* CUstream */
    void *context;
} tmsg_cuda_scope_t;

/* Begins a scope for a stream; `own` stands in for TMSG_STREAM_NONE. Errors:
 * UNSUPPORTED (no driver; a device that nobody uses), NOT_FOUND (no such
 * device), INVALID_PARAM (a stream of another kind, a handle of 0), IO,
 * NO_MEMORY. */
tmsg_status_t tmsg_cuda_enter(tmsg_device_t device, tmsg_stream_t stream,
                              tmsg_cuda_own_t own, tmsg_cuda_scope_t *scope_p);

/* Any context of a device in use, for what belongs to none; NOT_FOUND: there is
 * none. */
tmsg_status_t tmsg_cuda_enter_any(tmsg_cuda_scope_t *scope_p);

/* The context that something was made in. */
tmsg_status_t tmsg_cuda_enter_context(void *context,
                                      tmsg_cuda_scope_t *scope_p);

/* Waits for a stream of the domain's own; where the driver answers with the
 * failure of work before, once more, for it may not have waited. */
int tmsg_cuda_wait(const tmsg_cuda_functions_t *fn, void *stream);

/* Ends a scope with the result of the call that it was for, after waiting for
 * the domain's own stream where the caller gave none: also for a call that
 * failed, which may have been done all the same. */
tmsg_status_t tmsg_cuda_leave(const tmsg_cuda_scope_t *scope, int result,
                              const char *call);

/* Whether the device has memory pools, which are then used. */
bool tmsg_cuda_has_pools(const tmsg_cuda_scope_t *scope);

/* The domain's own stream for copies on the scope's device, if this is it. */
bool tmsg_cuda_is_own(const tmsg_cuda_scope_t *scope);

tmsg_status_t tmsg_cuda_use(void *arg, tmsg_device_t device);
tmsg_status_t tmsg_cuda_identify(void *arg, tmsg_device_t device,
                                 tmsg_device_identity_t *identity_p);

/* cuda_memory.c */
tmsg_status_t tmsg_cuda_classify(void *arg, const void *data,
                                 tmsg_memory_t *memory_p);
tmsg_status_t tmsg_cuda_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                              uint64_t alignment, tmsg_stream_t stream,
                              void **data_p);
void tmsg_cuda_free(void *arg, tmsg_device_t device, void *data, uint64_t bytes,
                    tmsg_stream_t stream);
tmsg_status_t tmsg_cuda_pin(void *arg, void *host, uint64_t bytes);
void tmsg_cuda_unpin(void *arg, void *host, uint64_t bytes);

/* cuda_stream.c */
tmsg_status_t tmsg_cuda_event_record(void *arg, tmsg_device_t device,
                                     tmsg_stream_t stream, void **event_p);
tmsg_status_t tmsg_cuda_event_query(void *arg, void *event);
tmsg_status_t tmsg_cuda_event_wait(void *arg, tmsg_device_t device, void *event,
                                   tmsg_stream_t stream);
void tmsg_cuda_event_free(void *arg, void *event);

/* Gives back what is kept of all devices, as tests want it. */
void tmsg_cuda_forget(void);

#endif
