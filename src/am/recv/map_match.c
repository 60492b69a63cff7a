/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/map_match.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "am/recv/stage_in.h"
#include "core/error.h"
#include "core/tensor.h"

static bool same_name(const tmsg_map_entry_t *a, const tmsg_map_entry_t *b)
{
    return a->name_bytes == b->name_bytes &&
           memcmp(a->name, b->name, a->name_bytes) == 0;
}

const tmsg_map_entry_t *tmsg_map_match_find(const tmsg_map_t *map, size_t index,
                                            const tmsg_map_entry_t *like)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    if (index >= tmsg_map_size(map) || !same_name(&entries[index], like)) {
        index = tmsg_map_position(map, like->name, like->name_bytes);
    }
    return index < tmsg_map_size(map) ? &entries[index] : NULL;
}

static int64_t stride_of(const tmsg_tensor_t *tensor, int32_t dimension)
{
    int64_t stride = 1;

    if (tensor->strides != NULL) {
        return tensor->strides[dimension];
    }
    for (int32_t i = tensor->ndim - 1; i > dimension; i--) {
        stride *= tensor->shape[i];
    }
    return stride;
}

/* Returns whether the elements of two tensors without gaps lie in the same
 * order. */
static bool same_order(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    if (a->strides == NULL && b->strides == NULL) {
        return true;
    }
    if (tmsg_tensor_is_contiguous(a) || tmsg_tensor_is_contiguous(b)) {
        return tmsg_tensor_is_contiguous(a) && tmsg_tensor_is_contiguous(b);
    }
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] > 1 && stride_of(a, i) != stride_of(b, i)) {
            return false;
        }
    }
    return true;
}

#define NUMBERS_MOST 100 /* characters before a list is cut */

typedef struct {
    char text[NUMBERS_MOST + sizeof("-9223372036854775808,...]")];
} words_t;

/* Appends numbers as "[2,3]". A long list ends in "...". */
static void put_number_list(words_t *words, const int64_t *numbers,
                            int32_t count)
{
    size_t at = strlen(words->text);
    int32_t i = 0;

    words->text[at++] = '[';
    for (; i < count && at < NUMBERS_MOST; i++) {
        at += (size_t)sprintf(words->text + at, "%s%" PRId64, i == 0 ? "" : ",",
                              numbers[i]);
    }
    strcpy(words->text + at, i < count ? ",...]" : "]");
}

/* Formats type and shape, as "float32[2,3]". */
static words_t describe_tensor(const tmsg_tensor_t *tensor)
{
    words_t words;

    tmsg_dtype_format(tensor->dtype, words.text, sizeof(words.text));
    put_number_list(&words, tensor->shape, tensor->ndim);
    return words;
}

/* Formats the strides, as "[3,1]". */
static words_t strides_of(const tmsg_tensor_t *tensor)
{
    int64_t strides[TMSG_NDIM_MAX];
    words_t words = {""};

    for (int32_t i = 0; i < tensor->ndim; i++) {
        strides[i] = stride_of(tensor, i);
    }
    put_number_list(&words, strides, tensor->ndim);
    return words;
}

static tmsg_status_t kinds_differ(const tmsg_map_entry_t *theirs,
                                  const tmsg_map_entry_t *ours)
{
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "tensor '%s': the message has %s, the map to receive into has %s",
        tmsg_error_name(ours->name, ours->name_bytes).text,
        describe_tensor(&theirs->tensor).text,
        describe_tensor(&ours->tensor).text);
}

static tmsg_status_t lies_otherwise(const tmsg_map_entry_t *theirs,
                                    const tmsg_map_entry_t *ours)
{
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "tensor '%s': the elements of %s came in another order, with strides "
        "of %s, than the map to receive into has, %s",
        tmsg_error_name(ours->name, ours->name_bytes).text,
        describe_tensor(&theirs->tensor).text, strides_of(&theirs->tensor).text,
        strides_of(&ours->tensor).text);
}

/* Returns whether the elements of a tensor have gaps or are broadcast, so that
 * it cannot be received into. */
static bool is_loose(const tmsg_tensor_t *tensor)
{
    return tmsg_tensor_is_broadcast(tensor) || !tmsg_tensor_is_dense(tensor);
}

static bool same_kind(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    return tmsg_dtype_is(a->dtype, b->dtype) && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape,
                                   (size_t)a->ndim * sizeof(*a->shape)) == 0);
}

/* Returns whether one tensor fits into another. With `copied` it is here
 * already, and may be written out if it has gaps or is broadcast. */
static bool tensor_fits(const tmsg_map_entry_t *theirs,
                        const tmsg_map_entry_t *ours, bool copied)
{
    const tmsg_map_entry_t shown = tmsg_map_shown(theirs);
    const tmsg_tensor_t *a = &shown.tensor, *b = &ours->tensor;

    return same_kind(a, b) &&
           (theirs->bytes == 0 ||
            (tmsg_map_view(theirs) == NULL && same_order(a, b)) ||
            (copied && (is_loose(a) || same_order(a, b))));
}

/* Returns the first tensor of theirs that does not fit its namesake of ours,
 * *into_p. Returns NULL if all fit. */
