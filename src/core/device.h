/* SPDX-License-Identifier: BSD-3-Clause */
/* core/device.h - device types as the other rooms see them. */
#ifndef TMSG_CORE_DEVICE_H
#define TMSG_CORE_DEVICE_H

#include <stdbool.h>

#include <tensormsg/device.h>

/* Returns the type's name, or NULL if the type is not one of DLPack's list. */
const char *tmsg_device_type_name(int32_t type);

static inline bool tmsg_device_is(tmsg_device_t a, tmsg_device_t b)
{
    return a.type == b.type && a.id == b.id;
}

/* Returns whether `data` of a tensor on such a device is an address, to which
 * bytes may be added. With OpenCL and similar types it is a handle. */
bool tmsg_device_has_addresses(int32_t type);

#endif
