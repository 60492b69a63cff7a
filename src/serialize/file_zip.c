/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "serialize/file_npz.h"

zip_int64_t tmsg_zip_answer(zip_error_t *error, void *data, zip_uint64_t bytes,
                            zip_source_cmd_t command)
{
    switch (command) {
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(error, data, bytes);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    default:
        zip_error_set(error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static zip_int64_t seek_input(tmsg_zip_input_t *input, void *data,
                              uint64_t bytes)
{
    zip_int64_t offset = zip_source_seek_compute_offset(
        input->offset, input->file->size, data, bytes, &input->error);

    if (offset < 0) {
        return -1;
    }
    input->offset = (uint64_t)offset;
    return 0;
}

static zip_int64_t read_bytes(tmsg_zip_input_t *input, void *data,
                              uint64_t bytes)
{
    uint64_t left = input->file->size - input->offset;

    bytes = bytes < left ? bytes : left;
    if (input->status == TMSG_OK) {
        input->status = tmsg_file_read(input->file, input->offset, data, bytes);
        if (input->status != TMSG_OK) {
            snprintf(input->why, sizeof(input->why), "%s",
                     tmsg_error_message());
        }
    }
    if (input->status != TMSG_OK) {
        zip_error_set(&input->error, ZIP_ER_READ, 0);
        return -1;
    }
    input->offset += bytes;
    return (zip_int64_t)bytes;
}

static zip_int64_t input_call(void *arg, void *data, zip_uint64_t bytes,
                              zip_source_cmd_t command)
{
    tmsg_zip_input_t *input = arg;

    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_SUPPORTS, ZIP_SOURCE_OPEN, ZIP_SOURCE_READ,
            ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    case ZIP_SOURCE_OPEN:
        input->offset = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return read_bytes(input, data, bytes);
    case ZIP_SOURCE_SEEK:
        return seek_input(input, data, bytes);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)input->offset;
    case ZIP_SOURCE_STAT: {
        zip_stat_t *stat = data;

        zip_stat_init(stat);
        stat->valid = ZIP_STAT_SIZE;
        stat->size = input->file->size;
        return sizeof(*stat);
    }
    default:
        return tmsg_zip_answer(&input->error, data, bytes, command);
    }
}

zip_t *tmsg_zip_open(tmsg_zip_input_t *input, int flags, zip_error_t *error)
{
    zip_source_t *source;
    zip_t *zip;

    errno = 0;
    zip_error_init(&input->error);
    source = zip_source_function_create(input_call, input, error);
    if (source == NULL) {
        return NULL;
    }
    zip = zip_open_from_source(source, ZIP_RDONLY | flags, error);
    if (zip == NULL) {
        zip_source_free(source);
    }
    return zip;
}

tmsg_status_t tmsg_zip_fail(const tmsg_file_where_t *where,
                            const zip_error_t *error)
{
    zip_error_t copy;
    tmsg_status_t status;

    /* zip_error_strerror() allocates a text and keeps it in the error that it
     * gets. A copy of libzip's error is passed, so that the text can be
     * freed. */
    zip_error_init_with_code(&copy, zip_error_code_zip(error));
    if (errno == ENOMEM) { /* libzip has several codes for that */
        zip_error_set(&copy, ZIP_ER_MEMORY, 0);
    }
    switch (zip_error_code_zip(&copy)) {
    case ZIP_ER_MEMORY:
        status = TMSG_ERR_NO_MEMORY;
        break;
    case ZIP_ER_COMPNOTSUPP:
    case ZIP_ER_ENCRNOTSUPP:
    case ZIP_ER_NOPASSWD:
    case ZIP_ER_MULTIDISK:
        status = TMSG_ERR_UNSUPPORTED;
        break;
    default:
        status = TMSG_ERR_MALFORMED;
        break;
    }
    status =
        tmsg_file_fail(where, status, "zip: %s", zip_error_strerror(&copy));
    zip_error_fini(&copy);
    return status;
}
