/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/fragments_layout.h"

#include <stdlib.h>
#include <string.h>

#include "am/recv/fragments_in.h"
#include "am/recv/incoming.h"
#include "am/recv/scatter.h"
#include "core/error.h"
#include "core/map.h"
#include "serialize/split.h"

/* Describes a tensor that travels in fragments. */
typedef struct {
    uint32_t first; /* number of its first fragment */
    uint32_t index; /* its position in the map */
} run_t;

#define KEPT_MOST ((size_t)16 * 1024)

struct tmsg_fragments_in {
    size_t room;    /* bytes of this record */
    uint64_t chunk; /* most bytes of a fragment of a tensor */
    uint32_t count;
    uint32_t left; /* fragments that are not in their place yet */
    size_t runs;
    run_t *run;          /* in the order of `first` */
    uint8_t *arrived;    /* one bit for each fragment */
    uint32_t sliced;     /* number of the first slice; `count` without slices */
    uint64_t left_bytes; /* bytes that travel in slices */
    const struct iovec *place; /* places of these bytes, once they are known */
    size_t places;
    /* Each of several places ends at this offset among these bytes. */
    uint64_t *ends;
};

static void count_fragments(const tmsg_message_t *message,
                            tmsg_fragments_in_t *fragments)
{
    const tmsg_split_t *split = &message->extra.split;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    size_t size = tmsg_map_size(message->map);

    fragments->runs = 0;
    fragments->count = 0;
    for (size_t i = tmsg_split_next(split, message->map, 0); i < size;
         i = tmsg_split_next(split, message->map, i + 1)) {
        if (fragments->run != NULL) {
            fragments->run[fragments->runs] =
                (run_t){fragments->count, (uint32_t)i};
        }
        fragments->runs++;
        fragments->count +=
            (uint32_t)tmsg_split_parts(split, i, entries[i].bytes);
    }
    fragments->sliced = fragments->count;
    fragments->left_bytes =
        split->slice == 0 ? 0 : tmsg_split_left_bytes(split, message->map);
    fragments->count +=
        (uint32_t)tmsg_split_slices(split, fragments->left_bytes);
}

/* Returns what the fragments add to the payload's memory. All tensors lie there
 * as if there were no fragments. */
static uint64_t fragments_bytes(const tmsg_message_t *message)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    uint64_t whole = 0;

    /* The size was checked before. */
    (void)tmsg_layout_bytes(message->map, limits, &whole);
    return whole - tmsg_split_head_bytes(&message->extra.split, message->map);
}

/* Checks that memory for the whole message can be had, not only for its head.
 */
static tmsg_status_t check_total(const tmsg_message_t *message)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    uint64_t spill = tmsg_payload_spill(&message->head);
    uint64_t bytes = message->head.payload_bytes + fragments_bytes(message);

    if (bytes > limits->message_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %llu bytes, at most %llu (limit "
                              "message_bytes)",
                              (unsigned long long)bytes,
                              (unsigned long long)limits->message_bytes);
    }
    if (!tmsg_incoming_may_be_placed(message) &&
        !tmsg_budget_fits(message->budget, bytes, spill)) {
        return tmsg_budget_too_small(message->budget, bytes);
    }
    return TMSG_OK;
}

/* Returns a record that is zero except for its room. Uses the kept one if that
 * is large enough. */
static tmsg_fragments_in_t *get_fragments_record(tmsg_message_t *message,
                                                 size_t bytes)
{
    tmsg_fragments_in_t *fragments = message->fragments_kept;

    if (fragments != NULL && fragments->room >= bytes) {
        size_t room = fragments->room;

        message->fragments_kept = NULL;
        memset(fragments, 0, bytes);
        fragments->room = room;
        return fragments;
    }
    fragments = calloc(1, bytes);
    if (fragments != NULL) {
        fragments->room = bytes;
    }
    return fragments;
}

