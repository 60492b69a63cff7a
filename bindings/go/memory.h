/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - blocks of C memory, and the devices of the machine. */
#ifndef TENSORMSG_GO_MEMORY_H
#define TENSORMSG_GO_MEMORY_H

#include "hub.h"

tmsggo_result_t tmsggo_alloc(uint64_t bytes, tmsg_shareable_params_t params,
                             uintptr_t *block_p);
tmsggo_result_t tmsggo_free(uintptr_t block);
int tmsggo_is_lent(uintptr_t block);

tmsggo_result_t tmsggo_devices(tmsg_devices_params_t params,
                               tmsg_devices_t **devices_p);
tmsggo_result_t tmsggo_use(tmsg_device_t device);
tmsggo_result_t tmsggo_device_parse(const char *name, tmsg_device_t *device_p);
tmsggo_result_t tmsggo_device_of(tmsg_context_t *context, uint32_t index,
                                 tmsg_device_t *device_p);

#endif
