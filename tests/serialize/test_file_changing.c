/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that others write to, or cut, while they are loaded. malloc() and
 * fstat() are replaced by ones that do so in the midst of it. */
#include "test_file_tools.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "core/bytes.h"
#include "support/must.h"

#if defined(__SANITIZE_ADDRESS__)
#define REAL_MALLOC __interceptor_malloc
#else
#define REAL_MALLOC __libc_malloc
#endif

#define NAME_BYTES (1u << 17)
#define ESCAPE_BYTES 6u /* of one character, in the longer form */
#define FORM_BYTES (NAME_BYTES * ESCAPE_BYTES)
#define FORM_AT 10 /* in the file */
#define ROUNDS 100

TestSuite(file_changing, .init = make_scratch, .fini = drop_scratch);

/* Two texts of a file that have the same size. Both are written `at`. */
typedef struct {
    int fd;
    char *forms[2];
    size_t bytes;
    off_t at;
    atomic_bool done;
} writer_t;

static void write_form(const writer_t *writer, int form)
{
    must_eq(pwrite(writer->fd, writer->forms[form], writer->bytes, writer->at),
            (ssize_t)writer->bytes);
}

/* What happens at the first allocation of that size. */
static const writer_t *at_malloc;
static size_t at_malloc_bytes;

/* To how many bytes the file is cut once its size is known; -1: it is not. */
static off_t cut_to = -1;
static const char *cut_path;

void *REAL_MALLOC(size_t bytes);

/* The build hides symbols, and what is hidden takes no library's calls. */
#pragma GCC visibility push(default)

/* LeakSanitizer knows what ld.so keeps by its caller, which is now us. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:ld-linux\n"; }

void *malloc(size_t bytes)
{
    if (at_malloc != NULL && bytes == at_malloc_bytes) {
        write_form(at_malloc, 1);
        at_malloc = NULL;
    }
    return REAL_MALLOC(bytes);
}

int fstat(int fd, struct stat *about)
{
    int result = (int)syscall(SYS_newfstatat, fd, "", about, AT_EMPTY_PATH);

    if (result == 0 && cut_to >= 0) {
        must_eq(truncate(cut_path, cut_to), 0);
        cut_to = -1;
    }
    return result;
}

#pragma GCC visibility pop

/* A tensor's name, as escapes and as six times as many letters. */
static writer_t begin_names(void)
{
    static const char end[] =
        "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    writer_t writer = {.bytes = FORM_BYTES, .at = FORM_AT};
    size_t header = 2 + FORM_BYTES + strlen(end);
    char *file = malloc(FORM_AT + FORM_BYTES + sizeof(end));

    for (int i = 0; i < 2; i++) {
        writer.forms[i] = malloc(FORM_BYTES);
    }
    for (size_t i = 0; i < NAME_BYTES; i++) {
        memcpy(writer.forms[0] + i * ESCAPE_BYTES, "\\u0041", ESCAPE_BYTES);
    }
    memset(writer.forms[1], 'A', FORM_BYTES);
    tmsg_put_le((uint8_t *)file, header, 8);
    memcpy(file + 8, "{\"", 2);
    memcpy(file + FORM_AT, writer.forms[0], FORM_BYTES);
    memcpy(file + FORM_AT + FORM_BYTES, end, sizeof(end));
    write_scratch("x.safetensors", file, 8 + header);
    free(file);
    writer.fd = open(scratch_path("x.safetensors"), O_RDWR | O_CLOEXEC);
    return writer;
}

static void end_writer(const writer_t *writer)
{
    close(writer->fd);
    free(writer->forms[0]);
    free(writer->forms[1]);
}

/* The string is measured, memory is allocated for it, and it is copied. */
Test(file_changing, a_string_is_copied_as_it_was_measured)
{
    writer_t writer = begin_names();

    at_malloc_bytes = NAME_BYTES + 1;
    at_malloc = &writer;
    expect_refused("one name", scratch_path("x.safetensors"),
                   TMSG_ERR_LIMIT_EXCEEDED,
                   "the name has 131072 bytes, at most 4096");
    cr_expect_null(at_malloc, "nothing was written meanwhile");
    at_malloc = NULL;
    end_writer(&writer);
}

