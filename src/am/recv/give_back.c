/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives the memory of single tensors back while their message lives. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "am/recv/message.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"

typedef struct {
    uintptr_t begin, end;
} range_t;

/* Returns the memory that a tensor lies in, with its gaps. */
static range_t range_of(const tmsg_message_t *message, size_t index)
{
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    uintptr_t data = (uintptr_t)entry->tensor.data;
    uint64_t bytes = entry->bytes;

    /* A tensor that came as its span has gaps, and elements of whole bytes. Its
     * first element may lie anywhere in it. */
    if (entry->tensor.strides != NULL && bytes > 0 &&
        entry->tensor.dtype.bits % 8 == 0) {
        uint64_t element = tmsg_dtype_bytes(entry->tensor.dtype);
        int64_t elements, before;

        tmsg_tensor_span(&entry->tensor, &elements, &before);
        data -= (uint64_t)before * element;
        bytes = (uint64_t)elements * element;
    }
    return (range_t){data, data + bytes};
}

static range_t range_of_block(const tmsg_message_t *message)
{
    uintptr_t data = (uintptr_t)message->block.data;

    return (range_t){data, data + message->block.capacity};
}

static bool is_within(range_t inner, range_t outer)
{
    return inner.begin >= outer.begin && inner.end <= outer.end &&
           inner.begin < inner.end;
}

/* Returns where the memory begins before `range` that nobody uses, as far as
 * `least`. Tensors lie in the block in their order. */
static uintptr_t free_from(const tmsg_message_t *message, size_t index,
                           uintptr_t least)
{
    range_t block = range_of_block(message);

    while (index > 0) {
        range_t before = range_of(message, --index);

        if (!is_within(before, block)) {
            continue;
        }
        if (!message->given_back[index]) {
            return before.end;
        }
        if (before.begin <= least) {
            return least;
        }
    }
    return block.begin;
}

/* Returns where it ends behind `range`, as far as `most`. */
static uintptr_t free_to(const tmsg_message_t *message, size_t index,
                         uintptr_t most)
{
    range_t block = range_of_block(message);
    size_t size = tmsg_map_size(message->map);

    while (++index < size) {
        range_t behind = range_of(message, index);

        if (!is_within(behind, block)) {
            continue;
        }
        if (!message->given_back[index]) {
            return behind.begin;
        }
        if (behind.end >= most) {
            return most;
        }
    }
    return block.end;
}

/* Gives the pages back that only tensors have which were given back. */
static void free_pages(tmsg_message_t *message, size_t index)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    range_t range = range_of(message, index), pages;
    uint64_t bytes;

    pages.begin = range.begin & ~(page - 1);
    if (free_from(message, index, pages.begin) > pages.begin) {
        pages.begin += page;
    }
    pages.end = (range.end + page - 1) & ~(page - 1);
    if (free_to(message, index, pages.end) < pages.end) {
        pages.end -= page;
    }
    if (pages.begin >= pages.end ||
        madvise((void *)pages.begin, pages.end - pages.begin, MADV_DONTNEED) !=
            0) {
        return;
    }
    bytes = pages.end - pages.begin;
    if (bytes > message->block.bytes) { /* the last page goes beyond it */
        bytes = message->block.bytes;
    }
    message->block.bytes -= bytes;
    tmsg_budget_discharge(message->budget, bytes);
}

tmsg_status_t tmsg_message_give_back(tmsg_message_t *message, size_t index)
{
    if (message == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "give back: message is NULL");
    }
    if (index >= tmsg_map_size(message->map)) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "give back: there is no tensor %zu", index);
    }
    if (!tmsg_map_is_idle(message->map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "give back: the map is being sent, or one of its "
                              "tensors is exported");
    }
    if (message->block.data == NULL || tmsg_budget_asks(message->budget) ||
        !is_within(range_of(message, index), range_of_block(message))) {
        return TMSG_OK;
    }
    if (message->given_back == NULL) {
        message->given_back = calloc(tmsg_map_size(message->map), sizeof(bool));
    }
    if (message->given_back == NULL) {
        return tmsg_error_memory("the list of tensors given back");
    }
    if (!message->given_back[index]) {
        message->given_back[index] = true;
        free_pages(message, index);
    }
    return TMSG_OK;
}
