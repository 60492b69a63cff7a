/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/compare/framing.h - a map as one would send it by a library that knows
 * bytes only: a head in msgpack, all small tensors in one piece, and each large
 * one as it lies. */
#ifndef TMSG_BENCH_FRAMING_H
#define TMSG_BENCH_FRAMING_H

#include "../payload.h"

#define FRAMING_SMALL 4096 /* bytes of a tensor that is copied to others */

/* A piece of a message. */
typedef struct {
    void *data;
    size_t bytes;
} framing_piece_t;

/* What is sent of a payload, time and again: the head is packed once, as names
 * and shapes stay. */
typedef struct {
    const bench_payload_t *payload;
    framing_piece_t head;
    size_t small_bytes; /* of the small ones together */
    framing_piece_t *large;
    size_t large_count;
} framing_out_t;

void framing_out_create(const bench_payload_t *payload, framing_out_t *out);
void framing_out_free(framing_out_t *out);

/* Copies the small tensors, as they are now, to `small_bytes` of memory. */
void framing_gather(const framing_out_t *out, void *small);

/* A tensor of a message that arrived. */
typedef struct {
    const char *name; /* in the head */
    size_t name_bytes;
    tmsg_dtype_t dtype;
    int ndim;
    int64_t shape[WORKLOAD_NDIM_MAX];
    size_t bytes;
    const uint8_t *data;
} framing_tensor_t;

/* What a head told. */
typedef struct {
    framing_tensor_t *tensors;
    size_t count;
    size_t room;
    size_t small_bytes; /* of all small ones */
    size_t bytes;       /* of all tensors */
} framing_in_t;

/* Reads a head, and returns how long it is; the tensors' data are unknown yet.
 */
size_t framing_read(framing_in_t *in, const void *head, size_t bytes);

/* Says where the small tensors lie, and the next large ones, in turn; `next`
 * begins with 0 and is kept from one to the next. */
void framing_place_small(framing_in_t *in, const uint8_t *data);
void framing_place_large(framing_in_t *in, size_t *next, const uint8_t *data);

/* Dies if that is not the payload. */
void framing_check(const framing_in_t *in, const bench_payload_t *payload);

void framing_in_free(framing_in_t *in);

#endif
