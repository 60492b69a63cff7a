/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_npz.h - libzip's view of our bytes and of our output. */
#ifndef TMSG_SERIALIZE_FILE_NPZ_H
#define TMSG_SERIALIZE_FILE_NPZ_H

#include <zip.h>

#include "core/error.h"
#include "serialize/file_npy.h"

#define TMSG_NPZ_SUFFIX ".npy" /* of a member, behind the tensor's name */

/* An archive that libzip reads through a callback, into its own memory. It has
 * no call that says where in the archive a member's data lie, but we see where
 * it reads. */
typedef struct {
    const tmsg_file_input_t *file;
    uint64_t offset;      /* of the next read */
    tmsg_status_t status; /* of the first read that failed */
    char why[TMSG_ERROR_BYTES];
    zip_error_t error;
} tmsg_zip_input_t;

/* The archive, closed with zip_discard(). NULL: see *error.
 * `flags` may be ZIP_CHECKCONS: directory and members must agree. */
zip_t *tmsg_zip_open(tmsg_zip_input_t *input, int flags, zip_error_t *error);

/* Counts the members in the archive's directory: libzip allocates some 260
 * bytes for each before it can be asked. The count is 0 if there is no
 * directory; libzip reports that. Errors: MALFORMED (two directories), IO,
 * NO_MEMORY. */
tmsg_status_t tmsg_zip_count(const tmsg_file_input_t *input, uint64_t *count_p);

/* What all our callbacks answer alike; any command not listed is refused. */
zip_int64_t tmsg_zip_answer(zip_error_t *error, void *data, zip_uint64_t bytes,
                            zip_source_cmd_t command);

/* libzip's error as ours: NO_MEMORY, UNSUPPORTED, or MALFORMED. To be called
 * only where errno was 0 before libzip was. */
tmsg_status_t tmsg_zip_fail(const tmsg_file_where_t *where,
                            const zip_error_t *error);

tmsg_status_t tmsg_npz_save(tmsg_file_output_t *output, const tmsg_map_t *map);

/* Refuses what libzip could not write, or numpy not read. Errors:
 * LIMIT_EXCEEDED, UNSUPPORTED (a control character in a name). */
tmsg_status_t tmsg_npz_check(tmsg_file_where_t *where, const tmsg_map_t *map,
                             const tmsg_limits_t *limits);

#endif
