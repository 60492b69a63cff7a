/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of UCXX's active messages, byte by byte as UCXX 0.52 lays it out
 * on a little-endian machine, and the maps that such messages are. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/ucxx.h"
#include "support/failing_alloc.h"
#include "support/must.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SHORTEST 5
#define CALLBACK 72 /* bytes */
#define FIXED 14

static tmsg_limits_t limits;

static void set_limits(void) { limits = tmsg_limits_usual(); }

TestSuite(ucxx, .init = set_limits);

/* A header as UCXX writes it, field by field. */
typedef struct {
    uint8_t bytes[512];
    size_t count;
} header_t;

static void put(header_t *header, const void *data, size_t count)
{
    memcpy(header->bytes + header->count, data, count);
    header->count += count;
}

static void put_number(header_t *header, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));

        put(header, &byte, 1);
    }
}

static header_t header_with(uint8_t policy, uint64_t length, const char *user)
{
    header_t header = {.count = 0};

    put_number(&header, 0, 4);
    put_number(&header, 0, 1);
    put_number(&header, policy, 1);
    put_number(&header, length, 8);
    put(&header, user, strlen(user));
    return header;
}

Test(ucxx, writes_what_ucxx_reads)
{
    const tmsg_ucxx_header_t header = {
        .policy = 1, .user = "ab", .user_bytes = 2};
    const header_t expected = header_with(1, 2, "ab");
    uint8_t bytes[FIXED + 2];

    must_eq(tmsg_ucxx_encode(&header, NULL, 0), sizeof(bytes));
    memset(bytes, 0xee, sizeof(bytes));
    must_eq(tmsg_ucxx_encode(&header, bytes, sizeof(bytes) - 1), sizeof(bytes));
    must_eq(bytes[0], 0xee);
    must_eq(tmsg_ucxx_encode(&header, bytes, sizeof(bytes)), sizeof(bytes));
    must_eq(expected.count, sizeof(bytes));
    cr_expect_arr_eq(bytes, expected.bytes, sizeof(bytes));
}

Test(ucxx, reads_every_form_of_the_header)
{
    tmsg_ucxx_header_t header;
    header_t full = {.count = 0};

    put_number(&full, 3, 4); /* some device */
    put_number(&full, 1, 1);
    for (int i = 0; i < CALLBACK; i++) {
        put_number(&full, 0xcc, 1);
    }
    put_number(&full, 1, 1);
    put_number(&full, 3, 8);
    put(&full, "usr", 3);
    put(&full, "newer fields", 12);
    must(tmsg_ucxx_decode(full.bytes, full.count, &header));
    must_eq(header.memory_type, 3);
    must_eq(header.policy, 1);
    must_eq(header.user_bytes, 3);
    must_eq(memcmp(header.user, "usr", 3), 0);
    /* Older writers end before the policy, or before the user header. */
    must(tmsg_ucxx_decode(full.bytes, SHORTEST + CALLBACK, &header));
    must_eq(header.policy, 0);
    must_eq(header.user_bytes, 0);
    must(tmsg_ucxx_decode(full.bytes, SHORTEST + CALLBACK + 1, &header));
    must_eq(header.policy, 1);
    must_eq(header.user_bytes, 0);
}

Test(ucxx, every_length_of_a_header_is_told_apart)
{
    const header_t whole = header_with(0, 4, "user");
    tmsg_ucxx_header_t header;

    for (size_t count = 0; count <= whole.count; count++) {
        uint8_t *copy = malloc(count + (count == 0)); /* for the sanitizer */
        bool good =
            count == SHORTEST || count == SHORTEST + 1 || count == whole.count;

        memcpy(copy, whole.bytes, count);
        must_be(tmsg_ucxx_decode(copy, count, &header),
                good ? TMSG_OK : TMSG_ERR_MALFORMED);
        free(copy);
    }
}

Test(ucxx, refuses_what_cannot_be)
{
    static const struct {
        size_t at;
        uint8_t byte;
        const char *words;
    } rows[] = {
        {4, 2, "neither 0 nor 1"},
        {4, 1, "ends inside the callback"},
        {5, 2, "policy 2 is neither 0 nor 1"},
        {6, 5, "a user header of 5 bytes, of which 4 are there"},
        {13, 0x80, "a user header of 9223372036854775812 bytes"},
        {13, 0xff, "a user header of 18374686479671623684 bytes"},
    };
    tmsg_ucxx_header_t header = {.policy = 9};

    for (size_t i = 0; i < COUNT(rows); i++) {
        header_t wrong = header_with(0, 4, "user");

        wrong.bytes[rows[i].at] = rows[i].byte;
        must_be(tmsg_ucxx_decode(wrong.bytes, wrong.count, &header),
                TMSG_ERR_MALFORMED);
        must_say(tmsg_error_message(), rows[i].words);
        must_eq(header.policy, 9);
    }
}

