/* SPDX-License-Identifier: BSD-3-Clause */
/* Boxes of tensors, by each way; what a fetch may ask for, and what is kept of
 * one that waits. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/offers.h"
#include "support/seeded_maps.h"

static char long_name[4092]; /* of 4091 bytes */

Test(offer_slices, of_wrong_parameters_are_refused)
{
    static const int64_t one[] = {1};
    static const tmsg_slice_t twice[] = {{.name = "w"}, {.name = "w"}};
    static const tmsg_slice_t named[] = {{.name = "w", .as = long_name}};
    static const tmsg_slice_t none[] = {{.name = NULL}};
    static const tmsg_slice_t steps[] = {
        {.name = "w", .ndim = 1, .start = one, .count = one, .step = one}};
    enum {
        SLICES = TMSG_FETCH_PARAM_SLICES,
        WAIT = TMSG_FETCH_PARAM_WAIT,
        EPOCH = TMSG_FETCH_PARAM_EPOCH
    };
    static const struct {
        tmsg_fetch_params_t params;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {{.field_mask = SLICES}, TMSG_ERR_INVALID_PARAM, "slices: none; leave"},
        {{.field_mask = SLICES, .slice_count = 1},
         TMSG_ERR_INVALID_PARAM,
         "slices: NULL"},
        {{.field_mask = SLICES, .slices = twice, .slice_count = 65537},
         TMSG_ERR_INVALID_PARAM,
         "more than 65536"},
        {{.field_mask = SLICES, .slices = twice, .slice_count = 2},
         TMSG_ERR_INVALID_PARAM,
         "two slices are called 'w'"},
        {{.field_mask = SLICES, .slices = named, .slice_count = 1},
         TMSG_ERR_INVALID_PARAM,
         "slice 0: its name is too long"},
        {{.field_mask = SLICES, .slices = none, .slice_count = 1},
         TMSG_ERR_INVALID_PARAM,
         "slice 0: name is NULL"},
        {{.field_mask = SLICES, .slices = steps, .slice_count = 1},
         TMSG_ERR_UNSUPPORTED,
         "slice 0: steps are not supported"},
        {{.field_mask = EPOCH, .epoch = 1},
         TMSG_ERR_INVALID_PARAM,
         "epoch goes with a name"},
        {{.field_mask = WAIT, .wait_ms = -1},
         TMSG_ERR_INVALID_PARAM,
         "wait_ms -1: a fetch by key does not wait"},
        {{.field_mask = WAIT, .wait_ms = 5},
         TMSG_ERR_INVALID_PARAM,
         "wait_ms 5"},
    };
    tmsg_call_t *call = NULL;
    tmsg_offer_key_t key;
    heard_t heard;
    pair_t pair;

    memset(long_name, 'x', sizeof(long_name) - 1);
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    offer_named(&pair, &heard, sample_bytes(1, 100), "w", 0);
    key = key_of(&heard);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const tmsg_fetch_params_t *params = &rows[i].params;

        must_be(tmsg_endpoint_fetch(pair.to_a, &key, params, &call),
                rows[i].status);
        must_say(tmsg_error_message(), rows[i].words);
        if (params->field_mask == SLICES) {
            must_be(tmsg_endpoint_fetch_name(pair.to_a, "w", 0, params, &call),
                    rows[i].status);
        }
        must_true(call == NULL);
    }
    withdraw(&heard);
    pair_close(&pair);
}

/* A tensor without elements may have extents and strides whose products are no
 * numbers. */
Test(offer_slices, of_tensors_without_elements)
{
    const int64_t huge = INT64_C(1) << 40, far = INT64_MAX;
    const int64_t shape[] = {0, huge, huge}, flat[] = {1, 1};
    const int64_t wild[] = {far, far}, zeros[] = {0, 0, 0};
    const int64_t part[] = {0, 5, 7}, ends[] = {1, 1};
    static uint8_t byte = 1;
    const tmsg_tensor_t none = {
        &byte, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 3, shape, NULL};
    const tmsg_tensor_t single = {
        &byte, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 2, flat, wild};
    const tmsg_slice_t slices[] = {
        {.name = "none", .ndim = 3, .start = zeros, .count = part},
        {.name = "single", .ndim = 2, .start = ends, .count = zeros}};
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES,
                                        .slices = slices,
                                        .slice_count = 2};
    tmsg_offer_key_t key;
    tmsg_tensor_t tensor;
    tmsg_call_t *call;
    tmsg_map_t *map;
    heard_t heard;
    pair_t pair;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "none", &none, NULL));
    must(tmsg_map_add(map, "single", &single, NULL));
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    offer(&pair, &heard, map, NULL);
    key = key_of(&heard);
    call = finish(&pair, start(&pair, &key, &params));
    must_be(tmsg_call_status(call), TMSG_OK);
    must(tmsg_map_find(tmsg_call_reply(call), "none", &tensor));
    must_true(memcmp(tensor.shape, part, sizeof(part)) == 0);
    must(tmsg_map_find(tmsg_call_reply(call), "single", &tensor));
    must_true(memcmp(tensor.shape, zeros, sizeof(flat)) == 0);
    tmsg_call_destroy(call);
    withdraw(&heard);
    pair_close(&pair);
}

