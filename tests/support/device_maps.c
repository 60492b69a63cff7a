/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/device_maps.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/must.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

static const tmsg_stream_t none;
static atomic_int held;

int device_held(void) { return atomic_load(&held); }

void device_maps_begin(void) { devices_begin(); }
void device_maps_end(void) { devices_end(); }

void *device_alloc(int32_t device, size_t bytes, uint64_t seed)
{
    void *data;

    must(device_domain()->alloc(NULL, device_at(device), bytes == 0 ? 1 : bytes,
                                64, none, &data));
    atomic_fetch_add(&held, 1);
    if (seed != 0) {
        void *host = malloc(bytes + 1);

        sample_fill(seed, host, bytes);
        device_poke(data, host, bytes);
        free(host);
    }
    return data;
}

void device_free(void *data)
{
    tmsg_memory_t memory;

    must(tmsg_memory_query(data, &memory));
    must_true(memory.device.type == device_at(0).type);
    atomic_fetch_sub(&held, 1);
    device_domain()->free(NULL, memory.device, data, memory.bytes, none);
}

size_t device_compare(uint64_t seed, const void *data, size_t bytes)
{
    void *host = malloc(bytes + 1);
    size_t same;

    if (bytes > 0) {
        device_peek(host, data, bytes);
    }
    same = sample_compare(seed, host, bytes);
    free(host);
    return same;
}

static tmsg_map_t *make(uint64_t seed, const device_tensor_t *tensors,
                        size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const int64_t shape = (int64_t)tensors[i].bytes;
        bool on_host = tensors[i].device == ON_HOST;
        tmsg_tensor_t tensor = {
            NULL, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, &shape,
            NULL};
        tmsg_map_add_params_t params = {
            .field_mask =
                TMSG_MAP_ADD_PARAM_RELEASE | TMSG_MAP_ADD_PARAM_STREAM,
            .stream = tensors[i].stream,
            .release = on_host ? free : device_free};
        char name[32];

        if (on_host) {
            tensor.data = calloc(1, tensors[i].bytes + 1);
            if (seed != 0) {
                sample_fill(seed + i, tensor.data, tensors[i].bytes);
            }
        } else {
            tensor.device = device_at(tensors[i].device);
            tensor.data = device_alloc(tensors[i].device, tensors[i].bytes,
                                       seed == 0 ? 0 : seed + i);
        }
        params.release_arg = tensor.data;
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

tmsg_map_t *device_map(uint64_t seed, const device_tensor_t *tensors,
                       size_t count)
{
    return make(seed, tensors, count);
}

tmsg_map_t *device_map_empty(const device_tensor_t *tensors, size_t count)
{
    return make(0, tensors, count);
}

static void check_one(uint64_t seed, const device_tensor_t *wanted,
                      const tmsg_tensor_t *tensor)
{
    must_eq(tensor->shape[0], wanted->bytes);
    if (wanted->device == ON_HOST) {
        must_eq(tensor->device.type, TMSG_DEVICE_CPU);
        must_eq(sample_compare(seed, tensor->data, wanted->bytes),
                wanted->bytes);
        return;
    }
    must_eq(tensor->device.type, device_at(0).type);
    must_eq(tensor->device.id, wanted->device);
    must_eq(device_compare(seed, tensor->data, wanted->bytes), wanted->bytes);
}

void device_map_check(uint64_t seed, const device_tensor_t *tensors,
                      size_t count, const tmsg_map_t *map)
{
    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(map, i, NULL, &tensor));
        check_one(seed + i, &tensors[i], &tensor);
    }
}
