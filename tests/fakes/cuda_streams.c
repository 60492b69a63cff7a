/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies, streams and events of the libcuda.so.1 that is none. */
#include <stdatomic.h>

#include "fakes/cuda_inside.h"

/* Strict where the driver may forgive: device memory is of the device that is
 * current. */
static bool is_here(const char *name, uintptr_t at, size_t bytes)
{
    fake_block_t block;

    if (bytes == 0) {
        return true;
    }
    if (!fake_find(at, &block) || block.device < 0 ||
        at + bytes > block.base + block.bytes) {
        fake_fault_set("%s: no memory of a device at %#llx", name,
                       (unsigned long long)at);
        return false;
    }
    if (block.device != fake_current()) {
        fake_fault_set("%s: memory of device %d, and %d is current", name,
                       block.device, fake_current());
        return false;
    }
    return true;
}

static atomic_bool pinned_only;

void fake_pinned_only(bool only) { pinned_only = only; }

/* Whether host memory is registered, or need not be. */
static bool is_pinned(const char *name, uintptr_t host)
{
    fake_block_t block;

    if (!pinned_only || fake_find(host, &block)) {
        return true;
    }
    fake_fault_set("%s: pageable memory", name);
    return false;
}

static int copy(const char *name, uintptr_t to, uintptr_t from, size_t bytes,
                void *handle)
{
    fake_stream_t *stream;
    int begun = fake_begin(name, true);

    if (begun != OK) {
        return begun;
    }
    stream = fake_stream_of(handle, name);
    if (stream == NULL) {
        return INVALID_HANDLE;
    }
    fake_copy(stream, to, from, bytes);
    return fake_end_late();
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                             void *stream)
{
    if (fake_depth > 0 && (!is_here(__func__, (uintptr_t)to, bytes) ||
                           !is_pinned(__func__, (uintptr_t)from))) {
        return INVALID_VALUE;
    }
    return copy(__func__, (uintptr_t)to, (uintptr_t)from, bytes, stream);
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                             void *stream)
{
    if (fake_depth > 0 && (!is_here(__func__, (uintptr_t)from, bytes) ||
                           !is_pinned(__func__, (uintptr_t)to))) {
        return INVALID_VALUE;
    }
    return copy(__func__, (uintptr_t)to, (uintptr_t)from, bytes, stream);
}

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    return copy(__func__, (uintptr_t)to, (uintptr_t)from, bytes, stream);
}

#if FAKE_CUDA_AGE >= 12080
/* CUDA's reference, cuMemcpyBatchAsync(): not of the legacy default stream; the
 * first attributes are those of the first copy. */
API int cuMemcpyBatchAsync(const uint64_t *to, const uint64_t *from,
                           const size_t *bytes, size_t count,
                           const int *attributes, const size_t *first,
                           size_t kinds, size_t *failed, void *handle)
{
    fake_stream_t *stream;

    IN_CONTEXT;
    stream = fake_stream_of(handle, __func__);
    if (stream == NULL || handle == NULL || handle == (void *)1 || count == 0 ||
        kinds != 1 || first[0] != 0 || attributes[0] < 1 || attributes[0] > 3) {
        return INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        fake_block_t block;
        bool in = fake_find((uintptr_t)to[i], &block) && block.device >= 0;

        *failed = i;
        if (bytes[i] == 0 ||
            !is_here(__func__, (uintptr_t)(in ? to[i] : from[i]), bytes[i]) ||
            !is_pinned(__func__, (uintptr_t)(in ? from[i] : to[i]))) {
            return INVALID_VALUE;
        }
        fake_copy(stream, (uintptr_t)to[i], (uintptr_t)from[i], bytes[i]);
    }
    return fake_end_late();
}
#endif

API int cuStreamCreate(void **stream, unsigned flags)
{
    IN_CONTEXT;
    *stream = fake_stream_new(fake_current(), false, flags == 1,
                              fake_stack[fake_depth - 1]);
    return fake_end(OK);
}