/* The map of a message; NULL user: it has no user header. */
static tmsg_status_t map_of(const char *user, uint64_t bytes, tmsg_map_t *map)
{
    const tmsg_ucxx_header_t header = {
        .user = user, .user_bytes = user == NULL ? 0 : strlen(user)};

    return tmsg_ucxx_to_map(&header, bytes, &limits, map);
}

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    return map;
}

static void expect_header(const tmsg_map_t *map, const char *user)
{
    const void *data;
    size_t bytes;

    if (user == NULL) {
        must_eq(tmsg_map_meta_size(map), 0);
        return;
    }
    must_eq(tmsg_map_meta_size(map), 1);
    must(tmsg_map_get_bytes(map, TMSG_META_UCXX_HEADER, &data, &bytes));
    must_eq(bytes, strlen(user));
    must_eq(memcmp(data, user, bytes), 0);
}

Test(ucxx, other_words_leave_the_bytes_as_they_are)
{
    static const char *const rows[] = {
        NULL,
        "\x01\x02",
        "plain words",
        "{",
        "[1, 2]",
        "\"dtype shape\"",
        "{\"frame\": 7}",
        "{\"dtype\": \"float32\"}",
        "{\"shape\": [2]}",
        "{\"dtype\": \"float32\", \"shape\": [2]} and more",
        "{\"dtype\": \"float32\", \"shape\": [2",
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        tmsg_tensor_t tensor;

        must(map_of(rows[i], 8, map));
        must_eq(tmsg_map_size(map), 1);
        must(tmsg_map_find(map, "data", &tensor));
        must_eq(tensor.ndim, 1);
        must_eq(tensor.shape[0], 8);
        must_eq(tensor.dtype.code, TMSG_DTYPE_UINT);
        must_eq(tensor.dtype.bits, 8);
        expect_header(map, rows[i]);
        tmsg_map_destroy(map);
    }
}

Test(ucxx, a_user_header_gives_the_tensor_its_shape)
{
    static const struct {
        const char *user;
        uint64_t bytes;
        const char *name;
        const char *dtype;
        int32_t ndim;
        int64_t shape[4];
    } rows[] = {
        {"{\"dtype\":\"float32\",\"shape\":[4,256,256]}",
         4u << 18,
         "data",
         "float32",
         3,
         {4, 256, 256}},
        {" {\"shape\":[],\"dtype\":\"bfloat16\",\"name\":\"x\"} \r\n",
         2,
         "x",
         "bfloat16",
         0,
         {0}},
        {"{\"dtype\":\"int64\",\"shape\":[3,0],\"frame\":17}",
         0,
         "data",
         "int64",
         2,
         {3, 0}},
        {"{\"dtype\":\"uint4\",\"shape\":[3]}", 2, "data", "uint4", 1, {3}},
        {"{\"dtype\":\"float32x4\",\"shape\":[1e1],\"name\":\"\\u00e9\"}",
         160,
         "\xc3\xa9",
         "float32x4",
         1,
         {10}},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"\\\\u0000\"}",
         1,
         "\\u0000", /* a backslash, and u0000 */
         "int8",
         1,
         {1}},
        {"{\"dtype\":\"bool\",\"shape\":[0,9007199254740991]}",
         0,
         "data",
         "bool",
         2,
         {0, 9007199254740991}},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        char dtype[TMSG_DTYPE_NAME_MAX];
        tmsg_tensor_t tensor;

        must(map_of(rows[i].user, rows[i].bytes, map));
        must_eq(tmsg_map_size(map), 1);
        must(tmsg_map_find(map, rows[i].name, &tensor));
        tmsg_dtype_format(tensor.dtype, dtype, sizeof(dtype));
        cr_expect_str_eq(dtype, rows[i].dtype);
        must_eq(tensor.ndim, rows[i].ndim);
        for (int32_t j = 0; j < tensor.ndim; j++) {
            must_eq(tensor.shape[j], rows[i].shape[j]);
        }
        must_eq(tensor.device.type, TMSG_DEVICE_CPU);
        expect_header(map, rows[i].user);
        tmsg_map_destroy(map);
    }
}

#define NESTED_64                                                              \
    "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"

