/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_file_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/tensor.h"
#include "serialize/file.h"

TestSuite(file_save, .init = make_scratch, .fini = drop_scratch);

static const char *const extensions[] = {"safetensors", "npz", "npy"};

static const tmsg_dtype_t uint8 = {TMSG_DTYPE_UINT, 8, 1};
static const int64_t shape[] = {5};

static tmsg_map_t *hello(void)
{
    static char data[] = "hello";

    return map_of("a", uint8, 1, shape, NULL, data);
}

static const char *path_of(const char *extension)
{
    char name[64];

    snprintf(name, sizeof(name), "a.%s", extension);
    return scratch_path(name);
}

Test(file_save, names_the_formats)
{
    cr_expect_str_eq(tmsg_file_format_name(TMSG_FILE_SAFETENSORS),
                     "safetensors");
    cr_expect_str_eq(tmsg_file_format_name(TMSG_FILE_NPZ), "npz");
    cr_expect_str_eq(tmsg_file_format_name(TMSG_FILE_NPY), "npy");
    cr_expect_null(tmsg_file_format_name(TMSG_FILE_AUTO));
    cr_expect_null(tmsg_file_format_name((tmsg_file_format_t)99));
    cr_expect_null(tmsg_file_format_name((tmsg_file_format_t)-1));
}

Test(file_save, finds_the_format_by_extension)
{
    const tmsg_file_save_params_t as_npz = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FORMAT, .format = TMSG_FILE_NPZ};
    const tmsg_file_load_params_t from_npz = {
        .field_mask = TMSG_FILE_LOAD_PARAM_FORMAT, .format = TMSG_FILE_NPZ};
    tmsg_map_t *map = hello();

    expect_save_refused(map, scratch_path("a.bin"), TMSG_ERR_UNSUPPORTED,
                        "the name does not end in .safetensors, .npz or .npy");
    expect_save_refused(map, scratch_path("npy"), TMSG_ERR_UNSUPPORTED,
                        "does not end in");
    expect_refused("unknown", scratch_path("a.pt"), TMSG_ERR_UNSUPPORTED,
                   "does not end in");
    save_ok(map, scratch_path("A.NPY"));
    cr_expect_eq(tmsg_file_save(map, scratch_path("a.bin"), &as_npz), TMSG_OK);
    tmsg_map_destroy(map);
    cr_expect_eq(tmsg_file_load(scratch_path("a.bin"), &from_npz, &map),
                 TMSG_OK);
    expect_tensor(map, "a", "uint8", 5, "hello");
    tmsg_map_destroy(map);
}

/* Each limit that counts, one below what the file has. */
Test(file_save, loads_within_the_limits_given)
{
    static const struct {
        tmsg_limits_t limits;
        const char *words;
    } rows[] = {
        {{.field_mask = TMSG_LIMIT_TENSORS, .tensors = 1}, "at most 1"},
        {{.field_mask = TMSG_LIMIT_NDIM, .ndim = 1},
         "tensor 'longer': 2 dimensions, at most 1"},
        {{.field_mask = TMSG_LIMIT_NAME_BYTES, .name_bytes = 5}, "at most 5"},
        {{.field_mask = TMSG_LIMIT_METADATA_BYTES, .metadata_bytes = 2},
         "__metadata__"},
        {{.field_mask = TMSG_LIMIT_METADATA_KEYS, .metadata_keys = 1},
         "__metadata__ has 2 keys, at most 1"},
    };
    static const int64_t row[] = {1, 5};
    const char *path = scratch_path("limits.safetensors");
    tmsg_map_t *map = hello();
    tmsg_tensor_t tensor;

    cr_assert_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_OK);
    tensor.ndim = 2;
    tensor.shape = row;
    cr_assert_eq(tmsg_map_add(map, "longer", &tensor, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_set_string(map, "k", "vv"), TMSG_OK);
    cr_assert_eq(tmsg_map_set_string(map, "l", ""), TMSG_OK);
    save_ok(map, path);
    tmsg_map_destroy(map);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_file_load_params_t params = {.field_mask =
                                              TMSG_FILE_LOAD_PARAM_LIMITS,
                                          .limits = &rows[i].limits};

        map = NULL;
        cr_expect_eq(tmsg_file_load(path, &params, &map),
                     TMSG_ERR_LIMIT_EXCEEDED, "row %zu", i);
        cr_expect_null(map);
        cr_expect_not_null(strstr(tmsg_error_message(), rows[i].words), "%s",
                           tmsg_error_message());
        params.limits = NULL; /* the defaults */
        cr_expect_eq(tmsg_file_load(path, &params, &map), TMSG_OK);
        tmsg_map_destroy(map);
    }
}

