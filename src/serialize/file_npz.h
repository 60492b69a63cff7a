/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_npz.h - connects libzip to our input and output files. */
#ifndef TMSG_SERIALIZE_FILE_NPZ_H
#define TMSG_SERIALIZE_FILE_NPZ_H

#include <zip.h>

#include "core/error.h"
#include "serialize/file_npy.h"

#define TMSG_NPZ_SUFFIX                                                        \
    ".npy" /* suffix of a member's name, after the tensor's name */

/* Describes an archive that libzip reads through a callback. libzip has no
 * function that returns the offset of a member's data in the archive. The
 * callback records the offset at which libzip reads instead. */
typedef struct {
    const tmsg_file_input_t *file;
    uint64_t offset;      /* file offset of the next read */
    tmsg_status_t status; /* status of the first read that failed, or OK */
    char why[TMSG_ERROR_BYTES];
    zip_error_t error;
} tmsg_zip_input_t;

/* Opens an archive; the caller closes it with zip_discard(). With ZIP_CHECKCONS
 * in `flags`, libzip checks that directory and members agree. Returns NULL and
 * sets *error on failure. Sets errno to 0 first. `input` must outlive the
 * archive. */
zip_t *tmsg_zip_open(tmsg_zip_input_t *input, int flags, zip_error_t *error);

/* Counts the members in the archive's directory. libzip allocates some 260
 * bytes for each member before it reports their number, so the limit is checked
 * here first. The count is 0 if there is no directory; libzip reports that.
 * Errors: MALFORMED (two directories), IO, NO_MEMORY. */
tmsg_status_t tmsg_zip_count(const tmsg_file_input_t *input, uint64_t *count_p);

/* Answers the commands that all our callbacks answer in the same way: ERROR,
 * CLOSE and FREE. Refuses any other command. */
zip_int64_t tmsg_zip_answer(zip_error_t *error, void *data, zip_uint64_t bytes,
                            zip_source_cmd_t command);

/* Turns libzip's error into one of ours: NO_MEMORY, UNSUPPORTED or MALFORMED.
 * The function also looks at errno, so the caller must set errno to 0 before it
 * calls libzip. */
tmsg_status_t tmsg_zip_fail(const tmsg_file_where_t *where,
                            const zip_error_t *error);

tmsg_status_t tmsg_npz_save(tmsg_file_output_t *output, const tmsg_map_t *map);

/* Checks that libzip can write the map and that numpy can read it. Errors:
 * LIMIT_EXCEEDED, UNSUPPORTED (a control character in a name). */
tmsg_status_t tmsg_npz_check(tmsg_file_where_t *where, const tmsg_map_t *map,
                             const tmsg_limits_t *limits);

#endif
