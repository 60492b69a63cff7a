/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NO_STRIDE 987654321
/* clang-format off */
#define INT4 {TMSG_DTYPE_INT, 4, 1}
#define U8 {TMSG_DTYPE_UINT, 8, 1}
#define F32 {TMSG_DTYPE_FLOAT, 32, 1}
#define F64 {TMSG_DTYPE_FLOAT, 64, 1}
#define C128X65535 {TMSG_DTYPE_COMPLEX, 128, 65535}
#define NO_STRIDES {NO_STRIDE}
/* clang-format on */

static uint8_t somewhere[1]; /* data that nobody looks at */

typedef struct {
    const char *what;
    tmsg_dtype_t dtype;
    int32_t ndim;
    int64_t shape[4];
    int64_t strides[4];
} form_t;

static tmsg_tensor_t tensor_of(const form_t *form)
{
    return (tmsg_tensor_t){
        .data = somewhere,
        .device = {TMSG_DEVICE_CPU, 0},
        .dtype = form->dtype,
        .ndim = form->ndim,
        .shape = form->shape,
        .strides = form->strides[0] == NO_STRIDE ? NULL : form->strides};
}

Test(tensor, bytes_are_those_of_packed_elements)
{
    static const struct {
        form_t form;
        uint64_t bytes;
    } rows[] = {
        {{"0-d", F32, 0, {0}, NO_STRIDES}, 4},
        {{"0-d sub-byte", INT4, 0, {0}, NO_STRIDES}, 1},
        {{"1-d", F32, 1, {7}, NO_STRIDES}, 28},
        {{"3-d", U8, 3, {1080, 1920, 3}, NO_STRIDES}, 6220800},
        {{"empty", F32, 1, {0}, NO_STRIDES}, 0},
        {{"empty in front", F32, 3, {0, 5, 6}, NO_STRIDES}, 0},
        {{"empty behind", F32, 3, {5, 6, 0}, NO_STRIDES}, 0},
        {{"empty beside an overflow",
          F64,
          3,
          {INT64_MAX, INT64_MAX, 0},
          NO_STRIDES},
         0},
        {{"3 of 4 bits", INT4, 1, {3}, NO_STRIDES}, 2},
        {{"rows of 3 x 4 bits are not padded", INT4, 2, {2, 3}, NO_STRIDES}, 3},
        {{"9 of 1 bit", {TMSG_DTYPE_UINT, 1, 1}, 1, {9}, NO_STRIDES}, 2},
        {{"3 of 6 bits", {TMSG_DTYPE_FLOAT6_E2M3FN, 6, 1}, 1, {3}, NO_STRIDES},
         3},
        {{"lanes", {TMSG_DTYPE_FLOAT, 32, 4}, 1, {5}, NO_STRIDES}, 80},
        {{"sub-byte lanes", {TMSG_DTYPE_INT, 4, 3}, 1, {3}, NO_STRIDES}, 5},
        {{"the largest element", C128X65535, 0, {0}, NO_STRIDES}, 1048560},
        {{"strides do not count", F32, 2, {2, 3}, {0, 100}}, 24},
        {{"2^63 - 8 bits", U8, 1, {(1LL << 60) - 1}, NO_STRIDES},
         (1ULL << 60) - 1},
        {{"2^63 - 1 bits", {TMSG_DTYPE_UINT, 1, 1}, 1, {INT64_MAX}, NO_STRIDES},
         1ULL << 60},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tensor_t tensor = tensor_of(&rows[i].form);
        uint64_t bytes = 77;
        tmsg_status_t status = tmsg_tensor_bytes(&tensor, &bytes);

        cr_expect_eq(status, TMSG_OK, "%s: %s", rows[i].form.what,
                     tmsg_error_message());
        cr_expect_eq(bytes, rows[i].bytes, "%s: %lu bytes, not %lu",
                     rows[i].form.what, bytes, rows[i].bytes);
        status = tmsg_tensor_check(&tensor);
        cr_expect_eq(status, TMSG_OK, "%s: %s", rows[i].form.what,
                     tmsg_error_message());
    }
}

