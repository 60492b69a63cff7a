/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/checksum.h"

#include <inttypes.h>

#include <xxhash.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"

static uint64_t compute_xxh3(const void *data, uint64_t bytes)
{
    return XXH3_64bits(data, bytes);
}

static void *begin_xxh3(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state != NULL) {
        XXH3_64bits_reset(state);
    }
    return state;
}

static void add_xxh3(void *state, const void *data, uint64_t bytes)
{
    XXH3_64bits_update(state, data, bytes);
}

static uint64_t end_xxh3(void *state)
{
    uint64_t value = XXH3_64bits_digest(state);

    XXH3_freeState(state);
    return value;
}

static const tmsg_checksum_t checksums[] = {
    {TMSG_CHECKSUM_XXH3, 8, "xxh3_64", compute_xxh3, begin_xxh3, add_xxh3,
     end_xxh3},
};

#define CHECKSUMS (sizeof(checksums) / sizeof(checksums[0]))

tmsg_status_t tmsg_checksum_find(int64_t number,
                                 const tmsg_checksum_t **checksum_p)
{
    for (size_t i = 0; i < CHECKSUMS; i++) {
        if (checksums[i].number == number) {
            *checksum_p = &checksums[i];
            return TMSG_OK;
        }
    }
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "checksum algorithm %" PRId64 " is not known here",
                          number);
}

uint32_t tmsg_checksum_mask(void)
{
    uint32_t mask = 0;

    for (size_t i = 0; i < CHECKSUMS; i++) {
        mask |= 1u << checksums[i].number;
    }
    return mask;
}

tmsg_status_t tmsg_checksum_check_count(const tmsg_map_t *map,
                                        const tmsg_body_extra_t *extra)
{
    size_t wanted = tmsg_map_size(map);

    if (extra->checksum != NULL && extra->checksum_count != wanted) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: %zu checksums for %zu tensors",
                              extra->checksum_count, wanted);
    }
    return TMSG_OK;
}

uint64_t tmsg_checksum_value(const tmsg_body_extra_t *extra, size_t index)
{
    return tmsg_get_le(extra->checksums + index * extra->checksum->bytes,
                       extra->checksum->bytes);
}

tmsg_status_t tmsg_checksum_compare(const tmsg_body_extra_t *extra,
                                    size_t index, const tmsg_map_entry_t *entry,
                                    uint64_t found)
{
    const tmsg_checksum_t *checksum = extra->checksum;
    uint64_t told = tmsg_checksum_value(extra, index);

    return found == told
               ? TMSG_OK
               : tmsg_error_set(
                     TMSG_ERR_CORRUPT,
                     "tensor %zu '%s': %s is %0*" PRIx64
                     ", its sender's %0*" PRIx64,
                     index,
                     tmsg_error_name(entry->name, entry->name_bytes).text,
                     checksum->name, 2 * checksum->bytes, found,
                     2 * checksum->bytes, told);
}

tmsg_status_t tmsg_checksum_verify(const tmsg_map_t *map,
                                   const tmsg_body_extra_t *extra,
                                   tmsg_checksum_known_fn known,
                                   const void *arg)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const tmsg_checksum_t *checksum = extra->checksum;
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0;
         checksum != NULL && i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        uint64_t found;

        if (known == NULL || !known(arg, i, &found)) {
            found = checksum->compute(entries[i].tensor.data, entries[i].bytes);
        }
        status = tmsg_checksum_compare(extra, i, &entries[i], found);
    }
    return status;
}
