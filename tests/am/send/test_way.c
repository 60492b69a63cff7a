/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Which way a message travels, decided without UCX. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/measures.h"
#include "am/endpoint/transport.h"
#include "am/send/method.h"
#include "am/worker/context.h"
#include "am/worker/way.h"
#include "core/error.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KIB 1024ull
#define MIB (1024 * KIB)

/* Figures of the test's own, because the defaults are tuned. */
static const tmsg_thresholds_t thresholds = {
    .gather_bytes = 64 * KIB,
    .gather_mean_bytes = 16 * KIB,
    .gather_most_bytes = 16 * MIB,
    .fragment_bytes = 1 * MIB,
    .chunk_bytes = 4 * MIB,
    .eager_bytes = 256 * KIB,
    .rndv_bytes = 1 * MIB,
    .eager_list_bytes = 32 * KIB,
    .rndv_list_bytes = 512 * KIB,
    .slice_bytes = 8 * MIB,
};

/* Returns the measures of `small` tensors of `bytes` bytes each, none of them
 * packed, beside `fragments` large ones. */
static tmsg_measures_t measures_of(size_t small, uint64_t bytes,
                                   size_t fragments, uint64_t fragment_bytes)
{
    return (tmsg_measures_t){
        .tensors = small + fragments,
        .bytes = small * bytes + fragments * fragment_bytes,
        .large = thresholds.fragment_bytes,
        .fragments = fragments,
        .fragments_bytes = fragments * fragment_bytes,
        .head_bytes = small * bytes,
    };
}

static tmsg_way_t choose(const tmsg_measures_t *measures, uint64_t spill,
                         int32_t way, int32_t protocol, bool fragments)
{
    const tmsg_wish_t wish = {way, protocol, fragments, false, false, false};

    return tmsg_way_choose(measures, spill, &thresholds, wish);
}

Test(way, small_tensors_are_gathered_and_middling_ones_listed)
{
    static const struct {
        size_t tensors;
        uint64_t bytes, packed;
        bool gather;
    } rows[] = {
        {1, 1, 0, false}, /* in one piece already */
        {1, 64 * KIB, 0, false},
        {1, 1, 1, true}, /* it is copied either way */
        {1, 64 * KIB, 64 * KIB, true},
        {1, 64 * KIB + 1, 64 * KIB + 1, false},
        {2, 128, 0, true},
        {8, 512, 0, true},
        {7, 64 * KIB, 0, true},
        {2, 64 * KIB + 1, 0, false},
        {8, 16 * MIB, 0, false},
        {64, 16 * MIB, 0, false},
        {1000, 1000 * KIB, 0, true},
        {1000, 1000 * 16 * KIB - 1, 0, true},
        {1000, 1000 * 16 * KIB, 0, false},
        {100000, 16 * MIB, 0, true},
        {100000, 16 * MIB + 1, 0, false},
        {8, 1ull << 40, 1ull << 40, false},
        {1, UINT64_MAX, UINT64_MAX, false},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_measures_t measures = {.tensors = rows[i].tensors,
                                    .bytes = rows[i].bytes,
                                    .packed = rows[i].packed,
                                    .large = TMSG_WAY_NO_FRAGMENTS,
                                    .head_bytes = rows[i].bytes};
        tmsg_way_t way = choose(&measures, 0, 0, 0, false);

        cr_expect(eq(int, way.gather, rows[i].gather), "row %zu", i);
        cr_expect(not(way.fragments), "row %zu", i);
    }
}

Test(way, large_tensors_travel_in_fragments_where_the_peer_takes_them)
{
    static const struct {
        size_t small;
        uint64_t bytes;
        size_t fragments;
        uint64_t fragment_bytes, spill;
        bool is_split, gather;
    } rows[] = {
        {8, 64, 0, 0, 0, false, true},
        {8, 64, 1, MIB, 0, true,
         true}, /* a mixture: 8 gathered, one a fragment */
        {8, 64, 8, 2 * MIB, 0, true, true},
        {0, 0, 8, 2 * MIB, 0, true, false},
        {4, 300 * KIB, 2, 2 * MIB, 0, true, false}, /* 4 listed */
        {0, 0, 1, MIB, 0, false, false},      /* it is one piece anyway, and */
        {0, 0, 1, 16 * MIB, 0, false, false}, /* no longer than 4 chunks */
        {0, 0, 1, 16 * MIB + 1, 0, true, false},
        {0, 0, 1, 2 * MIB, 64, true, false}, /* behind a body */
        {1, 1, 1, 2 * MIB, 0, true, false},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_measures_t measures =
            measures_of(rows[i].small, rows[i].bytes, rows[i].fragments,
                        rows[i].fragment_bytes);
        tmsg_way_t way = choose(&measures, rows[i].spill, 0, 0, true);

        cr_expect(eq(int, way.fragments, rows[i].is_split), "row %zu", i);
        cr_expect(eq(int, way.gather, rows[i].gather), "row %zu", i);
        cr_expect(not(choose(&measures, rows[i].spill, 0, 0, false).fragments),
                  "row %zu, to a peer without", i);
    }
}