static void *write_on(void *arg)
{
    writer_t *writer = arg;

    for (int i = 0; !atomic_load(&writer->done); i++) {
        write_form(writer, i % 2);
    }
    return NULL;
}

/* Whatever is found there loads or is refused. */
static void load_meanwhile(const char *path, writer_t *writer)
{
    pthread_t thread;

    must_eq(pthread_create(&thread, NULL, write_on, writer), 0);
    for (int i = 0; i < ROUNDS; i++) {
        tmsg_map_t *map = NULL;

        if (tmsg_file_load(path, NULL, &map) != TMSG_OK) {
            must_say(tmsg_error_message(), path);
        }
        tmsg_map_destroy(map);
    }
    atomic_store(&writer->done, true);
    pthread_join(thread, NULL);
    end_writer(writer);
}

Test(file_changing, a_header_may_change_at_any_moment)
{
    writer_t writer = begin_names();

    load_meanwhile(scratch_path("x.safetensors"), &writer);
}

/* Saves a map of `count` tensors of that shape, and returns the file. */
static char *make_file(const char *name, int count, const int64_t shape[2],
                       size_t *bytes_p)
{
    static uint16_t data[720];
    const tmsg_dtype_t u16 = {TMSG_DTYPE_UINT, 16, 1};
    tmsg_map_t *map = map_of("a", u16, 2, shape, NULL, data);
    char *file;

    add_copies(map, "b", count);
    save_ok(map, scratch_path(name));
    tmsg_map_destroy(map);
    file = read_scratch(scratch_path(name), bytes_p);
    return file;
}

Test(file_changing, so_may_every_byte_of_a_file)
{
    static const int64_t shapes[2][2] = {{2, 30}, {30, 2}};
    static const struct {
        const char *name;
        int counts[2];
    } rows[] = {
        {"x.npy", {1, 1}}, {"x.npz", {1, 5}}, {"x.safetensors", {1, 5}}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        writer_t writer = {.at = 0};
        size_t bytes[2];

        for (int j = 0; j < 2; j++) {
            writer.forms[j] = make_file(rows[i].name, rows[i].counts[j],
                                        shapes[j], &bytes[j]);
        }
        writer.bytes = bytes[0] < bytes[1] ? bytes[0] : bytes[1];
        writer.fd = open(scratch_path(rows[i].name), O_RDWR | O_CLOEXEC);
        load_meanwhile(scratch_path(rows[i].name), &writer);
    }
}

/* A processor that read the mapping would be given a signal. */
Test(file_changing, a_file_that_is_cut_is_refused)
{
    static const int64_t shape[2] = {20, 30};
    static const char *const names[] = {"x.npy", "x.npz", "x.safetensors"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        static const off_t cuts[] = {0, 11, 60};

        for (size_t j = 0; j < sizeof(cuts) / sizeof(cuts[0]); j++) {
            size_t bytes;

            free(make_file(names[i], 1, shape, &bytes));
            cut_path = scratch_path(names[i]);
            cut_to = cuts[j];
            expect_refused(names[i], cut_path, TMSG_ERR_IO,
                           "was cut while it was read");
        }
    }
}

/* Its data would be copied to where they are aligned. */
Test(file_changing, a_file_that_is_cut_in_its_data_is_refused)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F64\",\"shape\":[1024],"
                                 "\"data_offsets\":[0,8192]}}";
    uint8_t file[8 + sizeof(header) - 1 + 8192] = {0};

    must_true((sizeof(header) - 1) % 8 != 0);
    tmsg_put_le(file, sizeof(header) - 1, 8);
    memcpy(file + 8, header, sizeof(header) - 1);
    cut_path = write_scratch("x.safetensors", file, sizeof(file));
    cut_to = 1000;
    expect_refused("data", cut_path, TMSG_ERR_IO,
                   "tensor 'a': was cut while it was read: it had 8260 bytes, "
                   "and byte 1000 is missing");
}
