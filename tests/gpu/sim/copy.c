/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of the simulated driver. Which of them return when they are done is
 * told by "API synchronization behavior" of the driver API reference. */
#include "gpu/sim/inside.h"

#include <stdlib.h>

typedef struct {
    address_t to, from;
    size_t bytes;
    bool to_device, from_device; /* what the name of the call says */
} copy_t;

/* What is known of a copy before it is given to a stream. */
typedef struct {
    block_t *target, *source;
    bool from_host, to_host, pageable;
} kind_of_copy_t;

static int look(const copy_t *copy, kind_of_copy_t *kind)
{
    char *view;

    if (!sim_reach(copy->to, copy->bytes, &view, &kind->target) ||
        !sim_reach(copy->from, copy->bytes, &view, &kind->source)) {
        return INVALID_VALUE;
    }
    kind->to_host = !sim_is_device(kind->target);
    kind->from_host = !sim_is_device(kind->source);
    if ((copy->to_device && kind->to_host) ||
        (copy->from_device && kind->from_host)) {
        return INVALID_VALUE;
    }
    kind->pageable = kind->target == NULL || kind->source == NULL;
    return OK;
}

static void complain(const kind_of_copy_t *kind)
{
    if ((kind->target != NULL && kind->target->dying) ||
        (kind->source != NULL && kind->source->dying)) {
        sim_undefined("a copy of memory that cuMemFreeAsync() has freed");
    }
}

static bool is_peer(const block_t *block)
{
    return block != NULL && block->kind == PEER;
}

static void count(const copy_t *copy, const kind_of_copy_t *kind)
{
    if (!kind->to_host && !kind->from_host) {
        COUNT(copies_dtod);
    } else if (kind->from_host && !kind->to_host) {
        COUNT(copies_htod);
    } else if (kind->to_host && !kind->from_host) {
        COUNT(copies_dtoh);
    }
    if (kind->pageable) {
        COUNT(copies_pageable);
    }
    if (is_peer(kind->target) || is_peer(kind->source)) {
        COUNT(copies_ipc);
    }
    COUNT_BYTES(copies_bytes, copy->bytes);
}

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS and CU_CTX_SYNC_MEMOPS: copies "initiated
 * on this region are synchronous", of calls that are not asynchronous by
 * name. */
static bool wants_sync(const kind_of_copy_t *kind)
{
    return (sim_current()->flags & 0x80) != 0 ||
           (kind->target != NULL && kind->target->sync) ||
           (kind->source != NULL && kind->source->sync);
}

/* "Asynchronous": from pageable memory, "host memory is copied to a staging
 * buffer immediately". */
static int stage(const copy_t *copy, const kind_of_copy_t *kind, op_t *op)
{
    if (kind->source == NULL && !kind->to_host && copy->bytes > 0) {
        op->staged = malloc(copy->bytes);
        if (op->staged == NULL) {
            return OUT_OF_MEMORY;
        }
        memcpy(op->staged, (const void *)(uintptr_t)copy->from, copy->bytes);
    }
    return OK;
}

/* `sync_p`: whether the call has to wait by what it copies: "to pageable host
 * memory, the function will return only once the copy has completed", "from
 * any host memory to any host memory, the function is fully synchronous". */
static int give(const copy_t *copy, void *handle, stream_t **stream_p,
                bool *sync_p, bool *wants_sync_p)
{
    kind_of_copy_t kind;
    op_t op = {
        .work = COPY, .to = copy->to, .from = copy->from, .bytes = copy->bytes};
    bool node;
    int result = look(copy, &kind);

    if (result == OK) {
        result = sim_stream_for_work(handle, stream_p, &node);
    }
    if (result == OK && node) {
        sim_give_work(*stream_p, true, &op);
    }
    if (result != OK || node) {
        *sync_p = false;
        return result;
    }
    complain(&kind);
    count(copy, &kind);
    result = stage(copy, &kind, &op);
    if (result == OK && copy->bytes > 0) {
        sim_submit(*stream_p, &op);
    }
    *sync_p = kind.to_host && (kind.from_host || kind.target == NULL);
    *wants_sync_p = wants_sync(&kind) || kind.from_host || kind.to_host;
    return result;
}

static int copy_async(const copy_t *copy, void *handle)
{
    stream_t *stream;
    bool sync, unused;
    int result = give(copy, handle, &stream, &sync, &unused);

    COUNT(launches);
    return result == OK && sync ? sim_wait(stream) : result;
}

/* "Synchronous": in the legacy stream; "for transfers from device memory to
 * device memory, no host-side synchronization is performed". */
static int copy_sync(const copy_t *copy)
{
    stream_t *stream;
    bool sync, wants;
    int result = sim_unsafe();

    COUNT(launches);
    if (result == OK) {
        result = give(copy, NULL, &stream, &sync, &wants);
    }
    return result == OK && wants ? sim_wait(stream) : result;
}