tmsg_status_t tmsg_fragments_layout_make(tmsg_message_t *message)
{
    tmsg_split_t *split = &message->extra.split;
    tmsg_fragments_in_t counted = {.run = NULL};
    tmsg_fragments_in_t *fragments;
    uint8_t *others;
    size_t runs_bytes, bytes;
    tmsg_status_t status;

    if (split->large > 0) {
        count_fragments(message, &counted);
    }
    if (counted.count == 0) {
        message->extra.split = (tmsg_split_t){0};
        return TMSG_OK;
    }
    status = check_total(message);
    if (status != TMSG_OK) {
        return status;
    }
    runs_bytes = counted.runs * sizeof(*counted.run);
    bytes = sizeof(*fragments) + runs_bytes + split->others_bytes +
            counted.count / 8 + 1;
    status = tmsg_message_note(message, bytes);
    if (status != TMSG_OK) {
        return status;
    }
    fragments = get_fragments_record(message, bytes);
    if (fragments == NULL) {
        return tmsg_error_memory("a message's fragments");
    }
    fragments->run = (run_t *)(fragments + 1);
    others = (uint8_t *)(fragments + 1) + runs_bytes;
    fragments->arrived = others + split->others_bytes;
    fragments->chunk =
        split->others_chunk > split->chunk ? split->others_chunk : split->chunk;
    if (split->others_bytes > 0) { /* the body does not stay */
        memcpy(others, split->others, split->others_bytes);
        split->others = others;
    }
    count_fragments(message, fragments);
    fragments->left = fragments->count;
    if (fragments->runs > 0) {
        /* find_tensor_fragment() often looks into the map */
        tmsg_map_settle(message->map);
    }
    message->fragments = fragments;
    message->fragments_bytes = fragments_bytes(message);
    return TMSG_OK;
}

static void find_slice(const tmsg_message_t *message, uint32_t number,
                       tmsg_fragment_range_t *range)
{
    const tmsg_fragments_in_t *fragments = message->fragments;
    uint64_t slice = message->extra.split.slice;
    uint64_t offset = (uint64_t)(number - fragments->sliced) * slice;
    uint64_t left = fragments->left_bytes - offset;

    *range = (tmsg_fragment_range_t){.is_slice = true,
                                     .offset = offset,
                                     .bytes = left < slice ? left : slice};
}

