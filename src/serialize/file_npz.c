/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_npz.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"

#define SUFFIX_BYTES strlen(TMSG_NPZ_SUFFIX)
#define PIECE_BYTES (256u << 10)
#define READ_BYTES (1ULL << 30) /* libzip < 1.10 miscounts beyond 2^32 - 1 */
#define DEFLATE_RATIO 1032      /* most bytes that one deflated byte yields */
#define DEFLATE_SLACK 1024

typedef struct {
    tmsg_file_input_t *input;
    tmsg_zip_input_t source;
    zip_t *zip;
    uint8_t *piece;  /* a header, or data that only the CRC needs */
    uint64_t packed; /* stored bytes of all members so far */
} archive_t;

typedef struct {
    archive_t *archive;
    const char *name; /* member's name in the archive */
    zip_stat_t stat;
    zip_file_t *file;
    tmsg_npy_t npy;
} member_t;

static tmsg_status_t malformed_member(const member_t *member, const char *what)
{
    return tmsg_file_fail(&member->archive->input->where, TMSG_ERR_MALFORMED,
                          "%s", what);
}

/* Reads exactly `bytes` bytes. Errors: MALFORMED (the member ends early), those
 * of tmsg_zip_fail(). */
static tmsg_status_t read_exact(member_t *member, void *buffer, uint64_t bytes)
{
    uint8_t *to = buffer;

    while (bytes > 0) {
        uint64_t piece = bytes < READ_BYTES ? bytes : READ_BYTES;
        zip_int64_t got = zip_fread(member->file, to, piece);

        if (got < 0) {
            return tmsg_zip_fail(&member->archive->input->where,
                                 zip_file_get_error(member->file));
        }
        if (got == 0) {
            return malformed_member(member, "truncated");
        }
        to += got;
        bytes -= (uint64_t)got;
    }
    return TMSG_OK;
}

/* Checks that the member ends here. libzip compares the CRC when it reads the
 * end. */
static tmsg_status_t expect_end(member_t *member)
{
    uint8_t byte;
    zip_int64_t got = zip_fread(member->file, &byte, 1);

    if (got < 0) {
        return tmsg_zip_fail(&member->archive->input->where,
                             zip_file_get_error(member->file));
    }
    return got == 0 ? TMSG_OK
                    : malformed_member(member, "inflates to more than it says");
}

static tmsg_status_t read_member_header(member_t *member)
{
    const tmsg_file_where_t *where = &member->archive->input->where;
    uint8_t *header = member->archive->piece;
    uint64_t bytes = 0;
    tmsg_status_t status;

    if (member->stat.size < TMSG_NPY_PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%" PRIu64 " bytes are too few for a .npy",
                              member->stat.size);
    }
    status = read_exact(member, header, TMSG_NPY_PREFIX_BYTES);
    if (status == TMSG_OK) {
        status =
            tmsg_npy_read_prefix(where, header, TMSG_NPY_PREFIX_BYTES, &bytes);
    }
    if (status == TMSG_OK) {
        status = read_exact(member, header + TMSG_NPY_PREFIX_BYTES,
                            bytes - TMSG_NPY_PREFIX_BYTES);
    }
    if (status == TMSG_OK) {
        status = tmsg_npy_read_header(where, header, bytes, &member->npy);
    }
    return status;
}

/* Checks a member's size before memory is allocated. The directory, the .npy
 * header and the most that deflate can yield must agree. */
static tmsg_status_t check_size(member_t *member)
{
    const tmsg_file_where_t *where = &member->archive->input->where;
    const tmsg_npy_t *npy = &member->npy;
    uint64_t size = member->stat.size, packed = member->stat.comp_size;

    if (size < npy->header_bytes ||
        size - npy->header_bytes != npy->data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "dtype and shape take %" PRIu64
                              " bytes after a header of %" PRIu64
                              ", the archive says %" PRIu64 " in all",
                              npy->data_bytes, npy->header_bytes, size);
    }
    if ((member->stat.comp_method == ZIP_CM_STORE && packed != size) ||
        (member->stat.comp_method == ZIP_CM_DEFLATE &&
         size / DEFLATE_RATIO > packed + DEFLATE_SLACK)) {
        return tmsg_file_fail(
            where, TMSG_ERR_MALFORMED,
            "%" PRIu64 " bytes cannot be inflated from %" PRIu64, size, packed);
    }
    return TMSG_OK;
}

/* Reads stored data only so that libzip computes their CRC. The tensor uses
 * the mapped bytes. *data_p is NULL if libzip did not read the data in one
 * piece. */
