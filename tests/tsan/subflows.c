/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages by four subflows in both directions at once, each side with a
 * thread of its own, and a crew that helps it; small ones besides, and messages
 * that are canceled on their way. In the clear, and encrypted where TLS is. */
#include <stdlib.h>
#include <string.h>

#include "am/path/bulk.h"
#include "am/tls/tls.h"
#include "am/worker/worker.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { LARGE = 6 << 20, ROUNDS = 12, SUBFLOWS = 4 };

static bool are_wide(void *arg)
{
    pair_t *pair = arg;
    unsigned there, here;

    tmsg_worker_lock(pair->a.worker);
    there = tmsg_bulk_subflows(pair->to_b);
    tmsg_worker_unlock(pair->a.worker);
    tmsg_worker_lock(pair->b.worker);
    here = tmsg_bulk_subflows(pair->to_a);
    tmsg_worker_unlock(pair->b.worker);
    return there == SUBFLOWS && here == SUBFLOWS;
}

static void expect(pair_t *pair, side_t *side, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, side);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void exchange(pair_t *pair, uint64_t round)
{
    tmsg_request_t *there =
        send_map(pair->to_a, sample_bytes(round, LARGE), TMSG_SEND_ACKED);
    tmsg_request_t *back =
        send_map(pair->to_b, sample_bytes(round + 1, LARGE), TMSG_SEND_ACKED);
    tmsg_request_t *small =
        send_map(pair->to_a, sample_bytes(round, 64), TMSG_SEND_ACKED);

    expect(pair, &pair->a, round, LARGE);
    expect(pair, &pair->b, round + 1, LARGE);
    expect(pair, &pair->a, round, 64);
    must(pair_finish(pair, there));
    must(pair_finish(pair, back));
    must(pair_finish(pair, small));
}

static void cancel_one(pair_t *pair)
{
    tmsg_request_t *sent = send_map(pair->to_a, sample_bytes(9, LARGE), 0);

    tmsg_request_cancel(sent);
    if (pair_finish(pair, sent) == TMSG_OK) {
        expect(pair, &pair->a, 9, LARGE);
    }
}

static void run(void)
{
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_THREAD, NULL, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        exchange(&pair, round);
    }
    pair_await(&pair, are_wide, &pair, "further subflows");
    for (uint64_t round = 0; round < ROUNDS; round++) {
        exchange(&pair, round);
        cancel_one(&pair);
    }
    pair_close(&pair);
}

int main(void)
{
    setenv("TENSORMSG_BULK_CONNECTIONS", "4", 1);
    run();
    if (strncmp(tmsg_tls_version(), "none", 4) != 0) {
        setenv("PEERS_TLS", "1", 1);
        run();
    }
    return 0;
}
