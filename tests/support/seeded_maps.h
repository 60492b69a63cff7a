/* SPDX-License-Identifier: BSD-3-Clause */
/* support/seeded_maps.h - maps made from a seed, so that whoever receives one
 * knows what must be in it. */
#ifndef TMSG_TESTS_SEEDED_MAPS_H
#define TMSG_TESTS_SEEDED_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>

typedef enum {
    SAMPLE_MIXED = 0, /* all of the others in turn */
    SAMPLE_SCALAR,    /* 0-d */
    SAMPLE_VECTOR,    /* 1-d */
    SAMPLE_BLOCK,     /* 2-d to 5-d */
    SAMPLE_EMPTY,     /* an extent of 0 */
    SAMPLE_SHAPES
} sample_shape_t;

/* What a map is made of. All zero is the empty map. */
typedef struct {
    uint64_t seed;
    size_t tensors;
    sample_shape_t shape;
    size_t dtype;      /* 1 + index into sample_dtypes; 0: all in turn */
    size_t name_bytes; /* names are filled up to this */
    uint64_t elements; /* of a SAMPLE_VECTOR; 0: a few */
    bool without_metadata;
} sample_t;

/* Every dtype that DLPack 1.1 can name, and some with lanes. */
extern const tmsg_dtype_t sample_dtypes[];
extern const size_t sample_dtype_count;

/* The map, which owns its tensors, and metadata of every type if any. With the
 * variable SAMPLE_DEVICES some of the tensors, or "all", are on accelerators
 * (support/simulated_device.h), and are expected to arrive there. */
tmsg_map_t *sample_make(const sample_t *sample);

/* Dies unless the map has exactly that: names, order, dtypes, shapes, bytes,
 * metadata. */
void sample_check(const sample_t *sample, const tmsg_map_t *map);

/* Fills a buffer with bytes that `seed` determines, or compares it with them:
 * the index of the first wrong byte, or `bytes`. */
void sample_fill(uint64_t seed, void *data, size_t bytes);
size_t sample_compare(uint64_t seed, const void *data, size_t bytes);

/* One tensor of so many bytes, and no metadata. */
sample_t sample_plain(uint64_t seed, size_t bytes);

/* A map of one uint8 tensor "data" of so many bytes, owned. */
tmsg_map_t *sample_bytes(uint64_t seed, size_t bytes);
void sample_check_bytes(uint64_t seed, size_t bytes, const tmsg_map_t *map);

/* The next number of a sequence. */
uint64_t sample_random(uint64_t *state);

#endif
