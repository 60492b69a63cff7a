/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/cuda_lines.h"

#include "core/error.h"
#include "memory/cuda.h"
#include "memory/lines.h"

#define PORTABLE 1    /* CU_MEMHOSTREGISTER_PORTABLE: for all contexts */
#define DEVICE_MAP 2  /* CU_MEMHOSTREGISTER_DEVICEMAP */
#define WAIT_GEQ 0    /* CU_STREAM_WAIT_VALUE_GEQ, cyclic */
#define WRITE_AFTER 0 /* CU_STREAM_WRITE_VALUE_DEFAULT: behind a barrier */
/* CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, of CUDA 11.7 */
#define HAS_WORDS 122
/* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS and
 * ..._WRITES_ORDERING, of CUDA 11.3 */
#define FLUSH_OPTIONS 117
#define FLUSH_BY_HOST 1 /* a bit of it */
#define ORDERING 118
#define ORDERED_FOR_OWNER 100 /* of ORDERING, and the scope of a flush */
#define CURRENT_CONTEXT 0     /* the target of a flush */

static const tmsg_stream_t none;

static tmsg_status_t refuse_mapping(const tmsg_cuda_scope_t *scope)
{
    return scope->fn->cuMemHostGetDevicePointer != NULL
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "this driver has no cuMemHostGetDevicePointer");
}

tmsg_status_t tmsg_cuda_map_lines(tmsg_device_t device, void *host,
                                  uint64_t bytes, uint64_t *address_p)
{
    const char *call = "cuMemHostRegister";
    tmsg_cu_address_t address = 0;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, none, TMSG_CUDA_COPIES, &scope);
    int result = TMSG_CU_SUCCESS;

    if (status != TMSG_OK) {
        return status;
    }
    scope.own = false; /* there is nothing to wait for */
    status = refuse_mapping(&scope);
    if (status == TMSG_OK) {
        result =
            scope.fn->cuMemHostRegister(host, bytes, PORTABLE | DEVICE_MAP);
    }
    if (status == TMSG_OK && result == TMSG_CU_SUCCESS) {
        call = "cuMemHostGetDevicePointer";
        result = scope.fn->cuMemHostGetDevicePointer(&address, host, 0);
        if (result != TMSG_CU_SUCCESS) {
            scope.fn->cuMemHostUnregister(host);
        }
    }
    if (status != TMSG_OK) {
        (void)tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, call);
        return status;
    }
    status = tmsg_cuda_leave(&scope, result, call);
    if (status == TMSG_OK) {
        *address_p = address;
    }
    return status;
}

void tmsg_cuda_find_used(tmsg_device_t *device_p)
{
    tmsg_cuda_scope_t scope;
    int device, found;

    if (tmsg_cuda_enter_any(&scope) != TMSG_OK) {
        return;
    }
    if (scope.fn->cuCtxGetDevice(&device) == TMSG_CU_SUCCESS) {
        for (int id = 0; id < tmsg_cuda_driver()->devices; id++) {
            if (scope.fn->cuDeviceGet(&found, id) == TMSG_CU_SUCCESS &&
                found == device) {
                *device_p = (tmsg_device_t){TMSG_DEVICE_CUDA, id};
            }
        }
    }
    (void)tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
}

static int attribute_of(const tmsg_cuda_functions_t *fn, tmsg_device_t device,
                        int attribute)
{
    int handle, value = 0;

    return fn->cuDeviceGet(&handle, device.id) == TMSG_CU_SUCCESS &&
                   fn->cuDeviceGetAttribute(&value, attribute, handle) ==
                       TMSG_CU_SUCCESS
               ? value
               : 0;
}

bool tmsg_cuda_needs_flush(tmsg_device_t device)
{
    const tmsg_cuda_functions_t *fn = &tmsg_cuda_driver()->fn;

    return fn->cuFlushGPUDirectRDMAWrites != NULL &&
           (attribute_of(fn, device, FLUSH_OPTIONS) & FLUSH_BY_HOST) != 0 &&
           attribute_of(fn, device, ORDERING) < ORDERED_FOR_OWNER;
}

tmsg_status_t tmsg_cuda_flush_writes(tmsg_device_t device)
{
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, none, TMSG_CUDA_COPIES, &scope);
    int result;

    if (status != TMSG_OK) {
        return status;
    }
    scope.own = false; /* there is nothing to wait for */
    result = scope.fn->cuFlushGPUDirectRDMAWrites(CURRENT_CONTEXT,
                                                  ORDERED_FOR_OWNER);
    return tmsg_cuda_leave(&scope, result, "cuFlushGPUDirectRDMAWrites");
}

bool tmsg_cuda_unmap_lines(void *host)
{
    tmsg_cuda_scope_t scope;

    return tmsg_cuda_enter_any(&scope) == TMSG_OK &&
           tmsg_cuda_leave(&scope, scope.fn->cuMemHostUnregister(host),
                           "cuMemHostUnregister") == TMSG_OK;
}

static tmsg_status_t check_words(const tmsg_cuda_scope_t *scope,
                                 tmsg_device_t device)
{
    const tmsg_cuda_functions_t *fn = scope->fn;

    if (fn->cuStreamWaitValue64 != NULL && fn->cuStreamWriteValue32 != NULL &&
        attribute_of(fn, device, HAS_WORDS) != 0) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        TMSG_ERR_UNSUPPORTED,
        "streams of CUDA device %d cannot wait for a word of 64 bits: the "
        "driver reports 0 for CAN_USE_64_BIT_STREAM_MEM_OPS, or is older than "
        "CUDA 11.7; a kernel can still ring the bell",
        device.id);
}

tmsg_status_t tmsg_cuda_give_line(tmsg_device_t device, tmsg_stream_t stream,
                                  uint64_t address, bool writes)
{
    const char *call = "cuStreamWaitValue64";
    tmsg_cuda_scope_t scope;
    tmsg_status_t status;
    int result = TMSG_CU_SUCCESS;

    if (stream.kind != TMSG_STREAM_CUDA) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "a bell needs a CUDA stream");
    }
    status = tmsg_cuda_enter_to_record(device, stream, &scope);
    if (status != TMSG_OK) {
        return status;
    }
    status = check_words(&scope, device);
    if (status == TMSG_OK) {
        result = scope.fn->cuStreamWaitValue64(scope.stream, address,
                                               TMSG_LINE_FREE, WAIT_GEQ);
    }
    if (status == TMSG_OK && result == TMSG_CU_SUCCESS && writes) {
        call = "cuStreamWriteValue32";
        result = scope.fn->cuStreamWriteValue32(scope.stream, address, 1,
                                                WRITE_AFTER);
    }
    if (status != TMSG_OK) {
        (void)tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, call);
        return status;
    }
    return tmsg_cuda_leave(&scope, result, call);
}
