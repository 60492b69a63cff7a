/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/meta.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"
#include "support/failing_alloc.h"
#include "support/golden.h"

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

Test(preamble, round_trips)
{
    const tmsg_preamble_t sent = {.kind = 250,
                                  .flags = TMSG_HEADER_ACKED,
                                  .channel = 0xfedc,
                                  .message_id = 0xfedcba98,
                                  .endpoint_id = 0x76543210,
                                  .sequence = 0x89abcdef,
                                  .body_bytes = 0,
                                  .payload_bytes = 0xfedcba9876543210,
                                  .policy = TMSG_POLICY_STRICT};
    uint8_t bytes[TMSG_PREAMBLE_BYTES];
    tmsg_preamble_t got;

    tmsg_preamble_encode(&sent, bytes);
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.version, TMSG_WIRE_VERSION);
    cr_expect_eq(got.bytes, TMSG_PREAMBLE_BYTES);
    cr_expect_eq(got.kind, sent.kind);
    cr_expect_eq(got.flags, sent.flags);
    cr_expect_eq(got.channel, sent.channel);
    cr_expect_eq(got.message_id, sent.message_id);
    cr_expect_eq(got.endpoint_id, sent.endpoint_id);
    cr_expect_eq(got.sequence, sent.sequence);
    cr_expect_eq(got.body_bytes, sent.body_bytes);
    cr_expect_eq(got.payload_bytes, sent.payload_bytes);
    cr_expect_eq(got.policy, sent.policy);
}

Test(preamble, is_little_endian_byte_for_byte)
{
    static const uint8_t expected[] = {
        'T',  'M',  0,    33,   1,    2,    0x34, 0x12, 0x78, 0x56, 0x34,
        0x12, 0x02, 0,    0,    0,    0xef, 0xcd, 0xab, 0x89, 0x10, 0,
        0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1};
    const tmsg_preamble_t preamble = {.version = 9, /* ours is written */
                                      .bytes = 9,
                                      .kind = 1,
                                      .flags = TMSG_HEADER_ACKED,
                                      .channel = 0x1234,
                                      .message_id = 0x12345678,
                                      .endpoint_id = 2,
                                      .sequence = 0x89abcdef,
                                      .body_bytes = 16,
                                      .payload_bytes = 0x1122334455667788,
                                      .policy = 1};
    uint8_t bytes[TMSG_PREAMBLE_BYTES];

    tmsg_preamble_encode(&preamble, bytes);
    cr_expect_arr_eq(bytes, expected, sizeof(expected));
}

Test(preamble, of_an_older_writer_has_the_default_policy)
{
    uint8_t bytes[TMSG_PREAMBLE_SHORT + 1] = "TM\0\x20\1";
    tmsg_preamble_t got;

    bytes[TMSG_PREAMBLE_SHORT] = TMSG_POLICY_STRICT; /* not of the preamble */
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.bytes, TMSG_PREAMBLE_SHORT);
    cr_expect_eq(got.policy, TMSG_POLICY_HOST_FALLBACK);
}

Test(preamble, of_a_newer_writer_is_skipped_to_its_length)
{
    uint8_t bytes[255 + 3] = "TM\0\xff\1\xf0";
    tmsg_preamble_t got;

    memset(bytes + TMSG_PREAMBLE_BYTES, 0xff, sizeof(bytes) - 33);
    bytes[20] = 3; /* the body */
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.bytes, 255);
    cr_expect_eq(got.body_bytes, 3);
}

