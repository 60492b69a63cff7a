/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/fragments.h - what both directions know of the fragments of a
 * message. */
#ifndef TMSG_AM_ENDPOINT_FRAGMENTS_H
#define TMSG_AM_ENDPOINT_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* For each endpoint, a side keeps up to this many fragments that it does not
 * fetch yet, and says so in its hello. The number in the peer's hello bounds
 * how many fragments this side has with UCX. */
#define TMSG_FRAGMENTS_KEPT 16

/* Describes a fragment that goes by the bulk stream. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    uint32_t number;
    uint64_t bytes;
    const void *data; /* data, or with count > 1 a list of struct iovec */
    size_t count;
    void *slot; /* the sender's record of it (tmsg_fragments_slot_t) */
} tmsg_fragment_t;

#endif
