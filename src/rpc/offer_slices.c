/* SPDX-License-Identifier: BSD-3-Clause */
/* Boxes of tensors: writes them into the request of a fetch, and makes views of
 * the offered tensors of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/map.h"
#include "core/tensor.h"
#include "rpc/offer.h"

#define NDIM_MOST 64
#define PREFIX_BYTES (sizeof(TMSG_FETCH_SLICE) - 1)
#define NAME_MOST (TMSG_NAME_BYTES_MAX - PREFIX_BYTES)
#define SLICE_BYTES 256 /* of a copied slice, beside its numbers and names */

static tmsg_status_t refuse_slice(const char *name, const char *why)
{
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "fetch: tensor '%s': %s",
                          tmsg_error_name(name, strlen(name)).text, why);
}

/* Stores the key of the metadata that tell which tensor is meant. The caller
 * frees it. */
static char *key_of(const char *as)
{
    size_t bytes = sizeof(TMSG_FETCH_OF) + strlen(as);
    char *key = malloc(bytes);

    if (key != NULL) {
        snprintf(key, bytes, TMSG_FETCH_OF "%s", as);
    }
    return key;
}

static tmsg_status_t write_name(const tmsg_slice_t *slice, const char *as,
                                tmsg_map_t *request)
{
    char *key;
    tmsg_status_t status;

    if (strcmp(slice->name, as) == 0) {
        return TMSG_OK;
    }
    key = key_of(as);
    if (key == NULL) {
        return tmsg_error_memory("a fetch");
    }
    status = tmsg_map_set_string(request, key, slice->name);
    free(key);
    return status;
}

/* Adds the tensor of a slice, which owns its numbers, to the request. */
static tmsg_status_t write_box(const tmsg_slice_t *slice, const char *as,
                               tmsg_map_t *request)
{
    const int64_t shape[] = {2, slice->ndim};
    size_t bytes = (size_t)slice->ndim * sizeof(int64_t);
    int64_t *numbers = malloc(2 * bytes + 1);
    size_t name_bytes = sizeof(TMSG_FETCH_SLICE) + strlen(as);
    char *name = malloc(name_bytes);
    const tmsg_tensor_t tensor = {.data = numbers,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_INT, 64, 1},
                                  .ndim = 2,
                                  .shape = shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = numbers};
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    if (numbers == NULL || name == NULL) {
        tmsg_error_memory("a fetch");
    } else {
        if (bytes > 0) {
            memcpy(numbers, slice->start, bytes);
            memcpy(numbers + slice->ndim, slice->count, bytes);
        }
        snprintf(name, name_bytes, TMSG_FETCH_SLICE "%s", as);
        status = tmsg_map_add(request, name, &tensor, &params);
    }
    free(name);
    if (status != TMSG_OK) {
        free(numbers);
    }
    return status;
}

/* Returns in words what is wrong with a slice that is to be written, or NULL.
 */
static const char *fault_of(const tmsg_slice_t *slice)
{
    const char *as = slice->as == NULL ? slice->name : slice->as;

    return slice->name == NULL       ? "name is NULL"
           : slice->ndim > NDIM_MOST ? "ndim is above 64"
           : slice->ndim > 0 && (slice->start == NULL || slice->count == NULL)
               ? "start or count is NULL"
           : strlen(as) > NAME_MOST          ? "its name is too long"
           : strlen(slice->name) > NAME_MOST ? "its tensor's name is too long"
                                             : NULL;
}

static tmsg_status_t write_slice(const tmsg_slice_t *slice, uint32_t index,
                                 tmsg_map_t *request)
{
    const char *as = slice->as == NULL ? slice->name : slice->as;
    const char *fault = fault_of(slice);
    tmsg_status_t status;

    if (fault != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "fetch: slice %u: %s",
                              index, fault);
    }
    if (slice->step != NULL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "fetch: slice %u: steps are not supported",
                              index);
    }
    status = write_box(slice, as, request);
    if (status == TMSG_ERR_ALREADY_EXISTS) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fetch: two slices are called '%s'",
                              tmsg_error_name(as, strlen(as)).text);
    }
    return status == TMSG_OK ? write_name(slice, as, request) : status;
}

tmsg_status_t tmsg_slices_write(const tmsg_fetch_params_t *params,
                                tmsg_map_t *request)
{
    tmsg_status_t status = TMSG_OK;

    if (params->slice_count == 0 || params->slices == NULL ||
        params->slice_count > TMSG_FETCH_SLICES_MOST) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "fetch: slices: %s",
            params->slice_count == 0
                ? "none; leave the bit unset for the whole map"
            : params->slices == NULL ? "NULL"
                                     : "more than 65536");
    }
    for (uint32_t i = 0; i < params->slice_count && status == TMSG_OK; i++) {
        status = write_slice(&params->slices[i], i, request);
    }
    return status;
}

