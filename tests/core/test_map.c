/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/map.h"
#include "test_map_tools.h"

Test(map, begins_empty)
{
    tmsg_map_t *map = new_map();
    tmsg_tensor_t tensor = small;

    cr_expect_eq(tmsg_map_size(map), 0);
    cr_expect_eq(tmsg_map_at(map, 0, NULL, &tensor), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(),
                     "tensor index 0 is out of range: the map has 0 tensors",
                     "'%s'", tmsg_error_message());
    cr_expect_eq(tmsg_map_find(map, "a", &tensor), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(), "no tensor 'a' in the map", "'%s'",
                     tmsg_error_message());
    cr_expect(tensor.data == data && tensor.ndim == 2, "it was touched");
    cr_expect_eq(tmsg_map_remove(map, "a"), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_find(map, NULL, &tensor), TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(), "tensor name is NULL", "'%s'",
                     tmsg_error_message());
    cr_expect_eq(tmsg_map_remove(map, NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK);
    tmsg_map_destroy(map);
    tmsg_map_destroy(NULL);
}

Test(map, copies_the_descriptor_and_borrows_the_data)
{
    tmsg_map_t *map = new_map();
    char name[] = "image";
    int64_t shape[] = {2, 3}, strides[] = {3, 1};
    const char *found_name = NULL;
    tmsg_tensor_t tensor = small, found, at;

    tensor.shape = shape;
    tensor.strides = strides;
    cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
    memset(name, 'x', 5);
    memset(shape, 0xff, sizeof(shape));
    memset(strides, 0xff, sizeof(strides));
    memset(&tensor, 0xff, sizeof(tensor));
    cr_assert_eq(tmsg_map_find(map, "image", &found), TMSG_OK);
    cr_assert_eq(tmsg_map_at(map, 0, &found_name, &at), TMSG_OK);
    cr_expect_str_eq(found_name, "image", "'%s'", found_name);
    cr_expect(found.data == data && at.data == data);
    cr_expect_eq(found.ndim, 2, "%d", found.ndim);
    cr_expect(found.dtype.code == TMSG_DTYPE_FLOAT && found.dtype.bits == 32 &&
              found.dtype.lanes == 1);
    cr_expect(found.device.type == TMSG_DEVICE_CPU && found.device.id == 0);
    cr_expect(found.shape[0] == 2 && found.shape[1] == 3, "%ld %ld",
              found.shape[0], found.shape[1]);
    cr_expect(found.strides[0] == 3 && found.strides[1] == 1, "%ld %ld",
              found.strides[0], found.strides[1]);
    cr_expect(at.shape == found.shape && at.strides == found.strides);
    cr_expect_eq(tmsg_map_find(map, "xxxxx", NULL), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_find(map, "image", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_at(map, 0, NULL, NULL), TMSG_OK);
    tmsg_map_destroy(map);
}

/* What a map says of its own tensors may go back into it. */
Test(map, takes_what_points_into_itself)
{
    tmsg_map_t *map = new_map();
    const char *name;
    tmsg_tensor_t tensor;

    cr_assert_eq(tmsg_map_add(map, "abc", &small, NULL), TMSG_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(tmsg_map_at(map, (size_t)i, &name, &tensor), TMSG_OK);
        cr_assert_eq(tmsg_map_add(map, name + 1, &tensor, NULL), TMSG_OK);
    }
    cr_expect_str_eq(names_of(map), "abc bc c ", "'%s'", names_of(map));
    cr_assert_eq(tmsg_map_at(map, 2, &name, &tensor), TMSG_OK);
    cr_expect(tensor.shape[0] == 2 && tensor.shape[1] == 3);
    cr_expect_eq(tmsg_map_remove(map, name), TMSG_OK);
    cr_expect_str_eq(names_of(map), "abc bc ", "'%s'", names_of(map));
    tmsg_map_destroy(map);
}

Test(map, holds_every_kind_of_shape)
{
    static const int64_t none[] = {3, 0}, windows[] = {1, 1}, back[] = {-3, -1},
                         same[] = {0, 0};
    static int64_t long_shape[64], long_strides[64];
    const tmsg_tensor_t tensors[] = {
        {data, {1, 0}, {2, 32, 1}, 0, NULL, NULL},
        {data, {1, 0}, {2, 32, 1}, 0, shape_2_3, strides_1_2},
        {NULL, {1, 0}, {2, 32, 1}, 2, none, NULL},
        {NULL, {1, 0}, {2, 32, 1}, 2, none, windows},
        {data, {1, 0}, {2, 32, 1}, 2, shape_2_3, windows},
        {data + 5, {1, 0}, {2, 32, 1}, 2, shape_2_3, back},
        {data, {1, 0}, {2, 32, 1}, 2, shape_2_3, same},
        {data, {1, 0}, {17, 4, 1}, 2, shape_2_3, NULL},
        {data, {1, 0}, {17, 4, 1}, 2, shape_2_3, strides_1_2},
        {data, {1, 0}, {17, 4, 2}, 2, shape_2_3, windows},
        {data, {1, 0}, {2, 32, 4}, 2, shape_2_3, NULL},
        {data, {2, 3}, {2, 32, 1}, 64, long_shape, long_strides},
    };
    tmsg_map_t *map = new_map();

    for (int i = 0; i < 64; i++) {
        long_shape[i] = 1;
        long_strides[i] = i - 32;
    }
    for (size_t i = 0; i < COUNT(tensors); i++) {
        cr_assert_eq(tmsg_map_add(map, numbered("t", i), &tensors[i], NULL),
                     TMSG_OK, "%zu: %s", i, tmsg_error_message());
    }
    for (size_t i = 0; i < COUNT(tensors); i++) {
        const tmsg_tensor_t *ours = &tensors[i];
        tmsg_tensor_t found;
        size_t bytes = (size_t)ours->ndim * sizeof(int64_t);

        cr_assert_eq(tmsg_map_find(map, numbered("t", i), &found), TMSG_OK);
        cr_expect(found.data == ours->data && found.ndim == ours->ndim &&
                      memcmp(&found.dtype, &ours->dtype, 4) == 0 &&
                      memcmp(&found.device, &ours->device, 8) == 0,
                  "tensor %zu", i);
        cr_expect(bytes == 0 || memcmp(found.shape, ours->shape, bytes) == 0,
                  "tensor %zu: shape", i);
        cr_expect_eq(found.strides == NULL, ours->strides == NULL,
                     "tensor %zu: strides %p", i, (const void *)found.strides);
        cr_expect(bytes == 0 || found.strides == NULL ||
                      memcmp(found.strides, ours->strides, bytes) == 0,
                  "tensor %zu: strides", i);
    }
    tmsg_map_destroy(map);
}

static char longest[4096 + 2]; /* 'n' x 4096 and 4097 */

Test(map, takes_names_of_1_to_4096_bytes)
{
    static const char *const names[] = {
        "a",    " ",  "a b",  "/",
        "..",   "\n", "\x01", "m\xc3\xa4\xe5\x83\x8f\xf0\x9f\x8e\x9e",
        longest};
    tmsg_map_t *map = new_map();

    memset(longest, 'n', 4096);
    for (size_t i = 0; i < COUNT(names); i++) {
        tmsg_status_t status = tmsg_map_add(map, names[i], &small, NULL);
        const char *name = NULL;

        cr_expect_eq(status, TMSG_OK, "%zu: %s", i, tmsg_error_message());
        cr_expect_eq(tmsg_map_find(map, names[i], NULL), TMSG_OK, "%zu", i);
        cr_expect_eq(tmsg_map_at(map, i, &name, NULL), TMSG_OK);
        cr_expect_str_eq(name, names[i]);
    }
    tmsg_map_destroy(map);
}

/* Without its bit a field of params is not looked at; a bit of a newer header
 * is refused. */
Test(map, add_takes_the_params_whose_bits_are_set)
{
    int calls = 0;
    tmsg_map_add_params_t params = {.release = count_call,
                                    .release_arg = &calls};
    tmsg_map_t *map = new_map();

    cr_expect_eq(tmsg_map_add(map, "borrowed", &small, &params), TMSG_OK);
    params.field_mask = 1ULL << 40 | TMSG_MAP_ADD_PARAM_RELEASE;
    cr_expect_eq(tmsg_map_add(map, "unknown", &small, &params),
                 TMSG_ERR_INVALID_PARAM);
    tmsg_map_destroy(map);
    cr_expect_eq(calls, 0, "%d", calls);
}

Test(map, refuses_a_null_map_and_a_null_tensor)
{
    tmsg_map_t *map = new_map();
    const tmsg_status_t refused[] = {
        tmsg_map_add(map, "x", NULL, NULL),
        tmsg_map_add(NULL, "x", &small, NULL),
        tmsg_map_at(NULL, 0, NULL, NULL),
        tmsg_map_find(NULL, "x", NULL),
        tmsg_map_remove(NULL, "x"),
        tmsg_map_set_data(NULL, 0, data, NULL),
        tmsg_map_clear(NULL),
    };

    for (size_t i = 0; i < COUNT(refused); i++) {
        cr_expect_eq(refused[i], TMSG_ERR_INVALID_PARAM, "%zu: %s", i,
                     tmsg_status_name(refused[i]));
    }
    cr_expect_eq(tmsg_map_size(map), 0);
    cr_expect_eq(tmsg_map_size(NULL), 0);
    tmsg_map_destroy(map);
}

/* The next frame of a tensor, in other memory. */
Test(map, data_are_set_anew)
{
    static const int64_t none[] = {3, 0};
    tmsg_map_t *map = new_map();
    int first = 0, second = 0, refused = 0;
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                    .release = count_call,
                                    .release_arg = &second};
    tmsg_tensor_t empty = small, found;
    uint64_t stamp;

    empty.shape = none;
    cr_assert_eq(tmsg_map_add(map, "before", &small, NULL), TMSG_OK);
    cr_assert_eq(add_counted(map, "a", &small, &first), TMSG_OK);
    cr_assert_eq(tmsg_map_add(map, "empty", &empty, NULL), TMSG_OK);
    stamp = tmsg_map_stamp(map);

    cr_expect_eq(tmsg_map_set_data(map, 1, data + 1, &params), TMSG_OK);
    cr_expect(first == 1 && second == 0, "%d %d", first, second);
    cr_assert_eq(tmsg_map_find(map, "a", &found), TMSG_OK);
    cr_expect(found.data == data + 1);
    cr_expect(found.ndim == 2 && found.shape[0] == 2 && found.shape[1] == 3);
    cr_expect_eq(tmsg_map_stamp(map), stamp, "it has the same layout");
    cr_assert_eq(tmsg_map_find(map, "before", &found), TMSG_OK);
    cr_expect(found.data == data);
    cr_expect_eq(tmsg_map_set_data(map, 2, NULL, NULL), TMSG_OK);

    params.release_arg = &refused;
    cr_expect_eq(tmsg_map_set_data(map, 1, NULL, &params),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(),
                     "tensor 'a': data is NULL but the shape has elements",
                     "'%s'", tmsg_error_message());
    cr_expect_eq(tmsg_map_set_data(map, 3, data, &params), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(),
                     "tensor index 3 is out of range: the map has 3 tensors",
                     "'%s'", tmsg_error_message());
    params.field_mask |= 1u << 9;
    cr_expect_eq(tmsg_map_set_data(map, 1, data, &params),
                 TMSG_ERR_INVALID_PARAM);
    cr_assert_eq(tmsg_map_find(map, "a", &found), TMSG_OK);
    cr_expect(found.data == data + 1 && second == 0 && refused == 0);

    cr_expect_eq(tmsg_map_set_data(map, 1, data, NULL), TMSG_OK);
    cr_expect_eq(second, 1, "released %d times", second);
    tmsg_map_destroy(map);
    cr_expect(first == 1 && second == 1 && refused == 0);
}

/* What is added to a map that owns the memory of all, or set in it, is the
 * caller's all the same. */
Test(map, a_map_that_was_loaded_may_borrow)
{
    for (int way = 0; way < 2; way++) {
        tmsg_map_t *map = new_map();
        int owned = 0;

        cr_assert_eq(tmsg_map_add(map, "a", &small, NULL), TMSG_OK);
        cr_expect(tmsg_map_borrows(map));
        tmsg_map_own(map, count_call, &owned);
        cr_expect_not(tmsg_map_borrows(map));
        cr_assert_eq(way == 0 ? tmsg_map_set_data(map, 0, data + 1, NULL)
                              : tmsg_map_add(map, "b", &small, NULL),
                     TMSG_OK);
        cr_expect(tmsg_map_borrows(map), "way %d", way);
        cr_expect_eq(owned, 0);
        cr_assert_eq(tmsg_map_clear(map), TMSG_OK);
        cr_expect_eq(owned, 1);
        cr_assert_eq(add_counted(map, "c", &small, &owned), TMSG_OK);
        cr_expect_not(tmsg_map_borrows(map));
        tmsg_map_destroy(map);
        cr_expect_eq(owned, 2);
    }
}

/* Everything that tmsg_map_add() refuses: nothing changes, release is not
 * called, and the message names the tensor. */
Test(map, refuses_bad_tensors_by_name)
{
    static const int64_t negative[] = {-1, 3}, huge[] = {1LL << 32, 1LL << 32};
    static const int64_t far[] = {INT64_MAX, 1}, gaps[] = {4, 1};
    tmsg_tensor_t no_dtype = small, no_lanes = small, no_shape = small,
                  no_data = small, minus = small, many = small,
                  overflow = small, span = small, backwards = small,
                  nibbles = small, odd_lanes = small;
    const struct {
        const char *name;
        const tmsg_tensor_t *tensor;
        tmsg_status_t status;
        const char *message; /* how it begins */
    } rows[] = {
        {NULL, &small, TMSG_ERR_INVALID_PARAM, "tensor name is NULL"},
        {"", &small, TMSG_ERR_INVALID_PARAM, "tensor name is empty"},
        {longest, &small, TMSG_ERR_LIMIT_EXCEEDED,
         "tensor name 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
         "nnnnnnnnnnnnnnnn...' has 4097 bytes"},
        {"a\xff", &small, TMSG_ERR_INVALID_PARAM,
         "tensor name 'a\\xff' is not UTF-8"},
        {"\xc0\xaf/", &small, TMSG_ERR_INVALID_PARAM,
         "tensor name '\\xc0\\xaf/"},
        {"there", &small, TMSG_ERR_ALREADY_EXISTS,
         "the map has a tensor 'there' already"},
        {"x", &no_dtype, TMSG_ERR_UNSUPPORTED, "tensor 'x': unknown dtype"},
        {"x", &no_lanes, TMSG_ERR_UNSUPPORTED, "tensor 'x': dtype has 0 lanes"},
        {"x", &no_shape, TMSG_ERR_INVALID_PARAM, "tensor 'x': shape is NULL"},
        {"x", &no_data, TMSG_ERR_INVALID_PARAM,
         "tensor 'x': data is NULL but the shape has 24 bytes"},
        {"x", &minus, TMSG_ERR_INVALID_PARAM,
         "tensor 'x': shape[0] is negative (-1)"},
        {"mask", &many, TMSG_ERR_INVALID_PARAM,
         "tensor 'mask': ndim 70 exceeds 64"},
        {"x", &backwards, TMSG_ERR_INVALID_PARAM,
         "tensor 'x': ndim is negative (-2)"},
        {"x", &overflow, TMSG_ERR_LIMIT_EXCEEDED,
         "tensor 'x': shape product overflows 63 bits"},
        {"x", &span, TMSG_ERR_LIMIT_EXCEEDED,
         "tensor 'x': strides[0] 9223372036854775807: the span overflows"},
        {"x", &nibbles, TMSG_ERR_UNSUPPORTED,
         "tensor 'x': strides are not supported for elements of 4 bits"},
        {"x", &odd_lanes, TMSG_ERR_UNSUPPORTED,
         "tensor 'x': strides are not supported for elements of 12 bits"},
        {longest + 1, &many, TMSG_ERR_INVALID_PARAM, "tensor 'nnnnnnnnnn"},
    };
    int calls = 0, there = 0;
    tmsg_map_t *map = new_map();

    memset(longest, 'n', 4097);
    no_dtype.dtype.code = 99;
    no_lanes.dtype.lanes = 0;
    no_shape.shape = NULL;
    no_data.data = NULL;
    minus.shape = negative;
    many.ndim = 70;
    backwards.ndim = -2;
    overflow.shape = huge;
    span.strides = far;
    nibbles.strides = odd_lanes.strides = gaps;
    nibbles.dtype = (tmsg_dtype_t){TMSG_DTYPE_INT, 4, 1};
    odd_lanes.dtype = (tmsg_dtype_t){TMSG_DTYPE_INT, 4, 3};
    cr_assert_eq(add_counted(map, "there", &small, &there), TMSG_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status =
            add_counted(map, rows[i].name, rows[i].tensor, &calls);
        const char *message = tmsg_error_message();

        cr_expect_eq(status, rows[i].status, "%s: %s, not %s", rows[i].message,
                     tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect(strncmp(message, rows[i].message, strlen(rows[i].message)) ==
                      0,
                  "'%s', not '%s'", message, rows[i].message);
        cr_expect_eq(calls, 0, "%s: release was called", rows[i].message);
        cr_expect_str_eq(names_of(map), "there ", "%s: '%s'", rows[i].message,
                         names_of(map));
    }
    /* a long name does not push the reason out */
    cr_expect(strstr(tmsg_error_message(), ": ndim 70 exceeds 64") != NULL,
              "'%s'", tmsg_error_message());
    cr_expect_eq(there, 0);
    tmsg_map_destroy(map);
    cr_expect_eq(there, 1, "%d", there);
}

Test(map, releases_what_it_owns_exactly_once)
{
    enum { TENSORS = 40 };
    static const char *const ways[] = {"remove", "clear", "destroy"};
    int calls[TENSORS];

    for (size_t way = 0; way < COUNT(ways); way++) {
        tmsg_map_t *map = new_map();

        memset(calls, 0, sizeof(calls));
        for (size_t i = 0; i < TENSORS; i++) {
            cr_assert_eq(
                i % 4 ? add_counted(map, numbered("t", i), &small, &calls[i])
                      : tmsg_map_add(map, numbered("t", i), &small, NULL),
                TMSG_OK);
        }
        for (size_t i = 0; way == 0 && i < TENSORS; i++) {
            size_t gone = i * 7 % TENSORS;

            cr_assert_eq(tmsg_map_remove(map, numbered("t", gone)), TMSG_OK);
            cr_expect_eq(calls[gone], gone % 4 != 0, "tensor %zu: %d calls",
                         gone, calls[gone]);
        }
        if (way == 1) {
            cr_assert_eq(tmsg_map_clear(map), TMSG_OK);
        }
        for (size_t i = 0; way < 2 && i < TENSORS; i++) {
            cr_expect_eq(calls[i], i % 4 != 0, "%s, tensor %zu: %d calls",
                         ways[way], i, calls[i]);
        }
        tmsg_map_destroy(map);
        for (size_t i = 0; i < TENSORS; i++) {
            cr_expect_eq(calls[i], i % 4 != 0, "%s, tensor %zu: %d calls",
                         ways[way], i, calls[i]);
        }
    }
}

Test(map, common_owner_is_released_once)
{
    tmsg_map_t *map = new_map();
    int first = 0, second = 0;

    add_numbered(map, 3);
    tmsg_map_own(map, count_call, &first);
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK);
    cr_expect_eq(first, 1, "%d", first);
    cr_expect_eq(tmsg_map_clear(map), TMSG_OK);
    tmsg_map_own(map, count_call, &second);
    tmsg_map_destroy(map);
    cr_expect(first == 1 && second == 1, "%d %d", first, second);
}

/* While a send holds it: changes answer BUSY, reading goes on, and destroy
 * waits for the last send. */
Test(map, is_busy_while_held)
{
    static const tmsg_meta_t value = {.type = TMSG_META_TYPE_I64};
    tmsg_map_t *map = new_map();
    int owned = 0, refused = 0;
    tmsg_tensor_t tensor;
    int64_t i64;

    cr_assert_eq(add_counted(map, "a", &small, &owned), TMSG_OK);
    cr_assert_eq(tmsg_map_set_i64(map, "k", 1), TMSG_OK);
    tmsg_map_hold(map);
    tmsg_map_hold(map);
    for (int held = 2; held > 0; held--) {
        const struct {
            const char *what;
            tmsg_status_t status;
        } rows[] = {
            {"add", add_counted(map, "b", &small, &refused)},
            {"remove", tmsg_map_remove(map, "a")},
            {"remove of nothing", tmsg_map_remove(map, "zz")},
            {"set_data", tmsg_map_set_data(map, 0, data, NULL)},
            {"clear", tmsg_map_clear(map)},
            {"set_meta", tmsg_map_set_meta(map, "k", &value)},
            {"set_string", tmsg_map_set_string(map, "new", "text")},
            {"remove_meta", tmsg_map_remove_meta(map, "k")},
        };

        for (size_t i = 0; i < COUNT(rows); i++) {
            cr_expect_eq(rows[i].status, TMSG_ERR_BUSY, "%s: %s", rows[i].what,
                         tmsg_status_name(rows[i].status));
        }
        cr_expect(strstr(tmsg_error_message(), "being sent") != NULL, "'%s'",
                  tmsg_error_message());
        cr_expect_eq(tmsg_map_find(map, "a", &tensor), TMSG_OK);
        cr_expect_eq(tmsg_map_get_i64(map, "k", &i64), TMSG_OK);
        cr_expect_eq(i64, 1, "%ld", i64);
        cr_expect_eq(tmsg_map_size(map), 1, "%zu", tmsg_map_size(map));
        cr_expect_not(tmsg_map_unhold(map));
    }
    cr_expect_eq(tmsg_map_remove(map, "a"), TMSG_OK);
    cr_expect(owned == 1 && refused == 0, "%d %d", owned, refused);

    cr_assert_eq(add_counted(map, "a", &small, &owned), TMSG_OK);
    tmsg_map_hold(map);
    tmsg_map_destroy(map);
    cr_expect_eq(owned, 1, "released while a send holds it");
    cr_expect(tmsg_map_unhold(map));
    tmsg_map_free(map);
    cr_expect_eq(owned, 2, "%d", owned);
}

/* For a decoder: names with a length, tensors that get their data later. */
Test(map, append_checks_what_comes_from_a_peer)
{
    tmsg_tensor_t no_data = small, bad = small;
    const struct {
        const char *name;
        size_t name_bytes;
        const tmsg_tensor_t *tensor;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {"abc", 3, &no_data, TMSG_OK, ""},
        {"abcd", 2, &no_data, TMSG_OK, ""},
        {longest, 4097, &no_data, TMSG_OK, ""},
        {"abc", 3, &no_data, TMSG_ERR_ALREADY_EXISTS,
         "the map has a tensor 'abc' already"},
        {"ab", 2, &small, TMSG_ERR_ALREADY_EXISTS,
         "the map has a tensor 'ab' already"},
        {"", 0, &no_data, TMSG_ERR_INVALID_PARAM,
         "tensor 3: name is not UTF-8 without NUL"},
        {"a\0b", 3, &no_data, TMSG_ERR_INVALID_PARAM,
         "tensor 3: name is not UTF-8 without NUL"},
        {"a\xc3", 2, &no_data, TMSG_ERR_INVALID_PARAM,
         "tensor 3: name is not UTF-8 without NUL"},
        {"\nx\x1b[", 4, &bad, TMSG_ERR_INVALID_PARAM,
         "tensor '\\x0ax\\x1b[': ndim 65 exceeds 64"},
    };
    tmsg_map_t *map = new_map();
    tmsg_tensor_t tensor;

    memset(longest, 'n', 4097);
    no_data.data = NULL;
    bad.ndim = 65;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status = tmsg_map_append(
            map, rows[i].name, rows[i].name_bytes, rows[i].tensor);

        cr_expect_eq(status, rows[i].status, "row %zu: %s, not %s", i,
                     tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect(status == TMSG_OK ||
                      strcmp(tmsg_error_message(), rows[i].message) == 0,
                  "row %zu: '%s', not '%s'", i, tmsg_error_message(),
                  rows[i].message);
    }
    cr_expect_eq(tmsg_map_size(map), 3, "%zu", tmsg_map_size(map));
    cr_expect_eq(tmsg_map_find(map, "ab", &tensor), TMSG_OK);
    cr_expect(tensor.data == NULL);
    tmsg_map_place(map, 1, data);
    cr_expect_eq(tmsg_map_find(map, "ab", &tensor), TMSG_OK);
    cr_expect(tensor.data == data);
    cr_expect_eq(tmsg_map_entries(map)[1].bytes, 24, "%lu",
                 tmsg_map_entries(map)[1].bytes);
    tmsg_map_destroy(map);
}
