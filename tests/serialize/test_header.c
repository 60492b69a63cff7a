/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"
#include "support/failing_alloc.h"
#include "support/golden_listing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
static uint8_t somewhere[1]; /* data that nobody looks at */

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static void add(tmsg_map_t *map, const char *name, tmsg_dtype_t dtype,
                int32_t ndim, const int64_t *shape, const int64_t *strides,
                tmsg_device_t device)
{
    tmsg_tensor_t tensor = {somewhere, device, dtype, ndim, shape, strides};

    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK, "%s",
                 tmsg_error_message());
}

/* Encodes into a buffer of exactly the size needed. */
static uint8_t *encode(const tmsg_map_t *map, size_t *bytes_p)
{
    uint8_t *buffer;
    size_t again;

    cr_assert_eq(tmsg_body_encode(map, NULL, NULL, 0, bytes_p), TMSG_OK);
    buffer = malloc(*bytes_p);
    cr_assert_eq(tmsg_body_encode(map, NULL, buffer, *bytes_p, &again),
                 TMSG_OK);
    cr_assert_eq(again, *bytes_p);
    return buffer;
}

static tmsg_status_t decode(const void *body, size_t bytes, tmsg_map_t *map)
{
    tmsg_limits_t limits;

    limits = tmsg_limits_usual();
    return tmsg_body_decode(body, bytes, &limits, map, NULL);
}

/* There and back. */
static tmsg_map_t *travel(const tmsg_map_t *map)
{
    tmsg_map_t *arrived = new_map();
    size_t bytes;
    uint8_t *body = encode(map, &bytes);

    cr_assert_eq(decode(body, bytes, arrived), TMSG_OK, "%s",
                 tmsg_error_message());
    free(body);
    return arrived;
}

static void expect_extents(const int64_t *ours, const int64_t *theirs,
                           int32_t ndim, const char *name)
{
    for (int32_t i = 0; i < ndim; i++) {
        cr_expect_eq(ours[i], theirs[i], "%s[%d]: %ld, not %ld", name, i,
                     ours[i], theirs[i]);
    }
}

static void expect_same_tensor(const tmsg_map_entry_t *ours,
                               const tmsg_map_entry_t *theirs)
{
    const tmsg_tensor_t *a = &ours->tensor, *b = &theirs->tensor;

    cr_expect_str_eq(ours->name, theirs->name);
    cr_expect_eq(ours->bytes, theirs->bytes);
    cr_expect_eq(a->device.type, b->device.type);
    cr_expect_eq(a->device.id, b->device.id);
    cr_expect_eq(a->dtype.code, b->dtype.code);
    cr_expect_eq(a->dtype.bits, b->dtype.bits);
    cr_expect_eq(a->dtype.lanes, b->dtype.lanes);
    cr_assert_eq(a->ndim, b->ndim);
    expect_extents(a->shape, b->shape, a->ndim, ours->name);
    cr_assert_eq(a->strides == NULL, b->strides == NULL, "%s", ours->name);
    if (a->strides != NULL) {
        expect_extents(a->strides, b->strides, a->ndim, ours->name);
    }
    cr_expect_null(a->data);
}

static void expect_same(const tmsg_map_t *ours, const tmsg_map_t *theirs)
{
    const tmsg_map_meta_entry_t *a = tmsg_map_meta_entries(ours);
    const tmsg_map_meta_entry_t *b = tmsg_map_meta_entries(theirs);

    cr_assert_eq(tmsg_map_size(ours), tmsg_map_size(theirs));
    for (size_t i = 0; i < tmsg_map_size(ours); i++) {
        expect_same_tensor(&tmsg_map_entries(ours)[i],
                           &tmsg_map_entries(theirs)[i]);
    }
    cr_assert_eq(tmsg_map_meta_size(ours), tmsg_map_meta_size(theirs));
    for (size_t i = 0; i < tmsg_map_meta_size(ours); i++) {
        cr_expect_str_eq(a[i].key, b[i].key);
        cr_expect_eq(a[i].value.type, b[i].value.type);
        cr_expect_eq(a[i].value.boolean, b[i].value.boolean);
        cr_expect_eq(a[i].value.i64, b[i].value.i64);
        cr_expect_eq(memcmp(&a[i].value.f64, &b[i].value.f64, 8), 0);
        cr_assert_eq(a[i].value.bytes, b[i].value.bytes);
        cr_expect(a[i].value.bytes == 0 ||
                  memcmp(a[i].value.data, b[i].value.data, a[i].value.bytes) ==
                      0);
    }
}