/* A tensor of 32 bits an element. */
static tmsg_map_t *matrix(uint8_t code, int64_t rows, int64_t columns)
{
    size_t count = (size_t)(rows * columns);
    float *data = malloc(count * sizeof(*data) + 1);
    const int64_t shape[] = {rows, columns};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {code, 32, 1}, 2, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = data};
    tmsg_map_t *map;

    for (size_t i = 0; i < count; i++) {
        data[i] = (float)i;
    }
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "w", &tensor, &params));
    must(tmsg_map_set_string(map, "about", "weights"));
    return map;
}

/* A float32 tensor whose elements are their own numbers. */
static tmsg_map_t *counted(int64_t rows, int64_t columns)
{
    return matrix(TMSG_DTYPE_FLOAT, rows, columns);
}

static tmsg_call_t *start_slices(pair_t *pair, const tmsg_offer_key_t *key,
                                 const tmsg_slice_t *slices, uint32_t count,
                                 const tmsg_map_t *into)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES |
                                                      TMSG_FETCH_PARAM_INTO,
                                        .slices = slices,
                                        .slice_count = count,
                                        .into = into};

    return start(pair, key, &params);
}

static void check_box(const tmsg_map_t *map, const char *name, int64_t columns,
                      const int64_t *start_at, const int64_t *count)
{
    tmsg_tensor_t tensor;
    float *packed;
    int64_t at = 0;

    must(tmsg_map_find(map, name, &tensor));
    must_eq(tensor.ndim, 2);
    must_eq(tensor.shape[0], count[0]);
    must_eq(tensor.shape[1], count[1]);
    packed = malloc((size_t)(count[0] * count[1]) * sizeof(*packed) + 1);
    must(tmsg_tensor_pack(&tensor, packed));
    for (int64_t i = 0; i < count[0]; i++) {
        for (int64_t j = 0; j < count[1]; j++) {
            must_eq(packed[at++],
                    (start_at[0] + i) * columns + start_at[1] + j);
        }
    }
    free(packed);
}

static void slices(pair_t *pair)
{
    enum { ROWS = 300, COLUMNS = 700 };
    static const int64_t zero[] = {0, 0}, all[] = {ROWS, COLUMNS};
    static const int64_t from[] = {17, 100}, box[] = {40, 333};
    static const int64_t rows_from[] = {250, 0}, rows[] = {50, COLUMNS};
    static const int64_t three[] = {0, 0, 0};
    static const int64_t none[] = {0, 5}, beyond[] = {250, 690};
    static const int64_t rest[] = {-1, -1}, rest_of_box[] = {283, 600};
    static const int64_t last_rows[] = {250};
    const tmsg_slice_t several[] = {{"w", "box", 2, from, box, NULL},
                                    {"w", "rest", 2, from, rest, NULL},
                                    {"w", "last", 1, last_rows, rest, NULL},
                                    {"w", "rows", 2, rows_from, rows, NULL},
                                    {"w", NULL, 0, NULL, NULL, NULL},
                                    {"w", "none", 2, from, none, NULL}};
    const tmsg_slice_t no_such = {"v", "x", 2, from, box, NULL};
    const tmsg_slice_t too_far = {"w", "x", 2, beyond, box, NULL};
    const tmsg_slice_t other_ndim = {"w", NULL, 3, three, three, NULL};
    const tmsg_slice_t first = {"w", NULL, 2, from, box, NULL};
    tmsg_map_t *into = counted(box[0], box[1]), *wrong = counted(3, 3);
    tmsg_map_t *integers = matrix(TMSG_DTYPE_INT, box[0], box[1]);
    tmsg_offer_key_t key;
    const char *about;
    tmsg_call_t *call;
    heard_t heard;

    offer(pair, &heard, counted(ROWS, COLUMNS), NULL);
    key = key_of(&heard);
    call = finish(pair, start_slices(pair, &key, several, 6, NULL));
    must_be(tmsg_call_status(call), TMSG_OK);
    must_eq(tmsg_map_size(tmsg_call_reply(call)), 6);
    check_box(tmsg_call_reply(call), "box", COLUMNS, from, box);
    check_box(tmsg_call_reply(call), "rows", COLUMNS, rows_from, rows);
    check_box(tmsg_call_reply(call), "last", COLUMNS, rows_from, rows);
    check_box(tmsg_call_reply(call), "rest", COLUMNS, from, rest_of_box);
    check_box(tmsg_call_reply(call), "w", COLUMNS, zero, all);
    check_box(tmsg_call_reply(call), "none", COLUMNS, from, none);
    must(tmsg_map_get_string(tmsg_call_reply(call), "about", &about));
    must_say(about, "weights");
    tmsg_call_destroy(call);

    call = finish(pair, start_slices(pair, &key, &first, 1, into));
    must_be(tmsg_call_status(call), TMSG_OK);
    check_box(tmsg_call_reply(call), "w", COLUMNS, from, box);
    check_box(into, "w", COLUMNS, from, box);
    tmsg_call_destroy(call);

    fails(pair, start_slices(pair, &key, &no_such, 1, NULL),
          TMSG_ERR_INVALID_PARAM, "'v': the offer has no such tensor");
    fails(pair, start_slices(pair, &key, &too_far, 1, NULL),
          TMSG_ERR_INVALID_PARAM,
          "'w': dimension 1: 333 elements from 690 on are not in its 700");
    fails(pair, start_slices(pair, &key, &other_ndim, 1, NULL),
          TMSG_ERR_INVALID_PARAM,
          "'w': its slice has 3 dimensions, the tensor 2");
    fails(pair, start_slices(pair, &key, &first, 1, wrong),
          TMSG_ERR_INVALID_PARAM, "its reply does not fit: tensor 'w'");
    fails(pair, start_slices(pair, &key, &first, 1, integers),
          TMSG_ERR_INVALID_PARAM, "its reply does not fit: tensor 'w'");
    withdraw(&heard);
    tmsg_map_destroy(integers);
    tmsg_map_destroy(into);
    tmsg_map_destroy(wrong);
}

