/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <tensormsg/meta.h>

#include "core/error.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/map.h"
#include "core/params.h"
#include "core/tensor.h"
#include "core/utf8.h"
#include "serialize/file.h"

#define PATH_SHOWN 160 /* most bytes of a path that an error shows */

#define LOAD_PARAMS_KNOWN                                                      \
    ((uint64_t)(TMSG_FILE_LOAD_PARAM_FORMAT | TMSG_FILE_LOAD_PARAM_LIMITS))
#define SAVE_PARAMS_KNOWN                                                      \
    ((uint64_t)(TMSG_FILE_SAVE_PARAM_FORMAT | TMSG_FILE_SAVE_PARAM_FLAGS |     \
                TMSG_FILE_SAVE_PARAM_LIMITS))

static const tmsg_file_ops_t *const formats[] = {
    [TMSG_FILE_SAFETENSORS] = &tmsg_file_safetensors,
    [TMSG_FILE_NPZ] = &tmsg_file_npz,
    [TMSG_FILE_NPY] = &tmsg_file_npy,
};

#define FORMATS ((int)(sizeof(formats) / sizeof(formats[0])))

const char *tmsg_file_format_name(tmsg_file_format_t format)
{
    int index = (int)format;

    return index > TMSG_FILE_AUTO && index < FORMATS ? formats[index]->name
                                                     : NULL;
}

/* Returns the end of a path, PATH_SHOWN bytes at most. The result never begins
 * inside a character. */
static const char *path_tail(const char *path)
{
    size_t bytes = strlen(path);

    if (bytes > PATH_SHOWN) {
        path += bytes - PATH_SHOWN;
        while (((unsigned char)*path & 0xc0) == 0x80) {
            path++;
        }
    }
    return path;
}

tmsg_status_t tmsg_file_fail(const tmsg_file_where_t *where,
                             tmsg_status_t status, const char *format, ...)
{
    const char *path = path_tail(where->path), *name = where->name;
    char text[TMSG_ERROR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (name == NULL) {
        return tmsg_error_set(status, "%s: %s", path, text);
    }
    return tmsg_error_set(status, "%s: %s '%s': %s", path, where->part,
                          tmsg_error_name(name, strlen(name)).text, text);
}

static tmsg_status_t find_format(const tmsg_file_where_t *where,
                                 tmsg_file_format_t format,
                                 tmsg_file_format_t *format_p)
{
    const char *dot = strrchr(where->path, '.');

    if (format != TMSG_FILE_AUTO) {
        *format_p = format;
        return tmsg_file_format_name(format) != NULL
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                    "unknown file format %d", (int)format);
    }
    for (int i = 1; dot != NULL && i < FORMATS; i++) {
        if (strcasecmp(dot + 1, formats[i]->name) == 0) {
            *format_p = (tmsg_file_format_t)i;
            return TMSG_OK;
        }
    }
    return tmsg_file_fail(
        where, TMSG_ERR_UNSUPPORTED,
        "the name does not end in .safetensors, .npz or .npy");
}

/* Stores the file's name and format as metadata. They travel with the map, so
 * that a receiver can save the file under this name. */
static tmsg_status_t set_name(const tmsg_file_where_t *where, tmsg_map_t *map,
                              tmsg_file_format_t format)
{
    const char *slash = strrchr(where->path, '/');
    const char *name = slash == NULL ? where->path : slash + 1;
    tmsg_status_t status = TMSG_OK;

    if (tmsg_utf8_valid(name, strlen(name))) {
        status = tmsg_map_set_string(map, TMSG_META_FILE_NAME, name);
    } else {
        tmsg_log(
            TMSG_LOG_WARN,
            "%s: the file name is not UTF-8, so the map has no metadata of it",
            where->path);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, TMSG_META_FILE_FORMAT,
                                     tmsg_file_format_name(format));
    }
    return status;
}

tmsg_status_t tmsg_file_decode(tmsg_file_input_t *input,
                               tmsg_file_format_t format)
{
    tmsg_status_t status = set_name(&input->where, input->map, format);

    if (status == TMSG_OK) {
        status = formats[format]->load(input);
    }
    return status;
}

static tmsg_status_t check_mask(const char *what, uint64_t mask, uint64_t known)
{
    if (mask & ~known) {
        return tmsg_params_unknown(what, mask & ~known);
    }
    return TMSG_OK;
}