/* A message of everything, some 400 bytes of body. */
static tmsg_map_t *rich_map(void)
{
    static const int64_t shape[] = {2, 3, 4}, fortran[] = {1, 2, 6};
    static const int64_t large[] = {1, 300, 70000}, empty[] = {0, 5000000000};
    tmsg_map_t *map = new_map();

    add(map, "image", (tmsg_dtype_t){TMSG_DTYPE_UINT, 8, 1}, 3, shape, NULL,
        cpu);
    add(map, "fortran", (tmsg_dtype_t){TMSG_DTYPE_FLOAT, 32, 4}, 3, shape,
        fortran, cpu);
    add(map, "\xe6\xbc\xa2\xe5\xad\x97",
        (tmsg_dtype_t){TMSG_DTYPE_BFLOAT, 16, 1}, 3, large, NULL,
        (tmsg_device_t){TMSG_DEVICE_CUDA, 7});
    add(map, "both", (tmsg_dtype_t){TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1}, 3, shape,
        fortran, (tmsg_device_t){TMSG_DEVICE_CUDA_MANAGED, INT32_MAX});
    add(map, "scalar", (tmsg_dtype_t){TMSG_DTYPE_BOOL, 8, 1}, 0, NULL, NULL,
        cpu);
    add(map, "empty", (tmsg_dtype_t){TMSG_DTYPE_INT, 64, 1}, 2, empty, NULL,
        cpu);
    tmsg_map_set_bool(map, "yes", 1);
    tmsg_map_set_bool(map, "no", 0);
    tmsg_map_set_i64(map, TMSG_META_SEQUENCE, INT64_MIN);
    tmsg_map_set_i64(map, "high", INT64_MAX);
    tmsg_map_set_f64(map, "f64", 0.1);
    tmsg_map_set_string(map, "string", "na\xc3\xafve");
    tmsg_map_set_string(map, "", "refused, and not there");
    tmsg_map_set_bytes(map, "bytes", "\0\xff", 2);
    tmsg_map_set_bytes(map, "nothing", NULL, 0);
    return map;
}

Test(body, round_trips_everything)
{
    tmsg_map_t *map = rich_map(), *arrived = travel(map);

    expect_same(arrived, map);
    tmsg_map_destroy(map);
    tmsg_map_destroy(arrived);
}

Test(body, round_trips_every_dtype)
{
    static const int64_t shape[] = {3};
    static const uint16_t lanes[] = {1, 2, 200, 65535};
    tmsg_map_t *map = new_map(), *arrived;
    size_t dtypes = 0;

    for (unsigned code = 0; code < 256; code++) {
        for (unsigned bits = 0; bits < 256; bits++) {
            tmsg_dtype_t dtype = {(uint8_t)code, (uint8_t)bits, 1};

            if (tmsg_dtype_check(dtype) != TMSG_OK) {
                continue;
            }
            dtypes++;
            for (size_t i = 0; i < COUNT(lanes); i++) {
                char name[32];

                snprintf(name, sizeof(name), "%u/%u/%zu", code, bits, i);
                dtype.lanes = lanes[i];
                add(map, name, dtype, 1, shape, NULL, cpu);
            }
        }
    }
    cr_assert_geq(dtypes, 38);
    arrived = travel(map);
    expect_same(arrived, map);
    tmsg_map_destroy(map);
    tmsg_map_destroy(arrived);
}

Test(body, round_trips_shapes)
{
    static const int64_t ones[64] = {[0 ... 63] = 1};
    static const int64_t extents[] = {
        0,     1,     127,     128,           255,       256,
        65535, 65536, 1 << 20, INT64_MAX / 8, 4294967296};
    tmsg_map_t *map = new_map(), *arrived;
    const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};
    char name[400];

    for (int32_t ndim = 0; ndim <= 64; ndim++) {
        snprintf(name, sizeof(name), "%d dimensions", ndim);
        add(map, name, u8, ndim, ones, NULL, cpu);
    }
    for (size_t i = 0; i < COUNT(extents); i++) {
        snprintf(name, sizeof(name), "%0*d", (int)(30 * i + 30), (int)i);
        add(map, name, u8, 1, &extents[i], NULL, cpu);
    }
    arrived = travel(map);
    expect_same(arrived, map);
    tmsg_map_destroy(map);
    tmsg_map_destroy(arrived);
}

