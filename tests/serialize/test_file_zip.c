/* SPDX-License-Identifier: BSD-3-Clause */
/* Archives that no writer makes: each field that a .npz is read by lies. */
#include "test_file_tools.h"

#include <zip.h>

#include "core/bytes.h"
#include "core/limits.h"
#include "serialize/file.h"
#include "support/must.h"

/* libzip 1.11 itself looks at more; what it finds it says in other words. */
enum { IS_STRICT = LIBZIP_VERSION_MAJOR > 1 || LIBZIP_VERSION_MINOR >= 11 };

TestSuite(file_zip, .init = make_scratch, .fini = drop_scratch);

/* Where the fields of a member are that both of its records have. */
typedef enum { FLAGS, METHOD, PACKED, SIZE, NAME } field_t;

static const struct {
    size_t local, central;
} fields[] = {
    [FLAGS] = {6, 8},  [METHOD] = {8, 10}, [PACKED] = {18, 20},
    [SIZE] = {22, 24}, [NAME] = {30, 46},
};

enum { MEMBERS = 2, PREFIX_BYTES = 80, DATA_BYTES = 400, END_BYTES = 22 };

/* "a.npy" and "b.npy", each big-endian uint16[200] of 0, 3, 6, ... */
typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t local[MEMBERS], central[MEMBERS];
    size_t end; /* record of the directory's end */
} archive_t;

static size_t find(const archive_t *archive, const char *signature, int nth)
{
    size_t at = 0;

    for (; nth >= 0; nth--, at++) {
        const uint8_t *found =
            memmem(archive->bytes + at, archive->size - at, signature, 4);

        cr_assert_not_null(found);
        at = (size_t)(found - archive->bytes);
    }
    return at - 1;
}

static archive_t make(bool deflated)
{
    static uint8_t npy[PREFIX_BYTES + DATA_BYTES] =
        "\x93NUMPY\1\0\x46\0"
        "{'descr': '>u2', 'fortran_order': False, 'shape': (200,)}            "
        "\n";
    const char *path = scratch_path("made.npz");
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    archive_t archive;

    for (int i = 0; i < DATA_BYTES / 2; i++) {
        npy[PREFIX_BYTES + 2 * i] = (uint8_t)(3 * i >> 8);
        npy[PREFIX_BYTES + 2 * i + 1] = (uint8_t)(3 * i);
    }
    for (int i = 0; i < MEMBERS; i++) {
        zip_source_t *source = zip_source_buffer(zip, npy, sizeof(npy), 0);
        zip_int64_t index = zip_file_add(zip, i == 0 ? "a.npy" : "b.npy",
                                         source, ZIP_FL_ENC_UTF_8);

        cr_assert_eq(zip_set_file_compression(
                         zip, (zip_uint64_t)index,
                         deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
                     0);
    }
    cr_assert_eq(zip_close(zip), 0);
    archive.bytes = (uint8_t *)read_scratch(path, &archive.size);
    for (int i = 0; i < MEMBERS; i++) {
        archive.local[i] = find(&archive, "PK\3\4", i);
        archive.central[i] = find(&archive, "PK\1\2", i);
    }
    archive.end = archive.size - END_BYTES;
    return archive;
}

/* Sets a field of member `i` in both of its records. */
static void set(archive_t *archive, int i, field_t field, uint64_t value,
                unsigned width)
{
    tmsg_put_le(archive->bytes + archive->local[i] + fields[field].local, value,
                width);
    tmsg_put_le(archive->bytes + archive->central[i] + fields[field].central,
                value, width);
}

static void lying_method(archive_t *archive) { set(archive, 0, METHOD, 12, 2); }

static void stored_of_other_size(archive_t *archive)
{
    set(archive, 1, PACKED, PREFIX_BYTES + DATA_BYTES - 1, 4);
}

static void other_disk(archive_t *archive)
{
    tmsg_put_le(archive->bytes + archive->end + 4, 1, 2);
}

static void name_not_utf8(archive_t *archive)
{
    set(archive, 0, FLAGS, 1 << 11, 2); /* says that it is */
    set(archive, 0, NAME, 0xff, 1);
}

static void header_of_more(archive_t *archive) { set(archive, 0, SIZE, 40, 4); }

static void data_of_less(archive_t *archive) { set(archive, 0, SIZE, 8000, 4); }

static void more_of_them(archive_t *archive)
{
    tmsg_put_le(archive->bytes + archive->end + 8, 7, 2);
    tmsg_put_le(archive->bytes + archive->end + 10, 7, 2);
}

static void directory_elsewhere(archive_t *archive)
{
    tmsg_put_le(archive->bytes + archive->end + 16, 0xfffffff0u, 4);
}

static const struct {
    const char *row;
    bool deflated;
    void (*spoil)(archive_t *archive);
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"bzip2", false, lying_method, TMSG_ERR_UNSUPPORTED,
     "member 'a.npy': compression 12, known are"},
    {"stored, of two sizes", false, stored_of_other_size, TMSG_ERR_MALFORMED,
     IS_STRICT ? "zip: " : "bytes cannot be inflated from"},
    {"on another disk", false, other_disk,
     IS_STRICT ? TMSG_ERR_MALFORMED : TMSG_ERR_UNSUPPORTED, "zip: "},
    {"name not UTF-8", false, name_not_utf8, TMSG_ERR_MALFORMED, ""},
    {"a header of more than all", true, header_of_more, TMSG_ERR_MALFORMED,
     "member 'a.npy': "},
    {"data of less than it says", true, data_of_less, TMSG_ERR_MALFORMED,
     "member 'a.npy': "},
    {"more members than there are", false, more_of_them, TMSG_ERR_MALFORMED,
     "zip: "},
    {"the directory elsewhere", false, directory_elsewhere, TMSG_ERR_MALFORMED,
     "zip: "},
};