/* Saving refuses exactly the maps that loading with the same limits refuses. */
Test(file_save, writes_nothing_that_the_limits_refuse)
{
    static const struct {
        tmsg_limits_t limits;
        const char *formats, *words;
    } rows[] = {
        {{.field_mask = TMSG_LIMIT_TENSORS, .tensors = 1},
         "sz",
         "2 tensors, at most 1"},
        {{.field_mask = TMSG_LIMIT_NDIM, .ndim = 1},
         "sz",
         "tensor 'longer': 2 dimensions, at most 1"},
        {{.field_mask = TMSG_LIMIT_NAME_BYTES, .name_bytes = 5},
         "sz",
         "tensor 'longer': the name has 6 bytes, at most 5"},
        {{.field_mask = TMSG_LIMIT_NAME_BYTES, .name_bytes = 6},
         "s",
         "__metadata__ 'the key': the key has 7 bytes, at most 6"},
        {{.field_mask = TMSG_LIMIT_METADATA_KEYS, .metadata_keys = 1},
         "s",
         "__metadata__ has 2 keys, at most 1"},
        {{.field_mask = TMSG_LIMIT_METADATA_BYTES, .metadata_bytes = 11},
         "s",
         "__metadata__ has 12 bytes, at most 11"},
    };
    static const int64_t row[] = {1, 5};
    tmsg_map_t *map = hello(), *loaded;
    tmsg_tensor_t tensor;

    cr_assert_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_OK);
    tensor.ndim = 2;
    tensor.shape = row;
    cr_assert_eq(tmsg_map_add(map, "longer", &tensor, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_set_i64(map, "the key", 123), TMSG_OK);
    cr_assert_eq(tmsg_map_set_string(map, "k", "v"), TMSG_OK);
    /* These are not written and do not count. */
    cr_assert_eq(tmsg_map_set_bytes(map, "blob of bytes", "12345", 5), TMSG_OK);
    cr_assert_eq(tmsg_map_set_string(map, TMSG_META_FILE_NAME, "a"), TMSG_OK);
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const tmsg_limits_t *limits = &rows[i / 2].limits;
        const char *path = path_of(i % 2 ? "npz" : "safetensors");
        const tmsg_file_save_params_t save = {
            .field_mask = TMSG_FILE_SAVE_PARAM_LIMITS, .limits = limits};
        const tmsg_file_load_params_t load = {
            .field_mask = TMSG_FILE_LOAD_PARAM_LIMITS, .limits = limits};
        bool kept = strchr(rows[i / 2].formats, i % 2 ? 'z' : 's') != NULL;
        tmsg_status_t status = tmsg_file_save(map, path, &save);

        cr_expect_eq(status, kept ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK,
                     "row %zu: %s", i, tmsg_status_name(status));
        cr_expect(!kept || strstr(tmsg_error_message(), rows[i / 2].words),
                  "'%s', not '%s'", tmsg_error_message(), rows[i / 2].words);
        cr_expect_eq(count_scratch(), kept ? 0 : 1, "row %zu", i);
        save_ok(map, path); /* the defaults */
        status = tmsg_file_load(path, &load, &loaded);
        cr_expect_eq(status, kept ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK,
                     "row %zu: %s", i, tmsg_status_name(status));
        if (status == TMSG_OK) {
            tmsg_map_destroy(loaded);
        }
        unlink(path);
    }
    tmsg_map_destroy(map);
}

/* A .npy stores no name. */
Test(file_save, counts_no_name_that_is_not_kept)
{
    const tmsg_limits_t limits = {.field_mask =
                                      TMSG_LIMIT_NAME_BYTES | TMSG_LIMIT_NDIM,
                                  .name_bytes = 5,
                                  .ndim = 1};
    const tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_LIMITS, .limits = &limits};
    const int64_t two[] = {1, 5};
    tmsg_map_t *map =
        map_of("a longer name", uint8, 1, shape, NULL, (void *)"hello");

    cr_expect_eq(tmsg_file_save(map, scratch_path("a.npy"), &params), TMSG_OK,
                 "%s", tmsg_error_message());
    tmsg_map_destroy(map);
    map = map_of("a", uint8, 2, two, NULL, (void *)"hello");
    cr_expect_eq(tmsg_file_save(map, scratch_path("b.npy"), &params),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect_eq(count_scratch(), 1);
    tmsg_map_destroy(map);
}