/* A tensor in other memory than the host's cannot travel in the message itself.
 */
Test(way, what_lies_in_other_memory_travels_in_fragments_whatever_is_asked)
{
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        tmsg_measures_t measures = measures_of(3, 64, 1, 64);

        measures.foreign = 1;
        cr_expect(choose(&measures, 0, way, 0, true).fragments, "way %d", way);
    }
}

Test(way, a_wish_is_granted_where_it_can_be)
{
    tmsg_measures_t small = measures_of(8, 64, 0, 0);
    tmsg_measures_t large = measures_of(0, 0, 8, 2 * MIB);
    tmsg_measures_t single = measures_of(0, 0, 1, 100);
    tmsg_measures_t whole = large;

    whole.fragments = 0; /* measured with TMSG_WAY_NO_FRAGMENTS */
    whole.head_bytes = whole.bytes;
    cr_expect(not(choose(&small, 0, TMSG_WAY_SCATTER, 0, true).gather));
    cr_expect(choose(&whole, 0, TMSG_WAY_GATHER, 0, true).gather);
    cr_expect(not(choose(&whole, 0, TMSG_WAY_GATHER, 0, true).fragments));
    cr_expect(not(choose(&whole, 0, TMSG_WAY_SCATTER, 0, true).fragments));
    cr_expect(choose(&single, 0, TMSG_WAY_FRAGMENTS, 0, true).fragments);
    cr_expect(not(choose(&single, 0, TMSG_WAY_FRAGMENTS, 0, false).fragments));
}

Test(way, a_wish_says_which_tensors_are_large)
{
    static const struct {
        tmsg_wish_t wish;
        uint64_t large;
    } rows[] = {
        {{TMSG_WAY_AUTO, 0, true, false, false, false}, 1 * MIB},
        {{TMSG_WAY_AUTO, 0, false, false, false, false}, TMSG_WAY_NO_FRAGMENTS},
        {{TMSG_WAY_GATHER, 0, true, false, false, false},
         TMSG_WAY_NO_FRAGMENTS},
        {{TMSG_WAY_SCATTER, 0, true, false, false, false},
         TMSG_WAY_NO_FRAGMENTS},
        {{TMSG_WAY_FRAGMENTS, 0, true, false, false, false}, 1},
        {{TMSG_WAY_FRAGMENTS, 0, false, false, false, false},
         TMSG_WAY_NO_FRAGMENTS},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect(
            eq(u64, tmsg_way_large(&thresholds, rows[i].wish), rows[i].large),
            "row %zu", i);
    }
}

Test(way, the_head_goes_eagerly_or_by_rendezvous_by_its_size)
{
    static const struct {
        size_t tensors;
        uint64_t bytes; /* of each */
        uint64_t spill;
        int32_t wish, protocol;
    } rows[] = {
        {0, 0, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_AUTO},
        {1, 1, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_EAGER},
        {1, 256 * KIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_EAGER},
        {1, 256 * KIB + 1, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_AUTO},
        {1, 1 * MIB - 1, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_AUTO},
        {1, 1 * MIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_RNDV},
        {1, 1 * MIB, 0, TMSG_PROTOCOL_EAGER, TMSG_PROTOCOL_EAGER},
        {1, 1, 0, TMSG_PROTOCOL_RNDV, TMSG_PROTOCOL_RNDV},
        {200, 1 * KIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_EAGER},
        {1000, 2 * KIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_RNDV},
        {4, 64 * KIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_AUTO}, /* a list */
        {2, 256 * KIB, 0, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_RNDV},
        {1, 200 * KIB, 64, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_AUTO},
        {0, 0, 64 * KIB, TMSG_PROTOCOL_AUTO, TMSG_PROTOCOL_EAGER},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_measures_t measures =
            measures_of(rows[i].tensors, rows[i].bytes, 0, 0);
        tmsg_way_t way =
            choose(&measures, rows[i].spill, 0, rows[i].wish, false);

        cr_expect(eq(i32, way.protocol, rows[i].protocol), "row %zu", i);
    }
}