Test(preamble, says_what_is_wrong)
{
    static const struct {
        size_t at;
        uint8_t byte;
        size_t bytes;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {0, 'T', 0, TMSG_ERR_MALFORMED, "preamble: ends after 0 bytes"},
        {0, 'T', 3, TMSG_ERR_MALFORMED, "preamble: ends after 3 bytes"},
        {0, 't', 40, TMSG_ERR_MALFORMED, "preamble: magic 0x744d is not 'TM'"},
        {1, 0, 40, TMSG_ERR_MALFORMED, "preamble: magic 0x5400 is not 'TM'"},
        {2, 1, 40, TMSG_ERR_INCOMPATIBLE,
         "preamble: the peer's wire version is 1, ours is 0"},
        {2, 255, 4, TMSG_ERR_INCOMPATIBLE,
         "preamble: the peer's wire version is 255, ours is 0"},
        {3, 31, 40, TMSG_ERR_MALFORMED, "preamble: length 31 is below 32"},
        {3, 41, 40, TMSG_ERR_MALFORMED, "preamble: ends after 40 of 41 bytes"},
        {3, 33, 32, TMSG_ERR_MALFORMED, "preamble: ends after 32 of 33 bytes"},
        {5, 0xfe, 40, TMSG_ERR_UNSUPPORTED,
         "preamble: flags 0x0c are not known here"},
        {32, 2, 40, TMSG_ERR_UNSUPPORTED,
         "preamble: policy 2 is not known here"},
        {20, 8, 40, TMSG_ERR_MALFORMED,
         "preamble: a body of 8 bytes in 7 bytes of header"},
        {23, 255, 40, TMSG_ERR_MALFORMED,
         "preamble: a body of 4278190080 bytes in 7 bytes of header"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t bytes[40] = "TM\0\x21\1";
        uint8_t *exact = malloc(rows[i].bytes);
        tmsg_preamble_t got = {.kind = 99};
        tmsg_status_t status;

        bytes[rows[i].at] = rows[i].byte;
        memcpy(exact, bytes, rows[i].bytes);
        status = tmsg_preamble_decode(exact, rows[i].bytes, &got);
        cr_expect_eq(status, rows[i].status, "row %zu: %s", i,
                     tmsg_status_name(status));
        cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        cr_expect_eq(got.kind, 99, "the output was touched");
        free(exact);
    }
}

Test(preamble, wants_a_spilled_body_in_the_padded_payload)
{
    static const struct {
        uint8_t body;
        uint8_t payload;
        tmsg_status_t status;
    } rows[] = {
        {0, 0, TMSG_OK},    {1, 63, TMSG_ERR_MALFORMED},
        {1, 64, TMSG_OK},   {64, 64, TMSG_OK},
        {64, 127, TMSG_OK}, {65, 127, TMSG_ERR_MALFORMED},
        {65, 128, TMSG_OK},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t bytes[33] = "TM\0\x21\1\1";
        tmsg_preamble_t got;

        bytes[20] = rows[i].body;
        bytes[24] = rows[i].payload;
        cr_expect_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got),
                     rows[i].status, "row %zu", i);
    }
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

