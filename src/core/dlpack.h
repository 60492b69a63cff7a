/* SPDX-License-Identifier: BSD-3-Clause */
/* core/dlpack.h - DLPack's structs, as the "C API" of its specification lays
 * them out. The version is 1.3, in which the structs of 0.6 are unchanged. */
#ifndef TMSG_CORE_DLPACK_H
#define TMSG_CORE_DLPACK_H

#include <stdbool.h>

#include <tensormsg/dlpack.h>

#include "core/map.h"

#define TMSG_DLPACK_MAJOR 1
#define TMSG_DLPACK_MINOR 3

typedef struct {
    void *data;
    tmsg_device_t device;
    int32_t ndim;
    tmsg_dtype_t dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} tmsg_dl_tensor_t;

struct DLManagedTensor {
    tmsg_dl_tensor_t dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

/* The fields before dl_tensor are the same in every version. */
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    tmsg_dl_tensor_t dl_tensor;
};

/* Returns whether a tensor was added to its map as read-only. */
bool tmsg_map_entry_is_read_only(const tmsg_map_entry_t *entry);

#endif