API int cuMemcpyAsync(address_t to, address_t from, size_t bytes, void *stream)
{
    IN_CONTEXT;
    return copy_async(&(copy_t){to, from, bytes, false, false}, stream);
}

API int cuMemcpyDtoDAsync_v2(address_t to, address_t from, size_t bytes,
                             void *stream)
{
    IN_CONTEXT;
    return copy_async(&(copy_t){to, from, bytes, true, true}, stream);
}

API int cuMemcpyHtoDAsync_v2(address_t to, const void *from, size_t bytes,
                             void *stream)
{
    IN_CONTEXT;
    return copy_async(
        &(copy_t){to, (address_t)(uintptr_t)from, bytes, true, false}, stream);
}

API int cuMemcpyDtoHAsync_v2(void *to, address_t from, size_t bytes,
                             void *stream)
{
    IN_CONTEXT;
    return copy_async(
        &(copy_t){(address_t)(uintptr_t)to, from, bytes, false, true}, stream);
}

API int cuMemcpy(address_t to, address_t from, size_t bytes)
{
    IN_CONTEXT;
    return copy_sync(&(copy_t){to, from, bytes, false, false});
}

API int cuMemcpyDtoD_v2(address_t to, address_t from, size_t bytes)
{
    IN_CONTEXT;
    return copy_sync(&(copy_t){to, from, bytes, true, true});
}

API int cuMemcpyHtoD_v2(address_t to, const void *from, size_t bytes)
{
    IN_CONTEXT;
    return copy_sync(
        &(copy_t){to, (address_t)(uintptr_t)from, bytes, true, false});
}

API int cuMemcpyDtoH_v2(void *to, address_t from, size_t bytes)
{
    IN_CONTEXT;
    return copy_sync(
        &(copy_t){(address_t)(uintptr_t)to, from, bytes, false, true});
}

/* CUmemcpyAttributes */
typedef struct {
    int order; /* CUmemcpySrcAccessOrder: 1 stream, 2 during the call, 3 any */
    int hints[4];
    unsigned flags;
} batch_attributes_t;

/* cuMemcpyBatchAsync(): "the copies may execute in any order" among
 * themselves; "hStream must not be the legacy default stream";
 * attributes[i] holds from index[i] on. One call is one launch. */
static int batch(const address_t *to, const address_t *from,
                 const size_t *bytes, size_t count_of,
                 const batch_attributes_t *attributes, const size_t *index,
                 size_t attributes_of, void *handle)
{
    bool sync, unused;
    stream_t *stream;

    IN_CONTEXT;
    if (count_of == 0 || attributes_of == 0 || attributes_of > count_of ||
        index[0] != 0 || handle <= (void *)1) {
        return INVALID_VALUE;
    }
    for (size_t i = 0; i < attributes_of; i++) {
        if (attributes[i].order < 1 || attributes[i].order > 3 ||
            (i > 0 && index[i] <= index[i - 1]) || index[i] >= count_of) {
            return INVALID_VALUE;
        }
    }
    COUNT(launches);
    COUNT(batches);
    for (size_t i = 0; i < count_of; i++) {
        const copy_t copy = {to[i], from[i], bytes[i], false, false};
        int result = give(&copy, handle, &stream, &sync, &unused);

        if (result != OK) {
            return result;
        }
        if (sync) {
            sim_wait(stream);
        }
    }
    return OK;
}

API int cuMemcpyBatchAsync(address_t *to, address_t *from, size_t *bytes,
                           size_t count_of, void *attributes, size_t *index,
                           size_t attributes_of, size_t *failed, void *stream)
{
    *failed = SIZE_MAX;
    return batch(to, from, bytes, count_of, attributes, index, attributes_of,
                 stream);
}

API int cuMemcpyBatchAsync_v2(const address_t *to, const address_t *from,
                              const size_t *bytes, size_t count_of,
                              const void *attributes, const size_t *index,
                              size_t attributes_of, void *stream)
{
    return batch(to, from, bytes, count_of, attributes, index, attributes_of,
                 stream);
}

static int fill(address_t to, unsigned char value, size_t bytes, void *handle,
                bool wait)
{
    stream_t *stream;
    block_t *target;
    char *view;
    bool node;
    int result;

    IN_CONTEXT;
    if (!sim_reach(to, bytes, &view, &target) || !sim_is_device(target)) {
        return INVALID_VALUE;
    }
    COUNT(launches);
    result = sim_stream_for_work(handle, &stream, &node);
    if (result == OK) {
        sim_give_work(
            stream, node,
            &(op_t){.work = FILL, .to = to, .bytes = bytes, .value = value});
    }
    return result == OK && !node && wait && target->sync ? sim_wait(stream)
                                                         : result;
}

/* "cuMemset() is asynchronous with respect to the host" on device memory. */
API int cuMemsetD8_v2(address_t to, unsigned char value, size_t bytes)
{
    return fill(to, value, bytes, NULL, true);
}

API int cuMemsetD8Async(address_t to, unsigned char value, size_t bytes,
                        void *stream)
{
    return fill(to, value, bytes, stream, false);
}
