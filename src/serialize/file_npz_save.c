/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/file_npz.h"

#define DOS_DATE_1980 33 /* 1 January 1980, as numpy dates its members */

/* libzip pulls every member through a callback, one after the other. */
typedef struct {
    tmsg_file_output_t *output;
    tmsg_status_t status; /* status of the output file */
    zip_error_t error;
    char header[TMSG_NPY_HEADER_BYTES]; /* header of the member that libzip
                                           reads */
    size_t header_bytes;
    tmsg_tensor_t tensor;
    uint64_t bytes, done; /* bytes of header and elements: all, and read */
} saver_t;

typedef struct {
    saver_t *saver;
    const tmsg_map_entry_t *entry;
} member_t;

static uint64_t member_data_bytes(const tmsg_map_entry_t *entry)
{
    return tmsg_tensor_bytes_out(&entry->tensor, entry->bytes);
}

static void begin_member(const member_t *member)
{
    saver_t *saver = member->saver;
    const tmsg_tensor_t *tensor = &member->entry->tensor;

    saver->header_bytes = tmsg_npy_format_header(tensor, saver->header);
    saver->tensor = tmsg_npy_as_written(tensor);
    saver->bytes = saver->header_bytes + member_data_bytes(member->entry);
    saver->done = 0;
}

static zip_int64_t feed_member(saver_t *saver, void *data, uint64_t bytes)
{
    bool in_header = saver->done < saver->header_bytes;
    uint64_t end = in_header ? saver->header_bytes : saver->bytes;

    bytes = bytes < end - saver->done ? bytes : end - saver->done;
    if (in_header) {
        memcpy(data, saver->header + saver->done, bytes);
    } else {
        tmsg_tensor_pack_part(&saver->tensor, saver->done - saver->header_bytes,
                              bytes, data);
    }
    saver->done += bytes;
    return (zip_int64_t)bytes;
}

static zip_int64_t stat_member(const member_t *member, zip_stat_t *stat)
{
    char header[TMSG_NPY_HEADER_BYTES];

    zip_stat_init(stat);
    stat->valid = ZIP_STAT_SIZE;
    stat->size = tmsg_npy_format_header(&member->entry->tensor, header) +
                 member_data_bytes(member->entry);
    return sizeof(*stat);
}

static zip_int64_t member_call(void *arg, void *data, zip_uint64_t bytes,
                               zip_source_cmd_t command)
{
    member_t *member = arg;

    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_SUPPORTS, ZIP_SOURCE_OPEN, ZIP_SOURCE_READ,
            ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, -1);
    case ZIP_SOURCE_OPEN:
        begin_member(member);
        return 0;
    case ZIP_SOURCE_READ:
        return feed_member(member->saver, data, bytes);
    case ZIP_SOURCE_STAT:
        return stat_member(member, data);
    default:
        return tmsg_zip_answer(&member->saver->error, data, bytes, command);
    }
}

static uint64_t output_position(const tmsg_file_output_t *output)
{
    return output->position + output->buffered;
}

/* Moves the output's position. libzip goes back only to write a member's CRC
 * into its header. */
static zip_int64_t seek_output(saver_t *saver, void *data, uint64_t bytes)
{
    zip_int64_t offset = zip_source_seek_compute_offset(
        output_position(saver->output), INT64_MAX, data, bytes, &saver->error);

    if (offset < 0) {
        return -1;
    }
    saver->status = tmsg_file_seek(saver->output, (uint64_t)offset);
    return saver->status == TMSG_OK ? 0 : -1;
}

static zip_int64_t write_bytes(saver_t *saver, const void *data, uint64_t bytes)
{
    saver->status = tmsg_file_write(saver->output, data, bytes);
    if (saver->status != TMSG_OK) {
        zip_error_set(&saver->error, ZIP_ER_WRITE, EIO);
        return -1;
    }
    return (zip_int64_t)bytes;
}

static zip_int64_t output_call(void *arg, void *data, zip_uint64_t bytes,
                               zip_source_cmd_t command)
{
    saver_t *saver = arg;

    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_SUPPORTS, ZIP_SOURCE_OPEN, ZIP_SOURCE_READ,
            ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL,
            ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE,
            ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE,
            ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
    case ZIP_SOURCE_STAT: /* the archive does not exist yet */
        zip_error_set(&saver->error, ZIP_ER_READ, ENOENT);
        return -1;
    case ZIP_SOURCE_WRITE:
        return write_bytes(saver, data, bytes);
    case ZIP_SOURCE_SEEK_WRITE:
        return seek_output(saver, data, bytes);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)output_position(saver->output);
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_COMMIT_WRITE: /* tmsg_file_commit() does that */
    case ZIP_SOURCE_ROLLBACK_WRITE:
        return 0;
    default:
        return tmsg_zip_answer(&saver->error, data, bytes, command);
    }
}

