/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/limits.h"
#include "core/map.h"
#include "core/params.h"
#include "core/tensor.h"

#define MIB (1ULL << 20)
#define KNOWN ((uint64_t)TMSG_LIMIT_ALL)
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const struct {
    uint64_t bit;
    size_t offset;
    uint64_t most;
    const char *name;
} fields[] = {
    {TMSG_LIMIT_TENSORS, offsetof(tmsg_limits_t, tensors), UINT32_MAX,
     "tensors"},
    {TMSG_LIMIT_NDIM, offsetof(tmsg_limits_t, ndim), TMSG_NDIM_MAX, "ndim"},
    {TMSG_LIMIT_NAME_BYTES, offsetof(tmsg_limits_t, name_bytes),
     TMSG_NAME_BYTES_MAX, "name_bytes"},
    {TMSG_LIMIT_METADATA_BYTES, offsetof(tmsg_limits_t, metadata_bytes),
     UINT32_MAX, "metadata_bytes"},
    {TMSG_LIMIT_HEADER_BYTES, offsetof(tmsg_limits_t, header_bytes), UINT32_MAX,
     "header_bytes"},
    {TMSG_LIMIT_MESSAGE_BYTES, offsetof(tmsg_limits_t, message_bytes),
     INT64_MAX, "message_bytes"},
    {TMSG_LIMIT_HELD_BYTES, offsetof(tmsg_limits_t, held_bytes), INT64_MAX,
     "held_bytes"},
    {TMSG_LIMIT_METADATA_KEYS, offsetof(tmsg_limits_t, metadata_keys),
     UINT32_MAX, "metadata_keys"},
    {TMSG_LIMIT_LENT_BYTES, offsetof(tmsg_limits_t, lent_bytes), INT64_MAX,
     "lent_bytes"},
};

static uint64_t quarter_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    if (pages <= 0 || page_bytes <= 0) {
        return 1024 * MIB;
    }
    return (uint64_t)pages * (uint64_t)page_bytes / 4;
}

tmsg_limits_t tmsg_limits_usual(void)
{
    return (tmsg_limits_t){
        .field_mask = TMSG_LIMIT_ALL,
        .tensors = 1ULL << 20,
        .ndim = TMSG_NDIM_MAX,
        .name_bytes = 4096,
        .metadata_bytes = 64 * MIB,
        .header_bytes = 512 * MIB,
        .message_bytes = 1ULL << 40,
        .held_bytes = quarter_of_memory(),
        .metadata_keys = TMSG_METADATA_KEYS_USUAL,
        .lent_bytes = INT64_MAX,
    };
}

static uint64_t *field_of(tmsg_limits_t *limits, size_t i)
{
    return (uint64_t *)(void *)((char *)limits + fields[i].offset);
}

static tmsg_status_t check_limits_mask(uint64_t mask)
{
    if (mask & ~KNOWN) {
        return tmsg_params_unknown("limits", mask & ~KNOWN);
    }
    return TMSG_OK;
}

/* An application built with older headers has a shorter struct: only the fields
 * that the mask names are written. */
tmsg_status_t tmsg_limits_default(tmsg_limits_t *limits_p)
{
    tmsg_limits_t usual = tmsg_limits_usual();
    tmsg_status_t status;

    if (limits_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "limits is NULL");
    }
    status = check_limits_mask(limits_p->field_mask);
    for (size_t i = 0; i < FIELDS && status == TMSG_OK; i++) {
        if (limits_p->field_mask & fields[i].bit) {
            *field_of(limits_p, i) = *field_of(&usual, i);
        }
    }
    return status;
}

tmsg_status_t tmsg_limits_merge(const tmsg_limits_t *given,
                                tmsg_limits_t *limits)
{
    tmsg_limits_t merged = *limits;
    tmsg_status_t status = check_limits_mask(given->field_mask);

    if (status != TMSG_OK) {
        return status;
    }
    for (size_t i = 0; i < FIELDS; i++) {
        uint64_t value;

        if (!(given->field_mask & fields[i].bit)) {
            continue;
        }
        memcpy(&value, (const char *)given + fields[i].offset, sizeof(value));
        if (value == 0 || value > fields[i].most) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "limits: %s %llu is not in 1..%llu",
                                  fields[i].name, (unsigned long long)value,
                                  (unsigned long long)fields[i].most);
        }
        *field_of(&merged, i) = value;
    }
    *limits = merged;
    return TMSG_OK;
}

bool tmsg_limits_set(tmsg_limits_t *limits, const char *name, uint64_t value)
{
    for (size_t i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            *field_of(limits, i) = value;
            limits->field_mask |= fields[i].bit;
            return true;
        }
    }
    return false;
}