static tmsg_status_t read_limits(const tmsg_limits_t *given,
                                 tmsg_limits_t *limits)
{
    return given == NULL ? TMSG_OK : tmsg_limits_merge(given, limits);
}

static tmsg_status_t read_load_params(const tmsg_file_load_params_t *params,
                                      tmsg_file_format_t *format,
                                      tmsg_limits_t *limits)
{
    tmsg_status_t status;

    *format = TMSG_FILE_AUTO;
    *limits = tmsg_limits_usual();
    if (params == NULL) {
        return TMSG_OK;
    }
    status = check_mask("file load", params->field_mask, LOAD_PARAMS_KNOWN);
    if (status == TMSG_OK &&
        (params->field_mask & TMSG_FILE_LOAD_PARAM_FORMAT)) {
        *format = (tmsg_file_format_t)params->format;
    }
    if (status == TMSG_OK &&
        (params->field_mask & TMSG_FILE_LOAD_PARAM_LIMITS)) {
        status = read_limits(params->limits, limits);
    }
    return status;
}

tmsg_status_t tmsg_file_load(const char *path,
                             const tmsg_file_load_params_t *params,
                             tmsg_map_t **map_p)
{
    tmsg_file_format_t format;
    tmsg_file_input_t input = {.where = {.path = path}};
    tmsg_status_t status;

    if (path == NULL || map_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              path == NULL ? "path" : "map_p");
    }
    status = read_load_params(params, &format, &input.limits);
    if (status == TMSG_OK) {
        status = find_format(&input.where, format, &format);
    }
    if (status == TMSG_OK) {
        status = tmsg_file_open(&input);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_map_create(&input.map);
    if (status == TMSG_OK) {
        status = tmsg_file_decode(&input, format);
    }
    tmsg_file_close(&input);
    if (status != TMSG_OK) {
        tmsg_map_destroy(input.map);
        return status;
    }
    *map_p = input.map;
    return TMSG_OK;
}

/* Refuses a dtype. The error names the formats that can store it. */
static tmsg_status_t refuse_dtype(const tmsg_file_where_t *where,
                                  const tmsg_file_ops_t *ops,
                                  tmsg_dtype_t dtype)
{
    char name[TMSG_DTYPE_NAME_MAX], others[64] = "";

    for (int i = 1; i < FORMATS; i++) {
        if (formats[i]->holds(dtype)) {
            size_t used = strlen(others);

            snprintf(others + used, sizeof(others) - used, "%s.%s",
                     used == 0 ? "" : " and ", formats[i]->name);
        }
    }
    return tmsg_file_fail(
        where, TMSG_ERR_UNSUPPORTED, "a .%s file cannot hold %s; %s%s",
        ops->name, tmsg_dtype_format(dtype, name, sizeof(name)),
        others[0] == '\0' ? "no other file format can either" : others,
        others[0] == '\0' ? "" : " can");
}

/* Refuses a tensor that tmsg_file_load() with these limits would refuse. */
static tmsg_status_t check_limits(const tmsg_file_where_t *where,
                                  const tmsg_file_ops_t *ops,
                                  const tmsg_map_entry_t *entry,
                                  const tmsg_limits_t *limits)
{
    if (ops->names && entry->name_bytes > limits->name_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "the name has %zu bytes, at most %llu",
                              entry->name_bytes,
                              (unsigned long long)limits->name_bytes);
    }
    if ((uint64_t)entry->tensor.ndim > limits->ndim) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%d dimensions, at most %llu", entry->tensor.ndim,
                              (unsigned long long)limits->ndim);
    }
    return TMSG_OK;
}

static tmsg_status_t check_saved_tensor(const tmsg_file_where_t *where,
                                        const tmsg_file_ops_t *ops,
                                        const tmsg_tensor_t *tensor)
{
    char device[TMSG_DEVICE_NAME_MAX];
    tmsg_status_t status;

    if (tensor->device.type != TMSG_DEVICE_CPU &&
        tensor->device.type != TMSG_DEVICE_CUDA_HOST) {
        return tmsg_file_fail(
            where, TMSG_ERR_UNSUPPORTED,
            "is in memory of %s: copy it to the CPU first",
            tmsg_device_format(tensor->device, device, sizeof(device)));
    }
    if (!ops->holds(tensor->dtype)) {
        return refuse_dtype(where, ops, tensor->dtype);
    }
    status = tmsg_tensor_check(tensor);
    if (status == TMSG_OK) {
        status = tmsg_tensor_check_packable(tensor);
    }
    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_file_fail(where, status, "%s", tmsg_error_message());
}

