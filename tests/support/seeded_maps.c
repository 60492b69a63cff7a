/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/seeded_maps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "support/device_maps.h"
#include "support/must.h"
#include "support/simulated_devices.h"

#define NDIM_MAX 5
#define NAME_MAX_BYTES 4097

const tmsg_dtype_t sample_dtypes[] = {
    {TMSG_DTYPE_INT, 1, 1},
    {TMSG_DTYPE_INT, 2, 1},
    {TMSG_DTYPE_INT, 4, 1},
    {TMSG_DTYPE_INT, 8, 1},
    {TMSG_DTYPE_INT, 16, 1},
    {TMSG_DTYPE_INT, 32, 1},
    {TMSG_DTYPE_INT, 64, 1},
    {TMSG_DTYPE_UINT, 1, 1},
    {TMSG_DTYPE_UINT, 2, 1},
    {TMSG_DTYPE_UINT, 4, 1},
    {TMSG_DTYPE_UINT, 8, 1},
    {TMSG_DTYPE_UINT, 16, 1},
    {TMSG_DTYPE_UINT, 32, 1},
    {TMSG_DTYPE_UINT, 64, 1},
    {TMSG_DTYPE_FLOAT, 16, 1},
    {TMSG_DTYPE_FLOAT, 32, 1},
    {TMSG_DTYPE_FLOAT, 64, 1},
    {TMSG_DTYPE_OPAQUE, 8, 1},
    {TMSG_DTYPE_OPAQUE, 24, 1},
    {TMSG_DTYPE_BFLOAT, 16, 1},
    {TMSG_DTYPE_COMPLEX, 32, 1},
    {TMSG_DTYPE_COMPLEX, 64, 1},
    {TMSG_DTYPE_COMPLEX, 128, 1},
    {TMSG_DTYPE_BOOL, 8, 1},
    {TMSG_DTYPE_FLOAT8_E3M4, 8, 1},
    {TMSG_DTYPE_FLOAT8_E4M3, 8, 1},
    {TMSG_DTYPE_FLOAT8_E4M3B11FNUZ, 8, 1},
    {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 1},
    {TMSG_DTYPE_FLOAT8_E4M3FNUZ, 8, 1},
    {TMSG_DTYPE_FLOAT8_E5M2, 8, 1},
    {TMSG_DTYPE_FLOAT8_E5M2FNUZ, 8, 1},
    {TMSG_DTYPE_FLOAT8_E8M0FNU, 8, 1},
    {TMSG_DTYPE_FLOAT6_E2M3FN, 6, 1},
    {TMSG_DTYPE_FLOAT6_E3M2FN, 6, 1},
    {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1},
    {TMSG_DTYPE_FLOAT, 32, 4},
    {TMSG_DTYPE_UINT, 8, 3},
    {TMSG_DTYPE_FLOAT, 64, 16},
};
const size_t sample_dtype_count =
    sizeof(sample_dtypes) / sizeof(sample_dtypes[0]);

/* splitmix64 */
uint64_t sample_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void sample_fill(uint64_t seed, void *data, size_t bytes)
{
    uint8_t *to = data;
    uint64_t word;

    for (; bytes >= 8; to += 8, bytes -= 8) {
        word = sample_random(&seed);
        memcpy(to, &word, 8);
    }
    if (bytes > 0) {
        word = sample_random(&seed);
        memcpy(to, &word, bytes);
    }
}

static size_t first_difference(const void *one, const void *other)
{
    const uint8_t *a = one, *b = other;
    size_t i = 0;

    while (a[i] == b[i]) {
        i++;
    }
    return i;
}

size_t sample_compare(uint64_t seed, const void *data, size_t bytes)
{
    const uint8_t *from = data;

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = sample_random(&seed), got = word;

        if (bytes - i >= 8) {
            memcpy(&got, from + i, 8);
        } else {
            memcpy(&got, from + i, bytes - i);
        }
        if (got != word) {
            return i + first_difference(&got, &word);
        }
    }
    return bytes;
}

/* One tensor of a sample. */
typedef struct {
    char name[NAME_MAX_BYTES];
    int64_t shape[NDIM_MAX];
    tmsg_tensor_t tensor; /* without data */
    uint64_t bytes;
    uint64_t seed; /* of its data */
} item_t;

static void name_item(const sample_t *sample, size_t index, char *name)
{
    static const char *const scripts[] = {
        "weights", "größe", "重み", "вес", "emoji \U0001f9ee", "a/b.c"};
    int used =
        snprintf(name, NAME_MAX_BYTES, "%s %zu", scripts[index % 6], index);
    size_t wanted = sample->name_bytes;

    if (wanted >= NAME_MAX_BYTES) {
        die("a name of %zu bytes", wanted);
    }
    for (size_t i = (size_t)used; i < wanted; i++) {
        name[i] = (char)('a' + (i + index) % 26);
        name[i + 1] = '\0';
    }
}