static const tmsg_map_entry_t *find_misfit(const tmsg_map_t *theirs,
                                           const tmsg_map_t *ours, bool copied,
                                           const tmsg_map_entry_t **into_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(ours);

    for (size_t i = 0; i < tmsg_map_size(ours); i++) {
        const tmsg_map_entry_t *entry =
            tmsg_map_match_find(theirs, i, &entries[i]);

        if (entry != NULL && !tensor_fits(entry, &entries[i], copied)) {
            *into_p = &entries[i];
            return entry;
        }
    }
    return NULL;
}

bool tmsg_map_match_fits(const tmsg_map_t *theirs, const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *into;

    return find_misfit(theirs, ours, false, &into) == NULL;
}

tmsg_status_t tmsg_map_match_check(const tmsg_map_t *theirs,
                                   const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *into,
        *entry = find_misfit(theirs, ours, true, &into);
    tmsg_map_entry_t shown;

    if (entry == NULL) {
        return TMSG_OK;
    }
    shown = tmsg_map_shown(entry);
    return same_kind(&shown.tensor, &into->tensor)
               ? lies_otherwise(&shown, into)
               : kinds_differ(&shown, into);
}

/* Lists the dimensions of more than one element, slowest first, of a tensor
 * that has no gaps and is not broadcast. In this order it is in C order. */
static int32_t order_of(const tmsg_tensor_t *tensor, int32_t *order)
{
    int32_t count = 0;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        int32_t at = count;

        if (tensor->shape[i] == 1) {
            continue;
        }
        while (at > 0 && tensor->strides != NULL &&
               tensor->strides[order[at - 1]] < tensor->strides[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        count++;
    }
    return count;
}

/* Copies elements to the order that `to` has, which has no gaps. */
static void write_out_tensor(const tmsg_map_entry_t *from,
                             const tmsg_map_entry_t *to)
{
    tmsg_tensor_t tensor = from->tensor;
    int32_t order[TMSG_NDIM_MAX];
    int64_t shape[TMSG_NDIM_MAX], strides[TMSG_NDIM_MAX];

    tensor.ndim = order_of(&to->tensor, order);
    tensor.shape = shape;
    tensor.strides = strides;
    for (int32_t i = 0; i < tensor.ndim; i++) {
        shape[i] = from->tensor.shape[order[i]];
        strides[i] = from->tensor.strides[order[i]];
    }
    tmsg_tensor_pack_part(&tensor, 0, to->bytes, to->tensor.data);
}

static bool is_across(const tmsg_map_entry_t *from, const tmsg_map_entry_t *to)
{
    return !tmsg_map_entry_is_on_host(to) || !tmsg_map_entry_is_on_host(from);
}

static tmsg_status_t check_across(const tmsg_map_entry_t *from,
                                  const tmsg_map_entry_t *to)
{
    return is_loose(&from->tensor)
               ? tmsg_error_set(
                     TMSG_ERR_UNSUPPORTED,
                     "tensor '%s': %s, and only the CPU can write it out",
                     tmsg_error_name(to->name, to->name_bytes).text,
                     tmsg_tensor_is_broadcast(&from->tensor)
                         ? "a stride of it is 0"
                         : "its strides leave gaps or overlap")
               : TMSG_OK;
}

tmsg_status_t tmsg_map_match_can_copy(const tmsg_map_t *map,
                                      const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        const tmsg_map_entry_t *place =
            tmsg_map_match_find(ours, i, &entries[i]);

        if (place != NULL && is_across(&entries[i], place)) {
            status = check_across(&entries[i], place);
        }
    }
    return status;
}

/* Moves a tensor between the host and a device, or between two devices. */
static tmsg_status_t move_tensor_across(const tmsg_map_entry_t *from,
                                        const tmsg_map_entry_t *to)
{
    tmsg_status_t status = check_across(from, to);

    return status != TMSG_OK
               ? status
               : tmsg_stage_in_move(&to->tensor, &from->tensor, from->bytes);
}

/* Copies tensor `index` to its place, and makes `map` point there. The place
 * may be written to. */
static tmsg_status_t copy_tensor(tmsg_map_t *map, size_t index,
                                 const tmsg_map_entry_t *place)
{
    const tmsg_map_entry_t *from;
    tmsg_status_t status;

    tmsg_map_end_read_only(map, index);
    from = &tmsg_map_entries(map)[index];
    if (is_across(from, place)) {
        status = move_tensor_across(from, place);
        tmsg_map_set_device(map, index, place->tensor.device);
        tmsg_map_place(map, index, place->tensor.data);
        return status;
    }
    if (is_loose(&from->tensor)) {
        write_out_tensor(from, place);
        tmsg_map_replace(map, index, place);
        return TMSG_OK;
    }
    if (from->bytes > 0) {
        memcpy(place->tensor.data, from->tensor.data, from->bytes);
    }
    tmsg_map_place(map, index, place->tensor.data);
    return TMSG_OK;
}

tmsg_status_t tmsg_map_match_copy(tmsg_map_t *map, const tmsg_map_t *ours,
                                  tmsg_map_copied_fn copied, const void *arg)
{
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        const tmsg_map_entry_t from = tmsg_map_entries(map)[i];
        const tmsg_map_entry_t *place = tmsg_map_match_find(ours, i, &from);

        if (place == NULL) {
            continue;
        }
        status = copy_tensor(map, i, place);
        if (status == TMSG_OK && copied != NULL) {
            status = copied(arg, i, &from,
                            is_across(&from, place) || is_loose(&from.tensor)
                                ? NULL
                                : place->tensor.data);
        }
    }
    return status;
}