Test(body, keeps_strides_of_permutations_and_broadcasts_only)
{
    static const struct {
        int64_t shape[3];
        int64_t strides[3];
        bool kept;
    } rows[] = {
        {{2, 3, 4}, {12, 4, 1}, false}, /* C order goes without saying */
        {{2, 3, 4}, {1, 2, 6}, true},   {{2, 3, 4}, {4, 8, 1}, true},
        {{2, 1, 4}, {1, 77, 2}, true},  {{2, 3, 4}, {24, 8, 2}, false},
        {{2, 3, 4}, {0, 4, 1}, true},   {{2, 3, 4}, {-12, 4, 1}, false},
        {{2, 3, 4}, {0, 0, 0}, true},   {{2, 3, 4}, {1, 2, 0}, true},
        {{1, 3, 4}, {0, 4, 1}, false},  {{2, 3, 0}, {0, 0, 1}, false},
        {{2, 2, 2}, {1, 1, 1}, false},  {{1, 1, 1}, {5, 6, 7}, false},
        {{0, 3, 4}, {5, 6, 7}, false},
    };
    const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map(), *arrived;
        tmsg_tensor_t got;

        add(map, "x", u8, 3, rows[i].shape, rows[i].strides, cpu);
        arrived = travel(map);
        cr_assert_eq(tmsg_map_find(arrived, "x", &got), TMSG_OK);
        cr_expect_eq(got.strides != NULL, rows[i].kept, "row %zu", i);
        expect_extents(got.shape, rows[i].shape, 3, "shape");
        if (got.strides != NULL) {
            expect_extents(got.strides, rows[i].strides, 3, "strides");
        }
        tmsg_map_destroy(map);
        tmsg_map_destroy(arrived);
    }
}

/* What is packed keeps that it is broadcast, in C order otherwise. */
Test(body, keeps_strides_of_0_of_what_is_packed)
{
    static const int64_t shape[] = {2, 3, 4};
    static const struct {
        int64_t strides[3], wanted[3];
    } rows[] = {
        {{0, 8, 1}, {0, 4, 1}},  {{0, 8, 2}, {0, 4, 1}},
        {{-8, 0, 2}, {4, 0, 1}}, {{0, -1, 0}, {0, 1, 0}},
        {{1, 1, 0}, {3, 1, 0}},
    };
    const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map(), *arrived;
        tmsg_tensor_t got;

        add(map, "x", u8, 3, shape, rows[i].strides, cpu);
        arrived = travel(map);
        cr_assert_eq(tmsg_map_find(arrived, "x", &got), TMSG_OK);
        cr_assert_neq(got.strides, NULL, "row %zu", i);
        expect_extents(got.shape, shape, 3, "shape");
        expect_extents(got.strides, rows[i].wanted, 3, "strides");
        cr_expect_eq(tmsg_map_entries(arrived)->bytes,
                     tmsg_map_entries(map)->bytes);
        tmsg_map_destroy(map);
        tmsg_map_destroy(arrived);
    }
}

Test(body, takes_24_bytes_for_a_common_tensor)
{
    static const int64_t shape[] = {32, 480, 640};
    tmsg_map_t *map = new_map();
    size_t before, after;

    add(map, "tensor_0000", (tmsg_dtype_t){TMSG_DTYPE_FLOAT, 32, 1}, 3, shape,
        NULL, cpu);
    tmsg_body_encode(map, NULL, NULL, 0, &before);
    add(map, "tensor_0001", (tmsg_dtype_t){TMSG_DTYPE_FLOAT, 32, 1}, 3, shape,
        NULL, cpu);
    tmsg_body_encode(map, NULL, NULL, 0, &after);
    cr_expect_eq(after - before, 24, "%zu bytes", after - before);
    tmsg_map_destroy(map);
}

Test(body, never_writes_past_its_bound)
{
    tmsg_map_t *map = rich_map();
    size_t bytes, needed;
    uint8_t *whole = encode(map, &bytes);

    for (size_t bound = 0; bound <= bytes + 1; bound++) {
        uint8_t *buffer = malloc(bound); /* ASan watches its end */

        memset(buffer, 0xee, bound);
        cr_assert_eq(tmsg_body_encode(map, NULL, buffer, bound, &needed),
                     TMSG_OK);
        cr_assert_eq(needed, bytes, "bound %zu: %zu, not %zu", bound, needed,
                     bytes);
        if (bound >= bytes) {
            cr_assert_arr_eq(buffer, whole, bytes);
        }
        if (bound > bytes) {
            cr_assert_eq(buffer[bytes], 0xee);
        }
        free(buffer);
    }
    free(whole);
    tmsg_map_destroy(map);
}