/* Every odd name and shape either comes back or is refused by name. */
Test(file_save, loads_whatever_it_saves)
{
    static const int64_t vast[] = {0, INT64_MAX}, large[] = {1LL << 53, 0};
    static const int64_t ones[TMSG_NDIM_MAX] = {
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        int32_t ndim;
        const int64_t *shape;
    } shapes[] = {
        {0, NULL}, {1, shape}, {2, vast}, {2, large}, {TMSG_NDIM_MAX, ones}};
    static const char *const names[] = {" ",
                                        ".",
                                        "..",
                                        "/",
                                        "../../a",
                                        "a/",
                                        ".npy",
                                        "a.npy",
                                        "__metadata__ ",
                                        "a\x01",
                                        "\x1f\x7f",
                                        "\t\r\n",
                                        "C:\\a",
                                        "\"\\",
                                        "\xc3\xa9",
                                        "\xc2\x80",
                                        "\xef\xbb\xbf",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x98\xba",
                                        "array",
                                        "dtype",
                                        "%s%n",
                                        "*?"};
    size_t rows =
        sizeof(names) / sizeof(names[0]) + sizeof(shapes) / sizeof(shapes[0]);

    for (size_t i = 0; i < 3 * rows; i++) {
        const char *name =
            i / 3 < sizeof(names) / sizeof(names[0]) ? names[i / 3] : "a";
        size_t at = name[0] == 'a' && name[1] == '\0'
                        ? i / 3 - sizeof(names) / sizeof(names[0])
                        : 1;
        const char *path = path_of(extensions[i % 3]), *back;
        tmsg_map_t *map = map_of(name, uint8, shapes[at].ndim, shapes[at].shape,
                                 NULL, (void *)"hello");
        tmsg_map_t *loaded = NULL;
        tmsg_tensor_t tensor;

        if (tmsg_file_save(map, path, NULL) != TMSG_OK) {
            cr_expect_eq(count_scratch(), 0, "%s", name);
            cr_expect_not_null(strstr(tmsg_error_message(), "tensor '"));
            cr_expect((i % 3 > 0 && shapes[at].shape == vast) ||
                          (i % 3 == 1 && strpbrk(name, "\x01\x1f") != NULL),
                      "%s '%s': %s", extensions[i % 3], name,
                      tmsg_error_message());
        } else if (tmsg_file_load(path, NULL, &loaded) != TMSG_OK) {
            cr_expect(false, "%s '%s', ndim %d: %s", extensions[i % 3], name,
                      shapes[at].ndim, tmsg_error_message());
        } else {
            cr_assert_eq(tmsg_map_at(loaded, 0, &back, &tensor), TMSG_OK);
            cr_expect(i % 3 == 2 || strcmp(back, name) == 0, "%s: '%s' is '%s'",
                      extensions[i % 3], name, back);
            cr_expect_eq(tensor.ndim, shapes[at].ndim);
            cr_expect_eq(tensor.ndim == 0 ||
                             memcmp(tensor.shape, shapes[at].shape,
                                    (size_t)tensor.ndim * 8) == 0,
                         true);
            tmsg_map_destroy(loaded);
        }
        unlink(path);
        tmsg_map_destroy(map);
    }
}

/* The limit of the format is 100,000,000 bytes. */
Test(file_save, refuses_a_header_that_is_too_large)
{
    static char value[26 << 20];
    const tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_METADATA_BYTES,
                                  .metadata_bytes = 1 << 30};
    const tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_LIMITS, .limits = &limits};
    tmsg_map_t *map = hello();

    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(
            tmsg_map_set_string(map, (char[]){(char)('a' + i), 0}, value),
            TMSG_OK);
    }
    cr_expect_eq(tmsg_file_save(map, path_of("safetensors"), &params),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect_not_null(
        strstr(tmsg_error_message(), "more than 100000000 bytes"), "%s",
        tmsg_error_message());
    cr_expect_eq(count_scratch(), 0);
    tmsg_map_destroy(map);
}

