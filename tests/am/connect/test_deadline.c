/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Sends with a timeout end in time, whatever they wait for. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

#define LARGE 3000000
#define HELD 5000000 /* one large message fits */

static tmsg_status_t send_within(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                                 int32_t timeout_ms, uint32_t flags,
                                 tmsg_request_t **request_p)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_TIMEOUT,
                                       .flags = flags,
                                       .timeout_ms = timeout_ms};
    tmsg_status_t status =
        tmsg_endpoint_send(endpoint, map, &params, request_p);

    tmsg_map_destroy(map);
    return status;
}

static void open_narrow(pair_t *pair, drive_t drive, uint32_t depth)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD},
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = depth}};

    pair_open(pair, LINK_SHM, drive, &a, NULL);
}

static void take_seed(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The deadline wakes a waiting thread, however the worker is driven. */
static void for_credit(drive_t drive)
{
    tmsg_request_t *first, *sent;
    pair_t pair;
    char *json;

    open_narrow(&pair, drive, 1);
    first = send_map(pair.to_a, sample_bytes(0, 100), 0);
    must(send_within(pair.to_a, sample_bytes(1, 100), 40, 0, &sent));
    must_be(tmsg_request_wait(sent, -1), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    must_say(tmsg_error_message(), "the peer's application did not take those "
                                   "before it in 40 ms");
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "\"timed_out_messages\":\t1,");
    must_say(json, "\"waiting_messages\":\t0,");
    tmsg_string_free(json);
    tmsg_request_destroy(sent);
    take_seed(&pair, 0, 100);
    must(pair_finish(&pair, first));
    must(send_within(pair.to_a, sample_bytes(2, 100), 20000, TMSG_SEND_ACKED,
                     &sent));
    take_seed(&pair, 2, 100);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(deadline, passes_while_it_waits_for_credit_polling)
{
    for_credit(DRIVE_POLLING);
}
Test(deadline, passes_while_it_waits_for_credit_fd) { for_credit(DRIVE_FD); }
Test(deadline, passes_while_it_waits_for_credit_thread)
{
    for_credit(DRIVE_THREAD);
}

Test(deadline, passes_while_it_waits_for_the_connection)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[64];
    side_t side;

    raw_listen(url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must(send_within(endpoint, sample_bytes(0, 100), 40, 0, &sent));
    must_be(tmsg_request_wait(sent, -1), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), url);
    must_say(tmsg_error_message(), "the connection was not made in 40 ms");
    must_be(tmsg_endpoint_status(endpoint), TMSG_IN_PROGRESS);
    tmsg_request_destroy(sent);
    side_close(&side);
}

Test(deadline, passes_while_the_peer_has_no_memory)
{
    uint8_t *buffer = calloc(1, LARGE);
    const int64_t shape[] = {LARGE};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_request_t *first, *sent;
    tmsg_map_t *map;
    pair_t pair;

    open_narrow(&pair, DRIVE_THREAD, 4);
    first = send_map(pair.to_a, sample_bytes(0, LARGE), 0);
    must(pair_wait(&pair, first));
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(send_within(pair.to_a, map, 40, 0, &sent));
    must_true(tmsg_request_wait(sent, -1) != TMSG_IN_PROGRESS);
    must_be(tmsg_request_wait_released(sent, PEERS_BOUND_MS),
            TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "it was not sent in 40 ms");
    free(buffer);
    tmsg_request_destroy(first);
    tmsg_request_destroy(sent);
    take_seed(&pair, 0, LARGE);
    first = send_map(pair.to_a, sample_bytes(2, 100), TMSG_SEND_ACKED);
    take_seed(&pair, 2, 100);
    must(pair_finish(&pair, first));
    pair_close(&pair);
}

Test(deadline, passes_while_it_waits_for_the_acknowledgement)
{
    tmsg_request_t *sent;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, 4);
    must(send_within(pair.to_a, sample_bytes(0, 100), 500, TMSG_SEND_ACKED,
                     &sent));
    must_be(pair_wait(&pair, sent), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_request_error(sent), "it was not acknowledged in 500 ms");
    tmsg_request_destroy(sent);
    pair_close(&pair);
}

typedef struct {
    char order[8];
    unsigned done;
} order_t;

static order_t order;

static void note_end(void *arg, tmsg_status_t status, const char *error)
{
    (void)error;
    must_be(status, TMSG_ERR_TIMED_OUT);
    order.order[order.done++] = *(const char *)arg;
}

static bool three_ended(void *arg) { return ((order_t *)arg)->done == 3; }

Test(deadline, is_each_sends_own)
{
    static const struct {
        const char *name;
        int timeout_ms;
    } rows[] = {{"c", 150}, {"a", 30}, {"b", 90}, {"-", 60000}};
    tmsg_request_t *first;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, 1);
    first = send_map(pair.to_a, sample_bytes(0, 100), 0);
    for (size_t i = 0; i < 4; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_TIMEOUT,
            .on_done = i == 3 ? NULL : note_end,
            .on_done_arg = (void *)(uintptr_t)rows[i].name,
            .timeout_ms = rows[i].timeout_ms};
        tmsg_map_t *map = sample_bytes(i + 1, 100);

        must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
        tmsg_map_destroy(map);
    }
    pair_await(&pair, three_ended, &order, "three deadlines");
    cr_expect_str_eq(order.order, "abc");
    take_seed(&pair, 0, 100);
    take_seed(&pair, 4, 100);
    must(pair_finish(&pair, first));
    pair_close(&pair);
}

Test(deadline, is_above_zero_or_none)
{
    tmsg_request_t *sent = NULL;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, 4);
    must_be(send_within(pair.to_a, sample_bytes(0, 100), 0, 0, &sent),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "timeout_ms 0");
    must_be(send_within(pair.to_a, sample_bytes(0, 100), -2, 0, &sent),
            TMSG_ERR_INVALID_PARAM);
    cr_expect(zero(ptr, sent));
    must(send_within(pair.to_a, sample_bytes(0, 100), -1, 0, &sent));
    take_seed(&pair, 0, 100);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}