Test(body, refuses_what_msgpack_cannot_count)
{
    tmsg_map_t *map = new_map();
    tmsg_map_meta_entry_t *entry;
    size_t needed = 77;

    tmsg_map_set_bytes(map, "k", "v", 1);
    entry = (tmsg_map_meta_entry_t *)(uintptr_t)tmsg_map_meta_entries(map);
    entry->value.bytes = 1ULL << 32; /* only counted: the bound is 0 */
    cr_expect_eq(tmsg_body_encode(map, NULL, NULL, 0, &needed),
                 TMSG_ERR_LIMIT_EXCEEDED);
    cr_expect_eq(needed, 77, "the output was touched");
    entry->value.bytes = 1;
    tmsg_map_destroy(map);
}

Test(body, cut_off_at_every_byte_is_malformed)
{
    tmsg_map_t *map = rich_map(), *arrived = new_map();
    size_t bytes;
    uint8_t *whole = encode(map, &bytes);

    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *body = malloc(cut);
        tmsg_status_t status;

        memcpy(body, whole, cut);
        status = decode(body, cut, arrived);
        cr_assert_eq(status, TMSG_ERR_MALFORMED, "cut at %zu: %s", cut,
                     tmsg_status_name(status));
        cr_assert_eq(tmsg_map_size(arrived), 0);
        cr_assert_eq(tmsg_map_meta_size(arrived), 0);
        free(body);
    }
    free(whole);
    tmsg_map_destroy(map);
    tmsg_map_destroy(arrived);
}

/* Writes `i` as `count` characters, and no two numbers alike. */
static void write_name(uint8_t *at, unsigned count, unsigned i)
{
    for (unsigned j = 0; j < count; j++, i /= 64) {
        at[j] = (uint8_t)(' ' + i % 64);
    }
}

