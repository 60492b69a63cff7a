/* SPDX-License-Identifier: BSD-3-Clause */
/* Fails every allocation of ours in turn while a session's connection breaks
 * in the midst of messages on two channels, and while messages are received
 * into memory of the application's. What is acknowledged has come once; all
 * else says that memory was missing, or that the peer is gone. Nothing hangs,
 * and nothing is left behind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/own_code_alloc.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/test_scale.h"

enum { MESSAGES = 6, ROUNDS_MOST = 2000, LARGE = 300000 };

TestSuite(session_alloc, .init = watched_alloc_start);

/* No two of a size on one channel: they go to 0 and 1 in turn. */
static const size_t sizes[MESSAGES] = {100, 3000, LARGE, 200, 50, LARGE};

typedef struct {
    joined_t joined;
    tmsg_map_t *maps[MESSAGES];
    tmsg_request_t *requests[MESSAGES]; /* NULL: not begun */
    unsigned came[MESSAGES];
    bool into; /* memory of a's own, and no break */
    tmsg_map_t *place;
    uint8_t *memory; /* of the place, and for on_header */
} round_t;

/* Without allocating. */
static void note(round_t *round, const tmsg_message_t *message)
{
    unsigned i = tmsg_message_channel(message);
    tmsg_tensor_t tensor, wanted;

    must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
    while (i < MESSAGES && sizes[i] != (size_t)tensor.shape[0]) {
        i += 2;
    }
    must_true(i < MESSAGES);
    must(tmsg_map_at(round->maps[i], 0, NULL, &wanted));
    must_eq(memcmp(tensor.data, wanted.data, sizes[i]), 0);
    round->came[i]++;
}

static void take_all(round_t *round)
{
    pair_t *pair = &round->joined.pair;
    tmsg_message_t *message;
    tmsg_status_t status;

    do {
        status = round->into ? tmsg_endpoint_recv_into(pair->to_b, round->place,
                                                       0, &message)
                             : tmsg_worker_recv(pair->a.worker, 0, &message);
        if (status == TMSG_ERR_INVALID_PARAM) { /* of another size */
            status = tmsg_endpoint_recv(pair->to_b, 0, &message);
        }
        if (status == TMSG_OK) {
            note(round, message);
            tmsg_message_destroy(message);
        }
    } while (status == TMSG_OK);
}

/* Every send is over, and so is whatever was to come of it. */
static bool is_over(void *arg)
{
    round_t *round = arg;

    take_all(round);
    for (int i = 0; i < MESSAGES; i++) {
        if (round->requests[i] != NULL &&
            tmsg_request_test(round->requests[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

static void run(round_t *round)
{
    pair_t *pair = &round->joined.pair;

    for (unsigned i = 0; i < MESSAGES; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL,
            .flags = TMSG_SEND_ACKED,
            .channel = (uint16_t)(i % 2)};
        tmsg_status_t status = tmsg_endpoint_send(pair->to_a, round->maps[i],
                                                  &params, &round->requests[i]);

        if (status != TMSG_OK) {
            must_true(status == TMSG_ERR_NO_MEMORY ||
                      tmsg_endpoint_status(pair->to_a) < 0);
        }
        if (i % 2 != 0) {
            tmsg_worker_progress(pair->b.worker);
            tmsg_worker_progress(pair->a.worker);
        }
        if (i == MESSAGES / 2 && !round->into) {
            relay_cut(round->joined.relay);
        }
    }
    pair_await(pair, is_over, round, "the end of all messages");
}

static void check(const round_t *round, bool failed)
{
    for (int i = 0; i < MESSAGES; i++) {
        tmsg_status_t status = round->requests[i] == NULL
                                   ? TMSG_ERR_NO_MEMORY
                                   : tmsg_request_test(round->requests[i]);

        must_true(failed || status == TMSG_OK);
        must_true(round->came[i] <= 1 &&
                  (status != TMSG_OK || round->came[i] == 1));
        if (status != TMSG_OK && status != TMSG_ERR_NO_MEMORY &&
            status != TMSG_ERR_PEER_LOST) {
            die("message %d: %s", i, tmsg_request_error(round->requests[i]));
        }
        tmsg_request_destroy(round->requests[i]);
        tmsg_map_destroy(round->maps[i]);
    }
}

static void place_first(void *arg, tmsg_incoming_t *incoming)
{
    round_t *round = arg;

    if (tmsg_incoming_bytes(incoming) == 3000) {
        (void)tmsg_incoming_place(incoming, 0, round->memory + LARGE, 3000,
                                  NULL);
    }
}

/* A map like those of LARGE bytes, in memory of our own. */
static void make_place(round_t *round)
{
    const tmsg_map_t *like = round->maps[2];
    tmsg_tensor_t tensor;
    const char *name;

    round->memory = malloc(LARGE + 3000);
    must_true(round->memory != NULL);
    must(tmsg_map_create(&round->place));
    must(tmsg_map_at(like, 0, &name, &tensor));
    tensor.data = round->memory;
    must(tmsg_map_add(round->place, name, &tensor, NULL));
}

typedef struct {
    link_t link;
    bool into;
} scene_t;

/* Whether an allocation failed. */
static bool play(const void *arg, unsigned long nth)
{
    const scene_t *scene = arg;
    round_t round = {.into = scene->into};
    how_t how = {.link = scene->link};
    bool failed;

    if (scene->into) {
        how.a.worker =
            (tmsg_worker_params_t){.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                                   .on_header = place_first,
                                   .on_header_arg = &round};
    }
    for (int i = 0; i < MESSAGES; i++) {
        round.maps[i] = sample_bytes((uint64_t)i, sizes[i]);
    }
    make_place(&round);
    joined_open(&round.joined, &how);
    watched_alloc_arm(nth);
    run(&round);
    failed = watched_alloc_disarm() != 0;
    check(&round, failed);
    joined_drop(&round.joined);
    must(tmsg_map_clear(round.place)); /* nobody holds it */
    tmsg_map_destroy(round.place);
    free(round.memory);
    return failed;
}

static void fail_each(link_t link, bool into)
{
    const scene_t scene = {link, into};
    unsigned long nth = watched_alloc_play_each(play, &scene, ROUNDS_MOST);

    fprintf(stderr, "%s: %lu allocations\n", link_names[link], nth - 1);
    must_true(nth > 10);
}

static void fail_by(link_t one, link_t other, bool into)
{
    if (is_due(0)) {
        fail_each(one, into);
    }
    if (is_due(1)) {
        fail_each(other, into);
    }
}

Test(session_alloc, while_the_connection_breaks)
{
    fail_by(LINK_UNIX, LINK_TCP, false);
}
Test(session_alloc, into_memory_of_the_application)
{
    fail_by(LINK_TCP, LINK_SHM, true);
}
