/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are given out as DLPack's, and what they hold. */
#include <stdlib.h>

#include "support/failing_alloc.h"
#include "test_dlpack_tools.h"

Test(dlpack_out, gives_a_tensor_out_as_it_is)
{
    tmsg_tensor_t strided = small, found;
    struct DLManagedTensorVersioned *versioned;
    struct DLManagedTensor *plain;
    tmsg_map_t *map = new_map();

    strided.strides = strides_1_2;
    cr_assert_eq(tmsg_map_add(map, "c order", &small, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_add(map, "strided", &strided, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_to_dlpack(map, "c order", &plain), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_assert_eq(tmsg_map_to_dlpack_versioned(map, "strided", &versioned),
                 TMSG_OK, "%s", tmsg_error_message());
    cr_expect(plain->dl_tensor.data == data && plain->dl_tensor.ndim == 2 &&
              plain->dl_tensor.byte_offset == 0);
    cr_expect(plain->dl_tensor.shape[0] == 2 && plain->dl_tensor.shape[1] == 3);
    cr_expect(plain->dl_tensor.strides[0] == 3 &&
              plain->dl_tensor.strides[1] == 1);
    cr_expect(versioned->major == 1 && versioned->minor == 3 &&
              versioned->flags == 0);
    cr_expect(versioned->dl_tensor.strides[0] == 1 &&
              versioned->dl_tensor.strides[1] == 2);
    cr_expect(versioned->dl_tensor.dtype.code == TMSG_DTYPE_FLOAT &&
              versioned->dl_tensor.device.type == TMSG_DEVICE_CPU);
    cr_expect_eq(tmsg_tensor_from_dlpack(plain, &found), TMSG_OK);
    cr_expect_eq(tmsg_tensor_is_contiguous(&found), 1);
    plain->deleter(plain);
    versioned->deleter(versioned);
    tmsg_map_destroy(map);
}

Test(dlpack_out, gives_out_scalars_and_empty_tensors)
{
    static const int64_t none[] = {0, INT64_MAX, 4};
    tmsg_tensor_t scalar = {data, {1, 0}, {2, 32, 1}, 0, NULL, NULL};
    tmsg_tensor_t empty = {data, {1, 0}, {2, 32, 1}, 3, none, NULL};
    struct DLManagedTensor *managed;

    cr_assert_eq(tmsg_tensor_to_dlpack(&scalar, NULL, &managed), TMSG_OK);
    cr_expect(managed->dl_tensor.data == data && managed->dl_tensor.ndim == 0);
    managed->deleter(managed);
    cr_assert_eq(tmsg_tensor_to_dlpack(&empty, NULL, &managed), TMSG_OK);
    cr_expect(managed->dl_tensor.data == NULL &&
              managed->dl_tensor.shape[1] == INT64_MAX &&
              managed->dl_tensor.strides[2] == 1);
    managed->deleter(managed);
}

Test(dlpack_out, what_is_given_out_holds_the_map)
{
    struct DLManagedTensorVersioned *second;
    struct DLManagedTensor *first;
    tmsg_map_t *map = new_map();
    int released = 0;

    cr_assert_eq(add_counted(map, "x", &small, &released), TMSG_OK);
    cr_assert_eq(tmsg_map_to_dlpack(map, "x", &first), TMSG_OK);
    cr_expect_eq(tmsg_map_remove(map, "x"), TMSG_ERR_BUSY);
    expect_error("the map is being sent, or one of its tensors is exported: "
                 "change it after that");
    first->deleter(first);
    cr_assert_eq(tmsg_map_set_i64(map, "k", 1), TMSG_OK);
    cr_assert_eq(tmsg_map_to_dlpack(map, "x", &first), TMSG_OK);
    cr_assert_eq(tmsg_map_to_dlpack_versioned(map, "x", &second), TMSG_OK);
    tmsg_map_destroy(map);
    first->deleter(first);
    cr_expect_eq(released, 0);
    cr_expect(second->dl_tensor.shape[1] == 3);
    second->deleter(second);
    cr_expect_eq(released, 1, "%d", released);
}

Test(dlpack_out, read_only_stays_so)
{
    struct DLManagedTensorVersioned managed = versioned_2_3(), *versioned;
    tmsg_map_t *map = new_map(), *other = new_map();
    struct DLManagedTensor *plain = NULL;

    managed.flags = TMSG_DLPACK_READ_ONLY | TMSG_DLPACK_COPIED;
    cr_assert_eq(tmsg_map_add_dlpack_versioned(map, "x", &managed), TMSG_OK);
    cr_expect_eq(tmsg_map_to_dlpack(map, "x", &plain), TMSG_ERR_UNSUPPORTED);
    expect_error("tensor 'x': the tensor is read-only, which DLManagedTensor "
                 "cannot express: use DLManagedTensorVersioned");
    cr_expect_null(plain);
    cr_assert_eq(tmsg_map_set_i64(map, "k", 1), TMSG_OK, "it is held");
    cr_assert_eq(tmsg_map_to_dlpack_versioned(map, "x", &versioned), TMSG_OK);
    cr_expect_eq(versioned->flags, TMSG_DLPACK_READ_ONLY);
    tmsg_map_destroy(map);
    cr_assert_eq(tmsg_map_add_dlpack_versioned(other, "y", versioned), TMSG_OK);
    cr_assert_eq(tmsg_map_to_dlpack_versioned(other, "y", &versioned), TMSG_OK);
    cr_expect_eq(versioned->flags, TMSG_DLPACK_READ_ONLY);
    tmsg_map_destroy(other);
    cr_expect_eq(deleted, 0);
    versioned->deleter(versioned); /* through both maps */
    cr_expect_eq(deleted, 1);
}

Test(dlpack_out, wraps_memory_of_the_callers)
{
    int released = 0;
    tmsg_dlpack_params_t params = {
        .field_mask = TMSG_DLPACK_PARAM_FLAGS | TMSG_DLPACK_PARAM_RELEASE,
        .flags = TMSG_DLPACK_READ_ONLY | TMSG_DLPACK_COPIED,
        .release = count_call,
        .release_arg = &released};
    struct DLManagedTensorVersioned *versioned = NULL;
    struct DLManagedTensor *plain = NULL;
    tmsg_tensor_t bad = small;

    cr_assert_eq(tmsg_tensor_to_dlpack_versioned(&small, &params, &versioned),
                 TMSG_OK, "%s", tmsg_error_message());
    cr_expect_eq(versioned->flags, 3);
    versioned->deleter(versioned);
    cr_expect_eq(released, 1);
    cr_expect_eq(tmsg_tensor_to_dlpack(&small, &params, &plain),
                 TMSG_ERR_UNSUPPORTED);
    params.flags = TMSG_DLPACK_COPIED;
    cr_assert_eq(tmsg_tensor_to_dlpack(&small, &params, &plain), TMSG_OK);
    plain->deleter(plain);
    cr_expect_eq(released, 2);
    plain = NULL;
    params.flags = TMSG_DLPACK_PADDED;
    cr_expect_eq(tmsg_tensor_to_dlpack(&small, &params, &plain),
                 TMSG_ERR_INVALID_PARAM);
    expect_error("dlpack: flags 0x4 are neither READ_ONLY nor COPIED");
    params.field_mask |= 1 << 9;
    cr_expect_eq(tmsg_tensor_to_dlpack(&small, &params, &plain),
                 TMSG_ERR_INVALID_PARAM);
    expect_error("dlpack: unknown field_mask bits 0x200");
    bad.ndim = 70;
    cr_expect_eq(tmsg_tensor_to_dlpack(&bad, NULL, &plain),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_to_dlpack(NULL, NULL, &plain),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_to_dlpack(&small, NULL, NULL),
                 TMSG_ERR_INVALID_PARAM);
    expect_error("managed_p is NULL");
    cr_expect(plain == NULL && released == 2);
}

Test(dlpack_out, says_what_is_not_there)
{
    struct DLManagedTensor *managed = NULL;
    tmsg_map_t *map = new_map();
    tmsg_tensor_t tensor;

    cr_expect_eq(tmsg_map_to_dlpack(map, "x", &managed), TMSG_ERR_NOT_FOUND);
    expect_error("no tensor 'x' in the map");
    cr_expect_eq(tmsg_map_to_dlpack(NULL, "x", &managed),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_to_dlpack(map, NULL, &managed),
                 TMSG_ERR_INVALID_PARAM);
    cr_assert_eq(tmsg_map_add(map, "x", &small, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_to_dlpack(map, "x", NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_to_dlpack_versioned(map, "x", NULL),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_from_dlpack(NULL, &tensor),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_tensor_from_dlpack_versioned(NULL, &tensor, NULL),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK, "%s", tmsg_error_message());
    tmsg_map_destroy(map);
}

/* Whichever allocation fails: deleted once, and nothing is held. */
Test(dlpack_out, survives_every_failing_allocation)
{
    struct DLManagedTensor managed = plain_2_3(), *out = NULL;
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        tmsg_map_t *map = new_map();
        tmsg_status_t status;

        deleted = 0;
        failing_alloc_arm(n);
        status = tmsg_map_add_dlpack(map, "x", &managed);
        if (status == TMSG_OK) {
            cr_expect_eq(deleted, 0);
            status = tmsg_map_to_dlpack(map, "x", &out);
        } else {
            cr_expect_eq(deleted, 1, "%lu: %d", n, deleted);
        }
        failed = failing_alloc_disarm();
        cr_expect_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK, "%d",
                     status);
        cr_expect(failed ? out == NULL : out != NULL);
        cr_expect_eq(tmsg_map_set_i64(map, "k", 1),
                     failed ? TMSG_OK : TMSG_ERR_BUSY);
        tmsg_dlpack_destroy(out);
        tmsg_map_destroy(map);
        cr_expect_eq(deleted, 1, "%lu: %d", n, deleted);
    }
}