Test(file_save, refuses_wrong_arguments)
{
    const tmsg_limits_t nothing = {.field_mask = TMSG_LIMIT_TENSORS};
    const tmsg_file_save_params_t saves[] = {
        {.field_mask = 1 << 3},
        {.field_mask = TMSG_FILE_SAVE_PARAM_LIMITS, .limits = &nothing},
        {.field_mask = TMSG_FILE_SAVE_PARAM_FORMAT, .format = 9},
        {.field_mask = TMSG_FILE_SAVE_PARAM_FLAGS, .flags = 2},
    };
    const tmsg_file_load_params_t loads[] = {
        {.field_mask = 1 << 2},
        {.field_mask = TMSG_FILE_LOAD_PARAM_FORMAT, .format = -1},
        {.field_mask = TMSG_FILE_LOAD_PARAM_LIMITS, .limits = &nothing},
    };
    tmsg_map_t *map = hello(), *loaded = NULL;
    const char *path = scratch_path("a.npy");

    cr_expect_eq(tmsg_file_save(NULL, path, NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_file_save(map, NULL, NULL), TMSG_ERR_INVALID_PARAM);
    for (size_t i = 0; i < sizeof(saves) / sizeof(saves[0]); i++) {
        cr_expect_eq(tmsg_file_save(map, path, &saves[i]),
                     TMSG_ERR_INVALID_PARAM, "save %zu", i);
    }
    cr_expect_eq(count_scratch(), 0);
    save_ok(map, path);
    cr_expect_eq(tmsg_file_load(NULL, NULL, &loaded), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_file_load(path, NULL, NULL), TMSG_ERR_INVALID_PARAM);
    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        cr_expect_eq(tmsg_file_load(path, &loads[i], &loaded),
                     TMSG_ERR_INVALID_PARAM, "load %zu", i);
    }
    cr_expect_null(loaded);
    tmsg_map_destroy(map);
}

Test(file_save, keeps_an_existing_file)
{
    tmsg_map_t *map = hello();

    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(extensions[i]);
        struct stat link_itself;
        size_t bytes;
        char *data;

        cr_assert_eq(tmsg_file_save(map, path, NULL), TMSG_OK);
        expect_save_refused(map, path, TMSG_ERR_ALREADY_EXISTS,
                            "exists already");
        cr_expect_eq(truncate(path, 3), 0);
        expect_save_refused(map, path, TMSG_ERR_ALREADY_EXISTS, "exists");
        data = read_scratch(path, &bytes);
        cr_expect_eq(bytes, 3);
        free(data);
        save_ok(map, path);
        tmsg_map_destroy(load_ok(path));

        unlink(path);
        cr_assert_eq(symlink("nowhere", path), 0);
        expect_save_refused(map, path, TMSG_ERR_ALREADY_EXISTS, "exists");
        cr_expect_eq(lstat(path, &link_itself), 0);
        cr_expect(S_ISLNK(link_itself.st_mode));
    }
    tmsg_map_destroy(map);
}

/* Has system calls fail for the rest of the process, as a file system or a
 * sandbox does that lacks them. */
static void forbid(int links, int renameat2_too, int unnamed)
{
    const struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_link
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_link, 6, 0),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 6, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 3, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, links),
        BPF_STMT(BPF_RET | BPF_K, renameat2_too),
        BPF_STMT(BPF_RET | BPF_K, unnamed),
    };
    const struct sock_fprog program = {
        .len = sizeof(filter) / sizeof(filter[0]),
        .filter = (struct sock_filter *)(uintptr_t)filter};

    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0,
                 "no seccomp: %m");
}

/* Whatever a file system or a sandbox lacks, a new file is written, an existing
 * one kept or replaced as told, and nothing stays behind. */
static void save_without(int links, int renames, int unnamed)
{
    tmsg_map_t *map = hello();

    forbid(links, renames, unnamed);
    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(extensions[i]);

        cr_expect_eq(tmsg_file_save(map, path, NULL), TMSG_OK, "%s",
                     tmsg_error_message());
        expect_save_refused(map, path, TMSG_ERR_ALREADY_EXISTS, "exists");
        save_ok(map, path);
        tmsg_map_destroy(load_ok(path));
        cr_expect_eq(count_scratch(), (int)i + 1, "something stayed behind");
    }
    tmsg_map_destroy(map);
}

