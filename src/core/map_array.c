/* SPDX-License-Identifier: BSD-3-Clause */
/* C arrays in and out of a map: tensors in host memory, in C order. */
#include <stdbool.h>
#include <string.h>

#include <tensormsg/map.h>

#include "core/error.h"
#include "core/tensor.h"

/* Reads the dtype that the caller names for tensor `name`. */
static tmsg_status_t read_dtype(const char *name, const char *dtype,
                                tmsg_dtype_t *dtype_p)
{
    tmsg_status_t status;

    if (name == NULL || dtype == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              name == NULL ? "tensor name" : "dtype");
    }
    status = tmsg_dtype_parse(dtype, dtype_p);
    if (status != TMSG_OK) {
        return tmsg_error_set(status, "tensor '%s': %s",
                              tmsg_error_name(name, strlen(name)).text,
                              tmsg_error_message());
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_add_array(tmsg_map_t *map, const char *name, void *data,
                                 const char *dtype, int32_t ndim,
                                 const int64_t *shape)
{
    tmsg_tensor_t tensor = {.data = data,
                            .device = {.type = TMSG_DEVICE_CPU},
                            .ndim = ndim,
                            .shape = shape};
    tmsg_status_t status = read_dtype(name, dtype, &tensor.dtype);

    return status == TMSG_OK ? tmsg_map_add(map, name, &tensor, NULL) : status;
}

/* Checks that a tensor is what C code reads as an array of the dtype. */
static tmsg_status_t check_array(const char *name, const tmsg_tensor_t *tensor,
                                 tmsg_dtype_t dtype, int32_t ndim)
{
    tmsg_error_name_t shown = tmsg_error_name(name, strlen(name));
    char has[TMSG_DTYPE_NAME_MAX], wanted[TMSG_DTYPE_NAME_MAX];
    char device[TMSG_DEVICE_NAME_MAX];

    if (!tmsg_dtype_is(tensor->dtype, dtype) || tensor->ndim != ndim) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "tensor '%s': it has dtype %s and ndim %d, not %s and %d",
            shown.text, tmsg_dtype_format(tensor->dtype, has, sizeof(has)),
            tensor->ndim, tmsg_dtype_format(dtype, wanted, sizeof(wanted)),
            ndim);
    }
    if (tensor->device.type != TMSG_DEVICE_CPU &&
        tensor->device.type != TMSG_DEVICE_CUDA_HOST) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "tensor '%s': it is in memory of %s, which the CPU cannot read; "
            "tmsg_map_find() gives it as it is",
            shown.text,
            tmsg_device_format(tensor->device, device, sizeof(device)));
    }
    if (!tmsg_tensor_is_contiguous(tensor)) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "tensor '%s': its strides are not those of C order; get it by "
            "tmsg_map_find(), then copy it by tmsg_tensor_pack()",
            shown.text);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_find_array(const tmsg_map_t *map, const char *name,
                                  const char *dtype, int32_t ndim,
                                  tmsg_tensor_t *tensor_p)
{
    tmsg_tensor_t found;
    tmsg_dtype_t wanted;
    tmsg_status_t status = read_dtype(name, dtype, &wanted);

    if (status == TMSG_OK) {
        status = tmsg_map_find(map, name, &found);
    }
    if (status == TMSG_OK) {
        status = check_array(name, &found, wanted, ndim);
    }
    if (status == TMSG_OK && tensor_p != NULL) {
        *tensor_p = found;
    }
    return status;
}