/* Writes the strides of a tensor in C order, which has elements. */
static void write_strides(const tmsg_tensor_t *tensor, int64_t *strides)
{
    int64_t stride = 1;

    for (int32_t i = tensor->ndim; i-- > 0;) {
        strides[i] = stride;
        stride *= tensor->shape[i];
    }
}

/* Checks one dimension of a box. */
static tmsg_status_t check_extent(const char *name, int32_t dimension,
                                  int64_t start, int64_t count, int64_t extent)
{
    char why[160];

    if (start >= 0 && count >= 0 && start <= extent &&
        count <= extent - start) {
        return TMSG_OK;
    }
    snprintf(why, sizeof(why),
             "dimension %d: %" PRId64 " elements from %" PRId64
             " on are not in its %" PRId64,
             dimension, count, start, extent);
    return refuse_slice(name, why);
}

tmsg_status_t tmsg_slice_check(const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *box = &entry->tensor;

    if (strncmp(entry->name, TMSG_FETCH_SLICE, PREFIX_BYTES) != 0) {
        return refuse_slice(entry->name, "it is not a slice");
    }
    return box->device.type == TMSG_DEVICE_CPU &&
                   box->dtype.code == TMSG_DTYPE_INT && box->dtype.bits == 64 &&
                   box->dtype.lanes == 1 && box->ndim == 2 &&
                   box->shape[0] == 2 && box->shape[1] <= NDIM_MOST &&
                   box->strides == NULL
               ? TMSG_OK
               : refuse_slice(entry->name, "it is not int64[2,n], n up to 64");
}

static tmsg_status_t check_box(const char *name, const tmsg_tensor_t *box,
                               const tmsg_tensor_t *tensor)
{
    char why[96];

    if (box->shape[1] <= tensor->ndim) {
        return TMSG_OK;
    }
    snprintf(why, sizeof(why),
             "its slice has %" PRId64 " dimensions, the tensor %d",
             box->shape[1], tensor->ndim);
    return refuse_slice(name, why);
}

typedef struct {
    int64_t shape[NDIM_MOST], strides[NDIM_MOST];
    tmsg_tensor_t tensor;
} view_t;

/* Points a view that has elements to the first of them. */
static void place_view(const int64_t *box, int32_t ndim,
                       const tmsg_tensor_t *tensor, int64_t element_bytes,
                       view_t *view)
{
    int64_t offset = 0;

    if (tensor->strides == NULL) {
        write_strides(tensor, view->strides);
    } else {
        memcpy(view->strides, tensor->strides,
               (size_t)tensor->ndim * sizeof(*view->strides));
    }
    for (int32_t i = 0; i < ndim; i++) {
        offset += box[i] * view->strides[i];
    }
    view->tensor.strides = view->strides;
    view->tensor.data = (uint8_t *)tensor->data + offset * element_bytes;
}

/* Makes the view of a box of a tensor. The box has the starts and the counts of
 * `ndim` dimensions. */
static tmsg_status_t make_view(const char *name, const int64_t *box,
                               int32_t ndim, const tmsg_tensor_t *tensor,
                               view_t *view)
{
    unsigned bits = (unsigned)tensor->dtype.bits * tensor->dtype.lanes;
    bool whole = true, empty = false;

    view->tensor = *tensor;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t start = i < ndim ? box[i] : 0;
        int64_t count = i < ndim ? box[ndim + i] : -1;
        tmsg_status_t status;

        if (count == -1 && start >= 0 && start <= tensor->shape[i]) {
            count = tensor->shape[i] - start;
        }
        status = check_extent(name, i, start, count, tensor->shape[i]);
        if (status != TMSG_OK) {
            return status;
        }
        whole = whole && count == tensor->shape[i];
        empty = empty || count == 0;
        view->shape[i] = count;
    }
    if (whole) {
        return TMSG_OK;
    }
    if (bits % 8 != 0) {
        return refuse_slice(
            name, "its elements are not whole bytes, so it has no slices");
    }
    view->tensor.shape = view->shape;
    view->tensor.strides = NULL;
    if (!empty) { /* else strides may say anything, and overflow */
        place_view(box, ndim, tensor, (int64_t)(bits / 8), view);
    }
    return TMSG_OK;
}

/* Adds the view of one box to the map. */
static tmsg_status_t add_view(const char *as, const char *name,
                              const tmsg_tensor_t *box,
                              const tmsg_map_entry_t *entry, tmsg_map_t *map)
{
    const tmsg_tensor_t shown = tmsg_map_shown(entry).tensor;
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = entry->stream};
    view_t view;
    tmsg_status_t status = check_box(name, box, &shown);

    if (status == TMSG_OK && box->shape[1] == 0) {
        return tmsg_map_add(map, as, &shown, &params);
    }
    if (status == TMSG_OK) {
        status =
            make_view(name, box->data, (int32_t)box->shape[1], &shown, &view);
    }
    return status == TMSG_OK ? tmsg_map_add(map, as, &view.tensor, &params)
                             : status;
}