#define ALLOW ((int)SECCOMP_RET_ALLOW)
#define FAIL(error) ((int)(SECCOMP_RET_ERRNO | (error)))

Test(file_save, without_unnamed_files_and_renameat2)
{
    save_without(ALLOW, FAIL(ENOSYS), FAIL(EOPNOTSUPP));
}

Test(file_save, without_unnamed_files_in_an_old_container)
{
    save_without(ALLOW, FAIL(EPERM), FAIL(EOPNOTSUPP));
}

Test(file_save, without_unnamed_files_renameat2_and_links)
{
    save_without(FAIL(EPERM), FAIL(EINVAL), FAIL(EOPNOTSUPP));
}

Test(file_save, without_renameat2_and_links_in_a_sandbox)
{
    save_without(FAIL(EOPNOTSUPP), FAIL(EPERM), FAIL(EISDIR));
}

Test(file_save, with_unnamed_files_that_cannot_be_linked)
{
    save_without(FAIL(EPERM), ALLOW, ALLOW);
}

Test(file_save, with_unnamed_files_and_nothing_else)
{
    save_without(FAIL(EPERM), FAIL(EPERM), ALLOW);
}

/* A file that comes to exist while ours is written is kept by the last resort,
 * too. */
Test(file_save, without_links_a_new_file_is_kept)
{
    const char *path = scratch_path("a.npy");
    tmsg_file_output_t output;
    char *data;
    size_t bytes;

    forbid(FAIL(EPERM), FAIL(EPERM), FAIL(EOPNOTSUPP));
    cr_assert_eq(tmsg_file_output_open(&output, path), TMSG_OK);
    cr_assert_eq(tmsg_file_write(&output, "ours", 4), TMSG_OK);
    write_scratch("a.npy", "theirs", 6);
    cr_expect_eq(tmsg_file_commit(&output, false), TMSG_ERR_ALREADY_EXISTS);
    tmsg_file_output_close(&output);
    data = read_scratch(path, &bytes);
    cr_expect_eq(bytes, 6);
    free(data);
    cr_expect_eq(count_scratch(), 1);
}

/* What a reader has mapped stays as it was. */
Test(file_save, replaces_a_file_that_is_in_use)
{
    for (size_t i = 0; i < 3; i++) {
        tmsg_map_t *map = hello(), *loaded;
        const char *path = path_of(extensions[i]);

        save_ok(map, path);
        tmsg_map_destroy(map);
        loaded = load_ok(path);
        save_ok(loaded, path);
        expect_tensor(loaded, i == 2 ? "array" : "a", "uint8", 5, "hello");
        tmsg_map_destroy(loaded);
    }
}

Test(file_save, leaves_the_file_alone_when_a_tensor_is_written_to)
{
    tmsg_map_t *map = hello();
    const char *path = scratch_path("a.npy");
    tmsg_tensor_t tensor;

    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    tmsg_map_find(map, "array", &tensor);
    memcpy(tensor.data, "J", 1);
    expect_tensor(map, "array", "uint8", 5, "Jello");
    tmsg_map_destroy(map);
    map = load_ok(path);
    expect_tensor(map, "array", "uint8", 5, "hello");
    tmsg_map_destroy(map);
}

Test(file_save, gives_a_file_the_usual_mode)
{
    tmsg_map_t *map = hello();
    const char *path = scratch_path("a.npy");
    struct stat about;

    umask(027);
    save_ok(map, path);
    cr_expect_eq(stat(path, &about), 0);
    cr_expect_eq(about.st_mode & 0777, 0640, "%o", about.st_mode);
    tmsg_map_destroy(map);
}

Test(file_save, fails_where_nothing_can_be_created)
{
    tmsg_map_t *map = hello();
    char path[512];

    snprintf(path, sizeof(path), "%s/no/such/a.npz", scratch);
    expect_save_refused(map, path, TMSG_ERR_NOT_FOUND,
                        "a.npz: create: No such file or directory");
    tmsg_map_destroy(map);
}

