/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "core/error.h"
#include "core/params.h"

tmsg_status_t tmsg_params_unknown(const char *what, uint64_t bits)
{
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "%s: unknown field_mask bits 0x%llx", what,
                          (unsigned long long)bits);
}

tmsg_status_t tmsg_params_read(const char *what, const void *params,
                               uint64_t mask, const tmsg_param_t *rows,
                               size_t row_count, void *read)
{
    uint64_t unknown = mask;

    for (size_t i = 0; i < row_count; i++) {
        unknown &= ~rows[i].bit;
    }
    if (unknown != 0) {
        return tmsg_params_unknown(what, unknown);
    }
    for (size_t i = 0; i < row_count; i++) {
        if (mask & rows[i].bit) {
            memcpy((char *)read + rows[i].offset,
                   (const char *)params + rows[i].offset, rows[i].bytes);
        }
    }
    return TMSG_OK;
}
