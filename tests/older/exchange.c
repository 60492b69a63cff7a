/* SPDX-License-Identifier: BSD-3-Clause */
#include "older/exchange.h"

#include <stdlib.h>
#include <string.h>

const sample_t exchange_samples[] = {
    {.seed = 1, .tensors = 1, .shape = SAMPLE_VECTOR},
    {.seed = 2, .tensors = 64},
    {.seed = 3},
    {.seed = 4, .tensors = 1000},
    {.seed = 5, .tensors = 20, .name_bytes = 4096}, /* is spilled */
    {.seed = 6, .tensors = 8, .shape = SAMPLE_VECTOR, .elements = 256 << 10},
    {.seed = 7, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 8 << 20},
};
const size_t exchange_count =
    sizeof(exchange_samples) / sizeof(exchange_samples[0]);

sample_t exchange_answer(const sample_t *sample, bool minimal)
{
    sample_t answer = *sample;

    answer.seed += 1000;
    if (minimal) {
        answer.without_metadata = true;
        answer.name_bytes = 0;
        answer.tensors = answer.tensors > 64 ? 64 : answer.tensors;
    }
    return answer;
}

/* int32, each element the number of its place in memory. */
static const struct {
    const char *name;
    int64_t shape[3], strides[3];
} views[] = {
    {"c", {2, 3, 4}, {12, 4, 1}},
    {"fortran", {2, 3, 4}, {1, 2, 6}},
    {"permuted", {2, 3, 4}, {4, 8, 1}},
    {"broadcast rows", {2, 3, 4}, {0, 4, 1}},
    {"broadcast columns", {2, 3, 4}, {3, 1, 0}},
    {"broadcast, with gaps", {2, 3, 4}, {0, 8, 2}},
};

enum { VIEWS = sizeof(views) / sizeof(views[0]), ELEMENTS = 24 };

tmsg_map_t *exchange_strided(void)
{
    static int32_t numbers[ELEMENTS];
    tmsg_map_t *map;

    for (int32_t i = 0; i < ELEMENTS; i++) {
        numbers[i] = i;
    }
    must(tmsg_map_create(&map));
    for (size_t i = 0; i < VIEWS; i++) {
        const tmsg_tensor_t tensor = {
            numbers, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_INT, 32, 1},
            3,       views[i].shape,       views[i].strides};

        must(tmsg_map_add(map, views[i].name, &tensor, NULL));
    }
    return map;
}

void exchange_check_strided(const tmsg_map_t *map)
{
    must_eq(tmsg_map_size(map), VIEWS);
    for (size_t i = 0; i < VIEWS; i++) {
        const int64_t *strides = views[i].strides;
        tmsg_tensor_t tensor;
        int32_t packed[ELEMENTS];

        must(tmsg_map_find(map, views[i].name, &tensor));
        must(tmsg_tensor_pack(&tensor, packed));
        for (int64_t at = 0; at < ELEMENTS; at++) {
            must_eq(packed[at], at / 12 * strides[0] + at / 4 % 3 * strides[1] +
                                    at % 4 * strides[2]);
        }
    }
}

static const char critical_key[] = "of a meaning that must not be missed";

tmsg_map_t *exchange_critical(void)
{
    tmsg_map_t *map = sample_bytes(1, 10);

    must(tmsg_map_set_bool(map, critical_key, 1));
    return map;
}

bool exchange_is_critical(const tmsg_map_t *map)
{
    tmsg_meta_t value;

    return tmsg_map_get_meta(map, critical_key, &value) == TMSG_OK;
}

void exchange_open(side_t *side, link_t link)
{
    const side_options_t options = {
        .ucx_config = link_config(link),
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_QUEUE_DEPTH | TMSG_WORKER_PARAM_FLAGS,
                   .queue_depth = 8,
                   .flags = TMSG_WORKER_CAPTURE}};

    side_open(side, &options);
}
