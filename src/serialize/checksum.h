/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/checksum.h - checksums of tensors, and the algorithms there are.
 * They find accidents; anyone can compute them. */
#ifndef TMSG_SERIALIZE_CHECKSUM_H
#define TMSG_SERIALIZE_CHECKSUM_H

#include "serialize/header.h"

/* Adding one is a line of the table in checksum.c and a row of the one in
 * docs/wire-format.md. */
struct tmsg_checksum {
    uint8_t number; /* on the wire: 1 to 31 */
    uint8_t bytes;  /* of a value there: up to 8, little-endian */
    const char *name;
    uint64_t (*compute)(const void *data, uint64_t bytes);
    /* The same of what comes piece by piece; begin() gives NULL without memory,
     * end() the value, and frees what begin() gave. */
    void *(*begin)(void);
    void (*add)(void *state, const void *data, uint64_t bytes);
    uint64_t (*end)(void *state);
};

#define TMSG_CHECKSUM_XXH3 1

/* Errors: UNSUPPORTED (none of that number here). */
tmsg_status_t tmsg_checksum_find(int64_t number,
                                 const tmsg_checksum_t **checksum_p);

/* The algorithms known here: bit n is number n. */
uint32_t tmsg_checksum_mask(void);

/* Checks that a body's checksums, if any, are one for each tensor of `map`.
 * tmsg_body_decode() has done so, unless the map comes from elsewhere. Errors:
 * MALFORMED. */
tmsg_status_t tmsg_checksum_check_count(const tmsg_map_t *map,
                                        const tmsg_body_extra_t *extra);

/* Value `index` of a body's checksums. */
uint64_t tmsg_checksum_value(const tmsg_body_extra_t *extra, size_t index);

/* Whether the value of tensor `index`, which the CPU may not be able to read,
 * was computed elsewhere. */
typedef bool (*tmsg_checksum_known_fn)(const void *arg, size_t index,
                                       uint64_t *value_p);

/* Compares the tensors of a received map, packed as they are, with their
 * checksums, if any; `known` may be NULL. Errors: CORRUPT (names the first that
 * differs). */
tmsg_status_t tmsg_checksum_verify(const tmsg_map_t *map,
                                   const tmsg_body_extra_t *extra,
                                   tmsg_checksum_known_fn known,
                                   const void *arg);

#endif