static void shape_item(const sample_t *sample, size_t index, item_t *item)
{
    uint64_t state = sample->seed * 31 + index;
    sample_shape_t shape = sample->shape;
    int ndim = 0;

    if (shape == SAMPLE_MIXED) {
        shape = 1 + (sample_shape_t)(index % (SAMPLE_SHAPES - 1));
    }
    if (shape == SAMPLE_VECTOR) {
        ndim = 1;
        item->shape[0] = sample->elements != 0
                             ? (int64_t)sample->elements
                             : 1 + (int64_t)(sample_random(&state) % 50);
    } else if (shape != SAMPLE_SCALAR) {
        ndim = shape == SAMPLE_EMPTY ? 1 + (int)(index % NDIM_MAX)
                                     : 2 + (int)(index % (NDIM_MAX - 1));
        for (int i = 0; i < ndim; i++) {
            item->shape[i] = 1 + (int64_t)(sample_random(&state) % 4);
        }
    }
    if (shape == SAMPLE_EMPTY) {
        item->shape[sample_random(&state) % (uint64_t)ndim] = 0;
    }
    item->tensor.ndim = ndim;
}

/* Every third tensor lies on a device where SAMPLE_DEVICES is set, or, where it
 * is "all", each. */
static bool is_on_device(const sample_t *sample, size_t index)
{
    const char *which = getenv("SAMPLE_DEVICES");

    return which != NULL &&
           (strcmp(which, "all") == 0 || (sample->seed + index) % 3 == 0);
}

static void describe_item(const sample_t *sample, size_t index, item_t *item)
{
    size_t dtype = sample->dtype != 0 ? sample->dtype - 1
                                      : (index * 7) % sample_dtype_count;

    memset(&item->tensor, 0, sizeof(item->tensor));
    name_item(sample, index, item->name);
    item->tensor.device.type = TMSG_DEVICE_CPU;
    if (is_on_device(sample, index)) {
        item->tensor.device = device_at((int32_t)(index % 2));
    }
    item->tensor.dtype = sample_dtypes[dtype];
    item->tensor.shape = item->shape;
    shape_item(sample, index, item);
    must(tmsg_tensor_bytes(&item->tensor, &item->bytes));
    item->seed = sample->seed + index * 1000003;
}

static void set_meta(const sample_t *sample, tmsg_map_t *map)
{
    static const char zeros[] = "a\0b";

    if (sample->without_metadata) {
        return;
    }
    must(tmsg_map_set_i64(map, TMSG_META_SEQUENCE, (int64_t)sample->seed));
    must(tmsg_map_set_bool(map, "yes", 1));
    must(tmsg_map_set_i64(map, "least", INT64_MIN));
    must(tmsg_map_set_f64(map, "third", 1.0 / 3));
    must(tmsg_map_set_string(map, "größe", "重さ"));
    must(tmsg_map_set_bytes(map, "bytes", zeros, sizeof(zeros)));
    must(tmsg_map_set_bytes(map, "nothing", NULL, 0));
}

static void check_meta(const sample_t *sample, const tmsg_map_t *map)
{
    tmsg_map_t *wanted;

    must(tmsg_map_create(&wanted));
    set_meta(sample, wanted);
    must_eq(tmsg_map_meta_size(map), tmsg_map_meta_size(wanted));
    for (size_t i = 0; i < tmsg_map_meta_size(wanted); i++) {
        const char *key, *wanted_key;
        tmsg_meta_t value, wanted_value;

        must(tmsg_map_meta_at(map, i, &key, &value));
        must(tmsg_map_meta_at(wanted, i, &wanted_key, &wanted_value));
        must_say(key, wanted_key);
        must_eq(value.type, wanted_value.type);
        must_eq(value.boolean, wanted_value.boolean);
        must_eq(value.i64, wanted_value.i64);
        must_true(memcmp(&value.f64, &wanted_value.f64, sizeof(double)) == 0);
        must_eq(value.bytes, wanted_value.bytes);
        must_true(value.bytes == 0 ||
                  memcmp(value.data, wanted_value.data, value.bytes) == 0);
    }
    tmsg_map_destroy(wanted);
}

static bool is_host(const item_t *item)
{
    return item->tensor.device.type == TMSG_DEVICE_CPU;
}

