/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA's memory between processes: "Interprocess communication" in the section
 * "Memory Management" of the driver API. Memory of a stream-ordered pool has no
 * such handle, so this memory comes from cuMemAlloc(). */
#include <string.h>

#include "core/error.h"
#include "memory/cuda.h"

#define LAZY_PEER_ACCESS 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */

static const tmsg_stream_t none;

static tmsg_cu_address_t ipc_address(const void *data)
{
    return (tmsg_cu_address_t)(uintptr_t)data;
}

static tmsg_status_t enter_ipc(tmsg_device_t device, tmsg_cuda_scope_t *scope)
{
    tmsg_status_t status;

    if (device.type != TMSG_DEVICE_CUDA) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "CUDA shares memory of its devices, not that of "
                              "device type %d",
                              device.type);
    }
    status = tmsg_cuda_enter(device, none, TMSG_CUDA_ALLOCATIONS, scope);
    if (status != TMSG_OK) {
        return status;
    }
    scope->own = false; /* nothing here is work of a stream */
    if (scope->fn->cuIpcGetMemHandle == NULL ||
        scope->fn->cuIpcOpenMemHandle == NULL ||
        scope->fn->cuIpcCloseMemHandle == NULL) {
        tmsg_cuda_leave(scope, TMSG_CU_SUCCESS, "");
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the CUDA driver shares no memory with other "
                              "processes");
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_cuda_ipc_alloc(tmsg_device_t device, uint64_t bytes,
                                  tmsg_cu_ipc_handle_t *handle_p, void **data_p)
{
    tmsg_cu_address_t address = 0;
    const char *call = "cuMemAlloc";
    tmsg_cuda_scope_t scope;
    tmsg_status_t status = enter_ipc(device, &scope);
    int result;

    if (status != TMSG_OK) {
        return status;
    }
    result = scope.fn->cuMemAlloc(&address, bytes);
    if (result == TMSG_CU_SUCCESS) {
        result = scope.fn->cuIpcGetMemHandle(handle_p, address);
        call = "cuIpcGetMemHandle";
    }
    status = tmsg_cuda_leave(&scope, result, call);
    if (status == TMSG_OK) {
        *data_p = (void *)(uintptr_t)address;
    } else if (address != 0) {
        tmsg_cuda_free_beside(device, (void *)(uintptr_t)address);
    }
    return status;
}

void tmsg_cuda_ipc_free(tmsg_device_t device, void *data)
{
    tmsg_cuda_free_beside(device, data);
}

/* A peer may say that its memory is larger than it is. What is mapped may begin
 * before it, with its neighbours. */
static tmsg_status_t check_range(const void *data, uint64_t bytes)
{
    tmsg_memory_t memory = {.bytes = 0};
    tmsg_status_t status = tmsg_cuda_classify(NULL, data, &memory);
    uint64_t before =
        status == TMSG_OK ? ipc_address(data) - ipc_address(memory.base) : 0;

    if (status != TMSG_OK || before > memory.bytes ||
        memory.bytes - before < bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the peer's GPU memory has %llu bytes, not %llu",
                              (unsigned long long)(memory.bytes - before),
                              (unsigned long long)bytes);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_cuda_ipc_open(tmsg_device_t device,
                                 const tmsg_cu_ipc_handle_t *handle,
                                 uint64_t bytes, void **data_p)
{
    tmsg_cu_address_t address = 0;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status = enter_ipc(device, &scope);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_cuda_leave(
        &scope,
        scope.fn->cuIpcOpenMemHandle(&address, *handle, LAZY_PEER_ACCESS),
        "cuIpcOpenMemHandle");
    if (status == TMSG_OK) {
        status = check_range((void *)(uintptr_t)address, bytes);
        if (status != TMSG_OK) {
            tmsg_cuda_ipc_close(device, (void *)(uintptr_t)address);
        }
    }
    if (status == TMSG_OK) {
        *data_p = (void *)(uintptr_t)address;
    }
    return status;
}

void tmsg_cuda_ipc_close(tmsg_device_t device, void *data)
{
    tmsg_cuda_scope_t scope;

    if (enter_ipc(device, &scope) == TMSG_OK) {
        tmsg_cuda_leave(&scope,
                        scope.fn->cuIpcCloseMemHandle(ipc_address(data)),
                        "cuIpcCloseMemHandle");
    }
}

tmsg_status_t tmsg_cuda_find_uuid(const char *uuid, tmsg_device_t *device_p)
{
    const tmsg_cuda_driver_t *driver = tmsg_cuda_driver();

    for (int id = 0; id < driver->devices && id < TMSG_CUDA_DEVICES; id++) {
        const tmsg_device_t device = {TMSG_DEVICE_CUDA, id};
        tmsg_device_identity_t identity;

        if (tmsg_cuda_identify(NULL, device, &identity) == TMSG_OK &&
            strcmp(identity.uuid, uuid) == 0) {
            *device_p = device;
            return TMSG_OK;
        }
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                          "this process does not see the GPU %s", uuid);
}
