/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/own_allocator.h"

#include <stdlib.h>
#include <string.h>

#include "support/must.h"

static tmsg_status_t own_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                               uint64_t alignment, void **data_p,
                               void **token_p)
{
    own_memory_t *memory = arg;
    tmsg_status_t status =
        memory->on_alloc == NULL ? TMSG_OK : memory->on_alloc(memory->arg);

    must_true(device.type == TMSG_DEVICE_CPU && device.id == 0);
    must_true(alignment <= 64 && (alignment & (alignment - 1)) == 0);
    if (status != TMSG_OK) {
        return status;
    }
    *data_p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    *token_p = memory;
    atomic_fetch_add(&memory->blocks, 1);
    atomic_fetch_add(&memory->allocs, 1);
    return TMSG_OK;
}

static void own_free(void *arg, void *data, uint64_t bytes, void *token)
{
    own_memory_t *memory = arg;

    must_true(token == arg && bytes > 0);
    memset(data, 0xdd, bytes);
    free(data);
    if (memory->on_free != NULL) {
        memory->on_free(memory->arg);
    }
    atomic_fetch_sub(&memory->blocks, 1);
}

tmsg_allocator_t own_memory_allocator(own_memory_t *memory)
{
    return (tmsg_allocator_t){own_alloc, own_free, memory};
}
