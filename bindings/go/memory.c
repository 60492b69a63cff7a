/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - blocks of C memory, and the devices of the machine. */
#include "memory.h"

tmsggo_result_t tmsggo_alloc(uint64_t bytes, tmsg_shareable_params_t params,
                             uintptr_t *block_p)
{
    void *block = NULL;
    tmsggo_result_t answer =
        tmsggo_result(tmsg_shareable_alloc(bytes, &params, &block));
    *block_p = (uintptr_t)block;
    return answer;
}

tmsggo_result_t tmsggo_free(uintptr_t block)
{
    return tmsggo_result(tmsg_shareable_free((void *)block));
}

int tmsggo_is_lent(uintptr_t block)
{
    return tmsg_shareable_is_lent((const void *)block);
}

tmsggo_result_t tmsggo_devices(tmsg_devices_params_t params,
                               tmsg_devices_t **devices_p)
{
    return tmsggo_result(tmsg_devices_create(&params, devices_p));
}

tmsggo_result_t tmsggo_use(tmsg_device_t device)
{
    return tmsggo_result(tmsg_domain_use(device));
}

tmsggo_result_t tmsggo_device_parse(const char *name, tmsg_device_t *device_p)
{
    return tmsggo_result(tmsg_device_parse(name, device_p));
}

tmsggo_result_t tmsggo_device_of(tmsg_context_t *context, uint32_t index,
                                 tmsg_device_t *device_p)
{
    return tmsggo_result(tmsg_context_device(context, index, device_p));
}