Test(offer_slices, by_each_way) { play_on_each(slices, NULL); }

/* The bytes of messages that a's worker holds. */
static uint64_t held_bytes(pair_t *pair)
{
    uint64_t bytes;
    const char *at;
    char *json;

    must(tmsg_worker_describe(pair->a.worker, &json));
    at = strstr(json, "\"held_bytes\":");
    bytes = strtoull(at + strlen("\"held_bytes\":"), NULL, 10);
    tmsg_string_free(json);
    return bytes;
}

static tmsg_map_t *request_by_name(const char *tensor, int64_t count)
{
    int64_t *numbers = calloc(2 * (size_t)count, sizeof(*numbers));
    const int64_t shape[] = {2, count};
    const tmsg_tensor_t box = {
        numbers, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_INT, 64, 1}, 2, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = numbers};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, tensor, &box, &params));
    must(tmsg_map_set_string(map, "name", "w"));
    must(tmsg_map_set_i64(map, "wait_ms", -1));
    return map;
}

static tmsg_call_t *ask_by_name(pair_t *pair, tmsg_map_t *map)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "tensormsg.fetch", map, NULL, &call));
    tmsg_map_destroy(map);
    return call;
}

/* A peer cannot fill the worker's memory with fetches that wait. */
Test(offer_slices, keep_of_a_fetch_that_waits_what_it_asks_for)
{
    const int64_t from[] = {1, 2}, count[] = {2, 3};
    const tmsg_slice_t slice = {"w", "x", 2, from, count, NULL};
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_SLICES |
                                                      TMSG_FETCH_PARAM_WAIT,
                                        .slices = &slice,
                                        .slice_count = 1,
                                        .wait_ms = -1};
    static char text[1 << 20];
    static pair_t pair;
    tmsg_call_t *call, *with_slice;
    tmsg_map_t *map;
    heard_t heard;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    fails(&pair, ask_by_name(&pair, request_by_name("ballast", 64)),
          TMSG_ERR_INVALID_PARAM, "'ballast': it is not a slice");
    fails(&pair, ask_by_name(&pair, request_by_name("slice/w", 65)),
          TMSG_ERR_INVALID_PARAM, "'slice/w': it is not int64[2,n]");
    map = request_by_name("slice/x", 0);
    memset(text, 'x', sizeof(text) - 1);
    must(tmsg_map_set_string(map, "note", text));
    must(tmsg_map_set_string(map, "of/x", "w"));
    call = ask_by_name(&pair, map);
    pair_await(&pair, waits, &pair, "a fetch that waits");
    must(tmsg_endpoint_fetch_name(pair.to_a, "w", 0, &params, &with_slice));
    fails(&pair, start_name(&pair, "other", 0, 0), TMSG_ERR_NOT_FOUND, "no");
    must_true(held_bytes(&pair) < 1000);
    offer_named(&pair, &heard, counted(4, 5), "w", 0);
    must_be(tmsg_call_status(finish(&pair, call)), TMSG_OK);
    check_box(tmsg_call_reply(call), "x", 5, (const int64_t[]){0, 0},
              (const int64_t[]){4, 5});
    must_be(tmsg_call_status(finish(&pair, with_slice)), TMSG_OK);
    check_box(tmsg_call_reply(with_slice), "x", 5, from, count);
    tmsg_call_destroy(call);
    tmsg_call_destroy(with_slice);
    withdraw(&heard);
    pair_close(&pair);
}