/* Stands for a full disk: the kernel refuses to write beyond a size. */
Test(file_save, leaves_nothing_when_the_disk_is_full)
{
    const int64_t large[] = {1 << 20};
    char *data = calloc(1, 1 << 20);
    tmsg_map_t *map = map_of("a", uint8, 1, large, NULL, data);
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 300000;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (size_t i = 0; i < 3; i++) {
        expect_save_refused(map, path_of(extensions[i]), TMSG_ERR_IO,
                            "File too large");
    }
    cr_expect_eq(count_scratch(), 0);
    tmsg_map_destroy(map);
    free(data);
}

/* The limit's signal kills it at the first byte. */
Test(file_save, leaves_nothing_when_it_is_killed)
{
    const struct rlimit none = {0, 0};
    tmsg_map_t *map = hello();

    for (size_t i = 0; i < 3; i++) {
        int status = 0;
        pid_t child = fork();

        if (child == 0) {
            setrlimit(RLIMIT_FSIZE, &none);
            tmsg_file_save(map, path_of(extensions[i]), NULL);
            _exit(0);
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
        cr_expect_eq(count_scratch(), 0);
    }
    tmsg_map_destroy(map);
}

Test(file_save, refuses_memory_that_is_not_the_CPUs)
{
    tmsg_map_t *map;
    tmsg_tensor_t tensor = {.data = (void *)64,
                            .device = {TMSG_DEVICE_CUDA, 0},
                            .dtype = uint8,
                            .ndim = 1,
                            .shape = shape};

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    cr_assert_eq(tmsg_map_add(map, "gpu", &tensor, NULL), TMSG_OK);
    for (size_t i = 0; i < 3; i++) {
        expect_save_refused(map, path_of(extensions[i]), TMSG_ERR_UNSUPPORTED,
                            "tensor 'gpu': is in memory of cuda:0");
    }
    tmsg_map_destroy(map);
}

/* Pinned memory is the CPU's, too. */
Test(file_save, takes_memory_that_is_pinned_for_CUDA)
{
    static uint8_t data[8] = {1, 2, 3};
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = {TMSG_DEVICE_CUDA_HOST, 0},
                                  .dtype = uint8,
                                  .ndim = 1,
                                  .shape = shape};

    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(extensions[i]);
        const char *name;
        tmsg_map_t *map;

        cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
        cr_assert_eq(tmsg_map_add(map, "pinned", &tensor, NULL), TMSG_OK);
        save_ok(map, path);
        tmsg_map_destroy(map);
        map = load_ok(path);
        cr_assert_eq(tmsg_map_at(map, 0, &name, NULL), TMSG_OK);
        expect_tensor(map, name, "uint8", (uint64_t)shape[0], data);
        tmsg_map_destroy(map);
    }
}

/* The first of two is named, and nothing is left behind. */
Test(file_save, names_the_first_tensor_that_it_cannot_hold)
{
    static const int64_t vast[] = {0, 1LL << 62, 4};
    const tmsg_dtype_t int4 = {TMSG_DTYPE_INT, 4, 1};
    tmsg_map_t *map;

    for (size_t i = 0; i < 3; i++) {
        map = map_of("b0", int4, 1, shape, NULL, (void *)64);

        add_copies(map, "b", 3);
        expect_save_refused(map, path_of(extensions[i]), TMSG_ERR_UNSUPPORTED,
                            "tensor 'b0': a .");
        tmsg_map_destroy(map);
    }
    map = map_of("b0", uint8, 3, vast, NULL, NULL);
    add_copies(map, "b", 3);
    expect_save_refused(map, path_of("npz"), TMSG_ERR_LIMIT_EXCEEDED,
                        "tensor 'b0': shape");
    tmsg_map_destroy(map);
}

Test(file_save, loads_no_folders_pipes_or_missing_files)
{
    const char *path = scratch_path("a.npy");

    expect_refused("missing", path, TMSG_ERR_NOT_FOUND,
                   "No such file or directory");
    mkfifo(path, 0600);
    expect_refused("pipe", path, TMSG_ERR_UNSUPPORTED, "is not a regular file");
    unlink(path);
    mkdir(path, 0700);
    expect_refused("folder", path, TMSG_ERR_UNSUPPORTED,
                   "is not a regular file");
    rmdir(path);
}