/* Stores the name of the offered tensor that is to be called `as`. */
static tmsg_status_t name_of(const tmsg_map_t *request, const char *as,
                             const char **name_p)
{
    char *key = key_of(as);
    tmsg_status_t status;

    if (key == NULL) {
        return tmsg_error_memory("a fetch");
    }
    *name_p = as;
    status = tmsg_map_get_string(request, key, name_p);
    free(key);
    return status == TMSG_ERR_NOT_FOUND ? TMSG_OK : status;
}

static tmsg_status_t add_slice(const tmsg_map_t *request, const char *as,
                               const tmsg_tensor_t *box,
                               const tmsg_map_t *offered, tmsg_map_t *map)
{
    const char *name;
    size_t position;
    tmsg_status_t status = name_of(request, as, &name);

    if (status != TMSG_OK) {
        return status;
    }
    position = tmsg_map_position(offered, name, strlen(name));
    return position == SIZE_MAX
               ? refuse_slice(name, "the offer has no such tensor")
               : add_view(as, name, box, &tmsg_map_entries(offered)[position],
                          map);
}

static tmsg_status_t copy_metadata(const tmsg_map_t *from, tmsg_map_t *to)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(from);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_meta_size(from) && status == TMSG_OK; i++) {
        status = tmsg_map_append_meta(to, entries[i].key, entries[i].key_bytes,
                                      &entries[i].value);
    }
    return status;
}

/* Has the boxes of device memory that leave gaps travel as their spans, because
 * the CPU cannot pack them. */
static tmsg_status_t keep_gaps(tmsg_map_t **map_p)
{
    tmsg_map_t *views = *map_p;
    const tmsg_map_entry_t *entries = tmsg_map_entries(views);
    size_t i = 0, count = tmsg_map_size(views);
    tmsg_status_t status;

    while (i < count && (tmsg_map_entry_is_on_host(&entries[i]) ||
                         tmsg_tensor_is_dense(&entries[i].tensor))) {
        i++;
    }
    if (i == count) {
        return TMSG_OK;
    }
    status = tmsg_map_copy_device_spans(views, map_p);
    if (status == TMSG_OK) {
        tmsg_map_destroy(views);
    }
    return status;
}

tmsg_status_t tmsg_slices_make(const tmsg_map_t *request,
                               const tmsg_map_t *offered, tmsg_map_t **map_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(request);
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_map_create(&map);

    for (size_t i = 0; i < tmsg_map_size(request) && status == TMSG_OK; i++) {
        if (strcmp(entries[i].name, TMSG_FETCH_KEY) != 0) {
            status = add_slice(request, entries[i].name + PREFIX_BYTES,
                               &entries[i].tensor, offered, map);
        }
    }
    if (status == TMSG_OK) {
        status = copy_metadata(offered, map);
    }
    if (status == TMSG_OK) {
        status = keep_gaps(&map);
    }
    if (status != TMSG_OK) {
        tmsg_map_destroy(map);
        return status;
    }
    *map_p = map;
    return TMSG_OK;
}

/* Copies a slice, and what it says of its name. Adds to *bytes_p. */
static tmsg_status_t copy_slice(const tmsg_map_t *request,
                                const tmsg_map_entry_t *entry, tmsg_map_t *copy,
                                uint64_t *bytes_p)
{
    const char *as = entry->name + PREFIX_BYTES, *name;
    const int64_t *numbers = entry->tensor.data;
    uint32_t ndim = (uint32_t)entry->tensor.shape[1];
    tmsg_slice_t slice = {.ndim = ndim};
    tmsg_status_t status = name_of(request, as, &name);

    if (ndim > 0) {
        slice.start = numbers;
        slice.count = numbers + ndim;
    }
    if (status == TMSG_OK) {
        slice.name = name;
        status = write_box(&slice, as, copy);
    }
    if (status == TMSG_OK) {
        status = write_name(&slice, as, copy);
    }
    if (status == TMSG_OK) {
        *bytes_p += SLICE_BYTES + entry->bytes + 2 * strlen(as) + strlen(name);
    }
    return status;
}

tmsg_status_t tmsg_slices_copy(const tmsg_map_t *request, tmsg_map_t *copy,
                               uint64_t *bytes_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(request);
    tmsg_status_t status = TMSG_OK;

    *bytes_p = 0;
    for (size_t i = 0; i < tmsg_map_size(request) && status == TMSG_OK; i++) {
        status = copy_slice(request, &entries[i], copy, bytes_p);
    }
    return status;
}
