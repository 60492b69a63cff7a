/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps of CUDA tensors between two workers, and between two processes. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "am/worker/worker.h"
#include "memory/cuda.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

static const device_tensor_t mixed[] = {
    {.device = 0, .bytes = 2500001}, {.device = ON_HOST, .bytes = 70000},
    {.device = 1, .bytes = 300},     {.device = 3, .bytes = 1100000},
    {.device = 1, .bytes = 0},       {.device = ON_HOST, .bytes = 7}};
#define COUNT (sizeof(mixed) / sizeof(mixed[0]))

static tmsg_request_t *send_mixed(tmsg_endpoint_t *endpoint, uint64_t seed)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_map_t *map = device_map(seed, mixed, COUNT);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* What the application had made current stays so, whoever drives the worker. */
Test(exchange, leaves_the_current_context_as_it_was)
{
    const tmsg_cuda_functions_t *fn;
    void *own, *now;
    pair_t pair;

    device_maps_begin();
    fn = &tmsg_cuda_driver()->fn;
    own = devices_driver()->context(2);
    must_eq(fn->cuCtxPushCurrent(own), 0);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t seed = 1; seed < 300; seed += 100) {
        tmsg_request_t *sent = send_mixed(pair.to_a, seed);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_eq(fn->cuCtxGetCurrent(&now), 0);
        must_true(now == own);
        must_eq(devices_driver()->depth(), 1);
        device_map_check(seed, mixed, COUNT, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
    must_eq(devices_driver()->depth(), 1);
    must_eq(fn->cuCtxPopCurrent(&now), 0);
    must_true(now == own);
    free(own);
    device_maps_end();
}

/* The receiver's stream has old work on the memory; what comes after the
 * message on a third stream reads the new data. */
typedef struct {
    tmsg_stream_t stream;
    void *data;
} place_t;

static void place(void *arg, tmsg_incoming_t *incoming)
{
    const place_t *to = arg;

    must(tmsg_incoming_choose(incoming, 0, device_at(1), to->stream));
    must(tmsg_incoming_place(incoming, 0, to->data, 3000000, NULL));
}

Test(exchange, writes_behind_the_receivers_stream_and_before_its_next_work)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 3000000}};
    static const device_tensor_t there[] = {{.device = 1, .bytes = 3000000}};
    place_t to;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = place,
                   .on_header_arg = &to}};
    uint8_t *host = calloc(1, 3000000);
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    device_maps_begin();
    to = (place_t){device_stream(1), device_alloc(1, 3000000, 0)};
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must(device_domain()->copy_in(NULL, device_at(1), to.data, host, 3000000,
                                  to.stream));
    sent = send_map(pair.to_a, device_map(5, one, 1), TMSG_SEND_ACKED);
    message = pair_take(&pair, &pair.a);
    must(device_domain()->copy_out(NULL, device_at(1), host, to.data, 3000000,
                                   device_stream(1)));
    devices_finish();
    must_eq(sample_compare(5, host, 3000000), 3000000);
    device_map_check(5, there, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
    device_free(to.data);
    free(host);
    device_maps_end();
}

