/* SPDX-License-Identifier: BSD-3-Clause */
/* Fails every allocation on the paths of loading and saving in turn: the 1st,
 * the 2nd, ... until one round succeeds, ours and cJSON's and libzip's alike.
 */
#include "test_file_tools.h"

#include <fcntl.h>

/* libzip 1.7.3 leaks the context of a layered source that it had no memory to
 * make. Its frames are found only by the slow unwinder. */
#define FAILING_ALLOC_LEAKS "leak:zip_fopen_index_encrypted\nleak:zip_close\n"
#include "support/failing_alloc.h"

__attribute__((visibility("default"))) const char *__asan_default_options(void);

TestSuite(file_alloc, .init = make_scratch, .fini = drop_scratch);

const char *__asan_default_options(void) { return "fast_unwind_on_malloc=0"; }

static int open_files(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Does it and sums up what came of it. */
typedef tmsg_status_t (*operation_t)(const void *arg, uint64_t *sum_p);

static uint64_t add_up(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ at[i]) * 1099511628211u;
    }
    return sum;
}

/* Runs it with the nth allocation failing, n from 1 on. libzip does without
 * some, so a failed one need not be an error, but then nothing may differ. */
static void fail_each(const char *name, operation_t operation, const void *arg)
{
    int files = open_files(), entries = count_scratch();
    unsigned long n = 0, errors = 0;
    uint64_t expected = 0;
    bool failed;

    cr_assert_eq(operation(arg, &expected), TMSG_OK);
    do {
        uint64_t sum = 0;
        tmsg_status_t status;

        failing_alloc_arm(++n);
        status = operation(arg, &sum);
        failed = failing_alloc_disarm();
        errors += status != TMSG_OK;
        cr_expect(status == TMSG_OK ? sum == expected
                                    : failed && status == TMSG_ERR_NO_MEMORY,
                  "%s, allocation %lu: %s '%s'", name, n,
                  tmsg_status_name(status), tmsg_error_message());
        cr_expect_eq(open_files(), files, "%s, allocation %lu", name, n);
        cr_expect_eq(count_scratch(), entries,
                     "%s, allocation %lu: a file is left", name, n);
    } while (failed && n < 100000);
    cr_expect_gt(errors, 1, "%s: %lu allocations failed", name, errors);
}

static tmsg_status_t load(const void *path, uint64_t *sum_p)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_file_load(path, NULL, &map);

    for (size_t i = 0; status == TMSG_OK && i < tmsg_map_size(map); i++) {
        const char *name;
        tmsg_tensor_t tensor;
        uint64_t bytes;

        tmsg_map_at(map, i, &name, &tensor);
        tmsg_tensor_bytes(&tensor, &bytes);
        *sum_p = add_up(*sum_p, name, strlen(name));
        *sum_p = add_up(*sum_p, tensor.data, bytes); /* all are dense */
    }
    tmsg_map_destroy(map);
    return status;
}

typedef struct {
    const tmsg_map_t *map;
    const char *path;
} save_t;

static tmsg_status_t save(const void *arg, uint64_t *sum_p)
{
    const save_t *what = arg;
    tmsg_status_t status = tmsg_file_save(what->map, what->path, NULL);

    if (status == TMSG_OK) {
        static char content[1 << 16];
        int fd = open(what->path, O_RDONLY);
        ssize_t bytes = read(fd, content, sizeof(content));

        close(fd);
        unlink(what->path);
        *sum_p = add_up(0, content, (size_t)bytes);
    }
    return status;
}

/* Twenty tensors of different kinds, some strided, and metadata. */
static tmsg_map_t *some_map(void)
{
    static double data[64];
    static const int64_t shape[] = {4, 8}, strides[] = {1, 4};
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    for (int i = 0; i < 20; i++) {
        char name[32];
        tmsg_tensor_t tensor = {.data = data,
                                .device = {TMSG_DEVICE_CPU, 0},
                                .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                .ndim = i % 3,
                                .shape = shape,
                                .strides = i % 2 ? strides : NULL};

        tensor.dtype.bits = (uint8_t)(8 << i % 4);
        snprintf(name, sizeof(name), "tensor/%d", i);
        cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
    }
    tmsg_map_set_string(map, "title", "allocations");
    tmsg_map_set_i64(map, TMSG_META_FRAME, 7);
    return map;
}

static void expect_survival(const char *saved, const char *loaded)
{
    tmsg_map_t *map = some_map();
    save_t what = {map, scratch_path(saved)};
    const char *path = scratch_path(loaded);

    fail_each("save", save, &what);
    save_ok(map, path);
    tmsg_map_destroy(map);
    fail_each("load", load, path);
}

Test(file_alloc, safetensors_survives_every_failure)
{
    expect_survival("a.safetensors", "b.safetensors");
}

Test(file_alloc, npz_survives_every_failure)
{
    expect_survival("a.npz", "b.npz");
}

Test(file_alloc, npy_survives_every_failure)
{
    static const char big_endian[] =
        "\x93NUMPY\1\0\x38\0"
        "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)} \0\1\0\2";
    static int16_t data[2];
    const int64_t shape[] = {2};
    tmsg_dtype_t dtype = {TMSG_DTYPE_INT, 16, 1};
    tmsg_map_t *map = map_of("a", dtype, 1, shape, NULL, data);
    save_t what = {map, scratch_path("a.npy")};

    fail_each("save", save, &what);
    tmsg_map_destroy(map);
    fail_each("load", load,
              write_scratch("b.npy", big_endian, sizeof(big_endian) - 1));
}

/* A compressed archive: libzip inflates it into memory of ours. */
Test(file_alloc, compressed_npz_survives_every_failure)
{
    const char *source = getenv("TMSG_SOURCE_DIR");
    char path[512];

    snprintf(path, sizeof(path), "%s/examples/data/digits.npz",
             source == NULL ? "." : source);
    fail_each("load", load, path);
}
