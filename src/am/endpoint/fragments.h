/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/fragments.h - what both directions know of the parts of a
 * message. */
#ifndef TMSG_AM_ENDPOINT_FRAGMENTS_H
#define TMSG_AM_ENDPOINT_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* A side keeps this many parts for an endpoint before it fetches them. The
 * number that the peer keeps bounds what this side sends. */
#define TMSG_PARTS_KEPT 16

/* Describes a piece of a part that goes by the bulk stream. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    uint32_t number;
    uint64_t bytes;
    const void *data; /* data, or with count > 1 a list of struct iovec */
    size_t count;
    void *slot;
} tmsg_parts_piece_t;

#endif