/* The rest beside fragments is sliced if it is long and the peer takes slices,
 * unless the caller wants one list. The head behind a short body is eager. */
Test(way, a_long_rest_is_sliced)
{
    static const struct {
        size_t small, fragments;
        uint64_t bytes, spill;
        int32_t way;
        bool slices;
    } rows[] = {
        {128, 0, 64 * KIB, 0, TMSG_WAY_AUTO, false},
        {129, 0, 64 * KIB, 0, TMSG_WAY_AUTO, true},
        {129, 2, 64 * KIB, 0, TMSG_WAY_AUTO, true},
        {100, 9, 64 * KIB, 0, TMSG_WAY_AUTO, false},
        {129, 0, 64 * KIB, 0, TMSG_WAY_SCATTER, false},
        {129, 0, 64 * KIB, 0, TMSG_WAY_GATHER, false},
        {129, 0, 64 * KIB, 64 * KIB, TMSG_WAY_AUTO, true},
        {129, 2, 64 * KIB, 4 * MIB, TMSG_WAY_AUTO, true},
        {129, 0, 64 * KIB, 4 * MIB + 64, TMSG_WAY_AUTO, false},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_measures_t measures = measures_of(
            rows[i].small, rows[i].bytes, rows[i].fragments, 64 * MIB);
        const tmsg_wish_t wish = {rows[i].way, 0, true, true, false, false};
        const tmsg_wish_t older = {rows[i].way, 0, true, false, false, false};
        tmsg_way_t way =
            tmsg_way_choose(&measures, rows[i].spill, &thresholds, wish);

        cr_expect(eq(int, way.slices, rows[i].slices), "row %zu", i);
        if (rows[i].slices) {
            cr_expect(eq(i32, way.protocol,
                         rows[i].spill > 0 ? TMSG_PROTOCOL_EAGER
                                           : TMSG_PROTOCOL_AUTO),
                      "row %zu", i);
            cr_expect(eq(int, way.fragments, rows[i].fragments > 0), "row %zu",
                      i);
        }
        way = tmsg_way_choose(&measures, rows[i].spill, &thresholds, older);
        cr_expect(not(way.slices), "row %zu", i);
    }
}

/* The whole message goes by the bulk stream, except a small rest beside large
 * tensors. It goes as a list, unless the tensors on it are very small. */