static tmsg_status_t check_saved_map(tmsg_file_where_t *where,
                                     const tmsg_file_ops_t *ops,
                                     const tmsg_map_t *map,
                                     const tmsg_limits_t *limits)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status = TMSG_OK;

    if (tmsg_map_size(map) > limits->tensors) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%zu tensors, at most %llu", tmsg_map_size(map),
                              (unsigned long long)limits->tensors);
    }
    where->part = "tensor";
    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        where->name = entries[i].name;
        status = check_limits(where, ops, &entries[i], limits);
        if (status == TMSG_OK) {
            status = check_saved_tensor(where, ops, &entries[i].tensor);
        }
    }
    where->name = NULL;
    if (status == TMSG_OK) {
        status = ops->check(where, map, limits);
    }
    return status;
}

/* Warns of metadata that the file will not contain. Keys of this library do not
 * count, because they are of no use later. */
static void warn_of_metadata(const tmsg_file_where_t *where,
                             const tmsg_map_t *map)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    size_t count = 0;

    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        count += strncmp(entries[i].key, "tensormsg.", 10) != 0;
    }
    if (count > 0) {
        tmsg_log(TMSG_LOG_WARN,
                 "%s: %zu metadata keys were not saved: only .safetensors "
                 "files hold metadata",
                 where->path, count);
    }
}

static tmsg_status_t read_save_params(const tmsg_file_save_params_t *params,
                                      tmsg_file_format_t *format,
                                      uint32_t *flags, tmsg_limits_t *limits)
{
    tmsg_status_t status;

    *format = TMSG_FILE_AUTO;
    *flags = 0;
    *limits = tmsg_limits_usual();
    if (params == NULL) {
        return TMSG_OK;
    }
    status = check_mask("file save", params->field_mask, SAVE_PARAMS_KNOWN);
    if (status != TMSG_OK) {
        return status;
    }
    if (params->field_mask & TMSG_FILE_SAVE_PARAM_FORMAT) {
        *format = (tmsg_file_format_t)params->format;
    }
    if (params->field_mask & TMSG_FILE_SAVE_PARAM_FLAGS) {
        *flags = params->flags;
    }
    if (*flags & ~(uint32_t)TMSG_SAVE_OVERWRITE) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "file save: unknown flags 0x%x", *flags);
    }
    if (params->field_mask & TMSG_FILE_SAVE_PARAM_LIMITS) {
        return read_limits(params->limits, limits);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_file_save(const tmsg_map_t *map, const char *path,
                             const tmsg_file_save_params_t *params)
{
    tmsg_file_output_t output = {.where = {.path = path}};
    tmsg_file_format_t format;
    tmsg_limits_t limits;
    tmsg_status_t status;
    uint32_t flags;
    bool overwrite;

    if (map == NULL || path == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              map == NULL ? "map" : "path");
    }
    status = read_save_params(params, &format, &flags, &limits);
    if (status == TMSG_OK) {
        status = find_format(&output.where, format, &format);
    }
    if (status == TMSG_OK) {
        status = check_saved_map(&output.where, formats[format], map, &limits);
    }
    if (status != TMSG_OK) {
        return status;
    }
    overwrite = (flags & TMSG_SAVE_OVERWRITE) != 0;
    if (!overwrite &&
        faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        return tmsg_file_fail(&output.where, TMSG_ERR_ALREADY_EXISTS,
                              "exists already");
    }
    status = tmsg_file_output_open(&output, path);
    if (status != TMSG_OK) {
        return status;
    }
    if (format != TMSG_FILE_SAFETENSORS) {
        warn_of_metadata(&output.where, map);
    }
    status = formats[format]->save(&output, map);
    if (status == TMSG_OK) {
        status = tmsg_file_commit(&output, overwrite);
    }
    tmsg_file_output_close(&output);
    return status;
}