Test(ucxx, a_user_header_that_does_not_fit_is_refused_by_name)
{
    static const struct {
        const char *user;
        uint64_t bytes;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"{\"dtype\":\"float32\",\"shape\":[2]}", 7, TMSG_ERR_MALFORMED,
         "'data' takes 8 bytes, the message has 7"},
        {"{\"dtype\":\"float32\",\"shape\":[2],\"name\":\"x\"}", 9,
         TMSG_ERR_MALFORMED, "'x' takes 8 bytes, the message has 9"},
        {"{\"dtype\":\"<f4\",\"shape\":[2]}", 8, TMSG_ERR_UNSUPPORTED,
         "unknown dtype '<f4'"},
        {"{\"dtype\":4,\"shape\":[2]}", 8, TMSG_ERR_MALFORMED,
         "dtype is not a string"},
        {"{\"dtype\":\"int8\",\"shape\":8}", 8, TMSG_ERR_MALFORMED,
         "shape is not an array"},
        {"{\"dtype\":\"int8\",\"shape\":[8,\"1\"]}", 8, TMSG_ERR_MALFORMED,
         "shape[1] is not a number"},
        {"{\"dtype\":\"int8\",\"shape\":[-8]}", 8, TMSG_ERR_MALFORMED,
         "shape[0] is negative"},
        {"{\"dtype\":\"int8\",\"shape\":[1.5]}", 8, TMSG_ERR_MALFORMED,
         "shape[0] is not an integer"},
        {"{\"dtype\":\"int8\",\"shape\":[0,9007199254740992]}", 0,
         TMSG_ERR_MALFORMED, "shape[1] is 2^53 or more"},
        {"{\"dtype\":\"int8\",\"shape\":[1e999]}", 0, TMSG_ERR_MALFORMED,
         "shape[0] is 2^53 or more"},
        {"{\"dtype\":\"int64\",\"shape\":[4503599627370496,4503599627370496]}",
         8, TMSG_ERR_LIMIT_EXCEEDED, "overflows"},
        {"{\"dtype\":\"int8\",\"shape\":[1," NESTED_64 "," NESTED_64 "]}", 1,
         TMSG_ERR_LIMIT_EXCEEDED, "ndim 65 exceeds 64"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"shape\":[1]}", 1,
         TMSG_ERR_MALFORMED, "occurs twice"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":1}", 1, TMSG_ERR_MALFORMED,
         "name is not a string"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"\"}", 1,
         TMSG_ERR_MALFORMED, "name is not a string"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"a\\u0000b\"}", 1,
         TMSG_ERR_MALFORMED, "holds NUL"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"\xff\"}", 1,
         TMSG_ERR_MALFORMED, "UTF-8"},
        {"{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"12345678\"}", 1,
         TMSG_ERR_LIMIT_EXCEEDED, "the name has 8 bytes, at most 7"},
    };

    limits.name_bytes = 7;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        tmsg_status_t status = map_of(rows[i].user, rows[i].bytes, map);

        cr_expect_eq(status, rows[i].status, "row %zu: %s", i,
                     tmsg_status_name(status));
        cr_expect(strstr(tmsg_error_message(), rows[i].words) != NULL,
                  "row %zu: '%s'", i, tmsg_error_message());
        must_eq(tmsg_map_size(map), 0);
        must_eq(tmsg_map_meta_size(map), 0);
        tmsg_map_destroy(map);
    }
}

Test(ucxx, a_string_that_is_cut_describes_nothing)
{
    static const char user[] =
        "{\"dtype\":\"int8\",\"shape\":[1],\"name\":\"a\0b\"}";
    const tmsg_ucxx_header_t header = {.user = user,
                                       .user_bytes = sizeof(user) - 1};
    tmsg_map_t *map = new_map();

    must_be(tmsg_ucxx_to_map(&header, 1, &limits, map), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "holds NUL");
    tmsg_map_destroy(map);
}

Test(ucxx, the_receivers_limits_hold)
{
    tmsg_map_t *map = new_map();

    limits.message_bytes = 10;
    must_be(map_of(NULL, 11, map), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "payload of 11 bytes, at most 10");
    must(map_of(NULL, 10, map));
    must(tmsg_map_clear(map));
    limits.metadata_bytes = 2;
    must_be(map_of("abc", 10, map), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "user header of 3 bytes, at most 2");
    must_eq(tmsg_map_size(map), 0);
    limits.ndim = 1;
    must_be(map_of("{\"dtype\":\"int8\",\"shape\":[2,5]}", 10, map),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "ndim 2 exceeds 1");
    tmsg_map_destroy(map);
}

static float floats[6];

