/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of one signature, their replies received into posted memory, make no
 * allocation of ours at either side, once the first have gone. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"

#define WARM_UP 600
#define CALLS 1000
#define TENSORS 8

TestSuite(rpc_no_alloc, .init = watched_alloc_start);

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

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void go(pair_t *pair, const tmsg_map_t *map,
               const tmsg_call_params_t *params, int round)
{
    tmsg_call_t *call;

    from[TENSORS - 1][3] = (uint8_t)round;
    must(tmsg_endpoint_call(pair->to_a, "echo", map, params, &call));
    while (tmsg_call_status(call) == TMSG_IN_PROGRESS) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    must_be(tmsg_call_status(call), TMSG_OK);
    must_eq(into[TENSORS - 1][3], (uint8_t)round);
    tmsg_call_destroy(call);
}

static void expect_none(link_t link, int64_t extent)
{
    static const unsigned long many = 1ul << 40;
    const int64_t shape[] = {extent};
    tmsg_map_t *map = frame(from, shape), *target = frame(into, shape);
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_REPLY_INTO | TMSG_CALL_PARAM_TIMEOUT,
        .timeout_ms = 60000,
        .reply_into = target};
    tmsg_server_t *server;
    unsigned long made;
    size_t live;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    if (link == LINK_TCP) { /* which is dialled meanwhile */
        pair_await(&pair, endpoint_has_bulk, pair.to_a, "a bulk stream");
        pair_await(&pair, endpoint_has_bulk, pair.to_b, "a bulk stream");
    }
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "echo", echo, NULL, NULL));
    for (int i = 0; i < WARM_UP; i++) {
        go(&pair, map, &params, i);
    }
    live = watched_alloc_live();
    watched_alloc_arm(many);
    for (int i = 0; i < CALLS; i++) {
        go(&pair, map, &params, i);
    }
    made = many - watched_left;
    watched_alloc_disarm();
    if (watched_alloc_live() > live) {
        watched_alloc_report();
        die("%zu pieces are left of %zu", watched_alloc_live(), live);
    }
    fprintf(stderr, "%s: %lu allocations in %d calls\n", link_names[link], made,
            CALLS);
#ifndef __SANITIZE_ADDRESS__ /* where no record is kept */
    must_eq(made, 0);
#endif
    tmsg_map_destroy(target);
    tmsg_map_destroy(map);
    tmsg_server_destroy(server);
    pair_close(&pair);
}

Test(rpc_no_alloc, of_small_tensors) { expect_none(LINK_SHM, 64); }
Test(rpc_no_alloc, of_small_tensors_tcp) { expect_none(LINK_TCP, 64); }
Test(rpc_no_alloc, of_large_tensors) { expect_none(LINK_SHM, 40000); }
