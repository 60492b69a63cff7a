/* SPDX-License-Identifier: BSD-3-Clause */
/* What the three fuzz targets of file formats do with their input. */
#ifndef FILE_TARGET_H
#define FILE_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HELD_BYTES_MAX (16u << 20)

/* Loads it as that format from a buffer of just its size, and reads every byte
 * of every tensor that came of it. */
static inline void load_and_read(tmsg_file_format_t format, const uint8_t *data,
                                 size_t size)
{
    tmsg_file_input_t input = {.where = {.path = "fuzz"}, .size = size};

    if (size == 0) {
        return; /* tmsg_file_load() refuses that before it decodes */
    }
    input.limits = tmsg_limits_usual();
    input.limits.held_bytes = HELD_BYTES_MAX;
    input.bytes = malloc(size);
    if (input.bytes == NULL || tmsg_map_create(&input.map) != TMSG_OK) {
        abort();
    }
    memcpy(input.bytes, data, size);
    if (tmsg_file_decode(&input, format) == TMSG_OK) {
        for (size_t i = 0; i < tmsg_map_size(input.map); i++) {
            const tmsg_map_entry_t *entry = &tmsg_map_entries(input.map)[i];
            void *packed = malloc(entry->bytes + 1);

            if (packed == NULL ||
                tmsg_tensor_pack(&entry->tensor, packed) != TMSG_OK) {
                abort();
            }
            free(packed);
        }
    }
    tmsg_map_destroy(input.map);
    free(input.bytes);
}

#endif
