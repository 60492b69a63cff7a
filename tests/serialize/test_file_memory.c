/* SPDX-License-Identifier: BSD-3-Clause */
/* A file that is refused takes at most twice its header: the header, which is
 * mapped, and as much memory again. */
#include "test_file_tools.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/bytes.h"

#define TENSORS 20000
#define LARGE (1u << 20)     /* bytes of one oversized item */
#define SPARE (256ULL << 10) /* what malloc() keeps for itself */

TestSuite(file_memory, .init = make_scratch, .fini = drop_scratch);

/* Where the next part of the file goes. */
static char *file_at;

static void put(const char *text) { file_at = stpcpy(file_at, text); }

static void put_many(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += strlen(text)) {
        put(text);
    }
}

static char *begin_file(void)
{
    char *file = malloc(3 * LARGE);

    cr_assert_not_null(file);
    file_at = file + 8;
    put("{");
    return file;
}

/* Writes the shortest entries possible. */
static void put_tensors(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        file_at += sprintf(file_at,
                           "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[0],"
                           "\"data_offsets\":[0,0]}",
                           i == 0 ? "" : ",", i);
    }
}

static uint64_t mapped_now(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* AddressSanitizer's shadow takes terabytes of it: there is no limit then. */
static void set_address_space(struct rlimit limit, uint64_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    (void)bytes;
#else
    limit.rlim_cur = bytes;
#endif
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Loads with so much more address space; the mapped file counts. */
static tmsg_status_t load_within(const char *path, const tmsg_limits_t *limits,
                                 uint64_t bytes)
{
    const tmsg_file_load_params_t params = {
        .field_mask = TMSG_FILE_LOAD_PARAM_LIMITS, .limits = limits};
    struct rlimit usual;
    tmsg_map_t *map = NULL;
    tmsg_status_t status;

    cr_assert_eq(getrlimit(RLIMIT_AS, &usual), 0);
    set_address_space(usual, mapped_now() + bytes + SPARE);
    status = tmsg_file_load(path, &params, &map);
    cr_assert_eq(setrlimit(RLIMIT_AS, &usual), 0);
    tmsg_map_destroy(map);
    return status;
}

static void expect_cheap(const char *row, char *file,
                         const tmsg_limits_t *limits, tmsg_status_t wanted,
                         const char *words)
{
    uint64_t header = (uint64_t)(file_at - file) - 8;
    const char *path;
    tmsg_status_t status;

    tmsg_put_le((uint8_t *)file, header, 8);
    path = write_scratch("x.safetensors", file, header + 8);
    free(file);
    status = load_within(path, limits, 2 * header);
    cr_expect(status == wanted && strstr(tmsg_error_message(), words) != NULL,
              "%s: %s '%s'", row, tmsg_status_name(status),
              status == TMSG_OK ? "" : tmsg_error_message());
}

static const tmsg_limits_t usual = {.field_mask = 0};
static const tmsg_limits_t few = {.field_mask = TMSG_LIMIT_TENSORS,
                                  .tensors = TENSORS - 1};
static const tmsg_limits_t little = {.field_mask = TMSG_LIMIT_METADATA_BYTES,
                                     .metadata_bytes = 1 << 19};

/* The end of each header is wrong. */
Test(file_memory, many_tensors_cost_less_than_their_header)
{
    static const struct {
        const char *end;
        const tmsg_limits_t *limits;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"}", &few, TMSG_ERR_LIMIT_EXCEEDED, "20000 tensors, at most 19999"},
        {",\"x\":{\"dtype\":\"U7\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         &usual, TMSG_ERR_UNSUPPORTED, "tensor 'x': unknown dtype"},
        {",\"\\u0030\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
         "}",
         &usual, TMSG_ERR_MALFORMED, "tensor '0': the name occurs twice"},
        {",\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         &usual, TMSG_ERR_MALFORMED, "reach beyond the 0 bytes"},
        {",\"x\":{}}", &usual, TMSG_ERR_MALFORMED, "tensor 'x': no dtype"},
        {"}}", &usual, TMSG_ERR_MALFORMED, "a bracket closes nothing"},
        {"", &usual, TMSG_ERR_MALFORMED, "is not JSON"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *file = begin_file();

        put_tensors(TENSORS);
        put(rows[i].end);
        expect_cheap(rows[i].words, file, rows[i].limits, rows[i].status,
                     rows[i].words);
    }
}

Test(file_memory, one_large_thing_costs_less_than_the_header)
{
    static const struct {
        const char *before, *much, *after;
        const tmsg_limits_t *limits;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"\"a\":{\"shape\":[", "1,", "1]}}", &usual, TMSG_ERR_MALFORMED,
         "no dtype"},
        {"\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[", "1,",
         "1]}}", &usual, TMSG_ERR_LIMIT_EXCEEDED, "ndim 524289 exceeds 64"},
        {"\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[", "0,",
         "0]}}", &usual, TMSG_ERR_MALFORMED, "not an array of two"},
        {"\"a\":{\"dtype\":\"", "U", "\",\"shape\":[],\"data_offsets\":[]}}",
         &usual, TMSG_ERR_UNSUPPORTED, "unknown dtype 'UUU"},
        {"\"a\":{\"", "f", "\":1}}", &usual, TMSG_ERR_UNSUPPORTED,
         "unknown field 'fff"},
        {"\"", "n",
         "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", &usual,
         TMSG_ERR_LIMIT_EXCEEDED, "the name has 1048576 bytes, at most 4096"},
        {"\"", "\\u00e9", /* as two bytes */
         "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", &usual,
         TMSG_ERR_LIMIT_EXCEEDED, "the name has 349526 bytes, at most 4096"},
        {"\"a\":{", "\"dtype\":1,", "\"dtype\":1}}", &usual, TMSG_ERR_MALFORMED,
         "dtype occurs twice"},
        {"\"__metadata__\":{\"k\":\"", "v", "\"}}", &little,
         TMSG_ERR_LIMIT_EXCEEDED, "has 1048577 bytes, at most 524288"},
        {"\"__metadata__\":{\"k\":\"", "v", "\"},\"a\":{}}", &usual,
         TMSG_ERR_MALFORMED, "tensor 'a': no dtype"},
        {"\"__metadata__\":{", "\"\":\"\",", "\"k\":\"\"}}", &usual,
         TMSG_ERR_LIMIT_EXCEEDED, "174764 keys, at most 65536"},
        {"\"__metadata__\":[", "\"\",", "\"\"]}", &usual, TMSG_ERR_MALFORMED,
         "__metadata__ is not an object"},
        {"\"a\":[", "[],", "[]]}", &usual, TMSG_ERR_MALFORMED,
         "tensor 'a': is not an object"},
        {"\"a\":", "[", "", &usual, TMSG_ERR_MALFORMED, "nested too deep"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *file = begin_file();

        put(rows[i].before);
        put_many(rows[i].much, LARGE);
        put(rows[i].after);
        expect_cheap(rows[i].words, file, rows[i].limits, rows[i].status,
                     rows[i].words);
    }
}

/* The map takes memory of its own (docs/reference/files.md). */
Test(file_memory, a_file_that_is_loaded_costs_its_map)
{
    char *file = begin_file();
    uint64_t header;

    put_tensors(TENSORS);
    put("}");
    header = (uint64_t)(file_at - file) - 8;
    tmsg_put_le((uint8_t *)file, header, 8);
    write_scratch("x.safetensors", file, header + 8);
    free(file);
    cr_expect_eq(load_within(scratch_path("x.safetensors"), &usual,
                             header + 200 * TENSORS),
                 TMSG_OK, "%s", tmsg_error_message());
}

/* The directory lists members that do not exist, but the count is checked
 * first. */
Test(file_memory, members_are_counted_before_the_directory_is_read)
{
    enum { ENTRY = 46 + 1, END64 = 56, LOCATOR = 20, END = 22 };
    const size_t directory = (size_t)TENSORS * ENTRY;
    const size_t size = directory + END64 + LOCATOR + END;
    uint8_t *file = calloc(1, size), *at = file;
    tmsg_status_t status;

    for (int i = 0; i < TENSORS; i++, at += ENTRY) {
        memcpy(at, "PK\1\2", 4);
        tmsg_put_le(at + 28, 1, 2);
        at[46] = 'a';
    }
    memcpy(at, "PK\6\6", 4);
    tmsg_put_le(at + 4, END64 - 12, 8);
    tmsg_put_le(at + 24, TENSORS, 8);
    tmsg_put_le(at + 32, TENSORS, 8);
    tmsg_put_le(at + 40, directory, 8);
    at += END64;
    memcpy(at, "PK\6\7", 4);
    tmsg_put_le(at + 8, directory, 8);
    tmsg_put_le(at + 16, 1, 4);
    at += LOCATOR;
    memcpy(at, "PK\5\6", 4);
    memset(at + 8, 0xff, 12);
    write_scratch("x.npz", file, size);
    free(file);
    status = load_within(scratch_path("x.npz"), &few, size);
    cr_expect_eq(status, TMSG_ERR_LIMIT_EXCEEDED, "%s",
                 tmsg_status_name(status));
    cr_expect_not_null(
        strstr(tmsg_error_message(), "20000 members, at most 19999"), "%s",
        tmsg_error_message());
}
