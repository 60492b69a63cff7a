/* SPDX-License-Identifier: BSD-3-Clause */
#include "contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define WORD sizeof(uint64_t)

static uint64_t word_of(uint64_t seed, size_t tensor, size_t index)
{
    uint64_t word = seed + (uint64_t)tensor * 0x9e3779b97f4a7c15ULL;

    word = (word ^ word >> 31) + (uint64_t)index * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ word >> 29) * 0x94d049bb133111ebULL;
    return word ^ word >> 32;
}

void contents_fill(void *data, size_t bytes, uint64_t seed, size_t tensor)
{
    uint8_t *at = data;

    for (size_t i = 0; i < bytes; i += WORD) {
        uint64_t word = word_of(seed, tensor, i / WORD);

        memcpy(at + i, &word, bytes - i < WORD ? bytes - i : WORD);
    }
}

static uint64_t hash_layout(const tmsg_map_t *map)
{
    uint64_t hash = tmsg_map_size(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor;
        const char *name;

        if (tmsg_map_at(map, i, &name, &tensor) != TMSG_OK) {
            return 0;
        }
        hash = XXH3_64bits_withSeed(name, strlen(name), hash);
        hash = XXH3_64bits_withSeed(&tensor.dtype, sizeof(tensor.dtype), hash);
        hash = XXH3_64bits_withSeed(
            tensor.shape, (size_t)tensor.ndim * sizeof(*tensor.shape), hash);
    }
    return hash;
}

tmsg_status_t contents_mark(tmsg_map_t *map, uint64_t seed)
{
    tmsg_status_t status = tmsg_map_set_i64(map, CONTENTS_SEED, (int64_t)seed);

    return status == TMSG_OK ? tmsg_map_set_i64(map, CONTENTS_LAYOUT,
                                                (int64_t)hash_layout(map))
                             : status;
}

/* Returns the position of the first byte that differs, or `bytes` if none
 * does. */
static size_t find_difference(const uint8_t *data, size_t bytes, uint64_t seed,
                              size_t tensor)
{
    for (size_t i = 0; i < bytes; i += WORD) {
        uint64_t word = word_of(seed, tensor, i / WORD);
        size_t length = bytes - i < WORD ? bytes - i : WORD;

        if (memcmp(data + i, &word, length) != 0) {
            const uint8_t *wanted = (const uint8_t *)&word;

            while (data[i] == wanted[i % WORD]) {
                i++;
            }
            return i;
        }
    }
    return bytes;
}

/* Returns the bytes in memory that the CPU can read, or NULL. The caller frees
 * *copy_p. */
static const uint8_t *read_by_cpu(const tmsg_tensor_t *tensor, size_t bytes,
                                  void **copy_p)
{
    const tmsg_stream_t none = {.kind = TMSG_STREAM_NONE};
    const tmsg_domain_t *domain;

    if (tensor->device.type == TMSG_DEVICE_CPU) {
        return tensor->data;
    }
    *copy_p = malloc(bytes);
    if (*copy_p == NULL ||
        tmsg_domain_find(tensor->device, &domain) != TMSG_OK ||
        domain->copy_out(domain->arg, tensor->device, *copy_p, tensor->data,
                         bytes, none) != TMSG_OK) {
        return NULL;
    }
    return *copy_p;
}

static bool check_tensor_contents(const char *name, const tmsg_tensor_t *tensor,
                                  uint64_t seed, size_t index,
                                  char why[CONTENTS_WHY_BYTES])
{
    void *copy = NULL;
    const uint8_t *data;
    uint64_t bytes;
    size_t at;

    if (tmsg_tensor_bytes(tensor, &bytes) != TMSG_OK || bytes == 0) {
        return true;
    }
    data = read_by_cpu(tensor, bytes, &copy);
    if (data == NULL) {
        snprintf(why, CONTENTS_WHY_BYTES, "tensor '%.100s' cannot be read: %s",
                 name, tmsg_error_message());
        free(copy);
        return false;
    }
    at = find_difference(data, bytes, seed, index);
    if (at < bytes) {
        uint64_t word = word_of(seed, index, at / WORD);

        snprintf(why, CONTENTS_WHY_BYTES,
                 "tensor '%.100s': byte %zu of %zu is 0x%02x, not 0x%02x", name,
                 at, (size_t)bytes, data[at], ((uint8_t *)&word)[at % WORD]);
    }
    free(copy);
    return at == bytes;
}

bool contents_check(const tmsg_map_t *map, char why[CONTENTS_WHY_BYTES])
{
    int64_t seed, layout;

    if (tmsg_map_get_i64(map, CONTENTS_SEED, &seed) != TMSG_OK ||
        tmsg_map_get_i64(map, CONTENTS_LAYOUT, &layout) != TMSG_OK) {
        snprintf(why, CONTENTS_WHY_BYTES, "its metadata are gone");
        return false;
    }
    if ((uint64_t)layout != hash_layout(map)) {
        snprintf(why, CONTENTS_WHY_BYTES,
                 "other names, dtypes or shapes (%zu tensors arrived)",
                 tmsg_map_size(map));
        return false;
    }
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor;
        const char *name;

        if (tmsg_map_at(map, i, &name, &tensor) != TMSG_OK ||
            !check_tensor_contents(name, &tensor, (uint64_t)seed, i, why)) {
            return false;
        }
    }
    return true;
}
