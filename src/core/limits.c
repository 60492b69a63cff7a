/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/limits.h"

#include <unistd.h>

#include "core/error.h"
#include "core/tensor.h"

#define MIB (1ULL << 20)

static uint64_t quarter_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    if (pages <= 0 || page_bytes <= 0) {
        return 1024 * MIB;
    }
    return (uint64_t)pages * (uint64_t)page_bytes / 4;
}

void tmsg_limits_default(tmsg_limits_t *limits)
{
    *limits = (tmsg_limits_t){
        .field_mask = TMSG_LIMIT_ALL,
        .tensors = 1ULL << 20,
        .ndim = TMSG_NDIM_MAX,
        .name_bytes = 4096,
        .metadata_bytes = 64 * MIB,
        .header_bytes = 512 * MIB,
        .message_bytes = 1ULL << 40,
        .held_bytes = quarter_of_memory(),
    };
}

tmsg_status_t tmsg_limits_merge(const tmsg_limits_t *given,
                                tmsg_limits_t *limits)
{
    tmsg_limits_t merged = *limits;
    struct {
        uint64_t bit;
        const uint64_t *from;
        uint64_t *to;
        uint64_t most;
        const char *name;
    } fields[] = {
        {TMSG_LIMIT_TENSORS, &given->tensors, &merged.tensors, UINT32_MAX,
         "tensors"},
        {TMSG_LIMIT_NDIM, &given->ndim, &merged.ndim, TMSG_NDIM_MAX, "ndim"},
        {TMSG_LIMIT_NAME_BYTES, &given->name_bytes, &merged.name_bytes,
         UINT32_MAX, "name_bytes"},
        {TMSG_LIMIT_METADATA_BYTES, &given->metadata_bytes,
         &merged.metadata_bytes, UINT32_MAX, "metadata_bytes"},
        {TMSG_LIMIT_HEADER_BYTES, &given->header_bytes, &merged.header_bytes,
         UINT32_MAX, "header_bytes"},
        {TMSG_LIMIT_MESSAGE_BYTES, &given->message_bytes, &merged.message_bytes,
         INT64_MAX, "message_bytes"},
        {TMSG_LIMIT_HELD_BYTES, &given->held_bytes, &merged.held_bytes,
         INT64_MAX, "held_bytes"},
    };

    if (given->field_mask & ~TMSG_LIMIT_ALL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "limits: unknown field_mask bits 0x%llx",
            (unsigned long long)(given->field_mask & ~TMSG_LIMIT_ALL));
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (!(given->field_mask & fields[i].bit)) {
            continue;
        }
        if (*fields[i].from == 0 || *fields[i].from > fields[i].most) {
            return tmsg_error_set(
                TMSG_ERR_INVALID_PARAM, "limits: %s %llu is not in 1..%llu",
                fields[i].name, (unsigned long long)*fields[i].from,
                (unsigned long long)fields[i].most);
        }
        *fields[i].to = *fields[i].from;
    }
    *limits = merged;
    return TMSG_OK;
}
