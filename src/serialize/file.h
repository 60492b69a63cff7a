/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file.h - what the file formats share: the file they read and map,
 * and the temporary file they write. */
#ifndef TMSG_SERIALIZE_FILE_H
#define TMSG_SERIALIZE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/file.h>
#include <tensormsg/limits.h>

/* Of what an error speaks: "PATH: " or "PATH: PART 'NAME': ". */
typedef struct {
    const char *path;
    const char *part; /* "tensor" or "member", read where name is set */
    const char *name; /* NULL: the file itself */
} tmsg_file_where_t;

/* As tmsg_error_set(), with those words in front; `format` may hold %m. */
tmsg_status_t tmsg_file_fail(const tmsg_file_where_t *where,
                             tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A file being read. Others may write to it meanwhile, and the pages of a
 * mapping show what they write. So nothing is read through the mapping, only
 * with tmsg_file_read(), into memory that nobody else writes: what was checked
 * there stays as it is. Tensors refer into `bytes`, which the map must not
 * outlive. */
typedef struct {
    tmsg_file_where_t where;
    bool opened;    /* false: `bytes` are the whole file */
    int fd;         /* of a file that is opened */
    uint64_t size;  /* of the file, when it was opened */
    uint8_t *bytes; /* the file from `mapped_from` on, once it is mapped */
    uint64_t mapped_from;
    tmsg_map_t *map;      /* what is read goes here */
    tmsg_limits_t limits; /* held_bytes bounds `taken` */
    uint64_t taken;       /* memory that the tensors have of their own */
    uint64_t realigned;   /* of it, only for the sake of alignment */
} tmsg_file_input_t;

/* Opens the file at input->where.path, and closes it. What was mapped stays.
 * Errors: NOT_FOUND, IO, UNSUPPORTED (no regular file), MALFORMED (empty). */
tmsg_status_t tmsg_file_open(tmsg_file_input_t *input);
void tmsg_file_close(tmsg_file_input_t *input);

/* Copies bytes of the file; `at` + `bytes` is at most input->size. Errors: IO,
 * also if the file has become shorter than that. */
tmsg_status_t tmsg_file_read(const tmsg_file_input_t *input, uint64_t at,
                             void *memory, uint64_t bytes);

/* Maps the file from the page of the byte `from` on. The mapping ends with
 * input->map, to which no tensor was added yet. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_file_map(tmsg_file_input_t *input, uint64_t from);

/* Returns where a byte of the file is mapped. */
static inline uint8_t *tmsg_file_at(const tmsg_file_input_t *input, uint64_t at)
{
    return input->bytes + (at - input->mapped_from);
}

/* Reads the bytes of a file into input->map; also the way in for fuzzing. On
 * an error the map holds what was read so far. */
tmsg_status_t tmsg_file_decode(tmsg_file_input_t *input,
                               tmsg_file_format_t format);

/* Allocates memory for a tensor's data, freed with free(). Errors:
 * LIMIT_EXCEEDED (of held_bytes, all tensors together), NO_MEMORY. */
tmsg_status_t tmsg_file_take(tmsg_file_input_t *input, uint64_t bytes,
                             void **memory_p);

/* Whether data of that dtype at `data` should be copied so that its elements
 * are aligned: yes until 64 MiB of a file have been, for a large file is worth
 * more mapped than aligned. */
bool tmsg_file_realigns(const tmsg_file_input_t *input, const void *data,
                        tmsg_dtype_t dtype, uint64_t bytes);

/* Checks a tensor as tmsg_file_add() does, but neither adds it nor compares its
 * name with others. Errors name input->where. */
tmsg_status_t tmsg_file_check(const tmsg_file_input_t *input, const char *name,
                              const tmsg_tensor_t *tensor);

/* Adds a tensor whose data lie in input->bytes or, if `memory` is set, there:
 * the call takes that over, whatever it returns. Mapped data are copied if
 * they are misaligned or `swap` is set, which turns the bytes of every scalar
 * round. Errors name input->where. */
tmsg_status_t tmsg_file_add(tmsg_file_input_t *input, const char *name,
                            tmsg_tensor_t *tensor, void *memory, bool swap);

/* A file being written, under a temporary name beside its own. */
typedef struct {
    tmsg_file_where_t where;
    char *temp;        /* its name until then; empty: it has none */
    unsigned attempts; /* to find that name */
    uint8_t *buffer;   /* small writes gather here */
    size_t buffered;
    uint64_t position; /* where the buffer goes */
    int fd;
} tmsg_file_output_t;

tmsg_status_t tmsg_file_output_open(tmsg_file_output_t *output,
                                    const char *path);
tmsg_status_t tmsg_file_write(tmsg_file_output_t *output, const void *data,
                              uint64_t bytes);

/* The next write goes to `position`. */
tmsg_status_t tmsg_file_seek(tmsg_file_output_t *output, uint64_t position);

/* Writes the elements in C order. */
tmsg_status_t tmsg_file_write_tensor(tmsg_file_output_t *output,
                                     const tmsg_tensor_t *tensor);

/* Flushes to disk and gives the file its name. */
tmsg_status_t tmsg_file_commit(tmsg_file_output_t *output, bool overwrite);

/* Frees what open took; a file that was not committed is gone. */
void tmsg_file_output_close(tmsg_file_output_t *output);

/* One file format. Registered in file.c. */
typedef struct {
    const char *name; /* also the extension */
    tmsg_status_t (*load)(tmsg_file_input_t *input);
    tmsg_status_t (*save)(tmsg_file_output_t *output, const tmsg_map_t *map);
    bool (*holds)(tmsg_dtype_t dtype);
    bool names; /* the format stores the names of tensors */
    /* Checks the map beyond its dtypes, names and ranks. */
    tmsg_status_t (*check)(tmsg_file_where_t *where, const tmsg_map_t *map,
                           const tmsg_limits_t *limits);
} tmsg_file_ops_t;

extern const tmsg_file_ops_t tmsg_file_safetensors;
extern const tmsg_file_ops_t tmsg_file_npz;
extern const tmsg_file_ops_t tmsg_file_npy;

#endif
