/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/file.h - tensor maps in .safetensors, .npz and .npy files.
 *
 * A file is loaded as a map, and a map is saved as a file. The file's name says
 * its format.
 *
 *     tmsg_file_load("model.safetensors", NULL, &map);
 *     tmsg_file_save(map, "model.npz", NULL);
 *     tmsg_map_destroy(map);
 */
#ifndef TENSORMSG_FILE_H
#define TENSORMSG_FILE_H

#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TMSG_FILE_AUTO = 0, /* by the name's extension */
    TMSG_FILE_SAFETENSORS = 1,
    TMSG_FILE_NPZ = 2,
    TMSG_FILE_NPY = 3 /* one tensor, called "array" when loaded */
} tmsg_file_format_t;

/* "safetensors", "npz" or "npy"; NULL for AUTO and values outside the list. */
TMSG_API const char *tmsg_file_format_name(tmsg_file_format_t format);

enum {
    TMSG_FILE_LOAD_PARAM_FORMAT = 1 << 0,
    TMSG_FILE_LOAD_PARAM_LIMITS = 1 << 1
};

typedef struct tmsg_file_load_params {
    uint64_t field_mask;         /* TMSG_FILE_LOAD_PARAM_*; unset: defaults */
    int32_t format;              /* tmsg_file_format_t; default AUTO */
    const tmsg_limits_t *limits; /* these count here: tensors, ndim, name_bytes,
                                  * metadata_bytes, metadata_keys, and
                                  * held_bytes for what is not mapped; NULL:
                                  * defaults */
} tmsg_file_load_params_t;

/* Loads a file as a map that owns its tensors, freed with tmsg_map_destroy().
 * `params` may be NULL: all defaults. From any thread.
 *
 * The file is mapped, not read: its tensors lie in the page cache. Compressed
 * .npz members and big-endian data are converted into memory of their own. Data
 * at an address that their dtype cannot have are copied, up to 64 MiB for each
 * file. Further such data stay mapped and unaligned: read them with memcpy().
 * They arrive aligned if they are sent.
 *
 * The file must not change while the map lives. Later writes to the file show
 * in the tensors, and in sends of them. Reading beyond the end of a file that
 * was cut is SIGBUS. Nothing here looks at the file again: "Files that change"
 * in docs/reference/files.md says how to notice.
 *
 * The metadata get TMSG_META_FILE_NAME (the last component of the path) and
 * TMSG_META_FILE_FORMAT. A safetensors `__metadata__` becomes string metadata
 * under its own keys. Fortran order is kept, as strides.
 *
 * Everything in the file is checked against its format. Of safetensors: the
 * size of the header, offsets without overlap or hole, unique names. Of .npy:
 * 1.0 to 3.0, no object dtype. Of .npz: sizes are bounded before they are
 * inflated. Errors name file and field.
 * Errors:
 *   NOT_FOUND - no such file
 *   IO - it cannot be read
 *   MALFORMED - it breaks its format
 *   UNSUPPORTED - strings, dates, structured and longdouble dtypes; a name
 *     without a known extension
 *   LIMIT_EXCEEDED
 *   NO_MEMORY
 *   INVALID_PARAM - path or map_p is NULL, an unknown bit or format, or a limit
 *     of 0 */
TMSG_API tmsg_status_t tmsg_file_load(const char *path,
                                      const tmsg_file_load_params_t *params,
                                      tmsg_map_t **map_p);

enum {
    TMSG_SAVE_OVERWRITE = 1 << 0 /* replace an existing file */
};

enum {
    TMSG_FILE_SAVE_PARAM_FORMAT = 1 << 0,
    TMSG_FILE_SAVE_PARAM_FLAGS = 1 << 1,
    TMSG_FILE_SAVE_PARAM_LIMITS = 1 << 2
};

typedef struct tmsg_file_save_params {
    uint64_t field_mask;         /* TMSG_FILE_SAVE_PARAM_*; unset: defaults */
    int32_t format;              /* tmsg_file_format_t; default AUTO */
    uint32_t flags;              /* TMSG_SAVE_*; default 0 */
    const tmsg_limits_t *limits; /* of the program that will load the file.
                                  * These are checked: tensors, ndim,
                                  * name_bytes, metadata_bytes and
                                  * metadata_keys; NULL: defaults */
} tmsg_file_save_params_t;

/* Writes a map of CPU tensors. The file appears under its name only when it is
 * whole. Until it is written and flushed to disk, it has no name, or a
 * temporary one in the same folder if the file system needs one. Without
 * OVERWRITE an existing file is kept. A map that tmsg_file_load() would refuse
 * is refused. One thread at a time may read the map.
 *
 * A .safetensors has no lanes: lanes of less than a byte become elements of the
 * last dimension; other lanes are UNSUPPORTED. Errors name file and tensor.
 * Errors:
 *   ALREADY_EXISTS - there is a file of that name
 *   UNSUPPORTED - a dtype that the format cannot hold (the error names the
 *     format that can); .npy of more than one tensor; memory of a device; a
 *     name without a known extension
 *   LIMIT_EXCEEDED - a limit; a safetensors header of more than 100,000,000
 *     bytes
 *   NOT_FOUND - the folder
 *   IO - the disk is full, permissions
 *   NO_MEMORY
 *   INVALID_PARAM - map or path is NULL, an unknown bit, format or flag, or a
 *     limit of 0 */
TMSG_API tmsg_status_t tmsg_file_save(const tmsg_map_t *map, const char *path,
                                      const tmsg_file_save_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
