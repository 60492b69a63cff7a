/* SPDX-License-Identifier: BSD-3-Clause */
/* Files on a system that fails: each system call that loading and saving make
 * is made here, and fails when it is told to. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "test_file_tools.h"

#define ALWAYS 1000

typedef enum {
    NOTHING = 0,
    ACCESS = 1 << 0,
    OPEN = 1 << 1,
    OPEN_UNNAMED = 1 << 2,
    OPEN_NEW = 1 << 3,
    OPEN_FOLDER = 1 << 4,
    RANDOM = 1 << 5,
    WRITE = 1 << 6,
    FLUSH = 1 << 7,
    LINK = 1 << 8,       /* of a file without a name */
    LINK_NAMED = 1 << 9, /* of one that has another */
    RENAME_NEW = 1 << 10,
    COPY = 1 << 11,
    MAP_WRITABLE = 1 << 12,
    MAP_AT_ALL = 1 << 13,
    STATE = 1 << 14,
    READ = 1 << 15
} call_t;

/* These calls (call_t, any of them) fail so often, with that errno, after so
 * many that did not; WRITE with 0 writes nothing. */
static struct {
    unsigned calls;
    int after;
    int times;
    int error;
} failing;

static bool fails(call_t call)
{
    if ((failing.calls & call) == 0 || failing.after-- > 0 ||
        failing.times == 0) {
        return false;
    }
    failing.after = 0;
    failing.times--;
    errno = failing.error;
    return true;
}

static void fail(unsigned calls, int times, int error)
{
    failing.calls = calls;
    failing.after = 0;
    failing.times = times;
    failing.error = error;
}

int access(const char *path, int mode)
{
    return fails(ACCESS) ? -1
                         : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode, 0);
}