API int cuStreamDestroy_v2(void *stream)
{
    IN_CONTEXT;
    fake_stream_free(stream);
    return fake_end(OK);
}

API int cuStreamSynchronize(void *handle)
{
    fake_stream_t *stream;

    IN_CONTEXT;
    stream = fake_stream_of(handle, __func__);
    if (stream == NULL) {
        return INVALID_HANDLE;
    }
    fake_synchronize(stream);
    return fake_end_late();
}

/* The event may be of another device. */
API int cuStreamWaitEvent(void *handle, void *event, unsigned flags)
{
    fake_stream_t *stream;

    IN_CONTEXT;
    stream = fake_stream_of(handle, __func__);
    if (stream == NULL || !fake_event_ok(event, __func__) || flags != 0) {
        return INVALID_HANDLE;
    }
    fake_event_wait(event, stream);
    return fake_end_late();
}

#if FAKE_CUDA_AGE >= 9020
API int cuStreamGetCtx(void *handle, void **context)
{
    ANYWHERE;
    if (handle <= (void *)2) {
        if (fake_depth == 0) {
            return INVALID_CONTEXT;
        }
        *context = fake_stack[fake_depth - 1];
        return fake_end(OK);
    }
    if (fake_stream_freed(handle)) {
        return INVALID_HANDLE;
    }
    *context = fake_stream_owner(handle);
    return fake_end(OK);
}
#endif

/* The stream that is captured, if one is. CUDA's reference, "Stream
 * Management": cuStreamBeginCapture(), cuThreadExchangeStreamCaptureMode(). */
static void *_Atomic capture;
static atomic_bool invalid;
static _Thread_local int mode; /* 0: global, 1: of this thread, 2: relaxed */

void fake_capture(void *stream)
{
    invalid = false;
    capture = stream;
}

bool fake_captured(void) { return capture != NULL && !invalid; }

void fake_unsafe(void)
{
    if (capture != NULL && mode == 0) {
        invalid = true;
    }
}

#if FAKE_CUDA_AGE >= 10010
API int cuStreamIsCapturing(void *stream, int *status)
{
    IN_CONTEXT;
    if (capture != NULL && stream == (void *)1) {
        return CAPTURE_IMPLICIT;
    }
    *status = stream == capture ? invalid ? 2 : 1 : 0;
    return fake_end(OK);
}

API int cuThreadExchangeStreamCaptureMode(int *wanted)
{
    int before = mode;

    ANYWHERE;
    if (*wanted < 0 || *wanted > 2) {
        return INVALID_VALUE;
    }
    mode = *wanted;
    *wanted = before;
    return fake_end(OK);
}
#endif

API int cuEventCreate(void **event, unsigned flags)
{
    IN_CONTEXT;
    if (flags != 2) {
        fake_fault_set("%s: an event that takes times", __func__);
        return INVALID_VALUE;
    }
    *event = fake_event_new(fake_current(), fake_stack[fake_depth - 1]);
    return fake_end(OK);
}

API int cuEventDestroy_v2(void *event)
{
    IN_CONTEXT;
    if (!fake_event_ok(event, __func__) || !fake_event_here(event, __func__)) {
        return INVALID_HANDLE;
    }
    fake_event_free(event);
    return fake_end(OK);
}

API int cuEventRecord(void *event, void *handle)
{
    fake_stream_t *stream;

    IN_CONTEXT;
    stream = fake_stream_of(handle, __func__);
    if (stream == NULL || !fake_event_ok(event, __func__) ||
        !fake_event_here(event, __func__)) {
        return INVALID_HANDLE;
    }
    fake_event_record(event, stream);
    return fake_end_late();
}

API int cuEventQuery(void *event)
{
    IN_CONTEXT;
    fake_unsafe();
    if (!fake_event_ok(event, __func__) || !fake_event_here(event, __func__)) {
        return INVALID_HANDLE;
    }
    if (!fake_event_step(event)) {
        return fake_end(OK) == OK ? NOT_READY : fake_end(OK);
    }
    return fake_end_late();
}
