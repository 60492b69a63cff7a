/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Tensors in the memory of devices, which only their driver can touch: sent and
 * received with those of the host in one map. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/staging.h"
#include "am/worker/worker.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

static tmsg_request_t *send_with(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                                 unsigned flags, int32_t policy)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = flags,
                                       .policy = policy};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static void exchange(pair_t *pair, const device_tensor_t *tensors, size_t count,
                     unsigned flags)
{
    static uint64_t seed = 1000;
    tmsg_request_t *sent;
    tmsg_message_t *message;

    seed += 100;
    sent = send_with(pair->to_a, device_map(seed, tensors, count), flags,
                     TMSG_POLICY_STRICT);
    message = pair_take(pair, &pair->a);
    device_map_check(seed, tensors, count, tmsg_message_map(message));
    must(pair_finish(pair, sent));
    tmsg_message_destroy(message);
}

static void by_size(link_t link, drive_t drive)
{
    static const size_t sizes[] = {0,     1,      64,      4096,
                                   65536, 300001, 1048576, 9000001};
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const device_tensor_t one[] = {{.device = 1, .bytes = sizes[i]}};
        const device_tensor_t mixed[] = {{.device = ON_HOST, .bytes = sizes[i]},
                                         {.device = 0, .bytes = sizes[i]},
                                         {.device = 3, .bytes = sizes[i]},
                                         {.device = ON_HOST, .bytes = 100},
                                         {.device = 0, .bytes = 64},
                                         {.device = 0, .bytes = 65}};

        exchange(&pair, one, 1, 0);
        exchange(&pair, mixed, 6, TMSG_SEND_ACKED);
    }
    pair_close(&pair);
    device_maps_end();
}

Test(stage, carries_tensors_of_any_size_shm)
{
    by_size(LINK_SHM, DRIVE_POLLING);
}
Test(stage, carries_tensors_of_any_size_tcp)
{
    by_size(LINK_TCP, DRIVE_POLLING);
}
Test(stage, carries_tensors_of_any_size_unix)
{
    by_size(LINK_UNIX, DRIVE_THREAD);
}
Test(stage, carries_tensors_of_any_size_blob) { by_size(LINK_BLOB, DRIVE_FD); }

/* Many messages, so that chunks are waited for. */
static void backlog(link_t link)
{
    enum { MESSAGES = 12 };
    static const device_tensor_t tensors[] = {{.device = 0, .bytes = 5000000},
                                              {.device = 2, .bytes = 3000000}};
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_with(pair.to_a, device_map(i * 10 + 1, tensors, 2), 0,
                            TMSG_POLICY_STRICT);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must_true(pair.b.worker->stage.out.bytes <= TMSG_CHUNKS_BYTES);
        must_true(pair.a.worker->stage.in.bytes <= TMSG_CHUNKS_BYTES);
        device_map_check(i * 10 + 1, tensors, 2, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}

Test(stage, waits_for_its_bounded_buffers_shm) { backlog(LINK_SHM); }
Test(stage, waits_for_its_bounded_buffers_tcp) { backlog(LINK_TCP); }

/* Both ways over one worker: what is received never waits for what is sent. */
Test(stage, goes_both_ways_on_one_worker)
{
    enum { MESSAGES = 8 };
    static const device_tensor_t tensors[] = {{.device = 1, .bytes = 6000000}};
    tmsg_request_t *sent[2 * MESSAGES];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[2 * i] = send_with(pair.to_a, device_map(i + 1, tensors, 1), 0, 1);
        sent[2 * i + 1] =
            send_with(pair.to_b, device_map(i + 1, tensors, 1), 0, 1);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *a = pair_take(&pair, &pair.a);
        tmsg_message_t *b = pair_take(&pair, &pair.b);

        device_map_check(i + 1, tensors, 1, tmsg_message_map(a));
        device_map_check(i + 1, tensors, 1, tmsg_message_map(b));
        tmsg_message_destroy(a);
        tmsg_message_destroy(b);
    }
    for (uint64_t i = 0; i < 2 * MESSAGES; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}

/* What the application's stream holds is done before the data are read; nobody
 * waits for it meanwhile, neither the caller nor other messages. */
Test(stage, reads_what_the_stream_has_written)
{
    const tmsg_stream_t stream = device_stream(0);
    const device_tensor_t late[] = {
        {.device = 0, .bytes = 3000000, .stream = stream}};
    const device_tensor_t other[] = {{.device = 0, .bytes = 2000000}};
    const tmsg_send_params_t channel = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                        .channel = 1};
    uint8_t *host = malloc(3000000);
    tmsg_request_t *sent[2];
    tmsg_message_t *message;
    tmsg_tensor_t tensor;
    tmsg_map_t *map, *next;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    map = device_map(7, late, 1);
    must(tmsg_map_at(map, 0, NULL, &tensor));
    device_block(stream);
    sample_fill(8, host, 3000000);
    must(device_domain()->copy_in(NULL, device_at(0), tensor.data, host,
                                  3000000, stream));
    sent[0] = send_with(pair.to_a, map, 0, 1);
    next = device_map(9, other, 1);
    must(tmsg_endpoint_send(pair.to_a, next, &channel, &sent[1]));
    tmsg_map_destroy(next);
    message = pair_take(&pair, &pair.a);
    device_map_check(9, other, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_be(tmsg_request_test(sent[0]), TMSG_IN_PROGRESS);
    device_unblock(stream);
    message = pair_take(&pair, &pair.a);
    device_map_check(8, late, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent[0]));
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
    free(host);
    device_maps_end();
}

/* While UCX has fragments of a chunk the next one is copied, at either end: it
 * is begun before more than the first was handed over, let alone taken. */