static tmsg_status_t read_in_place(member_t *member, void **data_p)
{
    archive_t *archive = member->archive;
    uint64_t start = archive->source.offset;
    uint64_t left = member->npy.data_bytes;

    *data_p = tmsg_file_at(archive->input, start);
    while (left > 0) {
        uint64_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        tmsg_status_t status = read_exact(member, archive->piece, piece);

        if (status != TMSG_OK) {
            return status;
        }
        left -= piece;
    }
    if (archive->source.offset - start != member->npy.data_bytes) {
        *data_p = NULL;
    }
    return expect_end(member);
}

static tmsg_status_t read_copy(member_t *member, void **memory_p)
{
    void *memory;
    tmsg_status_t status =
        tmsg_file_take(member->archive->input, member->npy.data_bytes, &memory);

    if (status != TMSG_OK) {
        return status;
    }
    status = read_exact(member, memory, member->npy.data_bytes);
    if (status == TMSG_OK) {
        status = expect_end(member);
    }
    if (status != TMSG_OK) {
        free(memory);
        return status;
    }
    *memory_p = memory;
    return TMSG_OK;
}

static tmsg_status_t read_data(member_t *member, void **data_p, void **memory_p)
{
    archive_t *archive = member->archive;
    tmsg_file_input_t *input = archive->input;
    uint64_t bytes = member->npy.data_bytes;
    const void *stored = tmsg_file_at(input, archive->source.offset);
    bool misaligned =
        tmsg_file_realigns(input, stored, member->npy.dtype, bytes);
    tmsg_status_t status;

    if (member->stat.comp_method == ZIP_CM_STORE && !member->npy.swap &&
        !misaligned) {
        status = read_in_place(member, data_p);
        if (status != TMSG_OK || *data_p != NULL) {
            return status;
        }
        return malformed_member(member, "its data could not be found");
    }
    status = read_copy(member, memory_p);
    if (status == TMSG_OK) {
        *data_p = *memory_p;
        input->realigned +=
            member->stat.comp_method == ZIP_CM_STORE ? bytes : 0;
    }
    return status;
}

/* Returns the name of a member's tensor, "a/b" for "a/b.npy", or NULL if memory
 * is lacking. The caller frees it. */
static char *tensor_name(const char *member)
{
    size_t bytes = strlen(member);

    return strndup(member, bytes - SUFFIX_BYTES);
}

static tmsg_status_t read_npy_member(member_t *member)
{
    void *data = NULL, *memory = NULL;
    tmsg_status_t status = read_member_header(member);
    char *name;

    if (status == TMSG_OK) {
        status = check_size(member);
    }
    if (status == TMSG_OK) {
        status = read_data(member, &data, &memory);
    }
    if (status != TMSG_OK) {
        return status;
    }
    name = tensor_name(member->name);
    if (name == NULL) {
        free(memory);
        return tmsg_error_memory("a tensor's name");
    }
    status =
        tmsg_npy_add(member->archive->input, name, &member->npy, data, memory);
    free(name);
    return status;
}

/* Checks what the directory says of a member, before anything is inflated. */
static tmsg_status_t check_member(const member_t *member)
{
    archive_t *archive = member->archive;
    const tmsg_file_where_t *where = &archive->input->where;
    const zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                ZIP_STAT_COMP_METHOD |
                                ZIP_STAT_ENCRYPTION_METHOD;
    size_t bytes = strlen(member->name);

    if (bytes < SUFFIX_BYTES ||
        strcmp(member->name + bytes - SUFFIX_BYTES, TMSG_NPZ_SUFFIX) != 0) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED, "is not a .npy");
    }
    if ((member->stat.valid & wanted) != wanted) {
        return malformed_member(member, "its size is not known");
    }
    if (member->stat.encryption_method != ZIP_EM_NONE) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED, "is encrypted");
    }
    /* numpy writes no other compression. With bzip2, 79 bytes become 64 MiB of
     * zeros, so nothing would bound the contents of such a file. */
    if (member->stat.comp_method != ZIP_CM_STORE &&
        member->stat.comp_method != ZIP_CM_DEFLATE) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                              "compression %u, known are stored (0) and "
                              "deflate (8)",
                              member->stat.comp_method);
    }
    /* Without this check, a small archive could make us read the same bytes a
     * million times. */
    if (member->stat.comp_size > archive->input->size - archive->packed) {
        return malformed_member(member, "overlaps another member");
    }
    archive->packed += member->stat.comp_size;
    return TMSG_OK;
}