Test(way, what_is_large_goes_by_the_bulk_stream)
{
    static const struct {
        size_t small;
        uint64_t bytes; /* of each */
        size_t fragments, foreign;
        uint64_t spill;
        int32_t way, protocol;
        bool bulk, slices, gather;
    } rows[] = {
        {1, 256 * KIB - 1, 0, 0, 0, 0, 0, false, false, false},
        {1, 256 * KIB, 0, 0, 0, 0, 0, true, true, false},
        {0, 0, 1, 0, 0, 0, 0, true, false, false},
        {0, 0, 8, 0, 0, 0, 0, true, false, false},
        {10, 64, 8, 0, 0, 0, 0, true, false, true},
        {64, 1 * KIB, 8, 0, 0, 0, 0, true, false, true},
        {65, 1 * KIB, 8, 0, 0, 0, 0, true, true, false},
        {64, 256 * KIB, 0, 0, 0, 0, 0, true, true, false},
        {1000, 1 * KIB, 0, 0, 0, 0, 0, true, true, false},
        {1000, 511, 0, 0, 0, 0, 0, true, true, true},
        {1000, 512, 0, 0, 0, 0, 0, true, true, false},
        {64, 256 * KIB, 2, 0, 64 * KIB, 0, 0, true, true, false},
        {64, 256 * KIB, 2, 0, 4 * MIB, 0, 0, true, true, false},
        {64, 256 * KIB, 2, 0, 4 * MIB + 64, 0, 0, false, false, false},
        {8, 256 * KIB, 2, 1, 0, 0, 0, false, false, false},
        {8, 256 * KIB, 0, 0, 0, TMSG_WAY_SCATTER, 0, false, false, false},
        {8, 256 * KIB, 2, 0, 0, TMSG_WAY_FRAGMENTS, 0, false, false, false},
        {8, 256 * KIB, 0, 0, 0, 0, TMSG_PROTOCOL_EAGER, false, false, false},
        {8, 256 * KIB, 0, 0, 0, 0, TMSG_PROTOCOL_RNDV, false, false, false},
    };
    tmsg_thresholds_t set = thresholds;

    set.bulk_bytes = 256 * KIB;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_measures_t measures = measures_of(rows[i].small, rows[i].bytes,
                                               rows[i].fragments, 2 * MIB);
        tmsg_wish_t wish = {rows[i].way, rows[i].protocol, true, true, true,
                            false};
        tmsg_way_t way;

        measures.foreign = rows[i].foreign;
        way = tmsg_way_choose(&measures, rows[i].spill, &set, wish);
        cr_expect(eq(int, way.bulk, rows[i].bulk), "row %zu", i);
        if (rows[i].bulk) {
            cr_expect(eq(int, way.fragments, rows[i].fragments > 0), "row %zu",
                      i);
            cr_expect(eq(int, way.slices, rows[i].slices), "row %zu", i);
            cr_expect(eq(int, way.gather, rows[i].gather), "row %zu", i);
        }
        wish.bulk = false; /* there is none */
        way = tmsg_way_choose(&measures, rows[i].spill, &set, wish);
        cr_expect(not(way.bulk), "row %zu", i);
        wish = (tmsg_wish_t){rows[i].way, rows[i].protocol, true, false, true,
                             false};
        way = tmsg_way_choose(&measures, rows[i].spill, &set, wish);
        cr_expect(not(way.bulk), "row %zu", i); /* of an older peer */
    }
}

Test(way, fragments_are_long_while_nobody_waits_behind_them)
{
    tmsg_thresholds_t set = thresholds;

    set.chunk_bytes = 256 * KIB;
    set.lone_chunk_bytes = 1 * MIB;
    cr_expect(eq(u64, tmsg_way_chunk(&set, true), 1 * MIB));
    cr_expect(eq(u64, tmsg_way_chunk(&set, false), 256 * KIB));
    set.lone_chunk_bytes = 0; /* no less than others */
    cr_expect(eq(u64, tmsg_way_chunk(&set, true), 256 * KIB));
}

Test(way, others_are_silent_two_seconds_after_their_last_message)
{
    static const struct {
        uint64_t messages, now_ms;
        bool silent;
    } rows[] = {
        {0, 1000, true},    {0, 9000, true},
        {1, 9001, false},   {1, 9500, false},
        {1, 11000, false},  {1, 11001, true},
        {1, 99000, true},   {7, 99001, false},
        {8, 100999, false}, {8, 101001, false},
        {8, 102999, true},  {7, 103000, false}, /* one was taken back */
    };
    tmsg_others_t others = {0};

    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect(eq(int,
                     tmsg_others_silent(&others, rows[i].messages,
                                        rows[i].now_ms * 1000000, 2000000000),
                     rows[i].silent),
                  "row %zu", i);
    }
}

Test(way, every_transport_has_usual_thresholds)
{
    const tmsg_tuning_t tuning = tmsg_tuning_usual();

    for (int i = 0; i < TMSG_TRANSPORT_COUNT; i++) {
        const tmsg_thresholds_t *usual = &tuning.of[i];

        cr_expect(ge(u64, usual->chunk_bytes, 64 * KIB), "transport %d", i);
        cr_expect(ge(u64, usual->lone_chunk_bytes, usual->chunk_bytes),
                  "transport %d", i);
        cr_expect(ge(u64, usual->fragment_bytes, usual->gather_mean_bytes),
                  "transport %d", i);
        cr_expect(ge(u64, usual->rndv_bytes, usual->eager_bytes),
                  "transport %d", i);
    }
}

