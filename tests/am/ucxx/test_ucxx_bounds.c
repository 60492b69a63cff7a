/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer of ucx:// can have this side keep. UCXX gives no credit: who is
 * not heard waits, and who cannot be made to wait is ended. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/op.h"
#include "am/ucxx/ucxx.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { DEPTH = 4, MOST = 1024, BYTES = 100, MANY = 1400, FEW = 200 };

static bool has_accepted(void *arg)
{
    return ((side_t *)arg)->accepted != NULL;
}

static void open_pair(pair_t *pair, uint64_t held_bytes)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH},
        .limits = {.field_mask =
                       held_bytes > 0 ? (uint64_t)TMSG_LIMIT_HELD_BYTES : 0,
                   .held_bytes = held_bytes}};
    tmsg_request_t *ready;

    memset(pair, 0, sizeof(*pair));
    side_open(&pair->a, &a);
    side_open(&pair->b, NULL);
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_listen(&pair->a, "ucx://127.0.0.1:0");
    pair->to_a = side_dial(&pair->b, &pair->a);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    must(pair_finish(pair, ready));
    pair_await(pair, has_accepted, &pair->a, "an accepted endpoint");
    pair->to_b = pair->a.accepted;
}

static tmsg_map_t *bytes_of(size_t bytes)
{
    const tmsg_map_add_params_t owned = {.field_mask =
                                             TMSG_MAP_ADD_PARAM_RELEASE,
                                         .release = free,
                                         .release_arg = calloc(1, bytes)};
    const int64_t extent = (int64_t)bytes;
    const tmsg_tensor_t tensor = {.data = owned.release_arg,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .ndim = 1,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .shape = &extent};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, &owned));
    return map;
}

/* Sends, and lets UCX carry it; until b has heard of the end. */
static void pour(pair_t *pair, size_t count, size_t bytes)
{
    const tmsg_send_params_t eager = {.field_mask = TMSG_SEND_PARAM_WAY,
                                      .protocol = TMSG_PROTOCOL_EAGER};

    for (size_t i = 0; i < count; i++) {
        tmsg_map_t *map = bytes_of(bytes);
        tmsg_status_t status =
            tmsg_endpoint_send(pair->to_a, map, &eager, NULL);

        tmsg_map_destroy(map);
        if (status < 0) {
            return;
        }
        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
    }
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair->b.worker);
        tmsg_worker_progress(pair->a.worker);
    }
}

static uint32_t waiting(const pair_t *pair)
{
    return pair->to_b->ucxx->arrived - pair->to_b->channels.zero.rx_consumed;
}

static void never_over(tmsg_op_t *op) { (void)op; }

/* UCX has something to do for the peer, and never ends it. */
static void keep_busy(pair_t *pair, tmsg_op_t *op)
{
    tmsg_worker_lock(pair->a.worker);
    tmsg_op_begin(pair->to_b, op, never_over);
    tmsg_worker_unlock(pair->a.worker);
}

static void done_with(pair_t *pair, tmsg_op_t *op)
{
    tmsg_worker_lock(pair->a.worker);
    tmsg_op_over(pair->to_b, op);
    tmsg_endpoint_reported(pair->to_b);
    tmsg_worker_unlock(pair->a.worker);
}

Test(ucxx_bounds, who_takes_nothing_is_sent_no_more)
{
    pair_t pair;

    open_pair(&pair, 0);
    pour(&pair, MANY, BYTES);
    cr_expect(lt(u32, waiting(&pair), FEW), "%u", waiting(&pair));
    must(tmsg_endpoint_status(pair.to_b));
    for (int i = 0; i < MANY; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    pair_drop(&pair);
}

/* Here the application has no memory for more: what waits is not ready. */
Test(ucxx_bounds, nor_is_who_has_no_memory)
{
    tmsg_message_t *held;
    pair_t pair;

    open_pair(&pair, 1 << 20);
    tmsg_request_destroy(send_map(pair.to_a, bytes_of(1000000), 0));
    held = pair_take(&pair, &pair.a);
    pour(&pair, FEW, 60000);
    cr_expect(lt(u32, waiting(&pair), FEW), "%u", waiting(&pair));
    must(tmsg_endpoint_status(pair.to_b));
    tmsg_message_destroy(held);
    for (int i = 0; i < FEW; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    pair_drop(&pair);
}

static void ends(uint64_t held_bytes, size_t bytes, const char *words)
{
    tmsg_op_t op = {0};
    pair_t pair;

    open_pair(&pair, held_bytes);
    keep_busy(&pair, &op);
    pour(&pair, MANY, bytes);
    cr_expect(le(u32, waiting(&pair), MOST), "%u", waiting(&pair));
    must_be(tmsg_endpoint_status(pair.to_b), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_endpoint_error(pair.to_b), words);
    done_with(&pair, &op);
    pair_drop(&pair);
}

/* And who cannot be made to wait, as UCX has to go on. */
Test(ucxx_bounds, by_messages_whoever_sends_on_is_ended)
{
    ends(0, BYTES, "1024 of its messages wait");
}

Test(ucxx_bounds, by_bytes_whoever_sends_on_is_ended)
{
    ends(4 << 20, 60000, "its messages wait");
}
