/* SPDX-License-Identifier: BSD-3-Clause */
/* C arrays in and out of a map. */
#include "test_map_tools.h"

static void expect_words(const char *words)
{
    cr_expect(strstr(tmsg_error_message(), words) != NULL, "'%s' lacks '%s'",
              tmsg_error_message(), words);
}

Test(map_array, goes_in_as_a_tensor_of_the_host_in_c_order)
{
    tmsg_map_t *map = new_map();
    int64_t shape[] = {2, 3};
    tmsg_tensor_t tensor;

    cr_assert_eq(tmsg_map_add_array(map, "image", data, "float32", 2, shape),
                 TMSG_OK);
    memset(shape, 0xff, sizeof(shape)); /* it was copied */
    cr_assert_eq(tmsg_map_find(map, "image", &tensor), TMSG_OK);
    cr_expect(tensor.data == data && tensor.strides == NULL);
    cr_expect(memcmp(&tensor.device, &small.device, 8) == 0);
    cr_expect(memcmp(&tensor.dtype, &small.dtype, 4) == 0);
    cr_expect(tensor.ndim == 2 && tensor.shape[0] == 2 && tensor.shape[1] == 3);
    cr_expect_eq(tmsg_map_add_array(map, "one", data, "bfloat16x4", 0, NULL),
                 TMSG_OK);
    cr_assert_eq(tmsg_map_find_array(map, "one", "bfloat16x4", 0, &tensor),
                 TMSG_OK);
    cr_expect(tensor.data == data && tensor.ndim == 0);
    cr_expect_eq(tmsg_map_find_array(map, "one", "bfloat16x4", 0, NULL),
                 TMSG_OK);
    tmsg_map_destroy(map);
}

Test(map_array, what_is_wrong_with_one_is_said)
{
    static const int64_t bad[] = {2, -3};
    const struct {
        const char *name, *dtype;
        void *data;
        int32_t ndim;
        const int64_t *shape;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {NULL, "float32", data, 2, shape_2_3, TMSG_ERR_INVALID_PARAM,
         "tensor name is NULL"},
        {"x", NULL, data, 2, shape_2_3, TMSG_ERR_INVALID_PARAM,
         "dtype is NULL"},
        {"x", "flaot32", data, 2, shape_2_3, TMSG_ERR_INVALID_PARAM,
         "tensor 'x': 'flaot32' is not a dtype"},
        {"x", "float32", NULL, 2, shape_2_3, TMSG_ERR_INVALID_PARAM,
         "tensor 'x': data is NULL"},
        {"x", "float32", data, 2, NULL, TMSG_ERR_INVALID_PARAM, "tensor 'x'"},
        {"x", "float32", data, 65, shape_2_3, TMSG_ERR_INVALID_PARAM,
         "ndim 65"},
        {"x", "float32", data, 2, bad, TMSG_ERR_INVALID_PARAM, "tensor 'x'"},
        {"", "float32", data, 2, shape_2_3, TMSG_ERR_INVALID_PARAM, "empty"},
        {"there", "float32", data, 2, shape_2_3, TMSG_ERR_ALREADY_EXISTS,
         "'there'"},
    };
    tmsg_map_t *map = new_map();

    cr_assert_eq(tmsg_map_add(map, "there", &small, NULL), TMSG_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect_eq(tmsg_map_add_array(map, rows[i].name, rows[i].data,
                                        rows[i].dtype, rows[i].ndim,
                                        rows[i].shape),
                     rows[i].status, "row %zu", i);
        expect_words(rows[i].words);
    }
    cr_expect_eq(tmsg_map_size(map), 1);
    cr_expect_eq(tmsg_map_add_array(NULL, "x", data, "float32", 0, NULL),
                 TMSG_ERR_INVALID_PARAM);
    expect_words("map is NULL");
    tmsg_map_destroy(map);
}

Test(map_array, is_found_only_where_c_code_can_read_it)
{
    static const int64_t same[] = {0, 0}, none[] = {0, 3}, c_order[] = {3, 1};
    const struct {
        const char *name;
        tmsg_tensor_t tensor;
        tmsg_status_t status; /* of a search for float32 of 2 dimensions */
        const char *words;
    } rows[] = {
        {"plain", small, TMSG_OK, ""},
        {"strides",
         {data, {1, 0}, {2, 32, 1}, 2, shape_2_3, c_order},
         TMSG_OK,
         ""},
        {"pinned", {data, {3, 0}, {2, 32, 1}, 2, shape_2_3, NULL}, TMSG_OK, ""},
        {"none", {NULL, {1, 0}, {2, 32, 1}, 2, none, NULL}, TMSG_OK, ""},
        {"double",
         {data, {1, 0}, {2, 64, 1}, 2, shape_2_3, NULL},
         TMSG_ERR_INVALID_PARAM,
         "tensor 'double': it has dtype float64 and ndim 2, not float32 and 2"},
        {"int",
         {data, {1, 0}, {0, 32, 1}, 2, shape_2_3, NULL},
         TMSG_ERR_INVALID_PARAM,
         "int32"},
        {"lanes",
         {data, {1, 0}, {2, 32, 2}, 2, shape_2_3, NULL},
         TMSG_ERR_INVALID_PARAM,
         "float32x2"},
        {"flat",
         {data, {1, 0}, {2, 32, 1}, 1, shape_2_3, NULL},
         TMSG_ERR_INVALID_PARAM,
         "ndim 1"},
        {"gpu",
         {data, {2, 1}, {2, 32, 1}, 2, shape_2_3, NULL},
         TMSG_ERR_UNSUPPORTED,
         "tensor 'gpu': it is in memory of cuda:1"},
        {"fortran",
         {data, {1, 0}, {2, 32, 1}, 2, shape_2_3, strides_1_2},
         TMSG_ERR_UNSUPPORTED,
         "tensor 'fortran': its strides"},
        {"broadcast",
         {data, {1, 0}, {2, 32, 1}, 2, shape_2_3, same},
         TMSG_ERR_UNSUPPORTED,
         "tmsg_tensor_pack()"},
    };
    tmsg_map_t *map = new_map();
    tmsg_tensor_t found;

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_tensor_t untouched = {.data = &found};

        cr_assert_eq(tmsg_map_add(map, rows[i].name, &rows[i].tensor, NULL),
                     TMSG_OK, "%s", tmsg_error_message());
        found = untouched;
        cr_expect_eq(
            tmsg_map_find_array(map, rows[i].name, "float32", 2, &found),
            rows[i].status, "%s: %s", rows[i].name, tmsg_error_message());
        expect_words(rows[i].words);
        cr_expect(found.data == (rows[i].status == TMSG_OK ? rows[i].tensor.data
                                                           : &found),
                  "%s", rows[i].name);
    }
    cr_expect_eq(tmsg_map_find_array(map, "other", "float32", 2, &found),
                 TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_find_array(map, "plain", "", 2, &found),
                 TMSG_ERR_INVALID_PARAM);
    expect_words("is not a dtype");
    cr_expect_eq(tmsg_map_find_array(map, "plain", NULL, 2, &found),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_find_array(map, NULL, "float32", 2, &found),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_find_array(NULL, "plain", "float32", 2, &found),
                 TMSG_ERR_INVALID_PARAM);
    tmsg_map_destroy(map);
}