/* Lists as tmsg_ucx_transports() returns them, of other machines, too. */
Test(way, transports_say_whose_thresholds_hold)
{
    static const struct {
        const char *transports;
        tmsg_transport_t transport;
    } rows[] = {
        {"", TMSG_TRANSPORT_UNKNOWN},
        {"self/memory0", TMSG_TRANSPORT_UNKNOWN},
        {"posix/memory, cma/memory", TMSG_TRANSPORT_SHM},
        {"tcp/eth0", TMSG_TRANSPORT_TCP},
        {"rc_verbs/mlx5_0:1", TMSG_TRANSPORT_RDMA},
        {"rc_mlx5/mlx5_0:1, tcp/eth0", TMSG_TRANSPORT_RDMA},
        {"dc_mlx5/mlx5_bond_0:1", TMSG_TRANSPORT_RDMA},
        {"ud_mlx5/mlx5_0:1", TMSG_TRANSPORT_RDMA},
        {"sysv/memory, rc_mlx5/mlx5_0:1", TMSG_TRANSPORT_SHM},
        {"cuda_ipc/cuda, tcp/eth0", TMSG_TRANSPORT_TCP},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect(
            eq(int, tmsg_transport_of(rows[i].transports), rows[i].transport),
            "%s", rows[i].transports);
    }
}

/* A tensor of 128 KiB costs more in a list, which UCX copies, than in fragments
 * of its own. */
Test(way, rdma_takes_fragments_earlier_than_others)
{
    const tmsg_tuning_t tuning = tmsg_tuning_usual();

    cr_expect(lt(u64, tuning.of[TMSG_TRANSPORT_RDMA].fragment_bytes,
                 tuning.of[TMSG_TRANSPORT_UNKNOWN].fragment_bytes));
}

Test(way, thresholds_are_set_by_name)
{
    tmsg_tuning_t tuning = tmsg_tuning_usual(), usual = tuning;

    cr_expect(eq(int, tmsg_tuning_read("", &tuning), TMSG_OK));
    cr_expect(eq(int, memcmp(&tuning, &usual, sizeof(tuning)), 0));
    cr_expect(eq(int,
                 tmsg_tuning_read("tcp.eager_bytes=5,shm.fragment_bytes=6,"
                                  "rdma.chunk_bytes=8388608,"
                                  "other.rndv_list_bytes=18446744073709551615",
                                  &tuning),
                 TMSG_OK));
    usual.of[TMSG_TRANSPORT_TCP].eager_bytes = 5;
    usual.of[TMSG_TRANSPORT_TCP].eager_single_bytes = 5;
    usual.of[TMSG_TRANSPORT_SHM].fragment_bytes = 6;
    usual.of[TMSG_TRANSPORT_RDMA].chunk_bytes = 8388608;
    usual.of[TMSG_TRANSPORT_RDMA].lone_chunk_bytes = 8388608;
    usual.of[TMSG_TRANSPORT_UNKNOWN].rndv_list_bytes = UINT64_MAX;
    cr_expect(eq(int, memcmp(&tuning, &usual, sizeof(tuning)), 0));
}

Test(way, every_threshold_may_be_never)
{
    for (int i = 0; i < TMSG_TRANSPORT_COUNT; i++) {
        tmsg_tuning_t tuning = tmsg_tuning_usual();
        const char *transport = tmsg_transport_name((tmsg_transport_t)i), *name;
        uint64_t value;

        for (size_t j = 0;
             (name = tmsg_threshold_at(&tuning.of[i], j, &value)) != NULL;
             j++) {
            char text[64];

            snprintf(text, sizeof(text), "%s.%s=never", transport, name);
            cr_assert(eq(int, tmsg_tuning_read(text, &tuning), TMSG_OK), "%s",
                      text);
            tmsg_threshold_at(&tuning.of[i], j, &value);
            cr_expect(eq(u64, value, TMSG_THRESHOLD_NEVER), "%s", text);
        }
    }
}

/* A single tensor that is not packed: the peer's kernel copies it from there.
 */