Test(body, costs_memory_in_proportion_to_its_bytes)
{
    /* the densest bodies there are: tensors of 10 bytes, entries of 5 */
    static const struct {
        uint8_t head[7];
        uint8_t item[10];
        size_t item_bytes;
        unsigned name_bytes;
    } rows[] = {
        {{0x81, 1, 0xdd, 0, 1, 0x86, 0xa0},
         {0x95, 0xa3, 0, 0, 0, 0, 8, 1, 0x91, 1},
         10,
         3},
        {{0x81, 2, 0xdf, 0, 1, 0x86, 0xa0}, {0xa3, 0, 0, 0, 0xc3}, 5, 3},
    };
    enum { ITEMS = 100000 };

    for (size_t row = 0; row < COUNT(rows); row++) {
        size_t bytes = sizeof(rows[row].head), before, after;
        tmsg_limits_t limits = tmsg_limits_usual();
        uint8_t *body = malloc(bytes + ITEMS * sizeof(rows[row].item));
        tmsg_map_t *map = new_map();

        memcpy(body, rows[row].head, bytes);
        for (unsigned i = 0; i < ITEMS; i++) {
            uint8_t *item = body + bytes;

            memcpy(item, rows[row].item, rows[row].item_bytes);
            write_name(item + 2 - row, rows[row].name_bytes, i);
            bytes += rows[row].item_bytes;
        }
        limits.metadata_keys = ITEMS;
        before = mallinfo2().uordblks + mallinfo2().hblkhd;
        cr_assert_eq(tmsg_body_decode(body, bytes, &limits, map, NULL), TMSG_OK,
                     "%s", tmsg_error_message());
        after = mallinfo2().uordblks + mallinfo2().hblkhd;
        cr_expect_leq(after - before, 64 * bytes, "row %zu: %zu for %zu", row,
                      after - before, bytes);
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(body, leaves_nothing_behind_when_memory_runs_out)
{
    tmsg_map_t *map = rich_map();
    size_t bytes;
    uint8_t *body;
    bool failed = true;

    for (int i = 0; i < 100; i++) { /* enough for the index, too */
        char name[32];

        snprintf(name, sizeof(name), "key %d", i);
        tmsg_map_set_string(map, name, "a value of some length");
    }
    body = encode(map, &bytes);
    for (unsigned long n = 1; failed; n++) {
        tmsg_map_t *arrived = new_map();
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = decode(body, bytes, arrived);
        failed = failing_alloc_disarm();
        cr_expect_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK,
                     "allocation %lu: %s", n, tmsg_status_name(status));
        if (failed) {
            cr_expect_eq(tmsg_map_size(arrived), 0);
            cr_expect_eq(tmsg_map_meta_size(arrived), 0);
        }
        tmsg_map_destroy(arrived);
        cr_assert_lt(n, 1000);
    }
    free(body);
    tmsg_map_destroy(map);
}

Test(body, encodes_without_allocating)
{
    tmsg_map_t *map = rich_map();
    uint8_t buffer[1024];
    size_t needed;

    failing_alloc_arm(1);
    cr_expect_eq(tmsg_body_encode(map, NULL, buffer, sizeof(buffer), &needed),
                 TMSG_OK);
    cr_expect_not(failing_alloc_disarm());
    tmsg_map_destroy(map);
}

/* Whether a valid case is written as our encoder would write it. */
static bool is_ours(const golden_t *golden)
{
    static const char *const ours[] = {"minimal_dialect", "empty_map",
                                       "typical", "every_dtype", "names"};

    for (size_t i = 0; i < COUNT(ours); i++) {
        if (strcmp(strrchr(golden->path, '/') + 1, ours[i]) == 0) {
            return true;
        }
    }
    return false;
}

Test(golden, v0_is_written_again_byte_for_byte)
{
    golden_t cases[GOLDEN_CASES_MAX];
    size_t count = golden_load("v0/valid", cases), found = 0;

    for (size_t i = 0; i < count; i++) {
        tmsg_map_t *map = new_map();
        tmsg_preamble_t preamble;
        const uint8_t *body;
        uint8_t *again;
        size_t bytes;

        if (is_ours(&cases[i])) {
            found++;
            cr_assert_eq(
                tmsg_preamble_decode(cases[i].bytes, cases[i].size, &preamble),
                TMSG_OK);
            body = cases[i].bytes + preamble.bytes;
            cr_assert_eq(decode(body, preamble.body_bytes, map), TMSG_OK,
                         "%s: %s", cases[i].path, tmsg_error_message());
            again = encode(map, &bytes);
            cr_assert_eq(bytes, preamble.body_bytes, "%s", cases[i].path);
            cr_expect_arr_eq(again, body, bytes, "%s", cases[i].path);
            free(again);
        }
        tmsg_map_destroy(map);
    }
    cr_expect_eq(found, 5);
    golden_free(cases, count);
}

/* Every peer's body is what it would be alone, whether its schema is told or
 * referred to, and where there is no memory to share. */
static void share(const tmsg_map_t *map, unsigned long failing)
{
    tmsg_body_shared_t shared = {0};

    for (int i = 0; i < 6; i++) {
        tmsg_body_extra_t alone = {.schema = {.form = i % 2 == 0
                                                          ? TMSG_SCHEMA_DEFINES
                                                          : TMSG_SCHEMA_REFERS,
                                              .slot = (uint8_t)i,
                                              .generation = 3}};
        tmsg_body_extra_t extra = alone;
        uint8_t expected[300], body[300];
        size_t bytes, counted, written;

        extra.shared = &shared;
        cr_assert_eq(tmsg_body_encode(map, &alone, expected, 300, &bytes),
                     TMSG_OK);
        failing_alloc_arm(failing);
        cr_assert_eq(tmsg_body_encode(map, &extra, NULL, 0, &counted), TMSG_OK);
        cr_assert_eq(tmsg_body_encode(map, &extra, body, 300, &written),
                     TMSG_OK);
        failing_alloc_disarm();
        cr_assert_eq(counted, bytes);
        cr_assert_eq(written, bytes);
        cr_assert_arr_eq(body, expected, bytes);
    }
    cr_expect_eq(shared.encoded, 2);
    tmsg_body_shared_free(&shared);
}

Test(header, what_bodies_share_is_encoded_once)
{
    const tmsg_dtype_t f32 = {TMSG_DTYPE_FLOAT, 32, 1};
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    add(map, "x", f32, 2, (int64_t[]){2, 3}, NULL, cpu);
    add(map, "y", f32, 2, (int64_t[]){2, 3}, (int64_t[]){1, 2}, cpu);
    cr_assert_eq(tmsg_map_set_i64(map, "number", 7), TMSG_OK);
    for (unsigned long failing = 0; failing < 4; failing++) {
        share(map, failing);
    }
    tmsg_map_destroy(map);
}
