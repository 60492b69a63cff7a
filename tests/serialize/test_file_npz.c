/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/limits.h"
#include "test_file_tools.h"

#include <zip.h>

#include "serialize/file.h"

TestSuite(file_npz, .init = make_scratch, .fini = drop_scratch);

/* A .npy of n bytes uint8 whose header says `shape`. */
static size_t npy(char *buffer, const char *shape, size_t n)
{
    memset(buffer, ' ', 128);
    memcpy(buffer, "\x93NUMPY\1\0\x76\0", 10);
    snprintf(buffer + 10, 118,
             "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape);
    buffer[10 + strlen(buffer + 10)] = ' ';
    buffer[127] = '\n';
    for (size_t i = 0; i < n; i++) {
        buffer[128 + i] = (char)(i + 1);
    }
    return 128 + n;
}

static void add(zip_t *zip, const char *name, const void *data, size_t bytes,
                zip_int32_t method, const char *password)
{
    zip_source_t *source = zip_source_buffer(zip, data, bytes, 0);
    zip_int64_t index = zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8);

    cr_assert_geq(index, 0, "%s", zip_strerror(zip));
    zip_set_file_compression(zip, (zip_uint64_t)index, method, 0);
    if (password != NULL) {
        zip_file_set_encryption(zip, (zip_uint64_t)index, ZIP_EM_AES_256,
                                password);
    }
}

static zip_t *create(const char *path)
{
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);

    cr_assert_not_null(zip);
    return zip;
}

/* An archive of one member. */
static const char *make(const char *name, const void *data, size_t bytes,
                        zip_int32_t method)
{
    const char *path = scratch_path("x.npz");
    zip_t *zip = create(path);

    add(zip, name, data, bytes, method, NULL);
    cr_assert_eq(zip_close(zip), 0);
    return path;
}

static const struct {
    const char *name, *member, *shape;
    size_t data_bytes;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"other suffix", "a.txt", "(4,)", 4, TMSG_ERR_UNSUPPORTED,
     "member 'a.txt': is not a .npy"},
    {"no suffix", "npy", "(4,)", 4, TMSG_ERR_UNSUPPORTED, "is not a .npy"},
    {"empty name", ".npy", "(4,)", 4, TMSG_ERR_UNSUPPORTED, "must have a name"},
    {"truncated", "a.npy", "(5,)", 4, TMSG_ERR_MALFORMED,
     "member 'a.npy': dtype and shape take 5 bytes"},
    {"too long", "a.npy", "(3,)", 4, TMSG_ERR_MALFORMED,
     "take 3 bytes after a header of 128, the archive says 132"},
    {"shape overflows", "a.npy", "(4294967296, 4294967296)", 4,
     TMSG_ERR_LIMIT_EXCEEDED, "overflows"},
    {"shape no tuple", "a.npy", "4", 4, TMSG_ERR_MALFORMED,
     "shape is not a tuple"},
};

Test(file_npz, refuses_bad_members)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) * 2; i++) {
        char buffer[256];
        size_t bytes = npy(buffer, bad[i / 2].shape, bad[i / 2].data_bytes);

        expect_refused(bad[i / 2].name,
                       make(bad[i / 2].member, buffer, bytes,
                            i % 2 ? ZIP_CM_STORE : ZIP_CM_DEFLATE),
                       bad[i / 2].status, bad[i / 2].words);
    }
}

Test(file_npz, refuses_short_members)
{
    char buffer[256];

    npy(buffer, "(4,)", 4);
    expect_refused("no content", make("a.npy", "", 0, ZIP_CM_STORE),
                   TMSG_ERR_MALFORMED, "0 bytes are too few");
    expect_refused("11 bytes", make("a.npy", buffer, 11, ZIP_CM_STORE),
                   TMSG_ERR_MALFORMED, "11 bytes are too few");
    expect_refused("half a header", make("a.npy", buffer, 64, ZIP_CM_STORE),
                   TMSG_ERR_MALFORMED, "member 'a.npy': truncated");
    expect_refused("a folder", make("a/", "", 0, ZIP_CM_STORE),
                   TMSG_ERR_UNSUPPORTED, "member 'a/': is not a .npy");
}