Test(way, what_the_peer_reads_goes_by_the_bulk_stream_later)
{
    static const struct {
        size_t small;
        uint64_t bytes; /* of each */
        uint64_t packed, spill, one_tensor;
        bool reads, bulk;
    } rows[] = {
        {1, 256 * KIB, 0, 0, 512 * KIB, true, false},
        {1, 512 * KIB - 1, 0, 0, 512 * KIB, true, false},
        {1, 512 * KIB, 0, 0, 512 * KIB, true, true},
        {1, 256 * KIB, 0, 0, 512 * KIB, false, true},
        {1, 256 * KIB, 256 * KIB, 0, 512 * KIB, true, true},
        {1, 256 * KIB, 0, 1 * KIB, 512 * KIB, true, true},
        {2, 128 * KIB, 0, 0, 512 * KIB, true, true},
        {1, 256 * KIB, 0, 0, 64 * KIB, true, true},
        {1, 256 * KIB - 1, 0, 0, 64 * KIB, true, false},
    };
    tmsg_thresholds_t set = thresholds;

    set.bulk_bytes = 256 * KIB;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_wish_t wish = {0, 0, true, true, true, rows[i].reads};
        tmsg_measures_t measures =
            measures_of(rows[i].small, rows[i].bytes, 0, 2 * MIB);

        measures.packed = rows[i].packed;
        set.bulk_single_bytes = rows[i].one_tensor;
        cr_expect(eq(int,
                     tmsg_way_choose(&measures, rows[i].spill, &set, wish).bulk,
                     rows[i].bulk),
                  "row %zu", i);
    }
}

Test(way, what_the_peer_reads_is_eager_for_less_long)
{
    static const struct {
        size_t small;
        uint64_t bytes; /* of each */
        uint64_t packed, spill, one_tensor;
        bool reads;
        int32_t protocol;
    } rows[] = {
        {1, 32 * KIB, 0, 0, 32 * KIB, true, TMSG_PROTOCOL_EAGER},
        {1, 32 * KIB + 1, 0, 0, 32 * KIB, true, TMSG_PROTOCOL_AUTO},
        {1, 32 * KIB + 1, 0, 0, 32 * KIB, false, TMSG_PROTOCOL_EAGER},
        {1, 40 * KIB, 40 * KIB, 0, 32 * KIB, true, TMSG_PROTOCOL_EAGER},
        {4, 10 * KIB, 0, 0, 32 * KIB, true, TMSG_PROTOCOL_EAGER},
        {1, 40 * KIB, 0, 1 * KIB, 32 * KIB, true, TMSG_PROTOCOL_EAGER},
        {1, 256 * KIB, 0, 0, 1 * MIB, true, TMSG_PROTOCOL_EAGER},
        {1, 256 * KIB + 1, 0, 0, 1 * MIB, true, TMSG_PROTOCOL_AUTO},
    };
    tmsg_thresholds_t set = thresholds;

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_wish_t wish = {0, 0, true, true, false, rows[i].reads};
        tmsg_measures_t measures =
            measures_of(rows[i].small, rows[i].bytes, 0, 2 * MIB);

        measures.packed = rows[i].packed;
        set.eager_single_bytes = rows[i].one_tensor;
        cr_expect(
            eq(i32,
               tmsg_way_choose(&measures, rows[i].spill, &set, wish).protocol,
               rows[i].protocol),
            "row %zu", i);
    }
}

/* To set chunk_bytes sets lone_chunk_bytes, too. */
Test(way, chunk_bytes_are_those_of_all_fragments_unless_the_others_are_named)
{
    static const struct {
        const char *text;
        uint64_t chunk, lone;
    } rows[] = {
        {"tcp.chunk_bytes=8192", 8192, 8192},
        {"tcp.chunk_bytes=8192,tcp.lone_chunk_bytes=9000", 8192, 9000},
        {"tcp.lone_chunk_bytes=9000,tcp.chunk_bytes=8192", 8192, 9000},
        {"tcp.lone_chunk_bytes=9000", 128 * KIB, 9000},
        {"shm.chunk_bytes=8192", 128 * KIB, 1 * MIB},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tuning_t tuning = tmsg_tuning_usual();
        const tmsg_thresholds_t *tcp = &tuning.of[TMSG_TRANSPORT_TCP];

        cr_expect(eq(int, tmsg_tuning_read(rows[i].text, &tuning), TMSG_OK));
        cr_expect(eq(u64, tcp->chunk_bytes, rows[i].chunk), "row %zu", i);
        cr_expect(eq(u64, tcp->lone_chunk_bytes, rows[i].lone), "row %zu", i);
        cr_expect(eq(u64, tcp->device_chunk_bytes, 4 * MIB), "row %zu", i);
    }
}

