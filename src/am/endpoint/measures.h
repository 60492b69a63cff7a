/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/measures.h - the sizes by which the way of a payload is chosen,
 * and the payload as it then goes. */
#ifndef TMSG_AM_ENDPOINT_MEASURES_H
#define TMSG_AM_ENDPOINT_MEASURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <tensormsg/map.h>

#include "memory/pool.h"
#include "serialize/header.h"

/* Holds the sizes of a map's layout. They stay the same as long as the map's
 * stamp does. */
typedef struct {
    uint64_t stamp;
    size_t tensors;     /* tensors that are not empty */
    uint64_t bytes;     /* bytes of these, with the gaps between them */
    uint64_t packed;    /* bytes of tensors that do not lie as they travel */
    size_t broadcast;   /* tensors that travel shorter than they are */
    uint64_t out_bytes; /* `bytes`, with broadcast tensors written out */
    /* The next fields count the tensors that would travel in fragments if those
     * of `large` bytes and more did. */
    uint64_t large;
    size_t fragments;
    uint64_t fragments_bytes;
    uint64_t fragments_packed;
    uint64_t head_bytes; /* bytes of the others, with gaps between them */
    size_t foreign;      /* tensors in a device's memory; they must be */
    uint64_t small;      /* but for those that the library gathers; gather.h */
    size_t gathered;     /* these are so many */
    uint64_t gathered_bytes;
} tmsg_measures_t;

/* Returns whether some tensors travel in fragments whatever their size. */
static inline bool tmsg_measures_name(const tmsg_measures_t *measures)
{
    return measures->foreign > measures->gathered;
}

/* Tells what the caller asks for, and what the peer allows. All zero bits:
 * nothing. */
typedef struct {
    int32_t way;      /* tmsg_way_kind_t */
    int32_t protocol; /* tmsg_protocol_t */
    bool fragments;   /* the peer takes fragments */
    bool slices;      /* the peer takes slices */
    bool bulk;        /* the peer has a bulk stream with us */
    bool reads;       /* the peer may read our memory */
} tmsg_wish_t;

typedef struct {
    bool fragments;   /* large tensors travel in fragments */
    bool gather;      /* the rest is copied into one piece, not listed */
    int32_t protocol; /* tmsg_protocol_t of the rest */
    bool slices;      /* the rest goes in slices behind the head */
    bool bulk;        /* fragments and slices go by the bulk stream */
    bool packs;       /* slices are made when they are handed over: pack.h */
} tmsg_way_t;

#define TMSG_WAY_NO_FRAGMENTS UINT64_MAX

/* Tells what a channel with large messages knows of the small ones that this
 * side sends past them. All zero bits: there have been none. */
typedef struct {
    uint64_t messages; /* their number when it last looked */
    uint64_t heard_ns; /* when it last saw more of them; 0: never */
} tmsg_others_t;

/* Describes a payload that is to be sent. */
typedef struct {
    const tmsg_map_t *map;
    const tmsg_measures_t *measures;
    tmsg_way_t way;
    tmsg_body_extra_t *extra; /* extra of the body, or NULL */
    size_t spill; /* bytes of the body at the payload's head, or 0 */
    /* Points to where the checksums go, if extra->checksum is set. */
    uint8_t *checksums;
    uint8_t *foreign; /* bits for extra->split, or NULL */
    void *spare;      /* memory for gathered data, if it is large enough */
    size_t spare_bytes;
    bool owned; /* UCX is given only our memory: see tmsg_plan_own() */
    /* Where the gathered tensors of devices are; gather.h. NULL: there are
     * none. */
    const uint8_t *gathered;
} tmsg_payload_t;

/* Describes a payload as one piece or as a scatter list. All zero bits:
 * empty. */
typedef struct {
    uint64_t bytes;
    const void *contiguous; /* the piece, if iov_count is 0 */
    struct iovec *iov;
    size_t iov_count;
    tmsg_pool_block_t list;    /* memory of iov */
    tmsg_pool_block_t staging; /* gathered or packed tensors, a spilled body */
    bool shared; /* the plan owns none of these: see shared_plan.h */
} tmsg_plan_t;

/* Returns whether the last small message is so long ago that none is likely to
 * wait behind a fragment. `messages` is their number by now. */
bool tmsg_others_silent(tmsg_others_t *others, uint64_t messages,
                        uint64_t now_ns, uint64_t silence_ns);

#endif
