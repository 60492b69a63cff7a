/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/checksum.h - computes and compares checksums of tensors. Checksums
 * find accidents, not attacks: anyone can compute them. */
#ifndef TMSG_SERIALIZE_CHECKSUM_H
#define TMSG_SERIALIZE_CHECKSUM_H

#include "core/map.h"
#include "serialize/header.h"

/* One algorithm. A new algorithm needs a line in the table of checksum.c and a
 * row in the table of docs/wire/wire-format.md. */
struct tmsg_checksum {
    uint8_t number; /* number on the wire, 1 to 31 */
    uint8_t bytes;  /* bytes of a value on the wire: up to 8, little-endian */
    const char *name;
    uint64_t (*compute)(const void *data, uint64_t bytes);
    /* These three functions compute the checksum of data that arrive in pieces.
     * begin() returns NULL if there is no memory. end() returns the value and
     * frees the state. */
    void *(*begin)(void);
    void (*add)(void *state, const void *data, uint64_t bytes);
    uint64_t (*end)(void *state);
};

#define TMSG_CHECKSUM_XXH3 1

/* Finds the algorithm of that number. Errors: UNSUPPORTED (the number is
 * unknown). */
tmsg_status_t tmsg_checksum_find(int64_t number,
                                 const tmsg_checksum_t **checksum_p);

/* Returns the set of known algorithms: bit n stands for number n. */
uint32_t tmsg_checksum_mask(void);

/* Checks that a body has no checksums or one for each tensor of `map`.
 * tmsg_body_decode() has already checked that, unless the map comes from
 * elsewhere. Errors: MALFORMED. */
tmsg_status_t tmsg_checksum_check_count(const tmsg_map_t *map,
                                        const tmsg_body_extra_t *extra);

/* Returns checksum `index` of a body. */
uint64_t tmsg_checksum_value(const tmsg_body_extra_t *extra, size_t index);

/* Compares what was found for tensor `index`, whose entry is given for its
 * name, with its checksum of a body. Errors: CORRUPT (names it). */
tmsg_status_t tmsg_checksum_compare(const tmsg_body_extra_t *extra,
                                    size_t index, const tmsg_map_entry_t *entry,
                                    uint64_t found);

/* Returns whether the checksum of tensor `index` was computed elsewhere, for
 * example on the tensor's device, and stores it. The CPU may be unable to read
 * such a tensor. */
typedef bool (*tmsg_checksum_known_fn)(const void *arg, size_t index,
                                       uint64_t *value_p);

/* Compares the tensors of a received map, which are packed, with their
 * checksums, if any. `known` may be NULL. Errors: CORRUPT (names the first
 * tensor that differs). */
tmsg_status_t tmsg_checksum_verify(const tmsg_map_t *map,
                                   const tmsg_body_extra_t *extra,
                                   tmsg_checksum_known_fn known,
                                   const void *arg);

#endif
