/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file.h - declares what all file formats use: the file that is read
 * and mapped, and the file that is written. */
#ifndef TMSG_SERIALIZE_FILE_H
#define TMSG_SERIALIZE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/file.h>
#include <tensormsg/limits.h>

/* Says what an error is about. An error begins with "PATH: " or, if `name` is
 * set, with "PATH: PART 'NAME': ". */
typedef struct {
    const char *path;
    const char *part; /* kind of thing that `name` names, such as "tensor" */
    const char *name; /* NULL if the error is about the file itself */
} tmsg_file_where_t;

/* Sets an error as tmsg_error_set() does, with *where in front. `format` may
 * contain %m. Returns `status`. */
tmsg_status_t tmsg_file_fail(const tmsg_file_where_t *where,
                             tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Describes a file that is being read. Other processes may write to it
 * meanwhile, and the pages of a mapping show their writes. The parsers
 * therefore never read through the mapping. They copy with tmsg_file_read()
 * into private memory, so that checked bytes cannot change afterwards. The data
 * of tensors may lie in `bytes`, so `bytes` must live as long as the map; a
 * mapping does. */
typedef struct {
    tmsg_file_where_t where;
    bool opened;    /* false: `bytes` is the whole file */
    int fd;         /* descriptor; valid if `opened` is true */
    uint64_t size;  /* size in bytes when the file was opened */
    uint8_t *bytes; /* mapping of the file from `mapped_from` on */
    uint64_t mapped_from;
    tmsg_map_t *map;      /* map that gets the tensors and metadata */
    tmsg_limits_t limits; /* held_bytes is the upper limit of `taken` */
    uint64_t taken;       /* bytes that tmsg_file_take() has allocated */
    uint64_t realigned;   /* bytes that were copied only for alignment */
} tmsg_file_input_t;

/* tmsg_file_open() opens the file at input->where.path. tmsg_file_close()
 * closes it; a mapping stays. Errors: NOT_FOUND, IO, UNSUPPORTED (not a regular
 * file), MALFORMED (empty). */
tmsg_status_t tmsg_file_open(tmsg_file_input_t *input);
void tmsg_file_close(tmsg_file_input_t *input);

/* Copies bytes of the file to `memory`, from offset `at` on. `at` + `bytes`
 * must not exceed input->size. Errors: IO, also if the file has become shorter
 * than that. */
tmsg_status_t tmsg_file_read(const tmsg_file_input_t *input, uint64_t at,
                             void *memory, uint64_t bytes);

/* Maps the file from the page that contains byte `from`. input->map must have
 * no tensors yet; it unmaps the file when it drops its tensors. Does nothing if
 * the file was not opened. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_file_map(tmsg_file_input_t *input, uint64_t from);

/* Returns the address at which byte `at` of the file is mapped. */
static inline uint8_t *tmsg_file_at(const tmsg_file_input_t *input, uint64_t at)
{
    return input->bytes + (at - input->mapped_from);
}

/* Reads a file of the given format into input->map, with the file's name and
 * format as metadata. Fuzzers call it without opening a file. On an error the
 * map keeps what was read so far. */
tmsg_status_t tmsg_file_decode(tmsg_file_input_t *input,
                               tmsg_file_format_t format);

/* Allocates memory for a tensor's data. The caller frees it with free().
 * Errors: LIMIT_EXCEEDED (all tensors together exceed held_bytes),
 * NO_MEMORY. */
tmsg_status_t tmsg_file_take(tmsg_file_input_t *input, uint64_t bytes,
                             void **memory_p);

/* Returns whether data of that dtype at `data` are misaligned and should be
 * copied. At most 64 MiB of a file are copied for alignment. Beyond that,
 * mapping the file is worth more than alignment. */
bool tmsg_file_realigns(const tmsg_file_input_t *input, const void *data,
                        tmsg_dtype_t dtype, uint64_t bytes);

/* Checks a tensor as tmsg_file_add() does, but does not add it, and does not
 * compare its name with others. Errors name input->where. */
tmsg_status_t tmsg_file_check(const tmsg_file_input_t *input, const char *name,
                              const tmsg_tensor_t *tensor);

/* Adds a tensor to input->map. Its data lie in input->bytes or, if `memory` is
 * not NULL, in `memory`. The call takes ownership of `memory`, also on error.
 * Mapped data are copied if tmsg_file_realigns() says so or if `swap` is set.
 * `swap` reverses the bytes of every scalar. Errors name input->where. */
tmsg_status_t tmsg_file_add(tmsg_file_input_t *input, const char *name,
                            tmsg_tensor_t *tensor, void *memory, bool swap);

/* Describes a file that is being written. The file has no name, or a temporary
 * name in the directory of its final path, until tmsg_file_commit(). */
typedef struct {
    tmsg_file_where_t where;
    char *temp;        /* temporary path; empty if the file has none */
    unsigned attempts; /* temporary paths that were tried */
    uint8_t *buffer;   /* collects small writes */
    size_t buffered;
    uint64_t position; /* file offset of the first byte of `buffer` */
    int fd;
} tmsg_file_output_t;

/* Creates the file for `path` without touching a file that exists there. `path`
 * must outlive *output. The caller frees *output with tmsg_file_output_close().
 * Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_file_output_open(tmsg_file_output_t *output,
                                    const char *path);
/* Appends bytes at the current file offset. Errors: IO. */
tmsg_status_t tmsg_file_write(tmsg_file_output_t *output, const void *data,
                              uint64_t bytes);

/* Makes the next write go to file offset `position`. Errors: IO. */
tmsg_status_t tmsg_file_seek(tmsg_file_output_t *output, uint64_t position);

/* Writes a tensor's elements in C order, without gaps. Errors: IO,
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_file_write_tensor(tmsg_file_output_t *output,
                                     const tmsg_tensor_t *tensor);

/* Flushes the file to disk and gives it its final name. Errors: ALREADY_EXISTS
 * (`overwrite` is false and the name exists), IO. */
tmsg_status_t tmsg_file_commit(tmsg_file_output_t *output, bool overwrite);

/* Frees the output. Deletes the file if it was not committed. */
void tmsg_file_output_close(tmsg_file_output_t *output);

/* Describes one file format. The table `formats` in file.c lists all of
 * them. */
typedef struct {
    const char *name; /* name of the format, and extension of its files */
    tmsg_status_t (*load)(tmsg_file_input_t *input);
    tmsg_status_t (*save)(tmsg_file_output_t *output, const tmsg_map_t *map);
    /* Returns whether a file can store the dtype. */
    bool (*holds)(tmsg_dtype_t dtype);
    bool names; /* whether the format stores the names of tensors */
    /* Checks the map for what file.c does not check. file.c checks devices,
     * dtypes, names, ranks and the number of tensors. */
    tmsg_status_t (*check)(tmsg_file_where_t *where, const tmsg_map_t *map,
                           const tmsg_limits_t *limits);
} tmsg_file_ops_t;

extern const tmsg_file_ops_t tmsg_file_safetensors;
extern const tmsg_file_ops_t tmsg_file_npz;
extern const tmsg_file_ops_t tmsg_file_npy;

#endif