/* Adds a member to the archive. libzip uses *member until the archive is
 * closed. */
static bool add_member(zip_t *zip, member_t *member)
{
    zip_source_t *source = NULL;
    zip_int64_t index = -1;
    size_t bytes = strlen(member->entry->name) + sizeof(TMSG_NPZ_SUFFIX);
    char *name = malloc(bytes);

    if (name == NULL) {
        zip_error_set(zip_get_error(zip), ZIP_ER_MEMORY, 0);
        return false;
    }
    memcpy(name, member->entry->name, bytes - sizeof(TMSG_NPZ_SUFFIX));
    memcpy(name + bytes - sizeof(TMSG_NPZ_SUFFIX), TMSG_NPZ_SUFFIX,
           sizeof(TMSG_NPZ_SUFFIX));
    source = zip_source_function(zip, member_call, member);
    if (source != NULL) {
        index = zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8);
    }
    free(name);
    if (index < 0) {
        zip_source_free(source);
        return false;
    }
    return zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE,
                                    0) == 0 &&
           zip_file_set_dostime(zip, (zip_uint64_t)index, 0, DOS_DATE_1980,
                                0) == 0;
}

static tmsg_status_t save_members(saver_t *saver, zip_t *zip, member_t *members,
                                  const tmsg_map_t *map)
{
    bool whole = true;

    for (size_t i = 0; i < tmsg_map_size(map) && whole; i++) {
        members[i] = (member_t){saver, &tmsg_map_entries(map)[i]};
        whole = add_member(zip, &members[i]);
    }
    if (whole && zip_close(zip) == 0) {
        return TMSG_OK;
    }
    if (saver->status == TMSG_OK) { /* otherwise the error is set */
        saver->status =
            tmsg_zip_fail(&saver->output->where, zip_get_error(zip));
    }
    zip_discard(zip);
    return saver->status;
}

/* Writes an archive without members. libzip would delete the file instead. */
static tmsg_status_t save_empty(tmsg_file_output_t *output)
{
    static const uint8_t end_of_directory[22] = {'P', 'K', 5, 6};

    return tmsg_file_write(output, end_of_directory, sizeof(end_of_directory));
}

tmsg_status_t tmsg_npz_save(tmsg_file_output_t *output, const tmsg_map_t *map)
{
    saver_t saver = {.output = output};
    zip_source_t *source;
    zip_error_t error;
    member_t *members;
    zip_t *zip = NULL;
    tmsg_status_t status;

    if (tmsg_map_size(map) == 0) {
        return save_empty(output);
    }
    members = calloc(tmsg_map_size(map), sizeof(*members));
    if (members == NULL) {
        return tmsg_error_memory("the members of an archive");
    }
    errno = 0;
    zip_error_init(&error);
    zip_error_init(&saver.error);
    source = zip_source_function_create(output_call, &saver, &error);
    if (source != NULL) {
        zip = zip_open_from_source(source, ZIP_CREATE, &error);
    }
    if (zip == NULL) {
        zip_source_free(source);
        status = tmsg_zip_fail(&output->where, &error);
    } else {
        status = save_members(&saver, zip, members, map);
    }
    zip_error_fini(&error);
    free(members);
    return status;
}

/* Returns whether libzip accepts a name. The only control characters that it
 * accepts are tab, carriage return and line feed. */
static bool is_storable(const char *name)
{
    for (; *name != '\0'; name++) {
        if ((unsigned char)*name < 0x20 && strchr("\t\r\n", *name) == NULL) {
            return false;
        }
    }
    return true;
}

tmsg_status_t tmsg_npz_check(tmsg_file_where_t *where, const tmsg_map_t *map,
                             const tmsg_limits_t *limits)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status = TMSG_OK;

    (void)limits;
    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        where->name = entries[i].name;
        status = is_storable(entries[i].name)
                     ? tmsg_npy_check_extents(where, &entries[i].tensor)
                     : tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                      "a .npz file cannot hold the control "
                                      "character in its name; .safetensors "
                                      "can");
    }
    where->name = NULL;
    return status;
}