static void exchange_mixed(pair_t *pair, uint64_t seed)
{
    tmsg_request_t *sent = send_mixed(pair->to_a, seed);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    device_map_check(seed, mixed, COUNT, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

/* A driver may wait for a kernel before it pins memory, and the kernel for a
 * message. */
Test(exchange, goes_on_while_the_driver_has_pinning_wait)
{
    const fake_cuda_t *fake;
    pair_t pair;

    device_maps_begin();
    fake = devices_driver();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    fake->hold_pins(true);
    for (uint64_t seed = 10; seed < 13; seed++) {
        exchange_mixed(&pair, seed);
    }
    must_true(pair.a.worker->stage.pinning && pair.b.worker->stage.pinning);
    fake->hold_pins(false);
    while (pair.a.worker->stage.pinning || pair.b.worker->stage.pinning) {
        exchange_mixed(&pair, 20);
        sched_yield();
    }
    must_eq(pair.b.worker->stage.unpinned, 0);
    pair_close(&pair);
    device_maps_end();
}

/* A driver that pins nothing is slower, and that is told. */
Test(exchange, tells_of_memory_that_was_not_pinned)
{
    char *json;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    setenv("FAKE_CUDA_PIN", "2", 1);
    do { /* buffers are pinned beside, when they have been used */
        exchange_mixed(&pair, 9);
    } while (pair.b.worker->stage.unpinned == 0);
    must(tmsg_worker_describe(pair.b.worker, &json));
    must_say(json, "cuMemHostRegister: out of memory (2)");
    tmsg_string_free(json);
    pair_close(&pair);
    device_maps_end();
}

/* Two processes, each with devices of its own, there and back. */
static void echo(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    side_t side;

    (void)arg;
    device_maps_begin();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_SHM);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    for (uint64_t seed = 100; seed < 500; seed += 100) {
        tmsg_message_t *message = side_take(&side);
        tmsg_request_t *sent;

        device_map_check(seed, mixed, COUNT, tmsg_message_map(message));
        must(tmsg_endpoint_send(endpoint, tmsg_message_map(message), NULL,
                                &sent));
        tmsg_message_destroy(message);
        must(side_finish(&side, sent));
    }
    (void)side_end_of(&side, endpoint);
    side_close(&side);
    device_maps_end();
}

Test(exchange, goes_there_and_back_between_two_processes)
{
    tmsg_endpoint_t *endpoint;
    char url[300], *json;
    child_t child;
    side_t side;

    child_start(&child, echo, NULL);
    line_get(child.in, url, sizeof(url));
    device_maps_begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    for (uint64_t seed = 100; seed < 500; seed += 100) {
        tmsg_request_t *sent = send_mixed(endpoint, seed);
        tmsg_message_t *message = side_take(&side);

        device_map_check(seed, mixed, COUNT, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(side_finish(&side, sent));
    }
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, "\"sent_staged\":\t12");
    must_say(json, "\"received_staged\":\t12");
    tmsg_string_free(json);
    tmsg_endpoint_destroy(endpoint);
    child_join(&child);
    side_close(&side);
    device_maps_end();
}

/* One GPU that nobody uses there: the host, or a refusal that says why. */
static void receive_unused(pipes_t *pipes, void *arg)
{
    tmsg_message_t *message;
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    side_listen_link(&side, LINK_TCP);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    message = side_take(&side);
    for (size_t i = 0; i < COUNT; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(tmsg_message_map(message), i, NULL, &tensor));
        if (mixed[i].bytes > 0) {
            must_eq(tensor.device.type, TMSG_DEVICE_CPU);
        }
        must_eq(sample_compare(5 + i, tensor.data, mixed[i].bytes),
                mixed[i].bytes);
    }
    must_eq(devices_driver()->primary_uses(0), 0);
    tmsg_message_destroy(message);
    (void)side_end_of(&side, side_accept(&side));
    side_close(&side);
}

Test(exchange, touches_no_device_that_its_receiver_does_not_use)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[300];
    child_t child;
    side_t side;

    child_start(&child, receive_unused, NULL);
    line_get(child.in, url, sizeof(url));
    device_maps_begin();
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    sent = send_mixed(endpoint, 5);
    must_be(side_wait(&side, sent), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(sent),
             "tensor '0': no memory of device type 2 here (CUDA device 0 is "
             "not in use here");
    must_say(tmsg_request_error(sent), "and the policy is strict");
    tmsg_request_destroy(sent);
    sent = send_map(endpoint, device_map(5, mixed, COUNT), TMSG_SEND_ACKED);
    must(side_finish(&side, sent));
    tmsg_endpoint_destroy(endpoint);
    child_join(&child);
    side_close(&side);
    device_maps_end();
}
