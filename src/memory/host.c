/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "core/error.h"
#include "memory/domain.h"

/* Pinned memory is host memory to everyone but the GPU's driver. */
static bool holds(tmsg_device_t device)
{
    return device.type == TMSG_DEVICE_CPU ||
           device.type == TMSG_DEVICE_CUDA_HOST;
}

static tmsg_status_t alloc(uint64_t bytes, uint64_t alignment, void **data_p)
{
    uint64_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    void *data = aligned_alloc(alignment, rounded == 0 ? alignment : rounded);

    if (data == NULL) {
        return tmsg_error_set(TMSG_ERR_NO_MEMORY,
                              "no memory for %llu bytes of tensors",
                              (unsigned long long)bytes);
    }
    *data_p = data;
    return TMSG_OK;
}

static void give_back(void *data, uint64_t bytes)
{
    (void)bytes;
    free(data);
}

const tmsg_domain_t tmsg_domain_host = {"host", holds, alloc, give_back};
