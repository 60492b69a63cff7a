/* SPDX-License-Identifier: BSD-3-Clause */
/* DLPack's tensors that come in, and who is told when they are done with. */
#include "test_dlpack_tools.h"

static int64_t back[] = {-3, 1};

Test(dlpack, describes_what_it_is_given)
{
    struct DLManagedTensor managed = plain_2_3();
    tmsg_tensor_t tensor;

    managed.dl_tensor.byte_offset = 12;
    managed.dl_tensor.strides = back;
    cr_assert_eq(tmsg_tensor_from_dlpack(&managed, &tensor), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect(tensor.data == data + 3 && tensor.ndim == 2);
    cr_expect(tensor.shape == shape && tensor.strides == back);
    cr_expect(tensor.dtype.code == TMSG_DTYPE_FLOAT &&
              tensor.dtype.bits == 32 && tensor.dtype.lanes == 1);
    cr_expect(tensor.device.type == TMSG_DEVICE_CPU && tensor.device.id == 0);
    cr_expect_eq(deleted, 0, "describing deleted it");
}

Test(dlpack, describes_a_versioned_one_with_its_flags)
{
    struct DLManagedTensorVersioned managed = versioned_2_3();
    uint64_t flags = 99;
    tmsg_tensor_t tensor;

    managed.minor = 1000; /* no minor version is too new */
    managed.flags = TMSG_DLPACK_READ_ONLY | TMSG_DLPACK_COPIED;
    managed.dl_tensor.byte_offset = 4;
    cr_assert_eq(tmsg_tensor_from_dlpack_versioned(&managed, &tensor, &flags),
                 TMSG_OK, "%s", tmsg_error_message());
    cr_expect(tensor.data == data + 1 && tensor.strides == NULL);
    cr_expect_eq(flags, 3, "%lu", flags);
    managed.flags = TMSG_DLPACK_PADDED; /* float32 has nothing to pad */
    cr_assert_eq(tmsg_tensor_from_dlpack_versioned(&managed, &tensor, NULL),
                 TMSG_OK, "%s", tmsg_error_message());
    managed.dl_tensor.dtype.lanes = 3;
    cr_assert_eq(tmsg_tensor_from_dlpack_versioned(&managed, &tensor, NULL),
                 TMSG_OK, "%s", tmsg_error_message());
}

/* Shapes that have no elements, or no dimensions. */
Test(dlpack, takes_scalars_and_empty_tensors)
{
    struct DLManagedTensor managed = plain_2_3();
    int64_t none[] = {3, 0};
    tmsg_tensor_t tensor;
    uint64_t bytes = 99;

    managed.dl_tensor.ndim = 0;
    managed.dl_tensor.shape = NULL;
    cr_assert_eq(tmsg_tensor_from_dlpack(&managed, &tensor), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect_eq(tmsg_tensor_bytes(&tensor, &bytes), TMSG_OK);
    cr_expect_eq(bytes, 4, "%lu", bytes);
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.shape = none;
    managed.dl_tensor.data = NULL;
    managed.dl_tensor.byte_offset = 8;
    cr_assert_eq(tmsg_tensor_from_dlpack(&managed, &tensor), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect_null(tensor.data);
}

Test(dlpack, takes_every_dtype_of_version_1)
{
    static const char *const names[] = {"int8",
                                        "uint64",
                                        "float16",
                                        "opaque64",
                                        "bfloat16",
                                        "complex128",
                                        "bool",
                                        "float8_e3m4",
                                        "float8_e4m3",
                                        "float8_e4m3b11fnuz",
                                        "float8_e4m3fn",
                                        "float8_e4m3fnuz",
                                        "float8_e5m2",
                                        "float8_e5m2fnuz",
                                        "float8_e8m0fnu",
                                        "float6_e2m3fn",
                                        "float6_e3m2fn",
                                        "float4_e2m1fn",
                                        "float32x4",
                                        "float4_e2m1fnx2",
                                        "int4"};

    for (size_t i = 0; i < COUNT(names); i++) {
        struct DLManagedTensor managed = plain_2_3();
        tmsg_tensor_t tensor;
        char name[TMSG_DTYPE_NAME_MAX];

        cr_assert_eq(tmsg_dtype_parse(names[i], &managed.dl_tensor.dtype),
                     TMSG_OK);
        cr_expect(i > 17 || managed.dl_tensor.dtype.code == i, "%s", names[i]);
        cr_assert_eq(tmsg_tensor_from_dlpack(&managed, &tensor), TMSG_OK,
                     "%s: %s", names[i], tmsg_error_message());
        tmsg_dtype_format(tensor.dtype, name, sizeof(name));
        cr_expect_str_eq(name, names[i], "'%s'", name);
    }
}

Test(dlpack, takes_every_device_by_its_name)
{
    static const char *const names[] = {
        "cpu:0",       "cuda:3",    "cuda_host:0", "opencl:1",
        "vulkan:0",    "metal:0",   "vpi:0",       "rocm:7",
        "rocm_host:0", "ext_dev:2", "oneapi:0",    "webgpu:0",
        "hexagon:0",   "maia:0",    "trn:15",      "cuda_managed:0"};

    for (size_t i = 0; i < COUNT(names); i++) {
        struct DLManagedTensor managed = plain_2_3();
        char name[TMSG_DEVICE_NAME_MAX];
        tmsg_map_t *map = new_map();
        tmsg_tensor_t tensor;

        deleted = 0;
        cr_assert_eq(tmsg_device_parse(names[i], &managed.dl_tensor.device),
                     TMSG_OK);
        cr_assert_eq(tmsg_map_add_dlpack(map, "t", &managed), TMSG_OK, "%s: %s",
                     names[i], tmsg_error_message());
        cr_assert_eq(tmsg_map_find(map, "t", &tensor), TMSG_OK);
        tmsg_device_format(tensor.device, name, sizeof(name));
        cr_expect_str_eq(name, names[i], "'%s'", name);
        tmsg_map_destroy(map);
        cr_expect_eq(deleted, 1, "%s: %d", names[i], deleted);
    }
}

typedef struct {
    const char *error; /* NULL: another than the versions' own */
    tmsg_status_t status;
    tmsg_dl_tensor_t dl;
} refused_t;

static int64_t negative[] = {2, -1}, huge[] = {INT64_MAX, 4};
static int64_t far[] = {INT64_MAX / 2, 1};

static const refused_t refused[] = {
    {"dtype has 0 lanes",
     TMSG_ERR_UNSUPPORTED,
     {data, {1, 0}, 2, {2, 32, 0}, shape, NULL, 0}},
    {"unknown dtype (code 99, bits 32)",
     TMSG_ERR_UNSUPPORTED,
     {data, {1, 0}, 2, {99, 32, 1}, shape, NULL, 0}},
    {"unknown dtype (code 15, bits 8)",
     TMSG_ERR_UNSUPPORTED,
     {data, {1, 0}, 2, {15, 8, 1}, shape, NULL, 0}},
    {"unknown dtype (code 6, bits 1)",
     TMSG_ERR_UNSUPPORTED,
     {data, {1, 0}, 2, {6, 1, 1}, shape, NULL, 0}},
    {"unknown device type 99",
     TMSG_ERR_UNSUPPORTED,
     {data, {99, 0}, 2, {2, 32, 1}, shape, NULL, 0}},
    {"unknown device type 0",
     TMSG_ERR_UNSUPPORTED,
     {data, {0, 0}, 2, {2, 32, 1}, shape, NULL, 0}},
    {"byte_offset 4 into memory of opencl, which has handles and no addresses",
     TMSG_ERR_UNSUPPORTED,
     {data, {4, 0}, 2, {2, 32, 1}, shape, NULL, 4}},
    {"byte_offset 18446744073709551615 is larger than any memory",
     TMSG_ERR_INVALID_PARAM,
     {data, {1, 0}, 2, {2, 32, 1}, shape, NULL, UINT64_MAX}},
    {"data is NULL but the shape has 24 bytes",
     TMSG_ERR_INVALID_PARAM,
     {NULL, {1, 0}, 2, {2, 32, 1}, shape, NULL, 64}},
    {"ndim is negative (-1)",
     TMSG_ERR_INVALID_PARAM,
     {data, {1, 0}, -1, {2, 32, 1}, shape, NULL, 0}},
    {"ndim 65 exceeds 64",
     TMSG_ERR_INVALID_PARAM,
     {data, {1, 0}, 65, {2, 32, 1}, shape, NULL, 0}},
    {"shape is NULL",
     TMSG_ERR_INVALID_PARAM,
     {data, {1, 0}, 2, {2, 32, 1}, NULL, NULL, 0}},
    {"shape[1] is negative (-1)",
     TMSG_ERR_INVALID_PARAM,
     {data, {1, 0}, 2, {2, 32, 1}, negative, NULL, 0}},
    {"shape product overflows 63 bits",
     TMSG_ERR_LIMIT_EXCEEDED,
     {data, {1, 0}, 2, {2, 32, 1}, huge, NULL, 0}},
    {"strides[0] 4611686018427387903: the span overflows",
     TMSG_ERR_LIMIT_EXCEEDED,
     {data, {1, 0}, 2, {2, 32, 1}, shape, far, 0}},
};

/* Each by name, by its words, and with its deleter called once: a map takes
 * what it is given in any case. */
Test(dlpack, refuses_with_words_and_deletes_once)
{
    tmsg_map_t *map = new_map();
    char words[256];

    for (size_t i = 0; i < COUNT(refused); i++) {
        struct DLManagedTensorVersioned versioned = versioned_2_3();
        struct DLManagedTensor plain = plain_2_3();
        tmsg_tensor_t tensor = small;
        uint64_t flags = 99;

        plain.dl_tensor = versioned.dl_tensor = refused[i].dl;
        deleted = 0;
        cr_expect_eq(tmsg_tensor_from_dlpack(&plain, &tensor),
                     refused[i].status, "%zu", i);
        expect_error(refused[i].error);
        cr_expect_eq(
            tmsg_tensor_from_dlpack_versioned(&versioned, &tensor, &flags),
            refused[i].status, "%zu", i);
        expect_error(refused[i].error);
        cr_expect(tensor.shape == small.shape && flags == 99 && deleted == 0,
                  "%zu: it was touched", i);
        snprintf(words, sizeof(words), "tensor 'x': %s", refused[i].error);
        cr_expect_eq(tmsg_map_add_dlpack(map, "x", &plain), refused[i].status);
        expect_error(words);
        cr_expect_eq(deleted, 1, "%zu: %d", i, deleted);
        cr_expect_eq(tmsg_map_add_dlpack_versioned(map, "x", &versioned),
                     refused[i].status);
        expect_error(words);
        cr_expect_eq(deleted, 2, "%zu: %d", i, deleted);
    }
    cr_expect_eq(tmsg_map_size(map), 0);
    tmsg_map_destroy(map);
}

Test(dlpack, refuses_versions_and_flags_that_it_does_not_know)
{
    static const struct {
        const char *error;
        uint32_t major;
        uint64_t flags;
        tmsg_dtype_t dtype;
    } rows[] = {
        {"tensor 'x': the tensor is of DLPack 2.7; this version of tensormsg "
         "reads DLPack 1",
         2,
         0,
         {2, 32, 1}},
        {"tensor 'x': the tensor is of DLPack 0.7; this version of tensormsg "
         "reads DLPack 1",
         0,
         0,
         {2, 32, 1}},
        {"tensor 'x': unknown flags 0x18 of a tensor of DLPack 1.7",
         1,
         0x19,
         {2, 32, 1}},
        {"tensor 'x': values of 4 bits are padded to whole bytes: pack them "
         "first",
         1,
         TMSG_DLPACK_PADDED,
         {17, 4, 1}},
        {"tensor 'x': values of 4 bits are padded to whole bytes: pack them "
         "first",
         1,
         TMSG_DLPACK_PADDED,
         {17, 4, 2}}, /* 2 bytes each, where packed ones have 1 */
        {"tensor 'x': values of 1 bits are padded to whole bytes: pack them "
         "first",
         1,
         TMSG_DLPACK_PADDED,
         {1, 1, 8}},
    };
    tmsg_map_t *map = new_map();

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct DLManagedTensorVersioned managed = versioned_2_3();

        managed.major = rows[i].major;
        managed.minor = 7;
        managed.flags = rows[i].flags;
        managed.dl_tensor.dtype = rows[i].dtype;
        if (managed.major != 1) { /* nobody may look at what it has */
            memset(&managed.dl_tensor, 0xff, sizeof(managed.dl_tensor));
        }
        deleted = 0;
        cr_expect_eq(tmsg_map_add_dlpack_versioned(map, "x", &managed),
                     TMSG_ERR_UNSUPPORTED);
        expect_error(rows[i].error);
        cr_expect_eq(deleted, 1, "%zu: %d", i, deleted);
    }
    tmsg_map_destroy(map);
}

/* What the map itself has against it. */
Test(dlpack, deletes_what_a_map_does_not_take)
{
    struct DLManagedTensor managed = plain_2_3(), strided = plain_2_3(), *out;
    tmsg_map_t *map = new_map();

    cr_assert_eq(tmsg_map_add(map, "x", &small, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_add_dlpack(map, "x", &managed),
                 TMSG_ERR_ALREADY_EXISTS);
    expect_error("the map has a tensor 'x' already");
    cr_expect_eq(tmsg_map_add_dlpack(map, NULL, &managed),
                 TMSG_ERR_INVALID_PARAM);
    expect_error("tensor name is NULL");
    cr_expect_eq(tmsg_map_add_dlpack(NULL, "y", &managed),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_add_dlpack(map, "\xff", &managed),
                 TMSG_ERR_INVALID_PARAM);
    strided.dl_tensor.dtype = (tmsg_dtype_t){17, 4, 1};
    strided.dl_tensor.strides = back;
    cr_expect_eq(tmsg_map_add_dlpack(map, "y", &strided), TMSG_ERR_UNSUPPORTED);
    expect_error(
        "tensor 'y': strides are not supported for elements of 4 bits");
    cr_assert_eq(tmsg_map_to_dlpack(map, "x", &out), TMSG_OK);
    cr_expect_eq(tmsg_map_add_dlpack(map, "y", &managed), TMSG_ERR_BUSY);
    cr_expect_eq(deleted, 6, "%d", deleted);
    cr_expect_eq(tmsg_map_add_dlpack(map, "y", NULL), TMSG_ERR_INVALID_PARAM);
    expect_error("tensor 'y': the managed tensor of DLPack is NULL");
    cr_expect_eq(tmsg_map_add_dlpack_versioned(map, "y", NULL),
                 TMSG_ERR_INVALID_PARAM);
    managed.deleter = NULL;
    cr_expect_eq(tmsg_map_add_dlpack(map, "x", &managed), TMSG_ERR_BUSY);
    out->deleter(out);
    tmsg_map_destroy(map);
    cr_expect_eq(deleted, 6, "%d", deleted);
}

/* A deleter may fail in calls of its own. */
static void delete_and_fail(struct DLManagedTensor *self)
{
    (void)self;
    deleted++;
    cr_expect_eq(tmsg_map_clear(NULL), TMSG_ERR_INVALID_PARAM);
}

Test(dlpack, a_deleter_does_not_overwrite_the_reason)
{
    struct DLManagedTensor managed = plain_2_3();
    tmsg_map_t *map = new_map();

    managed.deleter = delete_and_fail;
    managed.dl_tensor.data = NULL;
    cr_expect_eq(tmsg_map_add_dlpack(map, "x", &managed),
                 TMSG_ERR_INVALID_PARAM);
    expect_error("tensor 'x': data is NULL but the shape has 24 bytes");
    cr_expect_eq(deleted, 1);
    tmsg_map_destroy(map);
}

Test(dlpack, deletes_once_when_a_tensor_leaves_its_map)
{
    struct DLManagedTensorVersioned versioned = versioned_2_3();
    struct DLManagedTensor plain = plain_2_3(), without = plain_2_3();
    tmsg_map_t *map = new_map();

    without.deleter = NULL;
    cr_assert_eq(tmsg_map_add_dlpack(map, "a", &plain), TMSG_OK);
    cr_assert_eq(tmsg_map_add_dlpack(map, "b", &without), TMSG_OK);
    cr_assert_eq(tmsg_map_add_dlpack_versioned(map, "c", &versioned), TMSG_OK);
    cr_expect_eq(deleted, 0);
    cr_assert_eq(tmsg_map_remove(map, "a"), TMSG_OK);
    cr_expect_eq(deleted, 1);
    cr_assert_eq(tmsg_map_clear(map), TMSG_OK);
    cr_expect_eq(deleted, 2);
    cr_assert_eq(tmsg_map_add_dlpack(map, "a", &plain), TMSG_OK);
    tmsg_map_destroy(map);
    cr_expect_eq(deleted, 3);
    tmsg_dlpack_destroy(NULL);
    tmsg_dlpack_destroy_versioned(NULL);
    tmsg_dlpack_destroy(&without);
    tmsg_dlpack_destroy(&plain);
    tmsg_dlpack_destroy_versioned(&versioned);
    cr_expect_eq(deleted, 5);
}
