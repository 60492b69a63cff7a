/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>
#include <stdlib.h>

#include "core/device.h"
#include "core/error.h"
#include "core/map_struct.h"

typedef struct {
    tmsg_device_t device;
    uintptr_t begin, end;
    size_t index;
} span_t;

/* Returns the device whose addresses the memory has. The host's memory has one
 * address under every name. */
static tmsg_device_t memory_of(tmsg_device_t device)
{
    switch (device.type) {
    case TMSG_DEVICE_CPU:
    case TMSG_DEVICE_CUDA_HOST:
    case TMSG_DEVICE_ROCM_HOST:
    case TMSG_DEVICE_CUDA_MANAGED:
        return (tmsg_device_t){TMSG_DEVICE_CPU, 0};
    default:
        return device;
    }
}

/* Writes the memory of a tensor to *span. False: the tensor takes no memory, or
 * memory without addresses. */
static bool span_of(const tmsg_map_t *map, size_t index, span_t *span)
{
    const tmsg_map_entry_t *entry = &tmsg_map_entries(map)[index];

    span->device = memory_of(entry->tensor.device);
    span->begin = (uintptr_t)entry->tensor.data;
    span->end = span->begin + entry->bytes;
    span->index = index;
    return entry->bytes > 0 && tmsg_device_has_addresses(span->device.type);
}

/* Returns whether each tensor begins where the one before ends, or later. Most
 * maps are like this. */
static bool spans_ascend(const tmsg_map_t *map)
{
    span_t before = {.end = 0}, span;
    bool first = true;

    for (size_t i = 0; i < map->size; i++) {
        if (!span_of(map, i, &span)) {
            continue;
        }
        if (!first && (!tmsg_device_is(before.device, span.device) ||
                       span.begin < before.end)) {
            return false;
        }
        before = span;
        first = false;
    }
    return true;
}

static int compare_spans(const void *left, const void *right)
{
    const span_t *a = left, *b = right;

    if (a->device.type != b->device.type) {
        return a->device.type < b->device.type ? -1 : 1;
    }
    if (a->device.id != b->device.id) {
        return a->device.id < b->device.id ? -1 : 1;
    }
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static tmsg_status_t refuse_overlap(const tmsg_map_t *map, size_t a, size_t b)
{
    const tmsg_map_entry_t *first = &tmsg_map_entries(map)[a < b ? a : b];
    const tmsg_map_entry_t *second = &tmsg_map_entries(map)[a < b ? b : a];

    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "tensors '%s' and '%s' overlap: each is received into memory of its "
        "own",
        tmsg_error_name(first->name, first->name_bytes).text,
        tmsg_error_name(second->name, second->name_bytes).text);
}

static tmsg_status_t check_sorted(const tmsg_map_t *map, span_t *spans)
{
    size_t count = 0;

    for (size_t i = 0; i < map->size; i++) {
        count += span_of(map, i, &spans[count]);
    }
    qsort(spans, count, sizeof(*spans), compare_spans);
    for (size_t i = 1; i < count; i++) {
        if (tmsg_device_is(spans[i - 1].device, spans[i].device) &&
            spans[i].begin < spans[i - 1].end) {
            return refuse_overlap(map, spans[i - 1].index, spans[i].index);
        }
    }
    return TMSG_OK;
}

bool tmsg_map_is_apart(const tmsg_map_t *map)
{
    return atomic_load_explicit(&map->apart, memory_order_relaxed);
}

tmsg_status_t tmsg_map_check_apart(const tmsg_map_t *map)
{
    tmsg_status_t status = TMSG_OK;
    span_t *spans;

    if (tmsg_map_is_apart(map)) {
        return TMSG_OK;
    }
    if (!spans_ascend(map)) {
        spans = malloc((map->size + 1) * sizeof(*spans));
        if (spans == NULL) {
            return tmsg_error_memory("the order of tensors in memory");
        }
        status = check_sorted(map, spans);
        free(spans);
    }
    if (status == TMSG_OK) {
        atomic_store_explicit(&((tmsg_map_t *)(uintptr_t)map)->apart, true,
                              memory_order_relaxed);
    }
    return status;
}
