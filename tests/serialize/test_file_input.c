/* SPDX-License-Identifier: BSD-3-Clause */
/* What a format's reader hands over is checked once more, for all formats. */
#include "test_file_tools.h"

#include "core/limits.h"
#include "core/map.h"
#include "serialize/file.h"
#include "support/must.h"

static double data[8];

static tmsg_tensor_t tensor_of(int32_t ndim, const int64_t *shape,
                               tmsg_dtype_t dtype)
{
    return (tmsg_tensor_t){.data = data,
                           .device = {TMSG_DEVICE_CPU, 0},
                           .dtype = dtype,
                           .ndim = ndim,
                           .shape = shape};
}

static tmsg_file_input_t open_input(void)
{
    tmsg_file_input_t input = {
        .where = {.path = "x.npy", .part = "tensor", .name = "a"}};

    input.limits = tmsg_limits_usual();
    must(tmsg_map_create(&input.map));
    return input;
}

static const int64_t good[] = {2, 2, 2}, negative[] = {-1},
                     vast[] = {INT64_MAX, INT64_MAX};
static const tmsg_dtype_t f64 = {TMSG_DTYPE_FLOAT, 64, 1},
                          none = {TMSG_DTYPE_FLOAT, 63, 1};

static const struct {
    const char *row, *name;
    int32_t ndim;
    const int64_t *shape;
    const tmsg_dtype_t *dtype;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"no name", "", 1, good, &f64, TMSG_ERR_UNSUPPORTED, "must have a name"},
    {"name too long", "nine bytes", 1, good, &f64, TMSG_ERR_LIMIT_EXCEEDED,
     "the name has 10 bytes, at most 9"},
    {"name not UTF-8", "\xff", 1, good, &f64, TMSG_ERR_MALFORMED,
     "the name is not UTF-8"},
    {"negative ndim", "a", -1, good, &f64, TMSG_ERR_MALFORMED, "ndim"},
    {"too many dimensions", "a", 3, good, &f64, TMSG_ERR_LIMIT_EXCEEDED,
     "3 dimensions, at most 2"},
    {"negative extent", "a", 1, negative, &f64, TMSG_ERR_MALFORMED, "-1"},
    {"product overflows", "a", 2, vast, &f64, TMSG_ERR_LIMIT_EXCEEDED,
     "overflows"},
    {"no such dtype", "a", 1, good, &none, TMSG_ERR_UNSUPPORTED, "63"},
    {"name taken", "taken", 1, good, &f64, TMSG_ERR_MALFORMED,
     "the name occurs twice"},
};

Test(file_input, refuses_by_name_what_no_map_may_hold)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tmsg_file_input_t input = open_input();
        tmsg_tensor_t taken = tensor_of(1, good, f64);
        tmsg_tensor_t tensor =
            tensor_of(bad[i].ndim, bad[i].shape, *bad[i].dtype);
        tmsg_status_t got;

        input.limits.name_bytes = 9;
        input.limits.ndim = 2;
        must(tmsg_file_add(&input, "taken", &taken, NULL, false));
        got = tmsg_file_add(&input, bad[i].name, &tensor, malloc(1), false);
        cr_expect_eq(got, bad[i].status, "%s: %s '%s'", bad[i].row,
                     tmsg_status_name(got), tmsg_error_message());
        must_say(tmsg_error_message(), bad[i].words);
        must_say(tmsg_error_message(), "x.npy: tensor 'a': ");
        cr_expect_eq(tmsg_map_size(input.map), 1);
        tmsg_map_destroy(input.map);
    }
}

/* The map itself takes no name of ours that is longer than 4096 bytes. */
Test(file_input, a_larger_limit_does_not_lengthen_names)
{
    static char name[4098];
    tmsg_file_input_t input = open_input();
    tmsg_tensor_t tensor = tensor_of(1, good, f64);

    memset(name, 'n', sizeof(name) - 1);
    input.limits.name_bytes = UINT64_MAX;
    must_be(tmsg_file_add(&input, name, &tensor, NULL, false),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "4097");
    tmsg_map_destroy(input.map);
}

/* Up to 64 MiB of a file are copied for the sake of alignment. */
Test(file_input, realigns_64_MiB_of_a_file_and_no_more)
{
    enum { MIB = 1 << 20 };
    static const struct {
        const char *row;
        uint64_t realigned; /* before it */
        uint64_t bytes;
        size_t offset;
        bool wanted;
    } rows[] = {
        {"aligned", 0, 64, 0, false},
        {"nothing", 0, 0, 1, false},
        {"small", 0, 64, 4, true},
        {"64 MiB", 0, 64 * MIB, 4, true},
        {"more", 0, 64 * MIB + 8, 4, false},
        {"the last of 64 MiB", 63 * MIB, MIB, 4, true},
        {"beyond it", 63 * MIB, MIB + 8, 4, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const tmsg_file_input_t input = {.realigned = rows[i].realigned};

        cr_expect_eq(tmsg_file_realigns(&input,
                                        (const char *)data + rows[i].offset,
                                        f64, rows[i].bytes),
                     rows[i].wanted, "%s", rows[i].row);
    }
}
