/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "core/utf8.h"
#include "serialize/file.h"

#define REALIGNED_MAX (64ULL << 20)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "data are used as they lie in files, which are little-endian");

tmsg_status_t tmsg_file_take(tmsg_file_input_t *input, uint64_t bytes,
                             void **memory_p)
{
    uint64_t limit = input->limits.held_bytes;
    void *memory;

    if (bytes > limit || input->taken > limit - bytes) {
        return tmsg_file_fail(
            &input->where, TMSG_ERR_LIMIT_EXCEEDED,
            "takes %llu bytes of memory in addition to %llu for the tensors "
            "before it; the limit for a file is %llu",
            (unsigned long long)bytes, (unsigned long long)input->taken,
            (unsigned long long)limit);
    }
    memory = malloc(bytes == 0 ? 1 : (size_t)bytes);
    if (memory == NULL) {
        return tmsg_file_fail(&input->where, TMSG_ERR_NO_MEMORY,
                              "no memory for %llu bytes",
                              (unsigned long long)bytes);
    }
    input->taken += bytes;
    *memory_p = memory;
    return TMSG_OK;
}

/* Returns the bytes of a scalar, the unit that has a byte order. A complex
 * number has two scalars. The scalars of an opaque element are its bytes. */
static uint32_t scalar_bytes(tmsg_dtype_t dtype)
{
    uint32_t bytes = tmsg_dtype_bytes(dtype);

    if (dtype.code == TMSG_DTYPE_OPAQUE) {
        return 1;
    }
    return dtype.code == TMSG_DTYPE_COMPLEX ? bytes / 2 : bytes;
}

bool tmsg_file_realigns(const tmsg_file_input_t *input, const void *data,
                        tmsg_dtype_t dtype, uint64_t bytes)
{
    uint32_t scalar = scalar_bytes(dtype);

    return bytes > 0 && (uintptr_t)data % scalar != 0 &&
           bytes <= REALIGNED_MAX && input->realigned <= REALIGNED_MAX - bytes;
}

static void swap_scalars(uint8_t *data, uint64_t bytes, uint32_t scalar)
{
    for (uint64_t i = 0; i < bytes; i += scalar) {
        for (uint32_t low = 0, high = scalar - 1; low < high; low++, high--) {
            uint8_t byte = data[i + low];

            data[i + low] = data[i + high];
            data[i + high] = byte;
        }
    }
}

/* Turns the map's error into an error about the file. */
static tmsg_status_t blame_file_tensor(const tmsg_file_input_t *input,
                                       tmsg_status_t status)
{
    switch (status) {
    case TMSG_ERR_ALREADY_EXISTS:
        return tmsg_file_fail(&input->where, TMSG_ERR_MALFORMED,
                              "the name occurs twice");
    case TMSG_ERR_NO_MEMORY:
        return status;
    case TMSG_ERR_INVALID_PARAM:
        status = TMSG_ERR_MALFORMED;
        break;
    default:
        break;
    }
    return tmsg_file_fail(&input->where, status, "%s", tmsg_error_message());
}

static tmsg_status_t check_name(const tmsg_file_input_t *input,
                                const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0) {
        return tmsg_file_fail(&input->where, TMSG_ERR_UNSUPPORTED,
                              "a tensor must have a name");
    }
    if (bytes > input->limits.name_bytes) {
        return tmsg_file_fail(&input->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "the name has %zu bytes, at most %llu", bytes,
                              (unsigned long long)input->limits.name_bytes);
    }
    if (!tmsg_utf8_valid(name, bytes)) {
        return tmsg_file_fail(&input->where, TMSG_ERR_MALFORMED,
                              "the name is not UTF-8");
    }
    return TMSG_OK;
}

static tmsg_status_t check_file_tensor(const tmsg_file_input_t *input,
                                       const char *name,
                                       const tmsg_tensor_t *tensor,
                                       uint64_t *bytes_p)
{
    tmsg_status_t status = check_name(input, name);

    if (status != TMSG_OK) {
        return status;
    }
    if (tensor->ndim > 0 && (uint64_t)tensor->ndim > input->limits.ndim) {
        return tmsg_file_fail(&input->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%d dimensions, at most %llu", tensor->ndim,
                              (unsigned long long)input->limits.ndim);
    }
    status = tmsg_tensor_check(tensor);
    if (status == TMSG_OK) {
        status = tmsg_tensor_bytes(tensor, bytes_p);
    }
    return status == TMSG_OK ? TMSG_OK : blame_file_tensor(input, status);
}

tmsg_status_t tmsg_file_check(const tmsg_file_input_t *input, const char *name,
                              const tmsg_tensor_t *tensor)
{
    uint64_t bytes;

    return check_file_tensor(input, name, tensor, &bytes);
}

/* Copies mapped data to memory of their own. Reads them from the file, not
 * through the mapping. */
static tmsg_status_t copy_data(tmsg_file_input_t *input, const void *data,
                               uint64_t bytes, void **memory_p)
{
    uint64_t at =
        (uint64_t)((const uint8_t *)data - input->bytes) + input->mapped_from;
    void *memory;
    tmsg_status_t status = tmsg_file_take(input, bytes, &memory);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_file_read(input, at, memory, bytes);
    if (status != TMSG_OK) {
        free(memory);
        return status;
    }
    *memory_p = memory;
    return TMSG_OK;
}

tmsg_status_t tmsg_file_add(tmsg_file_input_t *input, const char *name,
                            tmsg_tensor_t *tensor, void *memory, bool swap)
{
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE};
    uint64_t bytes = 0;
    tmsg_status_t status = check_file_tensor(input, name, tensor, &bytes);
    bool misaligned;

    if (status != TMSG_OK) {
        goto err_free;
    }
    misaligned = tmsg_file_realigns(input, tensor->data, tensor->dtype, bytes);
    if (bytes > 0 && memory == NULL && (swap || misaligned)) {
        status = copy_data(input, tensor->data, bytes, &memory);
        if (status != TMSG_OK) {
            return status;
        }
        input->realigned += swap ? 0 : bytes;
        tensor->data = memory;
    }
    if (swap) {
        swap_scalars(memory, bytes, scalar_bytes(tensor->dtype));
    }
    params.release = memory == NULL ? NULL : free;
    params.release_arg = memory;
    status = tmsg_map_add(input->map, name, tensor, &params);
    if (status != TMSG_OK) {
        status = blame_file_tensor(input, status);
        goto err_free;
    }
    return TMSG_OK;

err_free:
    free(memory);
    return status;
}
