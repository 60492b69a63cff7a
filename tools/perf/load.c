/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <stdlib.h>
#include <string.h>

#include "measure/contents.h"

#define ALIGNMENT 64

static const tmsg_stream_t no_stream = {.kind = TMSG_STREAM_NONE};

static size_t padded_size(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool fail_load(void)
{
    complain("%s", tmsg_error_message());
    return false;
}

/* Returns a seed that differs for each map of each copy. */
static uint64_t seed_of(uint64_t seed, size_t copy, size_t index)
{
    return (seed << 40) + ((uint64_t)copy << 20) + index;
}

static tmsg_status_t add_map_tensors(const load_t *load,
                                     const workload_map_t *like, uint8_t *data,
                                     tmsg_map_t *map)
{
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < like->count && status == TMSG_OK; i++) {
        status =
            workload_add(&like->tensors[i], load->memory.device, data, map);
        data += padded_size(like->tensors[i].bytes);
    }
    return status == TMSG_OK ? workload_add_meta(like, map) : status;
}

static uint8_t *data_of(const load_t *load, size_t copy, size_t index)
{
    uint8_t *data = load->data[copy];

    for (size_t m = 0; m < index; m++) {
        const workload_map_t *map = &load->workload.maps[m];

        for (size_t i = 0; i < map->count; i++) {
            data += padded_size(map->tensors[i].bytes);
        }
    }
    return data;
}

static tmsg_map_t **map_place(const load_t *load, size_t copy, uint64_t n)
{
    return &load->maps[copy % load->copies * load->workload.count +
                       n % load->workload.count];
}

/* Creates a map. The contents that --verify has written into the memory stay
 * until perf_load_refill(). */
static tmsg_map_t *make_map(const load_t *load, size_t copy, size_t index)
{
    const workload_map_t *like = &load->workload.maps[index];
    tmsg_map_t *map = NULL;

    if (tmsg_map_create(&map) == TMSG_OK &&
        add_map_tensors(load, like, data_of(load, copy, index), map) ==
            TMSG_OK) {
        return map;
    }
    (void)fail_load();
    tmsg_map_destroy(map);
    return NULL;
}

static size_t padded_bytes(const workload_t *workload)
{
    size_t bytes = 0;

    for (size_t m = 0; m < workload->count; m++) {
        const workload_map_t *map = &workload->maps[m];

        for (size_t i = 0; i < map->count; i++) {
            bytes += padded_size(map->tensors[i].bytes);
        }
    }
    return bytes;
}

/* Fills the memory with ones. Without that all its pages would be the same page
 * of zeros. */
static bool fill_ones(const load_t *load, uint8_t *data)
{
    void *ones;
    bool ok;

    if (load->memory.device.type == TMSG_DEVICE_CPU) {
        memset(data, 1, load->copy_bytes);
        return true;
    }
    ones = malloc(load->copy_bytes);
    if (ones == NULL) {
        complain("no memory for %zu bytes of tensors", load->copy_bytes);
        return false;
    }
    memset(ones, 1, load->copy_bytes);
    ok = load->domain->copy_in(load->domain->arg, load->memory.device, data,
                               ones, load->copy_bytes, no_stream) == TMSG_OK;
    free(ones);
    return ok || fail_load();
}

/* Makes the memory of a copy. All copies share memory if nobody checks the
 * bytes. */
static bool make_data(load_t *load, size_t copy)
{
    void *data;

    if (copy > 0 && !load->verify) {
        load->data[copy] = load->data[0];
        return true;
    }
    if (load->domain->alloc(load->domain->arg, load->memory.device,
                            load->copy_bytes, ALIGNMENT, no_stream,
                            &data) != TMSG_OK) {
        return fail_load();
    }
    load->data[copy] = data;
    return fill_ones(load, data);
}

static bool make_copy(load_t *load, size_t copy)
{
    if (!make_data(load, copy)) {
        return false;
    }
    for (size_t m = 0; m < load->workload.count; m++) {
        tmsg_map_t **place = map_place(load, copy, m);

        *place = make_map(load, copy, m);
        if (*place == NULL) {
            return false;
        }
    }
    return true;
}

