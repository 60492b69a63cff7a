/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that the tests of the file formats make up and load. */
#ifndef TEST_FILE_TOOLS_H
#define TEST_FILE_TOOLS_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <tensormsg/tensormsg.h>

static char scratch[64]; /* a folder of this test's own */

static inline void make_scratch(void)
{
    strcpy(scratch, "/tmp/tensormsg-test-XXXXXX");
    cr_assert_not_null(mkdtemp(scratch));
}

static inline const char *scratch_path(const char *name)
{
    static char path[4][512];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", scratch, name);
    return path[turn];
}

static inline int count_scratch(void)
{
    int count = 0;
    DIR *dir = opendir(scratch);

    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    }
    closedir(dir);
    return count;
}

static inline void drop_scratch(void)
{
    DIR *dir = opendir(scratch);

    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(scratch);
}

static inline const char *write_scratch(const char *name, const void *data,
                                        size_t bytes)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    return path;
}

/* The whole file, with a NUL after it. */
static inline char *read_scratch(const char *path, size_t *bytes_p)
{
    FILE *file = fopen(path, "rb");
    char *data;
    long bytes;

    cr_assert_not_null(file, "%s", path);
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    data = calloc(1, (size_t)bytes + 1);
    cr_assert_eq(fread(data, 1, (size_t)bytes, file), (size_t)bytes);
    fclose(file);
    *bytes_p = (size_t)bytes;
    return data;
}

/* The file is refused with that status and those words, named itself, and
 * the output is left alone. */
static inline void expect_refused(const char *row, const char *path,
                                  tmsg_status_t status, const char *words)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t got = tmsg_file_load(path, NULL, &map);
    const char *message = tmsg_error_message();

    cr_expect(got == status && strstr(message, words) != NULL,
              "%s: %s '%s', not %s '%s'", row, tmsg_status_name(got), message,
              tmsg_status_name(status), words);
    cr_expect(got == TMSG_OK || strncmp(message, path, strlen(path)) == 0,
              "%s: '%s' does not name the file", row, message);
    cr_expect_null(strchr(message, '\n'), "%s", row);
    cr_expect(got == TMSG_OK || map == NULL, "%s: output touched", row);
    if (got == TMSG_OK) {
        tmsg_map_destroy(map);
    }
}

static inline tmsg_map_t *load_ok(const char *path)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_file_load(path, NULL, &map);

    cr_assert_eq(status, TMSG_OK, "%s: %s", path, tmsg_error_message());
    return map;
}

static inline void save_ok(const tmsg_map_t *map, const char *path)
{
    const tmsg_file_save_params_t overwrite = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FLAGS, .flags = TMSG_SAVE_OVERWRITE};
    tmsg_status_t status = tmsg_file_save(map, path, &overwrite);

    cr_assert_eq(status, TMSG_OK, "%s: %s", path, tmsg_error_message());
}

static inline void expect_save_refused(const tmsg_map_t *map, const char *path,
                                       tmsg_status_t status, const char *words)
{
    int before = count_scratch();
    tmsg_status_t got = tmsg_file_save(map, path, NULL);

    cr_expect(got == status && strstr(tmsg_error_message(), words) != NULL,
              "%s '%s', not %s '%s'", tmsg_status_name(got),
              tmsg_error_message(), tmsg_status_name(status), words);
    cr_expect_eq(count_scratch(), before, "a file was left behind");
}

/* A map of one borrowed tensor. */
static inline tmsg_map_t *map_of(const char *name, tmsg_dtype_t dtype,
                                 int32_t ndim, const int64_t *shape,
                                 const int64_t *strides, void *data)
{
    tmsg_tensor_t tensor = {.data = data,
                            .device = {TMSG_DEVICE_CPU, 0},
                            .dtype = dtype,
                            .ndim = ndim,
                            .shape = shape,
                            .strides = strides};
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK, "%s",
                 tmsg_error_message());
    return map;
}

/* Adds the first tensor again and again, up to `count` tensors. */
static inline void add_copies(tmsg_map_t *map, const char *stem, int count)
{
    tmsg_tensor_t tensor;

    cr_assert_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_OK);
    for (int i = 1; i < count; i++) {
        char name[64];

        snprintf(name, sizeof(name), "%s%d", stem, i);
        cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
    }
}

static inline void expect_tensor(const tmsg_map_t *map, const char *name,
                                 const char *dtype, uint64_t bytes,
                                 const void *data)
{
    char text[TMSG_DTYPE_NAME_MAX];
    tmsg_tensor_t tensor;
    uint64_t got;
    char *packed;

    cr_assert_eq(tmsg_map_find(map, name, &tensor), TMSG_OK, "%s", name);
    tmsg_dtype_format(tensor.dtype, text, sizeof(text));
    cr_expect_str_eq(text, dtype, "%s: %s, not %s", name, text, dtype);
    cr_assert_eq(tmsg_tensor_bytes(&tensor, &got), TMSG_OK);
    cr_assert_eq(got, bytes, "%s: %llu bytes", name, (unsigned long long)got);
    packed = malloc(bytes + 1);
    cr_assert_eq(tmsg_tensor_pack(&tensor, packed), TMSG_OK);
    cr_expect(bytes == 0 || memcmp(packed, data, bytes) == 0, "%s: other data",
              name);
    free(packed);
}

#endif
