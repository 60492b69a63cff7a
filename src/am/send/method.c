/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/method.h"

#include "am/endpoint/measures.h"
#include "am/worker/way.h"

/* If a head with a spilled body has fragments, it goes eagerly, because its
 * receiver is to know the fragments before it finds memory. Heads that are
 * larger than this have no fragments. */
#define MIB (1024ULL * 1024)
#define SPILLED_HEAD_MOST (4 * MIB)

uint64_t tmsg_way_chunk(const tmsg_thresholds_t *thresholds, bool alone)
{
    return alone && thresholds->lone_chunk_bytes > thresholds->chunk_bytes
               ? thresholds->lone_chunk_bytes
               : thresholds->chunk_bytes;
}

uint64_t tmsg_way_large(const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (!wish.fragments) {
        return TMSG_WAY_NO_FRAGMENTS;
    }
    switch (wish.way) {
    case TMSG_WAY_AUTO:
        return thresholds->fragment_bytes;
    case TMSG_WAY_FRAGMENTS:
        return 1;
    default:
        return TMSG_WAY_NO_FRAGMENTS;
    }
}

static bool may_slice(uint64_t left, uint64_t spill,
                      const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    return wish.slices && wish.way == TMSG_WAY_AUTO &&
           left > thresholds->slice_bytes && spill <= SPILLED_HEAD_MOST;
}

/* Returns whether there are to be fragments. A single tensor that lies in one
 * piece needs no message of its own, unless small messages would wait longer
 * behind it than behind all of its fragments that may be under way. */
static bool is_split(const tmsg_measures_t *measures, uint64_t spill,
                     const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (measures->fragments == 0 || !wish.fragments) {
        return false;
    }
    if (!tmsg_measures_name(measures) && spill > 0 &&
        measures->head_bytes + spill > SPILLED_HEAD_MOST &&
        !may_slice(measures->head_bytes, spill, thresholds, wish)) {
        return false;
    }
    return wish.way == TMSG_WAY_FRAGMENTS || tmsg_measures_name(measures) ||
           measures->tensors > 1 || measures->packed > 0 || spill > 0 ||
           (measures->bytes - 1) / TMSG_FRAGMENTS_SENT >=
               thresholds->chunk_bytes;
}

/* Returns whether the payload is one tensor that is not packed, and the peer's
 * kernel reads it from its memory (cma.h). */
static bool is_read(const tmsg_measures_t *measures, uint64_t spill,
                    tmsg_wish_t wish)
{
    return wish.reads && spill == 0 && measures->tensors == 1 &&
           measures->packed == 0;
}

/* Returns whether the payload goes by the bulk stream. A way or protocol that
 * the application asked for is kept, and device memory goes by UCX. */
static bool is_by_bulk(const tmsg_measures_t *measures, uint64_t spill,
                       const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    uint64_t least = thresholds->bulk_bytes;

    if (is_read(measures, spill, wish) &&
        thresholds->bulk_single_bytes > least) {
        least = thresholds->bulk_single_bytes;
    }
    return wish.bulk && wish.fragments && wish.slices &&
           wish.way == TMSG_WAY_AUTO && wish.protocol == TMSG_PROTOCOL_AUTO &&
           measures->foreign == 0 && measures->bytes > 0 &&
           measures->bytes >= least && spill <= SPILLED_HEAD_MOST;
}

static bool is_gathered(size_t pieces, uint64_t bytes, uint64_t packed,
                        const tmsg_thresholds_t *thresholds, tmsg_wish_t wish)
{
    if (pieces < 2 && packed == 0) {
        return false; /* it lies in one piece already */
    }
    if (wish.way == TMSG_WAY_GATHER || wish.way == TMSG_WAY_SCATTER) {
        return wish.way == TMSG_WAY_GATHER;
    }
    return bytes <= thresholds->gather_bytes ||
           (bytes / thresholds->gather_mean_bytes < pieces &&
            bytes <= thresholds->gather_most_bytes);
}

/* The kernel or a ring walks a list as fast as this library would copy it into
 * one piece, unless its tensors are smaller than this on average. */
#define WALKED_BYTES 512

static bool is_gathered_for_bulk(size_t pieces, uint64_t bytes,
                                 const tmsg_thresholds_t *thresholds)
{
    return pieces > 1 && bytes / WALKED_BYTES < pieces &&
           bytes <= thresholds->gather_most_bytes;
}

static int32_t protocol_of(uint64_t bytes, uint64_t eager, uint64_t rndv)
{
    if (bytes <= eager) {
        return TMSG_PROTOCOL_EAGER;
    }
    return bytes >= rndv ? TMSG_PROTOCOL_RNDV : TMSG_PROTOCOL_AUTO;
}

tmsg_way_t tmsg_way_choose(const tmsg_measures_t *measures, uint64_t spill,
                           const tmsg_thresholds_t *thresholds,
                           tmsg_wish_t wish)
{
    bool by_bulk = is_by_bulk(measures, spill, thresholds, wish);
    tmsg_way_t way = {.fragments = is_split(measures, spill, thresholds, wish)};
    size_t pieces = measures->tensors + (spill > 0);
    uint64_t bytes = measures->bytes + spill;
    uint64_t packed = measures->packed;
    uint64_t eager = thresholds->eager_bytes;
    bool one;

    way.bulk = by_bulk;
    way.fragments |= by_bulk && measures->fragments > 0;
    if (way.fragments) {
        pieces -= measures->fragments;
        bytes = measures->head_bytes + spill;
        packed -= measures->fragments_packed;
    }
    way.gather = is_gathered(pieces, bytes, packed, thresholds, wish);
    way.slices = may_slice(bytes - spill, spill, thresholds, wish);
    if (by_bulk) {
        way.slices = !way.fragments || bytes - spill > thresholds->gather_bytes;
        way.gather = way.slices
                         ? is_gathered_for_bulk(pieces, bytes, thresholds)
                         : way.gather;
    }
    way.packs =
        way.slices && !way.gather && packed > 0 && measures->gathered == 0;
    if (way.slices) {
        way.protocol =
            spill > 0 ? TMSG_PROTOCOL_EAGER : (int32_t)TMSG_PROTOCOL_AUTO;
        return way;
    }
    one = way.gather || pieces < 2;
    way.protocol = bytes == 0 ? TMSG_PROTOCOL_AUTO : wish.protocol;
    if (way.fragments && spill > 0) {
        way.protocol = TMSG_PROTOCOL_EAGER;
        return way;
    }
    if (is_read(measures, spill, wish) &&
        thresholds->eager_single_bytes < eager) {
        eager = thresholds->eager_single_bytes;
    }
    if (bytes > 0 && wish.protocol == TMSG_PROTOCOL_AUTO) {
        way.protocol = protocol_of(
            bytes, one ? eager : thresholds->eager_list_bytes,
            one ? thresholds->rndv_bytes : thresholds->rndv_list_bytes);
    }
    return way;
}
