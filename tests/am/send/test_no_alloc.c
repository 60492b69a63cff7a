/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Frames of one layout are sent and received without any allocation of ours,
 * once the first have gone. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"

#define WARM_UP 600
#define FRAMES 1000
#define TENSORS 8

TestSuite(no_alloc, .init = watched_alloc_start);

static const int64_t small[] = {64}, medium[] = {500}, large[] = {40000};
static uint8_t from[TENSORS][40000], into[TENSORS][40000];

static tmsg_map_t *frame(uint8_t memory[TENSORS][40000], const int64_t *shape)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (int i = 0; i < TENSORS; i++) {
        const char name[] = {(char)('a' + i), 0};
        const tmsg_tensor_t tensor = {.data = memory[i],
                                      .device = {TMSG_DEVICE_CPU, 0},
                                      .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                      .ndim = 1,
                                      .shape = shape};

        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

/* Sends and receives one frame, without a loop of the tests' own. */
static void go(pair_t *pair, const tmsg_map_t *map, const tmsg_map_t *target,
               int round)
{
    tmsg_message_t *message = NULL;
    tmsg_request_t *sent = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    tmsg_tensor_t tensor;

    from[TENSORS - 1][3] = (uint8_t)round;
    must(tmsg_endpoint_send(pair->to_a, map, NULL, &sent));
    while (status == TMSG_ERR_TIMED_OUT || status == TMSG_CANCEL_PENDING) {
        tmsg_worker_progress(pair->b.worker);
        status = target == NULL
                     ? tmsg_worker_recv(pair->a.worker, 0, &message)
                     : tmsg_endpoint_recv_into(pair->to_b, target, 0, &message);
    }
    must(status);
    must(tmsg_map_at(tmsg_message_map(message), TENSORS - 1, NULL, &tensor));
    must_eq(((uint8_t *)tensor.data)[3], (uint8_t)round);
    tmsg_message_destroy(message);
    while (tmsg_request_test(sent) == TMSG_IN_PROGRESS) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    must(tmsg_request_test(sent));
    tmsg_request_destroy(sent);
}

/* Returns our allocations in FRAMES frames, of sender and receiver together. */
static unsigned long count(link_t link, const int64_t *shape, bool posted)
{
    static const unsigned long many = 1ul << 40;
    tmsg_map_t *map = frame(from, shape);
    tmsg_map_t *target = posted ? frame(into, shape) : NULL;
    unsigned long made;
    size_t live;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    if (link == LINK_TCP) {
        pair_await(&pair, endpoint_has_bulk, pair.to_a, "a bulk stream");
    }
    for (int i = 0; i < WARM_UP; i++) {
        go(&pair, map, target, i);
    }
    live = watched_alloc_live();
    watched_alloc_arm(many);
    for (int i = 0; i < FRAMES; i++) {
        go(&pair, map, target, i);
    }
    made = many - watched_left;
    watched_alloc_disarm();
    if (watched_alloc_live() > live) {
        watched_alloc_report();
        die("%zu pieces are left of %zu", watched_alloc_live(), live);
    }
    tmsg_map_destroy(target);
    tmsg_map_destroy(map);
    pair_close(&pair);
    return made;
}

/* Credit goes back in messages of its own: one for half a window of 256. */
static void expect_none(link_t link, const int64_t *shape, bool posted)
{
    unsigned long made = count(link, shape, posted);

    fprintf(stderr, "%s: %lu allocations in %d frames\n", link_names[link],
            made, FRAMES);
#ifndef __SANITIZE_ADDRESS__ /* where no record is kept */
    must_eq(made, 0);
#endif
}

Test(no_alloc, small_tensors) { expect_none(LINK_SHM, small, false); }
Test(no_alloc, small_tensors_tcp) { expect_none(LINK_TCP, small, false); }
Test(no_alloc, medium_tensors) { expect_none(LINK_SHM, medium, false); }
Test(no_alloc, medium_tensors_tcp) { expect_none(LINK_TCP, medium, false); }
Test(no_alloc, small_tensors_into_a_map) { expect_none(LINK_SHM, small, true); }
Test(no_alloc, large_tensors_into_a_map) { expect_none(LINK_SHM, large, true); }
Test(no_alloc, large_tensors_tcp) { expect_none(LINK_TCP, large, false); }