Test(body, keeps_strides_of_permutations_only)
{
    static const struct {
        int64_t shape[3];
        int64_t strides[3];
        bool kept;
    } rows[] = {
        {{2, 3, 4}, {12, 4, 1}, false}, /* C order goes without saying */
        {{2, 3, 4}, {1, 2, 6}, true},   {{2, 3, 4}, {4, 8, 1}, true},
        {{2, 1, 4}, {1, 77, 2}, true},  {{2, 3, 4}, {24, 8, 2}, false},
        {{2, 3, 4}, {0, 4, 1}, false},  {{2, 3, 4}, {-12, 4, 1}, false},
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

Test(body, says_what_is_wrong_and_where)
{
    static const struct {
        const char *body;
        const char *message;
    } rows[] = {
        {"", "body: it ends early"},
        {"90", "body: it is not a map"},
        {"81 a1 31 90", "body: key is not an integer of 63 bits"},
        {"82 01 90 01 90", "body: key 1 comes twice"},
        {"81 f0 00", "body: key -16 is not known here"},
        {"81 01 90 00 00", "body: 2 bytes after its end"},
        {"81 01 80", "body: tensors is not an array"},
        {"81 01 dd ff ff ff ff",
         "body: tensors counts more elements than there are bytes"},
        {"81 01 92 90 90 90", "body: 2 tensors in 3 bytes"},
        {"81 07 c1", "body: an unknown section holds a byte that msgpack never "
                     "uses"},
        {"81 01 91 80 00 00 00 00 00 00 00", "tensor 0 '': it is not an array"},
        {"81 01 91 94 a4 61 62 63 64 00 08 01",
         "tensor 0 '': it has 4 fields, not 5 or more"},
        {"81 01 91 95 c4 01 61 00 08 01 90",
         "tensor 0 '': name is not a string"},
        {"81 01 91 95 a1 61 c2 08 01 90",
         "tensor 0 'a': dtype code is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 cf ff ff ff ff ff ff ff ff 01 90",
         "tensor 0 'a': dtype bits is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 08 c0 90",
         "tensor 0 'a': dtype lanes is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 08 01 80",
         "tensor 0 'a': shape is not an array"},
        {"81 01 91 95 a1 61 00 08 01 91 ff",
         "tensor 0 'a': shape[0] is negative (-1)"},
        {"81 01 91 95 a4 6d 61 73 6b 02 20 01 92 ce 80 00 00 00 ce 80 00 00 00",
         "tensor 0 'mask': shape product overflows 63 bits"},
        {"81 01 91 95 a1 61 63 08 01 90",
         "tensor 0 'a': unknown dtype (code 99, bits 8)"},
        {"81 01 91 95 a1 61 00 cd 01 08 01 90",
         "tensor 0 'a': unknown dtype (code 0, bits 264, lanes 1)"},
        {"81 01 91 95 a1 61 00 08 00 90", "tensor 0 'a': dtype has 0 lanes"},
        {"81 01 91 95 a0 00 08 01 90 90", "tensor 0 '': name is empty"},
        {"81 01 91 95 a3 61 00 62 00 08 01 90",
         "tensor 0 'a?b': name holds a NUL byte"},
        {"81 01 91 95 a2 61 ff 00 08 01 90",
         "tensor 0 'a?': name is not UTF-8"},
        {"81 01 92 95 a1 61 00 08 01 90 95 a1 61 00 08 01 90",
         "tensor 1 'a': the name comes twice"},
        {"81 01 91 96 a1 61 00 08 01 91 02 c6 00",
         "tensor 0 'a': options ends early"},
        {"81 01 91 96 a1 61 00 08 01 91 02 90",
         "tensor 0 'a': options is not a map"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 a0 00",
         "tensor 0 'a': option key is not an integer of 63 bits"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 fe 00",
         "tensor 0 'a': option key -2 is not known here"},
        {"81 01 91 96 a1 61 00 08 01 91 02 82 04 00 04 00",
         "tensor 0 'a': option key 4 comes twice"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 92 01 02",
         "tensor 0 'a': 2 strides for 1 dimensions"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 91 02",
         "tensor 0 'a': strides leave gaps or overlap"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 01",
         "tensor 0 'a': strides is not an array"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 93 01 00 00",
         "tensor 0 'a': device is not a type and an id"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 92 00 00",
         "tensor 0 'a': device type 0 is out of range"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 92 02 ff",
         "tensor 0 'a': device id -1 is out of range"},
        {"81 01 91 96 a1 61 00 08 01 90 81 03 02",
         "tensor 0 'a': byte length 2 does not match dtype and shape"},
        {"81 01 91 96 a1 61 00 08 01 90 81 04 09",
         "tensor 0 'a': encoding 9 is not known here"},
        {"81 01 91 96 a1 61 00 08 01 90 81 09 c1",
         "tensor 0 'a': an unknown option holds a byte that msgpack never "
         "uses"},
        {"81 01 91 97 a1 61 00 08 01 90 80 d9 05",
         "tensor 0 'a': an unknown field ends early"},
        {"81 02 90", "body: metadata is not a map"},
        {"81 02 81 01 01", "metadata 0 '': key is not a string"},
        {"81 02 81 a1 6b cb 00", "metadata 0 'k': value ends early"},
        {"81 02 81 a0 01", "metadata 0 '': key is empty"},
        {"81 02 81 a1 00 01", "metadata 0 '?': key holds a NUL byte"},
        {"81 02 81 a1 80 01", "metadata 0 '?': key is not UTF-8"},
        {"81 02 82 a1 6b 01 a1 6b 01", "metadata 1 'k': key comes twice"},
        {"81 02 81 a1 6b a1 80",
         "metadata 0: key 'k': the string is not UTF-8"},
        {"81 02 81 af 74 65 6e 73 6f 72 6d 73 67 2e 66 72 61 6d 65 a2 34 31",
         "metadata 0: key 'tensormsg.frame': takes i64, not string"},
        {"81 02 81 a1 6b c0",
         "metadata 0 'k': value is of a type not known here"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        size_t bytes;
        uint8_t *body = golden_unhex(rows[i].body, &bytes);
        tmsg_status_t status = decode(body, bytes, map);

        cr_expect_lt(status, 0, "row %zu was taken", i);
        cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(body, is_held_to_the_limits)
{
    static const struct {
        tmsg_limits_t limits; /* those not 0 */
        const char *body;
        const char *message; /* NULL: it is taken */
    } rows[] = {
        {{.tensors = 1}, "81 01 91 95 a1 61 00 08 01 90", NULL},
        {{.tensors = 1},
         "81 01 92 95 a1 61 00 08 01 90 95 a1 62 00 08 01 90",
         "body: 2 tensors exceed the limit of 1"},
        {{.ndim = 2}, "81 01 91 95 a1 61 00 08 01 92 01 01", NULL},
        {{.ndim = 2},
         "81 01 91 95 a1 61 00 08 01 93 01 01 01",
         "tensor 0 'a': ndim 3 exceeds 2"},
        {{.name_bytes = 2}, "81 01 91 95 a2 61 61 00 08 01 90", NULL},
        {{.name_bytes = 2},
         "81 01 91 95 a3 61 61 61 00 08 01 90",
         "tensor 0 'aaa': a name of 3 bytes exceeds the limit of 2"},
        {{.name_bytes = 2}, "81 02 81 a2 6b 6b 00", NULL},
        {{.name_bytes = 2},
         "81 02 81 a3 6b 6b 6b 00",
         "metadata 0 'kkk': key exceeds the limit of a name's bytes"},
        {{.metadata_bytes = 4}, "81 02 82 a1 6b a1 76 a1 6c c4 01 00", NULL},
        {{.metadata_bytes = 3},
         "81 02 82 a1 6b a1 76 a1 6c c4 01 00",
         "metadata 1 'l': value exceeds the limit of all metadata"},
        {{.metadata_keys = 2}, "81 02 82 a1 6b a1 76 a1 6c c4 01 00", NULL},
        {{.metadata_keys = 1},
         "81 02 82 a1 6b a1 76 a1 6c c4 01 00",
         "body: 2 metadata keys exceed the limit of 1"},
        {{.header_bytes = 3}, "81 01 90", NULL},
        {{.header_bytes = 2},
         "81 01 90",
         "body: 3 bytes exceed the limit of 2"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_limits_t limits = rows[i].limits, defaults;
        tmsg_map_t *map = new_map();
        size_t bytes;
        uint8_t *body = golden_unhex(rows[i].body, &bytes);
        tmsg_status_t status;

        defaults = tmsg_limits_usual();
        limits.tensors = limits.tensors ? limits.tensors : defaults.tensors;
        limits.ndim = limits.ndim ? limits.ndim : defaults.ndim;
        limits.name_bytes =
            limits.name_bytes ? limits.name_bytes : defaults.name_bytes;
        limits.metadata_bytes = limits.metadata_bytes ? limits.metadata_bytes
                                                      : defaults.metadata_bytes;
        limits.header_bytes =
            limits.header_bytes ? limits.header_bytes : defaults.header_bytes;
        limits.metadata_keys = limits.metadata_keys ? limits.metadata_keys
                                                    : defaults.metadata_keys;
        status = tmsg_body_decode(body, bytes, &limits, map, NULL);
        cr_expect_eq(status,
                     rows[i].message ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK,
                     "row %zu: %s", i, tmsg_status_name(status));
        if (rows[i].message != NULL) {
            cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        }
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(body, shows_a_long_foreign_name_safely)
{
    /* 60 letters, a two-byte and a three-byte character: the cut at 64 bytes
     * does not split one */
    uint8_t body[128] = {0x81, 1, 0x91, 0x95, 0xd9, 65};
    const char *end = "...': dtype has 0 lanes";
    tmsg_map_t *map = new_map();
    const char *message;

    memset(body + 6, 'n', 60);
    memcpy(body + 66, "\xc3\xa9\xe2\x82\xac\x00\x08\x00\x90", 9);
    cr_assert_eq(decode(body, 75, map), TMSG_ERR_UNSUPPORTED);
    message = tmsg_error_message();
    cr_expect_str_eq(message + strlen(message) - strlen(end), end);
    cr_expect(strstr(message, "n\xc3\xa9...") != NULL, "%s", message);
    tmsg_map_destroy(map);
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
