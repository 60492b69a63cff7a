/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/fragments.h - what both directions know of the fragments of a
 * message. */
#ifndef TMSG_AM_ENDPOINT_FRAGMENTS_H
#define TMSG_AM_ENDPOINT_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* A side keeps this many fragments for an endpoint before it fetches them. The
 * number that the peer keeps bounds what this side sends. */
#define TMSG_FRAGMENTS_KEPT 16

/* Describes a fragment of a fragment that goes by the bulk stream. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    uint32_t number;
    uint64_t bytes;
    const void *data; /* data, or with count > 1 a list of struct iovec */
    size_t count;
    void *slot;
} tmsg_fragment_t;

#endif