Test(way, what_is_set_holds_for_one_tensor_unless_this_is_named)
{
    static const struct {
        const char *text;
        uint64_t eager, eager_single, bulk, bulk_single;
    } rows[] = {
        {"shm.bulk_bytes=never", 64 * KIB, 32 * KIB, UINT64_MAX, UINT64_MAX},
        {"shm.bulk_bytes=1,shm.bulk_single_bytes=9", 64 * KIB, 32 * KIB, 1, 9},
        {"shm.bulk_single_bytes=9,shm.bulk_bytes=1", 64 * KIB, 32 * KIB, 1, 9},
        {"shm.bulk_single_bytes=9", 64 * KIB, 32 * KIB, 64 * KIB, 9},
        {"shm.eager_bytes=9", 9, 9, 64 * KIB, 512 * KIB},
        {"shm.eager_single_bytes=8,shm.eager_bytes=9", 9, 8, 64 * KIB,
         512 * KIB},
        {"shm.eager_single_bytes=8", 64 * KIB, 8, 64 * KIB, 512 * KIB},
        {"tcp.bulk_bytes=1,tcp.eager_bytes=1", 64 * KIB, 32 * KIB, 64 * KIB,
         512 * KIB},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_tuning_t tuning = tmsg_tuning_usual();
        const tmsg_thresholds_t *shm = &tuning.of[TMSG_TRANSPORT_SHM];

        cr_expect(eq(int, tmsg_tuning_read(rows[i].text, &tuning), TMSG_OK));
        cr_expect(eq(u64, shm->eager_bytes, rows[i].eager), "row %zu", i);
        cr_expect(eq(u64, shm->eager_single_bytes, rows[i].eager_single),
                  "row %zu", i);
        cr_expect(eq(u64, shm->bulk_bytes, rows[i].bulk), "row %zu", i);
        cr_expect(eq(u64, shm->bulk_single_bytes, rows[i].bulk_single),
                  "row %zu", i);
    }
}

Test(way, a_threshold_that_is_none_is_named)
{
    static const char *const wrong[] = {
        "tcp",
        "=1",
        "tcp.fragment_bytes",
        "tcp.fragment_bytes=",
        "tcp.fragment_bytes=x",
        "tcp.fragment_bytes=-1",
        "tcp.fragment_bytes=1M",
        "tcp.fragment_bytes=0", /* each tensor would be one, the empty too */
        "tcp.chunk_bytes=4095",
        "tcp.gather_mean_bytes=0",
        "tcp.eager_bytes=18446744073709551616",
        "udp.fragment_bytes=1",
        "tcp.fragments_bytes=1",
        "tcp.fragment_byte=1",
        "fragment_bytes=1",
        "tcp.fragment_bytes=1,,shm.fragment_bytes=1",
        "tcp.fragment_bytes=1 ",
        "tcp.eager_bytes=1,nonsense",
        "tcp.bulk_bytes=",
        "tcp.bulk_bytes=,tcp.eager_bytes=1",
        "tcp.bulk_bytes=nev",
        "tcp.bulk_bytes=never1",
        "tcp.bulk_bytes=Never",
        "tcp.lanes_bytes=never",
    };

    for (size_t i = 0; i < COUNT(wrong); i++) {
        tmsg_tuning_t tuning = tmsg_tuning_usual(), usual = tuning;

        cr_expect(eq(int, tmsg_tuning_read(wrong[i], &tuning),
                     TMSG_ERR_INVALID_PARAM),
                  "%s", wrong[i]);
        cr_expect(eq(int, memcmp(&tuning, &usual, sizeof(tuning)), 0), "%s",
                  wrong[i]);
    }
}

Test(way, a_context_reads_thresholds_from_its_variable)
{
    tmsg_context_t *context = NULL;

    setenv("TENSORMSG_THRESHOLDS", "shm.fragment_bytes=77", 1);
    cr_assert(eq(int, tmsg_context_create(NULL, &context), TMSG_OK));
    cr_expect(
        eq(u64, context->tuning.of[TMSG_TRANSPORT_SHM].fragment_bytes, 77));
    tmsg_context_destroy(context);
    setenv("TENSORMSG_THRESHOLDS", "shm.fragment_bytes=77 oxen", 1);
    cr_expect(
        eq(int, tmsg_context_create(NULL, &context), TMSG_ERR_INVALID_PARAM));
    cr_expect(ne(ptr, strstr(tmsg_error_message(), "77 oxen"), NULL));
}
