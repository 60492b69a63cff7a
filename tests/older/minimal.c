/* SPDX-License-Identifier: BSD-3-Clause */
#include "older/minimal.h"

#include <string.h>

#include "older/frozen.h"
#include "support/must.h"

static frozen_tensor_t describe(const char *name, const tmsg_tensor_t *tensor)
{
    frozen_tensor_t frozen = {
        .name = name,
        .name_bytes = strlen(name),
        .code = tensor->dtype.code,
        .bits = tensor->dtype.bits,
        .lanes = tensor->dtype.lanes,
        .ndim = (uint32_t)tensor->ndim,
    };

    must_true(tmsg_tensor_is_contiguous(tensor));
    must_eq(tensor->device.type, TMSG_DEVICE_CPU);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        frozen.shape[i] = tensor->shape[i];
    }
    return frozen;
}

size_t minimal_body(const tmsg_map_t *map, uint8_t *to)
{
    size_t bytes = frozen_write_body_head(tmsg_map_size(map), to);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        frozen_tensor_t frozen;
        tmsg_tensor_t tensor;
        const char *name;

        must(tmsg_map_at(map, i, &name, &tensor));
        frozen = describe(name, &tensor);
        bytes += frozen_write_tensor(&frozen, to == NULL ? NULL : to + bytes);
    }
    return bytes;
}
