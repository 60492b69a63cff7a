/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/device.h - where memory lies, as DLPack 1.x names it.
 *
 * A device is a type and an ordinal, and has a name.
 *
 *     tmsg_device_parse("cuda:1", &device);
 *     tmsg_device_format(device, name, sizeof(name));
 */
#ifndef TENSORMSG_DEVICE_H
#define TENSORMSG_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device types, with the values of DLDeviceType in dlpack.h 1.3. A map can have
 * tensors of all of them. tmsg_endpoint_send() says which can be sent. */
typedef enum {
    TMSG_DEVICE_CPU = 1,
    TMSG_DEVICE_CUDA = 2,
    TMSG_DEVICE_CUDA_HOST = 3, /* pinned memory, which the CPU reads */
    TMSG_DEVICE_OPENCL = 4,
    TMSG_DEVICE_VULKAN = 7,
    TMSG_DEVICE_METAL = 8,
    TMSG_DEVICE_VPI = 9,
    TMSG_DEVICE_ROCM = 10,
    TMSG_DEVICE_ROCM_HOST = 11,
    TMSG_DEVICE_EXT_DEV = 12, /* one that DLPack has no name for */
    TMSG_DEVICE_CUDA_MANAGED = 13,
    TMSG_DEVICE_ONEAPI = 14,
    TMSG_DEVICE_WEBGPU = 15,
    TMSG_DEVICE_HEXAGON = 16,
    TMSG_DEVICE_MAIA = 17,
    TMSG_DEVICE_TRN = 18
} tmsg_device_type_t;

typedef struct tmsg_device {
    int32_t type; /* tmsg_device_type_t */
    int32_t id;   /* ordinal within the type; 0 for the CPU */
} tmsg_device_t;

/* The functions here keep no state. Any thread may call them. */

/* Bytes that hold any name written by tmsg_device_format(), NUL included. */
enum { TMSG_DEVICE_NAME_MAX = 40 };

/* Writes the name and the ordinal: "cpu:0", "cuda:1", "cuda_host:0",
 * "opencl:0", "ext_dev:2". A type that is not in the list is written as
 * "device(type):id". Writes at most name_bytes, always NUL-terminated, and
 * returns `name`. */
TMSG_API const char *tmsg_device_format(tmsg_device_t device, char *name,
                                        size_t name_bytes);

/* Reads what tmsg_device_format() writes. A name without ":id" has id 0.
 * Errors:
 *   INVALID_PARAM - the text is no device; the error names it */
TMSG_API tmsg_status_t tmsg_device_parse(const char *name,
                                         tmsg_device_t *device_p);

#ifdef __cplusplus
}
#endif

#endif
