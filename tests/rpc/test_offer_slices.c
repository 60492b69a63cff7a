/* SPDX-License-Identifier: BSD-3-Clause */
/* What a fetch may ask for, and boxes of tensors that have no elements. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
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
         "slice 0: there are no steps"},
        {{.field_mask = EPOCH, .epoch = 1},
         TMSG_ERR_INVALID_PARAM,
         "epoch is for names"},
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