bool perf_memory_find(const perf_memory_t *memory,
                      const tmsg_domain_t **domain_p)
{
    tmsg_device_t device = memory->device;
    tmsg_status_t status =
        device.type == TMSG_DEVICE_CPU ? TMSG_OK : tmsg_domain_use(device);

    if (status == TMSG_OK) {
        status = tmsg_domain_find(device, domain_p);
    }
    if (status != TMSG_OK) {
        complain("--memory %s: %s", memory->name, tmsg_error_message());
    }
    return status == TMSG_OK;
}

bool perf_load_open(load_t *load, const perf_memory_t *memory, size_t copies,
                    bool verify)
{
    load->memory = *memory;
    load->verify = verify;
    load->copies = copies;
    load->copy_bytes = padded_bytes(&load->workload);
    load->copy_bytes += load->copy_bytes == 0 ? ALIGNMENT : 0;
    if (!perf_memory_find(memory, &load->domain)) {
        return false;
    }
    load->data = calloc(copies, sizeof(*load->data));
    load->maps = calloc(copies * load->workload.count, sizeof(tmsg_map_t *));
    if (load->data == NULL || load->maps == NULL) {
        complain("out of memory");
        return false;
    }
    for (size_t copy = 0; copy < copies; copy++) {
        if (!make_copy(load, copy)) {
            return false;
        }
    }
    return true;
}

/* Fills the tensors of a map at `at`, and returns the position after them. */
static uint8_t *fill_map(const workload_map_t *map, uint8_t *at, uint64_t seed)
{
    for (size_t i = 0; i < map->count; i++) {
        contents_fill(at, map->tensors[i].bytes, seed, i);
        at += padded_size(map->tensors[i].bytes);
    }
    return at;
}

static bool refill_copy(load_t *load, size_t copy, uint64_t seed)
{
    bool here = load->memory.device.type == TMSG_DEVICE_CPU;
    uint8_t *bytes = here ? load->data[copy] : malloc(load->copy_bytes);
    uint8_t *at = bytes;
    bool ok = bytes != NULL;

    for (size_t m = 0; m < load->workload.count && ok; m++) {
        uint64_t of_map = seed_of(seed, copy, m);

        at = fill_map(&load->workload.maps[m], at, of_map);
        ok = contents_mark(*map_place(load, copy, m), of_map) == TMSG_OK;
    }
    if (ok && !here) {
        ok = load->domain->copy_in(load->domain->arg, load->memory.device,
                                   load->data[copy], bytes, load->copy_bytes,
                                   no_stream) == TMSG_OK;
    }
    if (!here) {
        free(bytes);
    }
    return ok || fail_load();
}

bool perf_load_refill(load_t *load, uint64_t seed)
{
    for (size_t copy = 0; copy < load->copies; copy++) {
        if (!refill_copy(load, copy, seed)) {
            return false;
        }
    }
    return true;
}

tmsg_map_t *perf_load_map(const load_t *load, size_t copy, uint64_t n)
{
    return *map_place(load, copy, n);
}

/* Marks the new map with the seed of the previous one. */
static bool take_marks(tmsg_map_t *map, const tmsg_map_t *before)
{
    int64_t seed;

    return tmsg_map_get_i64(before, CONTENTS_SEED, &seed) == TMSG_OK &&
           contents_mark(map, (uint64_t)seed) == TMSG_OK;
}

tmsg_map_t *perf_load_renew(load_t *load, size_t copy, uint64_t n)
{
    tmsg_map_t **place = map_place(load, copy, n);
    tmsg_map_t *map =
        make_map(load, copy % load->copies, (size_t)(n % load->workload.count));

    if (map != NULL && load->verify && !take_marks(map, *place)) {
        tmsg_map_destroy(map);
        map = NULL;
    }
    if (map != NULL) {
        tmsg_map_destroy(*place);
        *place = map;
    }
    return map;
}

void perf_load_close(load_t *load)
{
    size_t maps = load->maps == NULL ? 0 : load->copies * load->workload.count;

    for (size_t i = 0; i < maps; i++) {
        tmsg_map_destroy(load->maps[i]);
    }
    for (size_t i = 0; load->data != NULL && i < load->copies; i++) {
        if (load->data[i] != NULL && (i == 0 || load->verify)) {
            load->domain->free(load->domain->arg, load->memory.device,
                               load->data[i], load->copy_bytes, no_stream);
        }
    }
    free(load->maps);
    free(load->data);
    workload_free(&load->workload);
}
