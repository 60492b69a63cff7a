/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_npy.h"

#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/log.h"
#include "core/map.h"

tmsg_status_t tmsg_npy_add(tmsg_file_input_t *input, const char *name,
                           tmsg_npy_t *npy, void *data, void *memory)
{
    tmsg_tensor_t tensor = {.data = data,
                            .device = {TMSG_DEVICE_CPU, 0},
                            .dtype = npy->dtype,
                            .ndim = npy->ndim,
                            .shape = npy->shape,
                            .strides = npy->fortran ? npy->strides : NULL};

    if (npy->swap) {
        tmsg_log(TMSG_LOG_INFO, "%s: '%s' is big-endian and was converted",
                 input->where.path, tmsg_error_name(name, strlen(name)).text);
    }
    return tmsg_file_add(input, name, &tensor, memory, npy->swap);
}

static tmsg_status_t read_npy_prefix(const tmsg_file_input_t *input,
                                     uint8_t prefix[TMSG_NPY_PREFIX_BYTES],
                                     uint64_t *header_bytes_p)
{
    tmsg_status_t status =
        input->size < TMSG_NPY_PREFIX_BYTES
            ? TMSG_OK
            : tmsg_file_read(input, 0, prefix, TMSG_NPY_PREFIX_BYTES);

    return status == TMSG_OK ? tmsg_npy_read_prefix(&input->where, prefix,
                                                    input->size, header_bytes_p)
                             : status;
}

static tmsg_status_t load_npy(tmsg_file_input_t *input)
{
    const tmsg_file_where_t *where = &input->where;
    uint8_t header[TMSG_NPY_PREFIX_BYTES + TMSG_NPY_HEADER_MAX];
    uint64_t header_bytes = 0, data_bytes;
    tmsg_npy_t npy;
    tmsg_status_t status;

    status = read_npy_prefix(input, header, &header_bytes);
    if (status == TMSG_OK && header_bytes > input->size) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              ".npy header of %" PRIu64
                              " bytes in a file of %" PRIu64,
                              header_bytes, input->size);
    }
    if (status == TMSG_OK) {
        status = tmsg_file_read(input, TMSG_NPY_PREFIX_BYTES,
                                header + TMSG_NPY_PREFIX_BYTES,
                                header_bytes - TMSG_NPY_PREFIX_BYTES);
    }
    if (status == TMSG_OK) {
        status = tmsg_npy_read_header(where, header, header_bytes, &npy);
    }
    if (status != TMSG_OK) {
        return status;
    }
    data_bytes = input->size - header_bytes;
    if (data_bytes != npy.data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%s: dtype and shape take %" PRIu64
                              " bytes, %" PRIu64 " follow the header",
                              data_bytes < npy.data_bytes ? "truncated"
                                                          : "too long",
                              npy.data_bytes, data_bytes);
    }
    status = tmsg_file_map(input, 0);
    return status == TMSG_OK
               ? tmsg_npy_add(input, "array", &npy,
                              tmsg_file_at(input, header_bytes), NULL)
               : status;
}

static tmsg_status_t check_npy_map(tmsg_file_where_t *where,
                                   const tmsg_map_t *map,
                                   const tmsg_limits_t *limits)
{
    (void)limits;
    if (tmsg_map_size(map) != 1) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                              "a .npy file holds one tensor, not %zu; .npz "
                              "and .safetensors hold many",
                              tmsg_map_size(map));
    }
    return tmsg_npy_check_extents(where, &tmsg_map_entries(map)[0].tensor);
}

static tmsg_status_t save_npy(tmsg_file_output_t *output, const tmsg_map_t *map)
{
    tmsg_tensor_t tensor = tmsg_map_entries(map)[0].tensor;
    char header[TMSG_NPY_HEADER_BYTES];
    size_t bytes = tmsg_npy_format_header(&tensor, header);
    tmsg_status_t status = tmsg_file_write(output, header, bytes);

    if (status == TMSG_OK) {
        tensor = tmsg_npy_as_written(&tensor);
        status = tmsg_file_write_tensor(output, &tensor);
    }
    return status;
}

const tmsg_file_ops_t tmsg_file_npy = {
    .name = "npy",
    .load = load_npy,
    .save = save_npy,
    .holds = tmsg_npy_holds,
    .check = check_npy_map,
};