Test(file_npz, refuses_objects_in_members)
{
    char buffer[256];
    size_t bytes = npy(buffer, "(4,)", 4);

    memcpy(strstr(buffer + 10, "|u1"), "|O8", 3);
    expect_refused("object", make("a.npy", buffer, bytes, ZIP_CM_DEFLATE),
                   TMSG_ERR_UNSUPPORTED, "member 'a.npy': dtype '|O8'");
}

Test(file_npz, refuses_what_is_no_zip)
{
    char text[100];

    memset(text, 'x', sizeof(text));
    expect_refused("text", write_scratch("x.npz", text, sizeof(text)),
                   TMSG_ERR_MALFORMED, "zip: ");
    expect_refused("short", write_scratch("x.npz", text, 5), TMSG_ERR_MALFORMED,
                   "zip: ");
}

Test(file_npz, refuses_encrypted_members)
{
    char buffer[256];
    size_t bytes = npy(buffer, "(4,)", 4);
    const char *path = scratch_path("x.npz");
    zip_t *zip = create(path);

    add(zip, "a.npy", buffer, bytes, ZIP_CM_STORE, "secret");
    cr_assert_eq(zip_close(zip), 0);
    expect_refused("encrypted", path, TMSG_ERR_UNSUPPORTED,
                   "member 'a.npy': is encrypted");
}

/* Replaces every `from` in the file by `to`, of the same length. */
static void patch(const char *path, const char *from, const char *to,
                  size_t length)
{
    size_t bytes;
    char *data = read_scratch(path, &bytes);
    FILE *file;

    for (size_t i = 0; i + length <= bytes; i++) {
        if (memcmp(data + i, from, length) == 0) {
            memcpy(data + i, to, length);
        }
    }
    file = fopen(path, "wb");
    fwrite(data, 1, bytes, file);
    fclose(file);
    free(data);
}

Test(file_npz, refuses_two_members_of_one_name)
{
    char buffer[256];
    size_t bytes = npy(buffer, "(4,)", 4);
    const char *path = scratch_path("x.npz");
    zip_t *zip = create(path);

    add(zip, "a.npy", buffer, bytes, ZIP_CM_STORE, NULL);
    add(zip, "b.npy", buffer, bytes, ZIP_CM_STORE, NULL);
    cr_assert_eq(zip_close(zip), 0);
    patch(path, "b.npy", "a.npy", 5);
    expect_refused("twice", path, TMSG_ERR_MALFORMED,
                   "member 'a.npy': the name occurs twice");
}

Test(file_npz, refuses_a_damaged_member)
{
    static const zip_int32_t methods[] = {ZIP_CM_STORE, ZIP_CM_DEFLATE};
    char *buffer = malloc(1 << 16);
    size_t bytes = npy(buffer, "(60000,)", 60000);

    for (size_t i = 0; i < 2; i++) {
        const char *path = make("a.npy", buffer, bytes, methods[i]);
        size_t file_bytes;
        char *data = read_scratch(path, &file_bytes);

        data[file_bytes / 2] ^= 4;
        write_scratch("x.npz", data, file_bytes);
        free(data);
        expect_refused("one bit", path, TMSG_ERR_MALFORMED,
                       methods[i] == ZIP_CM_STORE
                           ? "member 'a.npy': zip: CRC error"
                           : "member 'a.npy': ");
    }
    free(buffer);
}

/* Sizes of a member, in its own header and in the directory, as the archive
 * has them: little-endian 32 bits after CRC and compressed size. */
static void set_size(const char *path, uint32_t was, uint32_t is)
{
    patch(path, (const char *)&was, (const char *)&is, 4);
}

/* Inflates to 64 MiB, but says 1 MiB, in header and directory alike. */
Test(file_npz, refuses_a_bomb_that_claims_little)
{
    size_t real = 128 + (64 << 20), claimed = 128 + (1 << 20);
    char *buffer = calloc(1, real);
    const char *path;

    npy(buffer, "(1048576,)", 0);
    path = make("a.npy", buffer, real, ZIP_CM_DEFLATE);
    free(buffer);
    set_size(path, (uint32_t)real, (uint32_t)claimed);
    expect_refused("claims little", path, TMSG_ERR_MALFORMED,
                   "member 'a.npy': inflates to more than it says");
}