Test(stage, copies_beside_the_transfer)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 6 << 20}};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, device_map(1, one, 1), 0);
    for (int i = 0; i < 10000 && pair.to_a->tx.fragments_handed == 0; i++) {
        tmsg_worker_progress(pair.b.worker);
    }
    must_true(pair.to_a->tx.fragments_handed * (256 << 10) <= TMSG_CHUNK_BYTES);
    must_true(pair.b.worker->stage.out.bytes >= 2 * TMSG_CHUNK_BYTES);
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    message = pair_take(&pair, &pair.a);
    device_map_check(1, one, 1, tmsg_message_map(message));
    must_true(pair.a.worker->stage.in.bytes >= 2 * TMSG_CHUNK_BYTES);
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair_close(&pair);
    device_maps_end();
}

static void refused_here(pair_t *pair, tmsg_map_t *map, unsigned flags,
                         const char *why)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};

    must_be(tmsg_endpoint_send(pair->to_a, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), why);
    tmsg_map_destroy(map);
}

Test(stage, refuses_what_only_the_cpu_could_do)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 1000}};
    const int64_t shape[] = {10}, strides[] = {3};
    tmsg_tensor_t tensor = {NULL, device_at(0), {TMSG_DTYPE_UINT, 8, 1},
                            1,    shape,        strides};
    tmsg_map_t *map;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    refused_here(&pair, device_map(1, one, 1), TMSG_SEND_VERIFY | TMSG_SEND_TRY,
                 "tensor '0': its checksum is read from memory of device type");
    tensor.data = device_alloc(0, 100, 1);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "gaps", &tensor, NULL));
    refused_here(&pair, map, 0,
                 "tensor 'gaps': its strides leave gaps or overlap "
                 "(TMSG_SEND_KEEP_STRIDES sends it unpacked), which the CPU "
                 "cannot do in memory of device type");
    tensor.device.type = 99;
    tensor.strides = NULL;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "unknown", &tensor, NULL));
    refused_here(&pair, map, 0,
                 "tensor 'unknown': memory of device type 99 cannot be sent by "
                 "this process, where no domain holds it");
    device_free(tensor.data);
    pair_close(&pair);
    device_maps_end();
}

Test(stage, is_refused_where_a_path_is_required)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 1000}};
    pair_t pair;

    setenv("TENSORMSG_REQUIRE_PATH", "1", 1);
    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    refused_here(&pair, device_map(1, one, 1), 0,
                 devices_are_cuda()
                     ? "tensor '0': UCX was built without support of cuda: its "
                       "memory is copied through the host's, and a path is "
                       "required"
                     : "tensor '0': UCX knows no memory of the domain "
                       "'accelerator': it is copied through the host's, and a "
                       "path is required");
    pair_close(&pair);
    device_maps_end();
}

Test(stage, is_counted)
{
    static const device_tensor_t tensors[] = {{.device = 0, .bytes = 1000},
                                              {.device = ON_HOST, .bytes = 9},
                                              {.device = 1, .bytes = 24}};
    char *json;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    exchange(&pair, tensors, 3, 0);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "\"sent_staged\":\t2");
    must_say(json, "\"sent_staged_bytes\":\t1024");
    tmsg_string_free(json);
    must(tmsg_endpoint_describe(pair.to_b, &json));
    must_say(json, "\"received_staged\":\t2");
    must_say(json, "\"received_staged_bytes\":\t1024");
    tmsg_string_free(json);
    pair_close(&pair);
    device_maps_end();
}

static tmsg_map_t *with_metadata(uint64_t seed, size_t bytes)
{
    static const device_tensor_t one[] = {{.device = 1, .bytes = 100000}};
    tmsg_map_t *map = device_map(seed, one, 1);
    void *value = calloc(1, bytes);

    must(tmsg_map_set_bytes(map, "much", value, bytes));
    free(value);
    return map;
}

typedef struct {
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;
    tmsg_request_t *sent;
} try_t;

static bool has_begun(void *arg)
{
    try_t *try = arg;
    tmsg_status_t status =
        tmsg_endpoint_send(try->endpoint, try->map, NULL, &try->sent);

    must_true(status == TMSG_OK || status == TMSG_ERR_BUSY);
    return status == TMSG_OK;
}

/* More than the peer takes at once, all together: they wait, in their order. */
Test(stage, waits_for_room_for_its_description)
{
    enum { MESSAGES = 8 };
    static const device_tensor_t one[] = {{.device = 1, .bytes = 100000}};
    const side_options_t ample = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = (uint64_t)1 << 31}};
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &ample, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_with(pair.to_a, with_metadata(i + 1, 1500000), 0, 1);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        device_map_check(i + 1, one, 1, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}

/* What describes the fragments has to come before them. */
Test(stage, follows_a_description_that_the_peer_takes_at_once)
{
    const side_options_t ample = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = (uint64_t)1 << 31}};
    try_t try;
    static const device_tensor_t one[] = {{.device = 1, .bytes = 100000}};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    tmsg_map_t *map;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &ample, NULL);
    map = with_metadata(1, 5000000);
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "beside tensors of a device's memory");
    tmsg_map_destroy(map);
    sent = send_with(pair.to_a, with_metadata(2, 3000000), 0, 1);
    map = with_metadata(3, 3000000);
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "has not taken those before them");
    message = pair_take(&pair, &pair.a);
    device_map_check(2, one, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    try = (try_t){pair.to_a, map, NULL};
    pair_await(&pair, has_begun, &try, "room at the peer");
    tmsg_map_destroy(map);
    message = pair_take(&pair, &pair.a);
    device_map_check(3, one, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, try.sent));
    pair_close(&pair);
    device_maps_end();
}