Test(file_zip, refuses_records_that_lie)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        archive_t archive = make(bad[i].deflated);

        bad[i].spoil(&archive);
        expect_refused(bad[i].row,
                       write_scratch("x.npz", archive.bytes, archive.size),
                       bad[i].status, bad[i].words);
        free(archive.bytes);
    }
}

/* Or a small archive could have the same bytes read a million times. */
Test(file_zip, refuses_members_that_share_their_bytes)
{
    archive_t archive = make(false);
    size_t data = archive.local[1]; /* of the first member, with its record */
    size_t record = archive.central[1] - archive.central[0];
    uint8_t *bytes = malloc(data + 2 * record + END_BYTES);
    uint8_t *end = bytes + data + 2 * record;

    memcpy(bytes, archive.bytes, data);
    for (size_t i = 0; i < 2; i++) {
        memcpy(bytes + data + i * record, archive.bytes + archive.central[0],
               record);
    }
    memcpy(end, archive.bytes + archive.end, END_BYTES);
    tmsg_put_le(end + 16, data, 4);
    expect_refused("twice",
                   write_scratch("x.npz", bytes, data + 2 * record + END_BYTES),
                   TMSG_ERR_MALFORMED, "member 'a.npy': overlaps another");
    free(bytes);
    free(archive.bytes);
}

static tmsg_status_t decode(const archive_t *archive, uint64_t tensors,
                            tmsg_map_t *map)
{
    tmsg_file_input_t input = {
        .where = {.path = "x.npz"}, .map = map, .size = archive->size};

    input.limits = tmsg_limits_usual();
    input.limits.tensors = tensors;
    input.bytes = archive->bytes;
    return tmsg_file_decode(&input, TMSG_FILE_NPZ);
}

Test(file_zip, is_held_to_the_limit_of_tensors)
{
    archive_t archive = make(false);
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must_be(decode(&archive, 1, map), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "2 members, at most 1");
    must_eq(tmsg_map_size(map), 0);
    must(decode(&archive, 2, map));
    must_eq(tmsg_map_size(map), 2);
    tmsg_map_destroy(map);
    free(archive.bytes);
}

/* Appends a comment that is another end record. */
static size_t append_end(const archive_t *archive, uint8_t *bytes)
{
    memcpy(bytes, archive->bytes, archive->size);
    tmsg_put_le(bytes + archive->end + 20, END_BYTES, 2);
    memcpy(bytes + archive->size, archive->bytes + archive->end, END_BYTES);
    return archive->size + END_BYTES;
}

/* Readers differ in which directory counts, and libzip reads both. */
Test(file_zip, refuses_two_directories)
{
    archive_t archive = make(false);
    uint8_t *bytes = malloc(archive.size + END_BYTES);
    size_t size = append_end(&archive, bytes);

    expect_refused("two ends", write_scratch("x.npz", bytes, size),
                   TMSG_ERR_MALFORMED, "has two directories of members");
    memset(bytes + archive.size + 12, 0, 4); /* of no bytes */
    if (IS_STRICT) {
        expect_refused("an end of none", write_scratch("x.npz", bytes, size),
                       TMSG_ERR_MALFORMED, "zip: ");
    } else {
        tmsg_map_destroy(load_ok(write_scratch("x.npz", bytes, size)));
    }
    memset(bytes + archive.size, 'c', END_BYTES);
    tmsg_map_destroy(load_ok(write_scratch("x.npz", bytes, size)));
    free(bytes);
    free(archive.bytes);
}

/* Some writers store the number of members modulo 2^16. */
Test(file_zip, counts_members_and_not_what_the_end_says)
{
    archive_t archive = make(false);
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    tmsg_put_le(archive.bytes + archive.end + 8, 1, 2);
    tmsg_put_le(archive.bytes + archive.end + 10, 1, 2);
    must_be(decode(&archive, 1, map), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "2 members, at most 1");
    tmsg_map_destroy(map);
    free(archive.bytes);
}

/* Stored or not: their bytes are turned in memory of their own. */
Test(file_zip, turns_big_endian_members)
{
    uint16_t wanted[DATA_BYTES / 2];

    for (uint16_t i = 0; i < DATA_BYTES / 2; i++) {
        wanted[i] = (uint16_t)(3 * i);
    }
    for (int deflated = 0; deflated < 2; deflated++) {
        archive_t archive = make(deflated);
        tmsg_map_t *map =
            load_ok(write_scratch("x.npz", archive.bytes, archive.size));

        expect_tensor(map, "a", "uint16", DATA_BYTES, wanted);
        expect_tensor(map, "b", "uint16", DATA_BYTES, wanted);
        tmsg_map_destroy(map);
        free(archive.bytes);
    }
}

/* Any byte of it may be wrong: it loads or is refused, by its name. */
Test(file_zip, survives_each_byte_that_differs)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};

    for (int deflated = 0; deflated < 2; deflated++) {
        archive_t archive = make(deflated);

        for (size_t i = 0; i < archive.size * sizeof(masks); i++) {
            uint8_t *byte = &archive.bytes[i / sizeof(masks)];
            uint8_t kept = *byte;
            tmsg_map_t *map;

            must(tmsg_map_create(&map));
            *byte ^= masks[i % sizeof(masks)];
            if (decode(&archive, 100, map) != TMSG_OK) {
                must_say(tmsg_error_message(), "x.npz: ");
            }
            *byte = kept;
            tmsg_map_destroy(map);
        }
        free(archive.bytes);
    }
}