int open(const char *path, int flags, ...)
{
    call_t call = (flags & O_TMPFILE) == O_TMPFILE ? OPEN_UNNAMED
                  : flags & O_CREAT                ? OPEN_NEW
                  : flags & O_DIRECTORY            ? OPEN_FOLDER
                                                   : OPEN;
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = call == OPEN_UNNAMED || call == OPEN_NEW ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(call) ? -1
                       : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t getrandom(void *data, size_t bytes, unsigned flags)
{
    return fails(RANDOM) ? -1 : syscall(SYS_getrandom, data, bytes, flags);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (fails(WRITE)) {
        return failing.error == 0 ? 0 : -1;
    }
    return syscall(SYS_pwrite64, fd, data, bytes, at);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    return fails(READ) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

int fsync(int fd) { return fails(FLUSH) ? -1 : (int)syscall(SYS_fsync, fd); }

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return fails(LINK)
               ? -1
               : (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to)
{
    return fails(LINK_NAMED)
               ? -1
               : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to,
              unsigned flags)
{
    return fails(RENAME_NEW)
               ? -1
               : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
    return fails(COPY) ? -1 : syscall(SYS_sendfile, to, from, offset, count);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd,
           off_t offset)
{
    if (fd >= 0 && (fails(MAP_AT_ALL) ||
                    (protection & PROT_WRITE && fails(MAP_WRITABLE)))) {
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

int fstat(int fd, struct stat *about)
{
    return fails(STATE)
               ? -1
               : (int)syscall(SYS_newfstatat, fd, "", about, AT_EMPTY_PATH);
}

static const tmsg_dtype_t uint8 = {TMSG_DTYPE_UINT, 8, 1};
static uint8_t bytes[1 << 20] = {1, 2, 3};

static tmsg_map_t *make_map(int64_t count)
{
    return map_of("array", uint8, 1, &count, NULL, bytes);
}

/* Saves with that failure; whatever comes of it, nothing lies beside it. */
static void expect_save(const char *row, unsigned flags, tmsg_status_t wanted,
                        const char *words)
{
    const char *path = scratch_path("a.npy");
    tmsg_map_t *map = make_map(3);
    tmsg_status_t got;

    got = tmsg_file_save(
        map, path,
        &(tmsg_file_save_params_t){.field_mask = TMSG_FILE_SAVE_PARAM_FLAGS,
                                   .flags = flags});
    failing.calls = NOTHING;
    cr_expect(got == wanted, "%s: %s '%s', not %s", row, tmsg_status_name(got),
              tmsg_error_message(), tmsg_status_name(wanted));
    if (got != TMSG_OK) {
        cr_expect_not_null(strstr(tmsg_error_message(), words), "%s: '%s'", row,
                           tmsg_error_message());
    }
    cr_expect_eq(count_scratch(), got == TMSG_OK, "%s: left", row);
    tmsg_map_destroy(map);
    if (got == TMSG_OK) {
        map = load_ok(path);
        expect_tensor(map, "array", "uint8", 3, bytes);
        tmsg_map_destroy(map);
        unlink(path);
    }
}

static const struct {
    const char *row;
    unsigned calls;
    int times;
    int error;
    tmsg_status_t wanted;
    const char *words;
} saves[] = {
    {"all is well", NOTHING, 0, 0, TMSG_OK, ""},
    {"no /proc", ACCESS, ALWAYS, ENOENT, TMSG_OK, ""},
    {"no unnamed files", OPEN_UNNAMED, ALWAYS, EOPNOTSUPP, TMSG_OK, ""},
    {"no random numbers", RANDOM, ALWAYS, EAGAIN, TMSG_OK, ""},
    {"the folder cannot be flushed", OPEN_FOLDER, 1, EACCES, TMSG_OK, ""},
    {"a write that is interrupted", WRITE, 3, EINTR, TMSG_OK, ""},
    {"a write of nothing", WRITE, 1, 0, TMSG_ERR_IO, "No space left"},
    {"a full disk", WRITE, 1, ENOSPC, TMSG_ERR_IO, "No space left"},
    {"a bad disk", WRITE, 1, EIO, TMSG_ERR_IO, "write at byte 0"},
    {"a flush that fails", FLUSH, 1, EIO, TMSG_ERR_IO, "flush"},
    {"no links of what has no name", LINK, ALWAYS, EPERM, TMSG_OK, ""},
    {"nor renaming to what is new", LINK | RENAME_NEW, ALWAYS, EINVAL, TMSG_OK,
     ""},
    {"nor any links", LINK | RENAME_NEW | LINK_NAMED, ALWAYS, ENOSYS, TMSG_OK,
     ""},
    {"a copy that is interrupted", LINK | COPY, 3, EPERM, TMSG_ERR_IO,
     "rename"},
    {"neither links nor new files", LINK | OPEN_NEW, ALWAYS, EPERM, TMSG_ERR_IO,
     "rename"},
    {"no new files at all", OPEN_UNNAMED | OPEN_NEW, ALWAYS, EROFS, TMSG_ERR_IO,
     "create"},
};

#define SAVES (sizeof(saves) / sizeof(saves[0]))

Test(file_system, saving_succeeds_or_leaves_nothing, .init = make_scratch,
     .fini = drop_scratch)
{
    for (size_t i = 0; i < SAVES; i++) {
        for (unsigned flags = 0; flags <= TMSG_SAVE_OVERWRITE; flags++) {
            fail(saves[i].calls, saves[i].times, saves[i].error);
            expect_save(saves[i].row, flags, saves[i].wanted, saves[i].words);
        }
    }
}

/* The names that are tried beside the file's place. */
Test(file_system, names_that_are_taken_are_passed_over, .init = make_scratch,
     .fini = drop_scratch)
{
    fail(LINK, 15, EEXIST);
    expect_save("15 taken", TMSG_SAVE_OVERWRITE, TMSG_OK, "");
    fail(LINK, 16, EEXIST);
    expect_save("16 taken", TMSG_SAVE_OVERWRITE, TMSG_ERR_ALREADY_EXISTS,
                "rename");
}

Test(file_system, an_existing_file_is_kept_or_replaced, .init = make_scratch,
     .fini = drop_scratch)
{
    static const unsigned ways[] = {NOTHING, OPEN_UNNAMED,
                                    OPEN_UNNAMED | RENAME_NEW};
    tmsg_map_t *map = make_map(3);

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const char *path = write_scratch("a.npy", "mine", 4);
        tmsg_map_t *back;
        size_t size;
        char *kept;

        fail(ways[i], ALWAYS, EOPNOTSUPP);
        cr_expect_eq(tmsg_file_save(map, path, NULL), TMSG_ERR_ALREADY_EXISTS);
        kept = read_scratch(path, &size);
        cr_expect_str_eq(kept, "mine");
        free(kept);
        cr_expect_eq(count_scratch(), 1);
        fail(ways[i], ALWAYS, EOPNOTSUPP);
        save_ok(map, path);
        failing.calls = NOTHING;
        cr_expect_eq(count_scratch(), 1);
        back = load_ok(path);
        expect_tensor(back, "array", "uint8", 3, bytes);
        tmsg_map_destroy(back);
    }
    tmsg_map_destroy(map);
}

static const struct {
    const char *row;
    call_t call;
    int error;
    tmsg_status_t wanted;
    const char *words;
} loads[] = {
    {"is a circle of links", OPEN, ELOOP, TMSG_ERR_IO, "symbolic links"},
    {"a writable mapping is charged", MAP_WRITABLE, ENOMEM, TMSG_OK, ""},
    {"no room to map", MAP_AT_ALL, ENOMEM, TMSG_ERR_NO_MEMORY, "map 131 bytes"},
    {"may not be mapped", MAP_AT_ALL, EACCES, TMSG_ERR_IO, "map 131 bytes"},
    {"has no size", STATE, EIO, TMSG_ERR_IO, "stat"},
    {"a read that is interrupted", READ, EINTR, TMSG_OK, ""},
    {"cannot be read", READ, EIO, TMSG_ERR_IO, "read: Input/output error"},
};

#define LOADS (sizeof(loads) / sizeof(loads[0]))

Test(file_system, loading_says_what_failed, .init = make_scratch,
     .fini = drop_scratch)
{
    const char *path = scratch_path("a.npy");
    tmsg_map_t *map = make_map(3), *back;

    save_ok(map, path);
    tmsg_map_destroy(map);
    for (size_t i = 0; i < LOADS; i++) {
        fail(loads[i].call, ALWAYS, loads[i].error);
        if (loads[i].wanted == TMSG_OK) {
            back = load_ok(path);
            expect_tensor(back, "array", "uint8", 3, bytes);
            tmsg_map_destroy(back);
        } else {
            expect_refused(loads[i].row, path, loads[i].wanted, loads[i].words);
        }
        failing.calls = NOTHING;
    }
}

/* Each read fails in turn, those that libzip asks for, too. */
Test(file_system, loading_fails_at_every_read, .init = make_scratch,
     .fini = drop_scratch)
{
    static const char *const names[] = {"a.npy", "a.npz", "a.safetensors"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *path = scratch_path(names[i]);
        tmsg_map_t *map = make_map(3);
        tmsg_status_t status;
        int reads = 0;

        save_ok(map, path);
        do {
            tmsg_map_destroy(map);
            map = NULL;
            fail(READ, 1, EIO);
            failing.after = reads++;
            status = tmsg_file_load(path, NULL, &map);
            cr_expect(failing.times == 1 || status == TMSG_ERR_IO,
                      "%s, read %d: %s '%s'", names[i], reads,
                      tmsg_status_name(status), tmsg_error_message());
        } while (failing.times == 0);
        failing.calls = NOTHING;
        cr_expect_eq(status, TMSG_OK, "%s: '%s'", names[i],
                     tmsg_error_message());
        cr_expect_gt(reads, 2, "%s: %d reads", names[i], reads);
        tmsg_map_destroy(map);
    }
}

/* One tensor beyond the buffer, one that is packed on the way, and so many
 * names that the headers are beyond it, too. */
static tmsg_map_t *make_large_map(void)
{
    static const int64_t shape[] = {2, 1 << 18}, strides[] = {1, 2};
    const tmsg_tensor_t wide = {bytes,  {TMSG_DEVICE_CPU, 0}, uint8, 2, shape,
                                strides};
    char stem[3000] = "";
    tmsg_map_t *map = make_map(sizeof(bytes) / 2);
    tmsg_map_t *one = make_map(3);
    tmsg_tensor_t small;

    cr_assert_eq(tmsg_map_at(one, 0, NULL, &small), TMSG_OK);
    memset(stem, 'n', sizeof(stem) - 1);
    for (int i = 0; i < 100; i++) {
        char name[sizeof(stem) + 16];

        snprintf(name, sizeof(name), "%s%d", stem, i);
        cr_assert_eq(tmsg_map_add(map, name, &small, NULL), TMSG_OK);
    }
    tmsg_map_destroy(one);
    cr_assert_eq(tmsg_map_add(map, "wide", &wide, NULL), TMSG_OK);
    return map;
}

/* Each write of a large file fails in turn: the 1st, the 2nd, ... */
static void fail_each_write(const char *name, const tmsg_map_t *map, int error)
{
    const char *path = scratch_path(name);
    tmsg_status_t status;
    int writes = 0;

    do {
        fail(WRITE, 1, error);
        failing.after = writes;
        status = tmsg_file_save(map, path, NULL);
        if (failing.times == 0) {
            cr_expect_eq(status, TMSG_ERR_IO, "%s, write %d: %s", name, writes,
                         tmsg_status_name(status));
            cr_expect_eq(count_scratch(), 0, "%s, write %d", name, writes);
            writes++;
        }
    } while (failing.times == 0);
    failing.calls = NOTHING;
    cr_expect_eq(status, TMSG_OK, "%s: '%s'", name, tmsg_error_message());
    cr_expect_gt(writes, 2, "%s: %d writes", name, writes);
    unlink(path);
}

Test(file_system, large_files_fail_at_every_write, .init = make_scratch,
     .fini = drop_scratch)
{
    static const int64_t shape[] = {2, 1 << 18}, strides[] = {1, 4};
    tmsg_map_t *map = make_large_map();
    tmsg_map_t *one = map_of("a", uint8, 2, shape, strides, bytes);

    for (int error = 0; error <= EIO; error += EIO) {
        fail_each_write("a.safetensors", map, error);
        fail_each_write("a.npz", map, error);
        fail_each_write("a.npy", one, error);
    }
    tmsg_map_destroy(one);
    tmsg_map_destroy(map);
}

/* Only the end of a long path is told, and never half a character. */
Test(file_system, a_long_path_is_told_by_its_end, .init = make_scratch,
     .fini = drop_scratch)
{
    char path[4096] = "";
    tmsg_map_t *map = NULL;

    for (int i = 0; i < 600; i++) {
        strcat(path, "/\xe5\xb1\xa4");
    }
    strcat(path, "/nobodys.npy");
    for (int i = 0; i < 4; i++) { /* each of the four bytes is the first */
        cr_expect_eq(tmsg_file_load(path + i, NULL, &map), TMSG_ERR_NOT_FOUND);
        cr_expect_not_null(strstr(tmsg_error_message(), "nobodys"));
        cr_expect(tmsg_error_message()[0] == '/' ||
                      tmsg_error_message()[0] == '\xe5',
                  "%d: '%s'", i, tmsg_error_message());
        strcpy(path + strlen(path) - 4, "s.npy");
    }
}