/* Says 4 GB where its few bytes can never inflate to that. */
Test(file_npz, refuses_a_bomb_that_claims_much)
{
    char buffer[256];
    size_t bytes = npy(buffer, "(4000000000,)", 16);
    const char *path = make("a.npy", buffer, bytes, ZIP_CM_DEFLATE);

    set_size(path, (uint32_t)bytes, 4000000128u);
    expect_refused("claims much", path, TMSG_ERR_MALFORMED,
                   "member 'a.npy': 4000000128 bytes cannot be inflated from");
}

/* Loads with a limit of 1 MiB for memory of its own. */
static tmsg_status_t decode_bounded(const char *path, tmsg_map_t *map)
{
    tmsg_file_input_t input = {.where = {.path = path}, .map = map};
    tmsg_status_t status;

    input.limits = tmsg_limits_usual();
    input.limits.held_bytes = 1 << 20;
    input.bytes = (uint8_t *)read_scratch(path, &input.size);
    status = tmsg_file_decode(&input, TMSG_FILE_NPZ);
    free(input.bytes);
    return status;
}

/* All its sizes are true; there is only too much of it. */
Test(file_npz, refuses_an_honest_bomb)
{
    static const struct {
        const char *shapes[2];
        const char *words;
    } rows[] = {
        {{"(1048577,)", "(1,)"},
         "member 'a.npy': takes 1048577 bytes of memory in addition to 0"},
        {{"(600000,)", "(600000,)"},
         "member 'b.npy': takes 600000 bytes of memory in addition to 600000"},
    };
    char *buffer[2] = {calloc(1, 2 << 20), calloc(1, 2 << 20)};

    for (size_t i = 0; i < 2; i++) {
        const char *path = scratch_path("x.npz");
        zip_t *zip = create(path);
        tmsg_map_t *map;

        for (size_t j = 0; j < 2; j++) {
            size_t data = (size_t)atol(rows[i].shapes[j] + 1);

            npy(buffer[j], rows[i].shapes[j], 0);
            add(zip, j == 0 ? "a.npy" : "b.npy", buffer[j], 128 + data,
                ZIP_CM_DEFLATE, NULL);
        }
        cr_assert_eq(zip_close(zip), 0);
        cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
        cr_expect_eq(decode_bounded(path, map), TMSG_ERR_LIMIT_EXCEEDED);
        cr_expect_not_null(strstr(tmsg_error_message(), rows[i].words),
                           "'%s', not '%s'", tmsg_error_message(),
                           rows[i].words);
        tmsg_map_destroy(map);
    }
    free(buffer[0]);
    free(buffer[1]);
}

/* Stored members lie in the file: they take no memory. */
Test(file_npz, does_not_count_mapped_members)
{
    size_t bytes = 128 + (2 << 20);
    char *buffer = calloc(1, bytes);
    const char *path;
    tmsg_map_t *map;

    npy(buffer, "(2097152,)", 0);
    path = make("a.npy", buffer, bytes, ZIP_CM_STORE);
    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    cr_expect_eq(decode_bounded(path, map), TMSG_OK, "%s",
                 tmsg_error_message());
    tmsg_map_destroy(map);
    free(buffer);
}

