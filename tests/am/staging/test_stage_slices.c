/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A long list of the host's tensors that goes in slices, beside tensors of
 * devices, to memory of either kind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/simulated_devices.h"

#define COUNT 40

static device_tensor_t tensors[COUNT], on_host[COUNT], elsewhere[COUNT];

/* Slices as small as they may be; every eighth tensor is a device's. */
static void begin(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.slice_bytes=10000,shm.chunk_bytes=4096,"
           "shm.gather_bytes=0,shm.gather_mean_bytes=1,"
           "tcp.slice_bytes=10000,tcp.chunk_bytes=4096,"
           "tcp.gather_bytes=0,tcp.gather_mean_bytes=1",
           1);
    for (size_t i = 0; i < COUNT; i++) {
        tensors[i] = (device_tensor_t){
            .device = i % 8 == 3 ? (int32_t)(i / 8) % 2 : ON_HOST,
            .bytes = 1000 + 150 * i};
        on_host[i] = elsewhere[i] = tensors[i];
        on_host[i].device = ON_HOST;
        elsewhere[i].device = i % 3 == 0 ? ON_HOST : 2 + (int32_t)(i % 2);
    }
    device_maps_begin();
}

TestSuite(stage_slices, .init = begin);

static tmsg_request_t *send_slices(pair_t *pair, uint64_t seed)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    tmsg_map_t *map = device_map(seed, tensors, COUNT);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* Five are of devices; the others make up some 140 KB. */
static void expect_sliced(const pair_t *pair, uint64_t messages)
{
    must_true(pair->to_a->tx.fragments_handed > messages * 30);
}

static void come_to(const device_tensor_t *there, link_t link,
                    const tmsg_worker_params_t *params)
{
    const side_options_t options = {.worker = *params};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (uint64_t seed = 100; seed < 400; seed += 100) {
        tmsg_request_t *sent = send_slices(&pair, seed);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        device_map_check(seed, there, COUNT, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    expect_sliced(&pair, 3);
    pair_close(&pair);
    device_maps_end();
}

static const tmsg_worker_params_t plain = {.field_mask = 0};

Test(stage_slices, come_as_they_were_sent_shm)
{
    come_to(tensors, LINK_SHM, &plain);
}
Test(stage_slices, come_as_they_were_sent_tcp)
{
    come_to(tensors, LINK_TCP, &plain);
}

Test(stage_slices, come_to_the_host)
{
    const tmsg_worker_params_t params = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_HOST_ONLY};

    come_to(on_host, LINK_SHM, &params);
}

static void choose(void *arg, tmsg_incoming_t *incoming)
{
    const tmsg_stream_t *stream = arg;

    for (size_t i = 0; i < COUNT; i++) {
        const tmsg_device_t device = elsewhere[i].device == ON_HOST
                                         ? (tmsg_device_t){TMSG_DEVICE_CPU, 0}
                                         : device_at(elsewhere[i].device);

        must(tmsg_incoming_choose(incoming, i, device,
                                  elsewhere[i].device == 2
                                      ? *stream
                                      : (tmsg_stream_t){TMSG_STREAM_NONE, 0}));
    }
}

static void come_elsewhere(link_t link)
{
    tmsg_stream_t stream = device_stream(2);
    const tmsg_worker_params_t params = {.field_mask =
                                             TMSG_WORKER_PARAM_ON_HEADER,
                                         .on_header = choose,
                                         .on_header_arg = &stream};

    come_to(elsewhere, link, &params);
}

Test(stage_slices, come_where_the_header_callback_says_shm)
{
    come_elsewhere(LINK_SHM);
}
Test(stage_slices, come_where_the_header_callback_says_tcp)
{
    come_elsewhere(LINK_TCP);
}

static void come_into_a_map(const device_tensor_t *there)
{
    tmsg_map_t *map = device_map_empty(there, COUNT);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    for (uint64_t seed = 100; seed < 400; seed += 100) {
        tmsg_request_t *sent = send_slices(&pair, seed);
        tmsg_message_t *message;

        must(tmsg_endpoint_recv_into(pair.to_b, map, PEERS_BOUND_MS, &message));
        device_map_check(seed, there, COUNT, map);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    expect_sliced(&pair, 3);
    tmsg_map_destroy(map);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_slices, come_into_a_map_of_the_same_kinds)
{
    come_into_a_map(tensors);
}
Test(stage_slices, come_into_a_map_of_other_kinds)
{
    come_into_a_map(elsewhere);
}
