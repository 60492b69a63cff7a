/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* UCX promises no order, neither of messages nor of its reports, but the
 * transports on this machine keep one. With fakes/ucx.h events come in any
 * order, lent memory is read and written as late as possible, and a receiver
 * that fetches from a sender which has gone gets rubbish and the status OK.
 * Each message nevertheless arrives once, whole and in its turn. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/ucx.h"
#include "support/mixed_load.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { CHANNELS = 3, MESSAGES = 120, AHEAD = 24, SEEDS = 8 };

static uint64_t state;

static uint64_t choose(void *arg, uint64_t below)
{
    (void)arg;
    return sample_random(&state) % below;
}

/* Any of the first `ahead` events may be the next. */
static void begin(link_t link, uint64_t seed, unsigned ahead)
{
    state = seed;
    fake_ucx = (fake_ucx_t){
        .choose = choose, .ahead = ahead, .by_tcp = link == LINK_TCP};
    fprintf(stderr, "%s, seed %llu\n", link_names[link],
            (unsigned long long)seed);
}

static void end(void)
{
    fprintf(stderr, "%llu messages and %llu reports, %llu before their turn\n",
            (unsigned long long)fake_ucx.arrived,
            (unsigned long long)fake_ucx.reported,
            (unsigned long long)fake_ucx.overtook);
    must_true(fake_ucx.overtook > fake_ucx.arrived / 4);
}

/* Large tensors travel in fragments, and the rest in slices. */
static void small_fragments(void)
{
    setenv(
        "TENSORMSG_THRESHOLDS",
        "shm.fragment_bytes=50000,shm.chunk_bytes=20000,shm.slice_bytes=30000,"
        "tcp.fragment_bytes=50000,tcp.chunk_bytes=20000,tcp.slice_bytes=30000,"
        "shm.gather_bytes=1000,tcp.gather_bytes=1000",
        1);
}

TestSuite(any_order, .init = small_fragments);

/* Makes samples of every way: gathered, listed, in fragments, in slices, behind
 * a spilled body, and empty. */
static sample_t message_of(uint64_t seed)
{
    static const sample_t kinds[] = {
        {.tensors = 0},
        {.tensors = 5, .shape = SAMPLE_VECTOR, .elements = 20},
        {.tensors = 3, .shape = SAMPLE_VECTOR, .elements = 900, .dtype = 11},
        {.tensors = 2, .shape = SAMPLE_VECTOR, .elements = 70000, .dtype = 11},
        {.tensors = 9, .shape = SAMPLE_VECTOR, .elements = 7000, .dtype = 11},
        {.tensors = 4, .name_bytes = 4000},
        {.tensors = 30, .name_bytes = 3000, .elements = 300},
        {.tensors = 8},
    };
    sample_t sample = kinds[seed % COUNT(kinds)];

    sample.seed = seed;
    return sample;
}

static tmsg_request_t *send_one(tmsg_endpoint_t *endpoint, uint64_t seed)
{
    static const uint32_t flags[] = {0, TMSG_SEND_ACKED, TMSG_SEND_VERIFY};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_CHANNEL,
                                       .flags = flags[seed % COUNT(flags)],
                                       .channel = (uint16_t)(seed % CHANNELS)};
    const sample_t sample = message_of(seed);
    tmsg_map_t *map = sample_make(&sample);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* Takes a message, and checks that it is the next of its channel. */
static void take_one(pair_t *pair, side_t *side, uint64_t *next)
{
    tmsg_message_t *message = pair_take(pair, side);
    uint16_t channel = tmsg_message_channel(message);
    const sample_t sample = message_of(next[channel]);

    next[channel] += CHANNELS;
    sample_check(&sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void both_ways(link_t link, uint64_t seed)
{
    static tmsg_request_t *sent[2][MESSAGES];
    uint64_t next[2][CHANNELS] = {{0, 1, 2}, {0, 1, 2}};
    pair_t pair;

    begin(link, seed, AHEAD);
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[0][i] = send_one(pair.to_a, i);
        sent[1][i] = send_one(pair.to_b, i);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        take_one(&pair, &pair.a, next[0]);
        take_one(&pair, &pair.b, next[1]);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        must(pair_finish(&pair, sent[0][i]));
        must(pair_finish(&pair, sent[1][i]));
    }
    pair_close(&pair);
    end();
}

Test(any_order, every_channel_keeps_its_own_tcp)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        both_ways(LINK_TCP, seed);
    }
}
Test(any_order, every_channel_keeps_its_own_shm)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        both_ways(LINK_SHM, seed);
    }
}
Test(any_order, every_channel_keeps_its_own_unix)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        both_ways(LINK_UNIX, seed);
    }
}
Test(any_order, every_channel_keeps_its_own_blob)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        both_ways(LINK_BLOB, seed);
    }
}

/* Sends of every kind at once, with breaks, cancels and deadlines. Now and then
 * UCX fails to fetch a message. */
static void mixed(link_t link, uint64_t seeds)
{
    static const int32_t policies[] = {
        TMSG_QUEUE_REJECT, TMSG_QUEUE_DROP_OLDEST, TMSG_QUEUE_DROP_NEWEST};

    for (uint64_t seed = 1; seed <= (whole_run() ? 10 * seeds : seeds);
         seed++) {
        begin(link, seed, AHEAD);
        fake_ucx.failing = seed % 2 == 0 ? 40 : 0;
        mixed_run(link, DRIVE_POLLING, policies[seed % COUNT(policies)], seed);
        end();
    }
}

Test(any_order, sessions_break_and_go_on_tcp) { mixed(LINK_TCP, 2); }
Test(any_order, sessions_break_and_go_on_shm) { mixed(LINK_SHM, 2); }
Test(any_order, sessions_break_and_go_on_unix) { mixed(LINK_UNIX, 1); }