Test(file_npz, loads_stored_and_compressed_members)
{
    static const zip_int32_t methods[] = {ZIP_CM_STORE, ZIP_CM_DEFLATE};

    for (size_t i = 0; i < 2; i++) {
        char buffer[4][256];
        const char *path = scratch_path("x.npz");
        zip_t *zip = create(path);
        tmsg_map_t *map;

        add(zip, "a.npy", buffer[0], npy(buffer[0], "(4,)", 4), methods[i],
            NULL);
        add(zip, "dir/\xe6\x97\xa5.npy", buffer[1], npy(buffer[1], "(2, 3)", 6),
            methods[i], NULL);
        add(zip, "0.npy", buffer[2], npy(buffer[2], "()", 1), methods[i], NULL);
        add(zip, "e.npy", buffer[3], npy(buffer[3], "(3, 0)", 0), methods[i],
            NULL);
        cr_assert_eq(zip_close(zip), 0);
        map = load_ok(path);
        cr_expect_eq(tmsg_map_size(map), 4);
        expect_tensor(map, "a", "uint8", 4, "\1\2\3\4");
        expect_tensor(map, "dir/\xe6\x97\xa5", "uint8", 6, "\1\2\3\4\5\6");
        expect_tensor(map, "0", "uint8", 1, "\1");
        expect_tensor(map, "e", "uint8", 0, "");
        tmsg_map_destroy(map);
    }
}

/* The bytes before a stored member's data shift with its name. */
Test(file_npz, aligns_stored_members)
{
    char name[64] = "";

    for (int i = 0; i < 16; i++) {
        const int64_t shape[] = {2};
        double data[] = {1.5, -2.5};
        tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT, 64, 1};
        const char *path = scratch_path("x.npz");
        tmsg_tensor_t tensor;
        tmsg_map_t *map;

        strcat(name, "n");
        map = map_of(name, dtype, 1, shape, NULL, data);
        save_ok(map, path);
        tmsg_map_destroy(map);
        map = load_ok(path);
        tmsg_map_find(map, name, &tensor);
        cr_expect_eq((uintptr_t)tensor.data % 8, 0, "%p", tensor.data);
        expect_tensor(map, name, "float64", sizeof(data), data);
        tmsg_map_destroy(map);
    }
}

Test(file_npz, saves_what_it_loads)
{
    const int64_t shape[] = {2, 3}, fortran[] = {1, 2}, flip[] = {-3, -1};
    float data[] = {1, 2, 3, 4, 5, 6}, zero = 7;
    const float fortran_data[] = {1, 3, 5, 2, 4, 6};
    const float flip_data[] = {6, 5, 4, 3, 2, 1};
    tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT, 32, 1};
    const char *path = scratch_path("s.npz");
    tmsg_map_t *map = map_of("\xce\xb1/b", dtype, 2, shape, NULL, data);
    tmsg_tensor_t tensor = {.data = data,
                            .device = {TMSG_DEVICE_CPU, 0},
                            .dtype = dtype,
                            .ndim = 2,
                            .shape = shape,
                            .strides = fortran};

    tmsg_map_add(map, "fortran", &tensor, NULL);
    tensor.strides = flip;
    tensor.data = data + 5;
    tmsg_map_add(map, "flip", &tensor, NULL);
    tensor.ndim = 0;
    tensor.data = &zero;
    tmsg_map_add(map, "scalar", &tensor, NULL);
    save_ok(map, path);
    tmsg_map_destroy(map);

    map = load_ok(path);
    cr_expect_eq(tmsg_map_size(map), 4);
    expect_tensor(map, "\xce\xb1/b", "float32", 24, data);
    expect_tensor(map, "fortran", "float32", 24, fortran_data);
    expect_tensor(map, "flip", "float32", 24, flip_data);
    expect_tensor(map, "scalar", "float32", 4, &zero);
    tmsg_map_find(map, "fortran", &tensor);
    cr_expect_not_null(tensor.strides);
    tmsg_map_destroy(map);
}

Test(file_npz, holds_an_empty_map)
{
    const char *path = scratch_path("empty.npz");
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    cr_expect_eq(tmsg_map_size(map), 0);
    tmsg_map_destroy(map);
}

/* From 65,536 members on an archive needs its 64-bit directory. */
Test(file_npz, holds_70000_members)
{
    const char *path = scratch_path("many.npz");
    tmsg_dtype_t dtype = {TMSG_DTYPE_UINT, 8, 1};
    uint8_t data = 42;
    tmsg_map_t *map = map_of("t0", dtype, 0, NULL, NULL, &data);

    add_copies(map, "t", 70000);
    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    cr_expect_eq(tmsg_map_size(map), 70000);
    expect_tensor(map, "t69999", "uint8", 1, &data);
    tmsg_map_destroy(map);
}