/* Returns a member's name in UTF-8. The archive says whether the name is UTF-8
 * or CP437. libzip turns the control characters of CP437 into pictures; numpy
 * keeps them, and so does this function. */
static const char *member_name(zip_t *zip, zip_uint64_t index)
{
    const char *raw = zip_get_name(zip, index, ZIP_FL_ENC_RAW), *at = raw;

    while (at != NULL && *at != '\0' && (unsigned char)*at < 0x80) {
        at++;
    }
    return at != NULL && *at == '\0'
               ? raw
               : zip_get_name(zip, index, ZIP_FL_ENC_STRICT);
}

static tmsg_status_t load_member(archive_t *archive, zip_uint64_t index)
{
    member_t member = {.archive = archive};
    tmsg_file_where_t *where = &archive->input->where;
    tmsg_status_t status;

    member.name = member_name(archive->zip, index);
    if (member.name == NULL ||
        zip_stat_index(archive->zip, index, 0, &member.stat) != 0) {
        return tmsg_zip_fail(where, zip_get_error(archive->zip));
    }
    where->name = member.name;
    status = check_member(&member);
    if (status != TMSG_OK) {
        return status;
    }
    member.file = zip_fopen_index(archive->zip, index, 0);
    if (member.file == NULL) {
        return tmsg_zip_fail(where, zip_get_error(archive->zip));
    }
    status = read_npy_member(&member);
    zip_fclose(member.file);
    where->name = NULL;
    return status;
}

static tmsg_status_t load_members(archive_t *archive)
{
    tmsg_file_input_t *input = archive->input;
    zip_int64_t count = zip_get_num_entries(archive->zip, 0);
    tmsg_status_t status;

    status = tmsg_map_reserve(input->map, (size_t)count);
    for (zip_int64_t i = 0; i < count && status == TMSG_OK; i++) {
        status = load_member(archive, (zip_uint64_t)i);
    }
    return status;
}

/* Loads all members. libzip refuses an archive in which a name occurs twice,
 * but does not say which name. The archive is then loaded again with `lax` set,
 * without this check of libzip, so that the map's error names the member. */
static tmsg_status_t load_archive(archive_t *archive, bool lax)
{
    tmsg_file_input_t *input = archive->input;
    tmsg_status_t status;
    zip_error_t error;
    bool twice;

    archive->source = (tmsg_zip_input_t){.file = input};
    zip_error_init(&error);
    archive->zip =
        tmsg_zip_open(&archive->source, lax ? 0 : ZIP_CHECKCONS, &error);
    twice = zip_error_code_zip(&error) == ZIP_ER_EXISTS && !lax;
    if (archive->zip != NULL) {
        status = load_members(archive);
        zip_discard(archive->zip);
    } else if (twice) {
        status = load_archive(archive, true);
    } else {
        status = tmsg_zip_fail(&input->where, &error);
    }
    zip_error_fini(&error);
    if (archive->source.status != TMSG_OK) { /* libzip may hide it */
        return tmsg_error_set(archive->source.status, "%s",
                              archive->source.why);
    }
    return status == TMSG_OK && twice
               ? tmsg_file_fail(&input->where, TMSG_ERR_MALFORMED,
                                "two members have one name")
               : status;
}

static tmsg_status_t check_count(const tmsg_file_input_t *input)
{
    uint64_t count;
    tmsg_status_t status = tmsg_zip_count(input, &count);

    if (status == TMSG_OK && count > input->limits.tensors) {
        return tmsg_file_fail(&input->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%" PRIu64 " members, at most %" PRIu64, count,
                              input->limits.tensors);
    }
    return status;
}

static tmsg_status_t load_npz(tmsg_file_input_t *input)
{
    archive_t archive = {.input = input};
    tmsg_status_t status = check_count(input);

    if (status == TMSG_OK) {
        status = tmsg_file_map(input, 0);
    }
    if (status != TMSG_OK) {
        return status;
    }
    archive.piece = malloc(PIECE_BYTES);
    if (archive.piece == NULL) {
        return tmsg_error_memory("a file's buffer");
    }
    input->where.part = "member";
    status = load_archive(&archive, false);
    free(archive.piece);
    return status;
}

const tmsg_file_ops_t tmsg_file_npz = {
    .name = "npz",
    .load = load_npz,
    .save = tmsg_npz_save,
    .holds = tmsg_npy_holds,
    .names = true,
    .check = tmsg_npz_check,
};
