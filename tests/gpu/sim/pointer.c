/* SPDX-License-Identifier: BSD-3-Clause */
/* What the simulated driver tells of an address: CUpointer_attribute. */
#include "gpu/sim/inside.h"

enum {
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    SYNC_MEMOPS = 6,
    BUFFER_ID = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    RANGE_START_ADDR = 11,
    RANGE_SIZE = 12,
    MAPPED_ = 13,
    ALLOWED_HANDLE_TYPES = 14,
    IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    ACCESS_FLAGS = 16,
    MEMPOOL_HANDLE = 17
};

enum { TYPE_HOST = 1, TYPE_DEVICE = 2, FILE_DESCRIPTOR = 1 };

static void put_number(void *to, unsigned value)
{
    memcpy(to, &value, sizeof(value));
}

static void put_long(void *to, uint64_t value)
{
    memcpy(to, &value, sizeof(value));
}

static void put_pointer(void *to, const void *value)
{
    memcpy(to, &value, sizeof(value));
}

/* Memory of a pool and memory that was mapped belong to no context
 * (CU_POINTER_ATTRIBUTE_CONTEXT; UCX tells them by it, cuda_copy_md.c,
 * uct_cuda_copy_md_query_attributes()). IS_LEGACY_CUDA_IPC_CAPABLE is written
 * as an int, on which UCX relies (cuda_ipc_md.c, uct_cuda_ipc_mem_add_reg()).
 * A pointer that is none of CUDA's has "default NULL values"; its ordinal is
 * CU_DEVICE_INVALID. */
static int tell(void *to, int attribute, address_t address,
                const block_t *block)
{
    static const block_t nothing = {.device = -2};
    bool device = sim_is_device(block);
    bool ours = block != NULL && block->kind != PEER;

    if (block == NULL) {
        block = &nothing;
    }
    switch (attribute) {
    case CONTEXT:
        put_pointer(to, block->context);
        break;
    case MEMORY_TYPE:
        put_number(to, device ? TYPE_DEVICE : block->kind ? TYPE_HOST : 0);
        break;
    case DEVICE_POINTER:
        put_long(to, block->kind ? address : 0);
        break;
    case HOST_POINTER:
        put_long(to, (block->kind && !device) || block->kind == MANAGED
                         ? address
                         : 0);
        break;
    case SYNC_MEMOPS:
        put_number(to, block->sync);
        break;
    case BUFFER_ID:
        put_long(to, block->id);
        break;
    case IS_MANAGED:
        put_number(to, block->kind == MANAGED);
        break;
    case DEVICE_ORDINAL:
        put_number(to, (unsigned)block->device);
        break;
    case IS_LEGACY_CUDA_IPC_CAPABLE:
        put_number(to, ours && block->kind == PLAIN);
        break;
    case RANGE_START_ADDR:
        put_long(to, block->base);
        break;
    case RANGE_SIZE:
        put_long(to, block->bytes);
        break;
    case MAPPED_:
        put_number(to, block->kind != 0 && block->view != NULL);
        break;
    case ALLOWED_HANDLE_TYPES:
        put_long(to, sim_handle_types(block));
        break;
    case IS_GPU_DIRECT_RDMA_CAPABLE:
        put_number(to, 0);
        break;
    case ACCESS_FLAGS:
        put_number(to, block->view != NULL ? 3 : 0);
        break;
    case MEMPOOL_HANDLE:
        put_pointer(to, block->pool);
        break;
    default:
        return INVALID_VALUE;
    }
    return OK;
}

/* "This function will not return an error when the ptr encountered is not a
 * valid CUDA pointer." */
API int cuPointerGetAttributes(unsigned many, const int *attributes,
                               void **values, address_t address)
{
    const block_t *block;

    ANYWHERE;
    block = sim_find(address);
    for (unsigned i = 0; i < many; i++) {
        int result = tell(values[i], attributes[i], address, block);

        if (result != OK) {
            return result;
        }
    }
    return OK;
}

API int cuPointerGetAttribute(void *value, int attribute, address_t address)
{
    const block_t *block;

    ANYWHERE;
    block = sim_find(address);
    return block == NULL ? INVALID_VALUE
                         : tell(value, attribute, address, block);
}

/* Only SYNC_MEMOPS can be set, of memory that cuMemAlloc() gave. */
API int cuPointerSetAttribute(const void *value, int attribute,
                              address_t address)
{
    block_t *block;
    unsigned wanted;

    IN_CONTEXT;
    block = sim_find(address);
    if (attribute != SYNC_MEMOPS || block == NULL || block->kind != PLAIN) {
        return INVALID_VALUE;
    }
    memcpy(&wanted, value, sizeof(wanted));
    block->sync = wanted != 0;
    return OK;
}

/* CUmem_range_attribute 3, PREFERRED_LOCATION: "CU_DEVICE_INVALID if the
 * range has no preferred location". */
API int cuMemRangeGetAttribute(void *value, size_t bytes, int attribute,
                               address_t address, size_t range)
{
    const block_t *block;

    IN_CONTEXT;
    block = sim_find(address);
    if (attribute != 3 || bytes != sizeof(int) || block == NULL ||
        block->kind != MANAGED || range > block->bytes) {
        return INVALID_VALUE;
    }
    put_number(value, (unsigned)-2);
    return OK;
}