/* More than a buffer holds; an extent of 1 with a stride that means nothing. */
Test(file_save, packs_in_pieces)
{
    enum { ROWS = 300, COLUMNS = 700, BYTES = ROWS * COLUMNS * 3 * 2 };
    static uint16_t data[ROWS * COLUMNS * 4];
    static char packed[BYTES];
    const tmsg_dtype_t uint16 = {TMSG_DTYPE_UINT, 16, 1};
    const int64_t rgb[] = {ROWS, 1, COLUMNS, 3};
    const int64_t strides[] = {-4 * COLUMNS, INT64_MAX, 4, 1};
    tmsg_tensor_t tensor;
    tmsg_map_t *map;

    for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++) {
        data[i] = (uint16_t)(i * 40503u >> 3);
    }
    map = map_of("a", uint16, 4, rgb, strides, data + 4 * COLUMNS * (ROWS - 1));
    cr_assert_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_OK);
    cr_assert_eq(tmsg_tensor_pack(&tensor, packed), TMSG_OK);
    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(extensions[i]);
        tmsg_map_t *loaded;

        save_ok(map, path);
        loaded = load_ok(path);
        expect_tensor(loaded, i == 2 ? "array" : "a", "uint16", BYTES, packed);
        tmsg_map_destroy(loaded);
    }
    tmsg_map_destroy(map);
}

/* A file has no strides but Fortran's: each element is there as often as it is
 * in the tensor. */
Test(file_save, writes_out_what_is_broadcast)
{
    static const int64_t wide[] = {300, 7, 11};
    static const int64_t rows[] = {0, 11, 1}, one[] = {0, 0, 0};
    static const int64_t columns[] = {1, 300, 0};
    static const int64_t *const strides[] = {rows, one, columns};
    static uint8_t data[300 * 7], packed[300 * 7 * 11];
    tmsg_tensor_t tensor;

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7);
    }
    for (size_t i = 0; i < 9; i++) {
        const char *path = path_of(extensions[i % 3]);
        tmsg_map_t *map = map_of("a", uint8, 3, wide, strides[i / 3], data);
        tmsg_map_t *loaded;

        if (i % 3 != 2) {
            add_copies(map, "b", 2);
        }
        cr_assert_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_OK);
        cr_assert_eq(tmsg_tensor_pack(&tensor, packed), TMSG_OK);
        save_ok(map, path);
        loaded = load_ok(path);
        expect_tensor(loaded, i % 3 == 2 ? "array" : "a", "uint8",
                      sizeof(packed), packed);
        tmsg_map_destroy(loaded);
        tmsg_map_destroy(map);
    }
}

Test(file_save, tells_where_a_map_came_from)
{
    tmsg_map_t *map = hello();

    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(extensions[i]), *text;
        tmsg_map_t *loaded;

        save_ok(map, path);
        loaded = load_ok(path);
        cr_expect_eq(tmsg_map_get_string(loaded, TMSG_META_FILE_NAME, &text),
                     TMSG_OK);
        cr_expect_str_eq(text, strrchr(path, '/') + 1);
        cr_expect_eq(tmsg_map_get_string(loaded, TMSG_META_FILE_FORMAT, &text),
                     TMSG_OK);
        cr_expect_str_eq(text, extensions[i]);
        tmsg_map_destroy(loaded);
    }
    tmsg_map_destroy(map);
}

Test(file_save, keeps_names_that_are_not_UTF8_to_itself)
{
    tmsg_map_t *map = hello();
    const char *path = scratch_path("\xff.npy"), *text;

    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    cr_expect_eq(tmsg_map_get_string(map, TMSG_META_FILE_NAME, &text),
                 TMSG_ERR_NOT_FOUND);
    tmsg_map_destroy(map);
}

/* Errors must say what and why even where names are long. */
Test(file_save, shortens_long_names_in_errors)
{
    char long_name[4097] = "";
    tmsg_dtype_t dtype = {TMSG_DTYPE_INT, 4, 1};
    char data[8] = {0};
    tmsg_map_t *map;

    for (int i = 0; i < 2048; i++) {
        strcat(long_name, "\xc3\xa9");
    }
    map = map_of(long_name, dtype, 1, shape, NULL, data);
    expect_save_refused(map, scratch_path("a.npz"), TMSG_ERR_UNSUPPORTED,
                        "\xc3\xa9...': a .npz file cannot hold int4; no");
    tmsg_map_destroy(map);
}