static void *make_data(const item_t *item)
{
    void *data, *there;

    if (item->bytes == 0) {
        return NULL;
    }
    data = malloc(item->bytes);
    must_true(data != NULL);
    sample_fill(item->seed, data, item->bytes);
    if (is_host(item)) {
        return data;
    }
    device_maps_begin(); /* where no side was opened before */
    there = device_alloc(item->tensor.device.id, item->bytes, 0);
    device_poke(there, data, item->bytes);
    free(data);
    return there;
}

tmsg_map_t *sample_make(const sample_t *sample)
{
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE};
    tmsg_map_t *map;
    item_t item;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < sample->tensors; i++) {
        describe_item(sample, i, &item);
        item.tensor.data = make_data(&item);
        params.release = is_host(&item) || item.bytes == 0 ? free : device_free;
        params.release_arg = item.tensor.data;
        must(tmsg_map_add(map, item.name, &item.tensor, &params));
    }
    set_meta(sample, map);
    return map;
}

static void check_item(const item_t *item, size_t index, const char *name,
                       const tmsg_tensor_t *tensor)
{
    uint64_t element =
        (uint64_t)(tensor->dtype.bits + 7) / 8 * tensor->dtype.lanes;
    uint64_t alignment = 16;
    size_t same;

    if (strcmp(name, item->name) != 0 ||
        memcmp(&tensor->dtype, &item->tensor.dtype, sizeof(tensor->dtype)) !=
            0 ||
        tensor->ndim != item->tensor.ndim ||
        tensor->device.type != item->tensor.device.type ||
        tensor->device.id != item->tensor.device.id ||
        (tensor->ndim > 0 &&
         memcmp(tensor->shape, item->shape,
                (size_t)tensor->ndim * sizeof(item->shape[0])) != 0)) {
        die("tensor %zu '%s' (dtype %u/%u x%u, ndim %d) is not '%s' (%u/%u "
            "x%u, %d) in name, dtype, shape or device",
            index, name, tensor->dtype.code, tensor->dtype.bits,
            tensor->dtype.lanes, tensor->ndim, item->name,
            item->tensor.dtype.code, item->tensor.dtype.bits,
            item->tensor.dtype.lanes, item->tensor.ndim);
    }
    must_true(tmsg_tensor_is_contiguous(tensor));
    while (alignment < element && alignment < 64) {
        alignment *= 2;
    }
    if (item->bytes > 0 && (uintptr_t)tensor->data % alignment != 0) {
        die("tensor %zu '%s' lies at %p, not aligned to %llu", index, name,
            tensor->data, (unsigned long long)alignment);
    }
    same = is_host(item)
               ? sample_compare(item->seed, tensor->data, item->bytes)
               : device_compare(item->seed, tensor->data, item->bytes);
    if (same != item->bytes) {
        die("tensor %zu '%s': byte %zu of %llu is wrong", index, name, same,
            (unsigned long long)item->bytes);
    }
}

void sample_check(const sample_t *sample, const tmsg_map_t *map)
{
    item_t item;

    must_eq(tmsg_map_size(map), sample->tensors);
    for (size_t i = 0; i < sample->tensors; i++) {
        const char *name;
        tmsg_tensor_t tensor;

        describe_item(sample, i, &item);
        must(tmsg_map_at(map, i, &name, &tensor));
        check_item(&item, i, name, &tensor);
    }
    check_meta(sample, map);
}

static const sample_t one_vector = {.shape = SAMPLE_VECTOR, .tensors = 1};

static sample_t vector_of(uint64_t seed, size_t bytes)
{
    sample_t sample = one_vector;

    sample.seed = seed;
    sample.elements = bytes;
    for (size_t i = 0; i < sample_dtype_count; i++) {
        if (sample_dtypes[i].code == TMSG_DTYPE_UINT &&
            sample_dtypes[i].bits == 8) {
            sample.dtype = i + 1;
            break;
        }
    }
    return sample;
}

sample_t sample_plain(uint64_t seed, size_t bytes)
{
    sample_t sample = {.seed = seed,
                       .tensors = 1,
                       .shape = SAMPLE_VECTOR,
                       .elements = bytes,
                       .without_metadata = true};

    while (sample_dtypes[sample.dtype].code != TMSG_DTYPE_UINT ||
           sample_dtypes[sample.dtype].bits != 8) {
        sample.dtype++;
    }
    sample.dtype++;
    return sample;
}

tmsg_map_t *sample_bytes(uint64_t seed, size_t bytes)
{
    sample_t sample = vector_of(seed, bytes);

    return sample_make(&sample);
}

void sample_check_bytes(uint64_t seed, size_t bytes, const tmsg_map_t *map)
{
    sample_t sample = vector_of(seed, bytes);

    sample_check(&sample, map);
}