static void find_tensor_fragment(const tmsg_message_t *message, uint32_t number,
                                 tmsg_fragment_range_t *range)
{
    const tmsg_fragments_in_t *fragments = message->fragments;
    size_t low = 0, high = fragments->runs;
    uint32_t index;
    uint64_t chunk, offset, left;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (fragments->run[middle].first <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    index = fragments->run[low].index;
    chunk = tmsg_split_chunk(&message->extra.split, index);
    offset = (number - fragments->run[low].first) * chunk;
    left = tmsg_map_entries(message->map)[index].bytes - offset;
    *range = (tmsg_fragment_range_t){
        .index = index, .offset = offset, .bytes = left < chunk ? left : chunk};
}

bool tmsg_fragments_layout_find(const tmsg_message_t *message, uint32_t number,
                                tmsg_fragment_range_t *range_p)
{
    const tmsg_fragments_in_t *fragments = message->fragments;

    if (fragments == NULL || number >= fragments->count) {
        return false;
    }
    if (number >= fragments->sliced) {
        find_slice(message, number, range_p);
    } else {
        find_tensor_fragment(message, number, range_p);
    }
    return true;
}

bool tmsg_fragments_layout_note(tmsg_message_t *message, uint32_t number)
{
    uint8_t *arrived = &message->fragments->arrived[number / 8];
    uint8_t bit = (uint8_t)(1u << number % 8);
    bool first = (*arrived & bit) == 0;

    *arrived |= bit;
    return first;
}

const char *tmsg_fragments_layout_claim(tmsg_message_t *message,
                                        uint32_t number, uint64_t bytes,
                                        tmsg_fragment_range_t *range_p)
{
    if (!tmsg_fragments_layout_find(message, number, range_p)) {
        return "a fragment that its message does not have";
    }
    if (range_p->bytes != bytes) {
        return "a fragment of another length than its message says";
    }
    if (!tmsg_fragments_layout_note(message, number)) {
        return "a fragment that came twice";
    }
    message->endpoint->stats.received_fragment_bytes += bytes;
    return NULL;
}

void tmsg_fragments_layout_landed(tmsg_message_t *message)
{
    message->fragments->left--;
}

uint64_t tmsg_fragments_layout_coming(const tmsg_message_t *message)
{
    const tmsg_fragments_in_t *fragments = message->fragments;

    return fragments->left > message->fragments_bytes / fragments->chunk
               ? message->fragments_bytes
               : fragments->left * fragments->chunk;
}

bool tmsg_fragments_missing(const tmsg_message_t *message)
{
    return message->fragments != NULL && message->fragments->left > 0;
}

void tmsg_fragments_forget(tmsg_message_t *message)
{
    tmsg_fragments_in_t *fragments = message->fragments;

    if (fragments == NULL) {
        return;
    }
    free(fragments->ends);
    message->fragments = NULL;
    if (fragments->room > KEPT_MOST) {
        free(fragments);
        return;
    }
    free(message->fragments_kept);
    message->fragments_kept = fragments;
}

size_t tmsg_fragments_kept(const tmsg_message_t *message)
{
    return message->fragments_kept == NULL ? 0 : message->fragments_kept->room;
}

tmsg_status_t tmsg_fragments_layout_place(tmsg_message_t *message)
{
    tmsg_fragments_in_t *fragments = message->fragments;
    tmsg_status_t status;
    uint64_t end = 0;

    if (fragments == NULL || fragments->left_bytes == 0) {
        return TMSG_OK;
    }
    status =
        tmsg_scatter_slices(message, &fragments->place, &fragments->places);
    if (status != TMSG_OK || fragments->places == 1) {
        return status;
    }
    fragments->ends = malloc(fragments->places * sizeof(*fragments->ends));
    if (fragments->ends == NULL) {
        return tmsg_error_memory("a list of a message's tensors");
    }
    for (size_t i = 0; i < fragments->places; i++) {
        end += fragments->place[i].iov_len;
        fragments->ends[i] = end;
    }
    return TMSG_OK;
}

/* Returns the place of the byte at `offset` of the sliced bytes. */
static size_t find_slice_place(const tmsg_fragments_in_t *fragments,
                               uint64_t offset)
{
    size_t low = 0, high = fragments->places - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (fragments->ends[middle] <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void *tmsg_fragments_layout_slice(const tmsg_message_t *message,
                                  const tmsg_fragment_range_t *range,
                                  struct iovec **iov_p, size_t *count_p)
{
    const tmsg_fragments_in_t *fragments = message->fragments;
    uint64_t offset = range->offset, bytes = range->bytes;
    size_t first, last;
    struct iovec *iov;

    if (fragments->places == 1) {
        return (uint8_t *)fragments->place[0].iov_base + offset;
    }
    first = find_slice_place(fragments, offset);
    last = find_slice_place(fragments, offset + bytes - 1);
    iov = malloc((last - first + 1) * sizeof(*iov));
    if (iov == NULL) {
        return NULL;
    }
    for (size_t i = first; i <= last; i++) {
        uint64_t skip =
            i > first
                ? 0
                : offset - (fragments->ends[i] - fragments->place[i].iov_len);
        uint64_t room = fragments->place[i].iov_len - skip;

        iov[i - first] =
            (struct iovec){(uint8_t *)fragments->place[i].iov_base + skip,
                           room < bytes ? room : bytes};
        bytes -= iov[i - first].iov_len;
    }
    *iov_p = iov;
    *count_p = last - first + 1;
    return *count_p > 1 ? (void *)iov : iov[0].iov_base;
}