Test(tensor, refuses_what_is_not_a_shape)
{
    static const struct {
        form_t form;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {{"ndim -1", F32, -1, {0}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "ndim is negative (-1)"},
        {{"ndim INT32_MIN", F32, INT32_MIN, {0}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "ndim is negative (-2147483648)"},
        {{"ndim 65", F32, 65, {0}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "ndim 65 exceeds 64"},
        {{"ndim INT32_MAX", F32, INT32_MAX, {0}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "ndim 2147483647 exceeds 64"},
        {{"a negative extent", F32, 2, {3, -1}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "shape[1] is negative (-1)"},
        {{"a negative extent beside 0", F32, 2, {0, INT64_MIN}, NO_STRIDES},
         TMSG_ERR_INVALID_PARAM,
         "shape[1] is negative (-9223372036854775808)"},
        {{"no dtype", {99, 8, 1}, 1, {1}, NO_STRIDES},
         TMSG_ERR_UNSUPPORTED,
         "unknown dtype (code 99, bits 8)"},
        {{"no lanes", {TMSG_DTYPE_INT, 8, 0}, 1, {1}, NO_STRIDES},
         TMSG_ERR_UNSUPPORTED,
         "dtype has 0 lanes"},
        {{"no dtype, though empty", {99, 8, 1}, 1, {0}, NO_STRIDES},
         TMSG_ERR_UNSUPPORTED,
         "unknown dtype (code 99, bits 8)"},
        {{"2^63 bits", U8, 1, {1LL << 60}, NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"2^63 elements", U8, 2, {1LL << 32, 1LL << 31}, NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"2^64 elements", U8, 2, {1LL << 32, 1LL << 32}, NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"2^64 + 2^32 elements",
          U8,
          2,
          {(1LL << 32) + 1, 1LL << 32},
          NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"2^128 elements",
          U8,
          4,
          {1LL << 32, 1LL << 32, 1LL << 32, 1LL << 32},
          NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"the largest of all",
          C128X65535,
          4,
          {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
          NO_STRIDES},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
        {{"an overflow that strides hide", U8, 2, {1LL << 32, 1LL << 32}, {0}},
         TMSG_ERR_LIMIT_EXCEEDED,
         "shape product overflows 63 bits"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tensor_t tensor = tensor_of(&rows[i].form);
        uint64_t bytes = 77;
        tmsg_status_t status = tmsg_tensor_bytes(&tensor, &bytes);

        cr_expect_eq(status, rows[i].status, "%s: %s, not %s",
                     rows[i].form.what, tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect_str_eq(tmsg_error_message(), rows[i].message,
                         "%s: '%s', not '%s'", rows[i].form.what,
                         tmsg_error_message(), rows[i].message);
        cr_expect_eq(bytes, 77, "%s: the output was touched",
                     rows[i].form.what);
        status = tmsg_tensor_check(&tensor);
        cr_expect_eq(status, rows[i].status, "check, %s: %s, not %s",
                     rows[i].form.what, tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
    }
}

Test(tensor, sixty_four_dimensions_are_not_too_many)
{
    int64_t shape[65], strides[65];
    uint64_t bytes;
    tmsg_tensor_t tensor = {somewhere, {1, 0}, U8, 64, shape, strides};

    for (int i = 0; i < 65; i++) {
        shape[i] = i < 60 ? 1 : 2;
        strides[i] = i < 60 ? INT64_MIN : i < 64 ? 1 << (63 - i) : 0;
    }
    cr_expect_eq(tmsg_tensor_check(&tensor), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect_eq(tmsg_tensor_bytes(&tensor, &bytes), TMSG_OK);
    cr_expect_eq(bytes, 16, "%lu", bytes);
    cr_expect_eq(tmsg_tensor_is_contiguous(&tensor), 1);
}

Test(tensor, needs_a_shape_and_data)
{
    static const int64_t two[] = {2}, none[] = {0};
    static const struct {
        const char *what;
        tmsg_tensor_t tensor;
        tmsg_status_t status;
    } rows[] = {
        {"0-d without a shape",
         {somewhere, {1, 0}, F32, 0, NULL, NULL},
         TMSG_OK},
        {"1-d without a shape",
         {somewhere, {1, 0}, F32, 1, NULL, NULL},
         TMSG_ERR_INVALID_PARAM},
        {"0-d without data",
         {NULL, {1, 0}, F32, 0, NULL, NULL},
         TMSG_ERR_INVALID_PARAM},
        {"1-d without data",
         {NULL, {1, 0}, F32, 1, two, NULL},
         TMSG_ERR_INVALID_PARAM},
        {"empty without data", {NULL, {1, 0}, F32, 1, none, NULL}, TMSG_OK},
        {"empty with strides", {NULL, {1, 0}, F32, 1, none, two}, TMSG_OK},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status = tmsg_tensor_check(&rows[i].tensor);

        cr_expect_eq(status, rows[i].status, "%s: %s, not %s", rows[i].what,
                     tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
    }
}

Test(tensor, span_of_the_strides_fits_in_63_bits)
{
    static const int64_t most = INT64_MAX;
    const struct {
        form_t form;
        tmsg_status_t status;
    } rows[] = {
        {{"the farthest byte", U8, 1, {2}, {most - 1}}, TMSG_OK},
        {{"one farther", U8, 1, {2}, {most}}, TMSG_ERR_LIMIT_EXCEEDED},
        {{"the farthest downwards", U8, 1, {2}, {-(most - 1)}}, TMSG_OK},
        {{"one farther downwards", U8, 1, {2}, {-most}},
         TMSG_ERR_LIMIT_EXCEEDED},
        {{"INT64_MIN", U8, 1, {2}, {INT64_MIN}}, TMSG_ERR_LIMIT_EXCEEDED},
        {{"half each way", U8, 2, {2, 2}, {most / 2, -(most / 2)}}, TMSG_OK},
        {{"more than half each way",
          U8,
          2,
          {2, 2},
          {most / 2 + 1, -(most / 2)}},
         TMSG_ERR_LIMIT_EXCEEDED},
        {{"all each way", U8, 2, {2, 2}, {most - 1, -(most - 1)}},
         TMSG_ERR_LIMIT_EXCEEDED},
        {{"a sum that overflows", U8, 2, {2, 2}, {most - 1, most - 1}},
         TMSG_ERR_LIMIT_EXCEEDED},
        {{"a product that overflows", U8, 1, {1LL << 32}, {1LL << 32}},
         TMSG_ERR_LIMIT_EXCEEDED},
        {{"float64 within", F64, 1, {2}, {most / 8 - 1}}, TMSG_OK},
        {{"float64 beyond", F64, 1, {2}, {most / 8}}, TMSG_ERR_LIMIT_EXCEEDED},
        {{"extent 1 makes it irrelevant", F64, 2, {1, 2}, {INT64_MIN, 1}},
         TMSG_OK},
        {{"extent 0, too", F64, 2, {0, 2}, {most, most}}, TMSG_OK},
        {{"broadcast", F64, 2, {1LL << 55, 2}, {0, 1}}, TMSG_OK},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tensor_t tensor = tensor_of(&rows[i].form);
        tmsg_status_t status = tmsg_tensor_check(&tensor);

        cr_expect_eq(status, rows[i].status, "%s: %s, not %s (%s)",
                     rows[i].form.what, tmsg_status_name(status),
                     tmsg_status_name(rows[i].status), tmsg_error_message());
        cr_expect(status == TMSG_OK ||
                      strncmp(tmsg_error_message(), "strides[", 8) == 0,
                  "%s: '%s'", rows[i].form.what, tmsg_error_message());
    }
}

Test(tensor, knows_c_order_and_dense)
{
    static const struct {
        form_t form;
        int contiguous, dense;
    } rows[] = {
        {{"0-d", F32, 0, {0}, {0}}, 1, 1},
        {{"no strides", F32, 2, {3, 4}, NO_STRIDES}, 1, 1},
        {{"C order", F32, 2, {3, 4}, {4, 1}}, 1, 1},
        {{"Fortran order", F32, 2, {3, 4}, {1, 3}}, 0, 1},
        {{"axes 1 2 0", F32, 3, {2, 3, 4}, {1, 8, 2}}, 0, 1},
        {{"axes 2 0 1", F32, 3, {2, 3, 4}, {3, 1, 6}}, 0, 1},
        {{"permuted, sub-byte", INT4, 2, {3, 4}, {1, 3}}, 0, 1},
        {{"gap between rows", F32, 2, {3, 4}, {5, 1}}, 0, 0},
        {{"gap between elements", F32, 1, {3}, {2}}, 0, 0},
        {{"gap in Fortran order", F32, 2, {3, 4}, {1, 4}}, 0, 0},
        {{"broadcast rows", F32, 2, {3, 4}, {0, 1}}, 0, 1},
        {{"broadcast columns", F32, 2, {3, 4}, {1, 0}}, 0, 1},
        {{"broadcast element", F32, 1, {3}, {0}}, 0, 1},
        {{"broadcast, permuted", F32, 3, {3, 9, 4}, {1, 0, 3}}, 0, 1},
        {{"broadcast, with gaps", F32, 2, {3, 4}, {0, 2}}, 0, 0},
        {{"broadcast, backwards", F32, 2, {3, 4}, {0, -1}}, 0, 0},
        {{"broadcast, empty", F32, 2, {0, 4}, {0, 0}}, 1, 1},
        {{"overlapping windows", F32, 2, {3, 4}, {1, 1}}, 0, 0},
        {{"equal strides", F32, 2, {2, 2}, {2, 2}}, 0, 0},
        {{"backwards", F32, 1, {3}, {-1}}, 0, 0},
        {{"rows backwards", F32, 2, {3, 4}, {-4, 1}}, 0, 0},
        {{"extent 1 in front", F32, 2, {1, 4}, {99, 1}}, 1, 1},
        {{"extent 1 behind", F32, 2, {4, 1}, {1, 99}}, 1, 1},
        {{"extent 1 between", F32, 3, {3, 1, 4}, {4, -7, 1}}, 1, 1},
        {{"extent 1, Fortran order", F32, 3, {3, 1, 4}, {1, 0, 3}}, 0, 1},
        {{"all extents 1", F32, 2, {1, 1}, {0, -5}}, 1, 1},
        {{"one element, stride 0", F32, 1, {1}, {0}}, 1, 1},
        {{"empty", F32, 2, {0, 4}, {77, 13}}, 1, 1},
        {{"empty behind", F32, 2, {4, 0}, {77, 13}}, 1, 1},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tensor_t tensor = tensor_of(&rows[i].form);
        int contiguous = tmsg_tensor_is_contiguous(&tensor);
        int dense = tmsg_tensor_is_dense(&tensor);

        cr_assert_eq(tmsg_tensor_check(&tensor), TMSG_OK, "%s",
                     rows[i].form.what);
        cr_expect_eq(contiguous, rows[i].contiguous, "%s: contiguous %d",
                     rows[i].form.what, contiguous);
        cr_expect_eq(dense, rows[i].dense, "%s: dense %d", rows[i].form.what,
                     dense);
    }
}

/* Copies element by element with a counter for each dimension. */
static void pack_naively(const tmsg_tensor_t *tensor, uint8_t *to)
{
    size_t element = tmsg_dtype_bytes(tensor->dtype);
    int64_t at[64] = {0}, offset;
    int32_t i;

    do {
        offset = 0;
        for (i = 0; i < tensor->ndim; i++) {
            offset += at[i] * tensor->strides[i];
        }
        memcpy(to, (const uint8_t *)tensor->data + offset * (int64_t)element,
               element);
        to += element;
        for (i = tensor->ndim - 1; i >= 0; i--) {
            if (++at[i] < tensor->shape[i]) {
                break;
            }
            at[i] = 0;
        }
    } while (i >= 0);
}

static void expect_bytes(const uint8_t *got, const uint8_t *expected,
                         uint64_t bytes, const char *what, unsigned long seed)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (got[i] != expected[i]) {
            cr_expect(false, "%s %lu: byte %lu of %lu is %u, not %u", what,
                      seed, i, bytes, got[i], expected[i]);
            return;
        }
    }
}

/* In pieces, each into a buffer of exactly its size. */
static void expect_parts(const tmsg_tensor_t *tensor, const uint8_t *expected,
                         uint64_t bytes, const char *what, unsigned long seed)
{
    const uint64_t sizes[] = {1 + seed % 29, 64 + seed % 1000, 1 << 16};

    for (size_t i = bytes > 4096; i < COUNT(sizes); i++) {
        for (uint64_t done = 0; done < bytes; done += sizes[i]) {
            uint64_t left = bytes - done;
            uint64_t size = sizes[i] < left ? sizes[i] : left;
            uint8_t *part = malloc(size);

            tmsg_tensor_pack_part(tensor, done, size, part);
            expect_bytes(part, expected + done, size, what, seed);
            free(part);
        }
    }
}

/* Packs into a buffer of exactly its size, from memory of exactly the span. */
static void expect_packed(tmsg_tensor_t tensor, const char *what,
                          unsigned long seed)
{
    size_t element = tmsg_dtype_bytes(tensor.dtype), span;
    int64_t lowest = 0, highest = 0;
    uint64_t bytes;
    uint8_t *memory, *packed, *expected;
    tmsg_status_t status;

    for (int32_t i = 0; i < tensor.ndim; i++) {
        int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];

        *(reach < 0 ? &lowest : &highest) += reach;
    }
    span = (size_t)(highest - lowest + 1) * element;
    memory = malloc(span);
    for (size_t i = 0; i < span; i++) {
        memory[i] = (uint8_t)((i * 2654435761u) >> 7);
    }
    tensor.data = memory - lowest * (int64_t)element;
    cr_assert_eq(tmsg_tensor_bytes(&tensor, &bytes), TMSG_OK);
    packed = malloc(bytes);
    expected = malloc(bytes);
    pack_naively(&tensor, expected);
    status = tmsg_tensor_pack(&tensor, packed);
    cr_expect_eq(status, TMSG_OK, "%s %lu: %s", what, seed,
                 tmsg_error_message());
    expect_bytes(packed, expected, bytes, what, seed);
    expect_parts(&tensor, expected, bytes, what, seed);
    free(memory);
    free(packed);
    free(expected);
}

Test(tensor, packs_the_usual_views)
{
    static const form_t rows[] = {
        {"columns of an image", U8, 3, {40, 30, 3}, {180, 3, 1}},
        {"RGB of RGBA", U8, 3, {40, 50, 3}, {200, 4, 1}},
        {"one channel", U8, 2, {40, 50}, {150, 3}},
        {"HWC to CHW", U8, 3, {3, 40, 50}, {1, 150, 3}},
        {"CHW to HWC", U8, 3, {40, 50, 3}, {50, 1, 2000}},
        {"BGR to RGB", U8, 3, {40, 50, 3}, {150, 3, -1}},
        {"upside down", U8, 3, {40, 50, 3}, {-150, 3, 1}},
        {"mirrored", U8, 3, {40, 50, 3}, {150, -3, 1}},
        {"transposed", F32, 2, {130, 70}, {1, 130}},
        {"transposed, one tile", F32, 2, {64, 8}, {1, 64}},
        {"transposed, beyond a tile", F32, 2, {65, 9}, {1, 65}},
        {"transposed, short of a tile", F32, 2, {63, 7}, {1, 63}},
        {"transposed backwards", F32, 2, {65, 9}, {-1, -65}},
        {"transposed with gaps", F32, 2, {65, 9}, {2, 200}},
        {"rows of a larger matrix", F32, 2, {20, 30}, {100, 1}},
        {"every second", F32, 2, {20, 30}, {60, 2}},
        {"broadcast rows", F32, 2, {20, 30}, {0, 1}},
        {"broadcast columns", F32, 2, {20, 30}, {1, 0}},
        {"broadcast element", F64, 3, {5, 6, 7}, {0, 0, 0}},
        {"sliding windows", F32, 2, {20, 5}, {1, 1}},
        {"axes 0 2 1 3", F32, 4, {4, 8, 6, 5}, {240, 5, 40, 1}},
        {"a block of four", U8, 4, {4, 3, 2, 5}, {900, 100, 10, 1}},
        {"contiguous", F32, 3, {4, 5, 6}, {30, 6, 1}},
        {"one element", F32, 3, {1, 1, 1}, {7, -9, 0}},
    };
    static const tmsg_dtype_t dtypes[] = {
        {TMSG_DTYPE_UINT, 8, 1},    {TMSG_DTYPE_FLOAT, 16, 1},
        {TMSG_DTYPE_UINT, 8, 3},    {TMSG_DTYPE_FLOAT, 32, 1},
        {TMSG_DTYPE_FLOAT, 16, 3},  {TMSG_DTYPE_FLOAT, 64, 1},
        {TMSG_DTYPE_FLOAT, 32, 3},  {TMSG_DTYPE_COMPLEX, 128, 1},
        {TMSG_DTYPE_OPAQUE, 40, 1}, {TMSG_DTYPE_COMPLEX, 128, 3},
        {TMSG_DTYPE_INT, 4, 2}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t j = 0; j < COUNT(dtypes); j++) {
            tmsg_tensor_t tensor = tensor_of(&rows[i]);

            tensor.dtype = dtypes[j];
            expect_packed(tensor, rows[i].what, j);
        }
    }
}

/* A random tensor whose strides are those of a random permutation, with gaps,
 * reversals and broadcasts thrown in. */
static void pack_random(unsigned long seed)
{
    unsigned short state[3] = {(unsigned short)seed, 0x1234, 0xabcd};
    static const uint8_t bits[] = {8, 16, 32, 64};
    int64_t shape[6], strides[6], stride = 1;
    int32_t order[6], ndim = (int32_t)(nrand48(state) % 7);
    tmsg_tensor_t tensor = {NULL, {1, 0}, {TMSG_DTYPE_INT, 8, 1},
                            ndim, shape,  strides};

    tensor.dtype.bits = bits[nrand48(state) % 4];
    tensor.dtype.lanes = (uint16_t)(nrand48(state) % 4 == 0 ? 3 : 1);
    for (int32_t i = 0; i < ndim; i++) {
        int32_t j = (int32_t)(nrand48(state) % (i + 1));

        order[i] = order[j];
        order[j] = i;
        shape[i] = 1 + nrand48(state) % (ndim < 3 ? 90 : 6);
    }
    for (int32_t i = 0; i < ndim; i++) {
        int64_t extent = shape[order[i]];
        long kind = nrand48(state) % 8;

        stride += kind == 0 ? nrand48(state) % 5 : 0;
        strides[order[i]] = kind == 1 ? 0 : kind == 2 ? -stride : stride;
        stride *= extent;
    }
    expect_packed(tensor, "seed", seed);
}

Test(tensor, packs_as_a_naive_loop_does)
{
    for (unsigned long seed = 1; seed <= 3000; seed++) {
        pack_random(seed);
    }
}

/* Extents of 1 and empty tensors: their strides say nothing. */
Test(tensor, packs_without_looking_at_irrelevant_strides)
{
    static const int32_t data[] = {1, 2, 3, 4, 5, 6};
    static const int64_t shape[] = {2, 1, 2}, empty[] = {2, 0, 2};
    static const int64_t strides[] = {3, INT64_MAX, 2};
    int32_t packed[4] = {0};
    tmsg_tensor_t tensor = {(void *)(uintptr_t)data,
                            {1, 0},
                            {TMSG_DTYPE_INT, 32, 1},
                            3,
                            shape,
                            strides};

    cr_expect_eq(tmsg_tensor_pack(&tensor, packed), TMSG_OK);
    cr_expect(packed[0] == 1 && packed[1] == 3 && packed[2] == 4 &&
                  packed[3] == 6,
              "%d %d %d %d", packed[0], packed[1], packed[2], packed[3]);
    tensor.shape = empty;
    tensor.data = NULL;
    cr_expect_eq(tmsg_tensor_pack(&tensor, NULL), TMSG_OK);
}

Test(tensor, refuses_null_for_a_tensor_and_for_a_buffer)
{
    static uint8_t byte;
    const tmsg_tensor_t tensor = {.data = &byte, .device = {1, 0}, .dtype = U8};
    uint64_t bytes = 77;

    cr_expect_eq(tmsg_tensor_bytes(NULL, &bytes), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_check(NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_pack(NULL, &byte), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_pack(&tensor, NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(bytes, 77);
    cr_expect_eq(tmsg_tensor_bytes(&tensor, NULL), TMSG_OK);
}

Test(tensor, packs_sub_byte_elements_only_in_c_order)
{
    static uint8_t data[] = {0x21, 0x43, 0x65};
    uint8_t packed[4] = {0, 0, 0, 0x77};
    int64_t shape[] = {2, 3}, strides[] = {3, 1};
    tmsg_tensor_t tensor = {data, {1, 0}, INT4, 2, shape, strides};

    cr_expect_eq(tmsg_tensor_pack(&tensor, packed), TMSG_OK);
    cr_expect_arr_eq(packed, data, 3);
    cr_expect_eq(packed[3], 0x77, "wrote beyond: %x", packed[3]);
    memset(packed, 0x77, sizeof(packed));
    strides[0] = 1;
    strides[1] = 2;
    cr_expect_eq(tmsg_tensor_pack(&tensor, packed), TMSG_ERR_UNSUPPORTED);
    cr_expect_str_eq(tmsg_error_message(),
                     "strides are not supported for elements of 4 bits", "'%s'",
                     tmsg_error_message());
    cr_expect_eq(packed[0], 0x77, "wrote %x", packed[0]);
}

Test(tensor, packs_only_what_the_cpu_can_read)
{
    static const struct {
        tmsg_device_t device;
        tmsg_status_t status;
    } rows[] = {
        {{TMSG_DEVICE_CPU, 0}, TMSG_OK},
        {{TMSG_DEVICE_CUDA_HOST, 1}, TMSG_OK},
        {{TMSG_DEVICE_CUDA, 0}, TMSG_ERR_UNSUPPORTED},
        {{TMSG_DEVICE_CUDA_MANAGED, 0}, TMSG_ERR_UNSUPPORTED},
        {{TMSG_DEVICE_ROCM, 0}, TMSG_ERR_UNSUPPORTED},
        {{0, 0}, TMSG_ERR_UNSUPPORTED},
        {{99, 0}, TMSG_ERR_UNSUPPORTED},
    };
    static uint8_t data[] = {1, 2, 3};
    static const int64_t shape[] = {3};

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t packed[3] = {0};
        tmsg_tensor_t tensor = {data, rows[i].device, U8, 1, shape, NULL};
        tmsg_status_t status = tmsg_tensor_pack(&tensor, packed);

        cr_expect_eq(status, rows[i].status, "device %d: %s, not %s",
                     rows[i].device.type, tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect_eq(packed[0], status == TMSG_OK, "device %d: %u",
                     rows[i].device.type, packed[0]);
    }
}