static tmsg_map_t *map_of_floats(const char *name, int32_t ndim)
{
    static const int64_t shape[] = {2, 3};
    const tmsg_tensor_t tensor = {.data = floats,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .ndim = ndim,
                                  .dtype = {TMSG_DTYPE_FLOAT, 32, 1},
                                  .shape = (int64_t *)(uintptr_t)shape};
    tmsg_map_t *map = new_map();

    must(tmsg_map_add(map, name, &tensor, NULL));
    return map;
}

static void expect_user(const tmsg_map_t *map, const char *user)
{
    tmsg_ucxx_header_t header;
    uint8_t *bytes;
    size_t count;

    must(tmsg_ucxx_from_map(map, 1, &bytes, &count));
    must(tmsg_ucxx_decode(bytes, count, &header));
    must_eq(header.memory_type, TMSG_UCXX_HOST);
    must_eq(header.policy, 1);
    must_eq(header.user_bytes, strlen(user));
    cr_expect_arr_eq(header.user, user, strlen(user), "'%.*s'",
                     (int)header.user_bytes, (const char *)header.user);
    free(bytes);
}

Test(ucxx, a_map_describes_its_tensor)
{
    tmsg_map_t *map = map_of_floats("a \"name\"", 2);

    expect_user(map, "{\"name\":\"a \\\"name\\\"\",\"dtype\":\"float32\","
                     "\"shape\":[2,3]}");
    tmsg_map_destroy(map);
    map = map_of_floats("x", 0);
    expect_user(map, "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[]}");
    must(tmsg_map_set_bytes(map, TMSG_META_UCXX_HEADER, "mine", 4));
    expect_user(map, "mine");
    must(tmsg_map_set_bytes(map, TMSG_META_UCXX_HEADER, "", 0));
    expect_user(map, "");
    tmsg_map_destroy(map);
}

Test(ucxx, what_ucxx_has_no_room_for_is_refused_by_name)
{
    tmsg_map_t *map = new_map();
    uint8_t *bytes;
    size_t count;
    tmsg_tensor_t tensor;

    must_be(tmsg_ucxx_from_map(map, 0, &bytes, &count), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "a map of 0 tensors");
    tmsg_map_destroy(map);
    map = map_of_floats("x", 2);
    must(tmsg_map_find(map, "x", &tensor));
    must(tmsg_map_add(map, "y", &tensor, NULL));
    must_be(tmsg_ucxx_from_map(map, 0, &bytes, &count), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "a map of 2 tensors");
    must(tmsg_map_remove(map, "y"));
    must(tmsg_map_set_i64(map, "lot", 3));
    must_be(tmsg_ucxx_from_map(map, 0, &bytes, &count), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "metadata 'lot'");
    tmsg_map_destroy(map);
}

Test(ucxx, what_is_written_reads_back)
{
    tmsg_map_t *map = map_of_floats("weights", 2), *back = new_map();
    tmsg_ucxx_header_t header;
    tmsg_tensor_t tensor;
    uint8_t *bytes;
    size_t count;

    must(tmsg_ucxx_from_map(map, 0, &bytes, &count));
    must(tmsg_ucxx_decode(bytes, count, &header));
    must(tmsg_ucxx_to_map(&header, sizeof(floats), &limits, back));
    must(tmsg_map_find(back, "weights", &tensor));
    must_eq(tensor.ndim, 2);
    must_eq(tensor.shape[1], 3);
    must_eq(tensor.dtype.code, TMSG_DTYPE_FLOAT);
    free(bytes);
    tmsg_map_destroy(back);
    tmsg_map_destroy(map);
}

static tmsg_status_t there_and_back(const tmsg_map_t *map)
{
    tmsg_ucxx_header_t header;
    uint8_t *bytes;
    size_t count;
    tmsg_map_t *back;
    tmsg_status_t status = tmsg_ucxx_from_map(map, 0, &bytes, &count);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_map_create(&back);
    if (status == TMSG_OK) {
        must(tmsg_ucxx_decode(bytes, count, &header));
        status = tmsg_ucxx_to_map(&header, sizeof(floats), &limits, back);
        must_eq(tmsg_map_size(back), status == TMSG_OK);
        tmsg_map_destroy(back);
    }
    free(bytes);
    return status;
}

Test(ucxx, every_allocation_may_fail)
{
    tmsg_map_t *map = map_of_floats("weights", 2);
    unsigned long n = 0;
    bool failed;

    do {
        tmsg_status_t status;

        failing_alloc_arm(++n);
        status = there_and_back(map);
        failed = failing_alloc_disarm();
        must_be(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK);
    } while (failed);
    must_true(n > 10);
    tmsg_map_destroy(map);
}
