/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Checksums of tensors in the memory of devices: what the sender's held when
 * its streams were done is what the receiver's holds, or nobody gets it. */
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

static const tmsg_stream_t none;

static void exchange(pair_t *pair, const device_tensor_t *tensors, size_t count)
{
    static uint64_t seed = 1000;
    tmsg_request_t *sent;
    tmsg_message_t *message;

    seed += 100;
    sent = send_map(pair->to_a, device_map(seed, tensors, count),
                    TMSG_SEND_VERIFY);
    message = pair_take(pair, &pair->a);
    device_map_check(seed, tensors, count, tmsg_message_map(message));
    must(pair_finish(pair, sent));
    tmsg_message_destroy(message);
}

/* Of a chunk and a byte more, and of several in one chunk. */
static void arrives(link_t link, drive_t drive)
{
    static const size_t sizes[] = {0,      1,       64,      65536,
                                   300001, 1048576, 1048577, 9000001};
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const device_tensor_t one[] = {{.device = 1, .bytes = sizes[i]}};
        const device_tensor_t mixed[] = {{.device = ON_HOST, .bytes = sizes[i]},
                                         {.device = 0, .bytes = sizes[i]},
                                         {.device = ON_HOST, .bytes = 100},
                                         {.device = 0, .bytes = 65},
                                         {.device = 3, .bytes = sizes[i]},
                                         {.device = 0, .bytes = 2000000},
                                         {.device = 0, .bytes = 64}};

        exchange(&pair, one, 1);
        exchange(&pair, mixed, 7);
    }
    pair_close(&pair);
    device_maps_end();
}

Test(verify_devices, every_size_arrives_shm)
{
    arrives(LINK_SHM, DRIVE_POLLING);
}
Test(verify_devices, every_size_arrives_tcp) { arrives(LINK_TCP, DRIVE_FD); }
Test(verify_devices, every_size_arrives_unix)
{
    arrives(LINK_UNIX, DRIVE_THREAD);
}

/* What is summed is what the stream's work has written, and the call does not
 * wait for that. */
Test(verify_devices, is_of_what_the_stream_writes)
{
    enum { BYTES = 3000000 };
    const tmsg_stream_t stream = device_stream(2);
    const device_tensor_t tensor[] = {
        {.device = 2, .bytes = BYTES, .stream = stream}};
    tmsg_map_t *map;
    tmsg_request_t *sent;
    tmsg_message_t *message;
    tmsg_tensor_t there;
    uint8_t *host = malloc(BYTES);
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sample_fill(9, host, BYTES);
    map = device_map(1, tensor, 1);
    must(tmsg_map_at(map, 0, NULL, &there));
    device_block(stream);
    must(device_domain()->copy_in(NULL, device_at(2), there.data, host, BYTES,
                                  stream));
    sent = send_map(pair.to_a, map, TMSG_SEND_VERIFY);
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_eq(pair.to_a->stats.sent_messages, 0);
    device_unblock(stream);
    message = pair_take(&pair, &pair.a);
    device_map_check(9, tensor, 1, tmsg_message_map(message));
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair_close(&pair);
    free(host);
    device_maps_end();
}

/* On its channel nothing gets before it. */
Test(verify_devices, keeps_its_place)
{
    const tmsg_stream_t stream = device_stream(0);
    const device_tensor_t first[] = {
        {.device = 0, .bytes = 100, .stream = stream}};
    tmsg_request_t *sent[2];
    tmsg_message_t *message;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    device_block(stream);
    sent[0] = send_map(pair.to_a, device_map(1, first, 1), TMSG_SEND_VERIFY);
    sent[1] = send_map(pair.to_a, sample_bytes(2, 100), 0);
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_be(tmsg_request_test(sent[1]), TMSG_IN_PROGRESS);
    device_unblock(stream);
    message = pair_take(&pair, &pair.a);
    device_map_check(1, first, 1, tmsg_message_map(message));
    tmsg_message_destroy(message);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent[0]));
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
    device_maps_end();
}

/* From the host to a device, and from a device to the host. */
static void choose(void *arg, tmsg_incoming_t *incoming)
{
    must(tmsg_incoming_choose_all(incoming, *(const tmsg_device_t *)arg, none));
}

static void goes_elsewhere(tmsg_device_t there, const device_tensor_t *from,
                           const device_tensor_t *to)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &there}};
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent = send_map(pair.to_a, device_map(5, from, 2), TMSG_SEND_VERIFY);
    message = pair_take(&pair, &pair.a);
    device_map_check(5, to, 2, tmsg_message_map(message));
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair_close(&pair);
}

Test(verify_devices, is_the_same_wherever_it_goes)
{
    static const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    static const device_tensor_t host[] = {
        {.device = ON_HOST, .bytes = 100},
        {.device = ON_HOST, .bytes = 3000000}};
    static const device_tensor_t device[] = {{.device = 3, .bytes = 100},
                                             {.device = 3, .bytes = 3000000}};

    device_maps_begin();
    goes_elsewhere(device_at(3), host, device);
    goes_elsewhere(cpu, device, host);
    goes_elsewhere(device_at(3), device, device);
    device_maps_end();
}

enum { PEERS = 3 };

/* Those of messages of one number, of a peer each. */
typedef struct {
    uint32_t sequence;
    unsigned count;
    const tmsg_endpoint_t *from[PEERS];
} refusals_t;

static void count_refusal(void *arg, tmsg_endpoint_t *endpoint,
                          uint16_t channel, uint32_t sequence,
                          tmsg_status_t status, const char *error)
{
    refusals_t *refusals = arg;

    must_eq(channel, 0);
    must_eq(sequence, refusals->sequence);
    must_be(status, TMSG_ERR_CORRUPT);
    must_say(error, "tensor 1 '1': xxh3_64 is ");
    must_true(refusals->count < PEERS);
    for (unsigned i = 0; i < refusals->count; i++) {
        must_true(refusals->from[i] != endpoint);
    }
    refusals->from[refusals->count++] = endpoint;
}

static side_options_t counting(refusals_t *refusals)
{
    return (side_options_t){
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                   .on_refused = count_refusal,
                   .on_refused_arg = refusals}};
}

static bool is_posted(void *arg)
{
    return ((const tmsg_endpoint_t *)arg)->stats.sent_messages > 0;
}

/* What is written to it when its checksum is known and not all of it was copied
 * is damage under way. */
static void damage(link_t link)
{
    enum { BYTES = 20000000 };
    static const device_tensor_t tensors[] = {{.device = 0, .bytes = 64},
                                              {.device = 1, .bytes = BYTES}};
    refusals_t refusals = {.sequence = 0};
    const side_options_t options = counting(&refusals);
    tmsg_message_t *message = NULL;
    tmsg_request_t *sent;
    tmsg_tensor_t tensor;
    tmsg_map_t *map;
    uint8_t last;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    map = device_map(1, tensors, 2);
    must(tmsg_map_at(map, 1, NULL, &tensor));
    sent = send_map(pair.to_a, map, TMSG_SEND_VERIFY);
    side_await(&pair.b, is_posted, pair.to_a, "the header to be sent");
    device_peek(&last, (uint8_t *)tensor.data + BYTES - 1, 1);
    last ^= 1;
    device_poke((uint8_t *)tensor.data + BYTES - 1, &last, 1);
    must_be(pair_wait(&pair, sent), TMSG_ERR_CORRUPT);
    must_say(tmsg_request_error(sent), "tensor 1 '1': xxh3_64 is ");
    tmsg_request_destroy(sent);
    must_be(tmsg_worker_recv(pair.a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
    must_eq(refusals.count, 1);
    exchange(&pair, tensors, 2);
    pair_close(&pair);
    device_maps_end();
}

Test(verify_devices, damage_fails_the_message_shm) { damage(LINK_SHM); }
Test(verify_devices, damage_fails_the_message_tcp) { damage(LINK_TCP); }

/* Many at once: chunks are waited for. */
Test(verify_devices, waits_for_bounded_buffers)
{
    enum { MESSAGES = 12 };
    static const device_tensor_t tensors[] = {{.device = 0, .bytes = 5000000},
                                              {.device = 2, .bytes = 3000000}};
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_map(pair.to_a, device_map(i * 10 + 1, tensors, 2),
                           TMSG_SEND_VERIFY);
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

static bool is_posted_again(void *arg)
{
    return ((const tmsg_endpoint_t *)arg)->stats.sent_messages > 1;
}

/* To several peers, each with checksums of what the device's memory held when
 * its stream was done: none gets what was damaged on the way. */
Test(verify_devices, is_published)
{
    enum { BYTES = 20000000 };
    const tmsg_stream_t stream = device_stream(1);
    const device_tensor_t tensors[] = {
        {.device = 0, .bytes = 100},
        {.device = 1, .bytes = BYTES, .stream = stream},
        {.device = ON_HOST, .bytes = 70000}};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_VERIFY};
    refusals_t refusals = {.sequence = 1};
    const side_options_t options = counting(&refusals);
    tmsg_message_t *message = NULL;
    tmsg_endpoint_t *peers[PEERS];
    tmsg_publisher_t *publisher;
    tmsg_map_t *map;
    tmsg_tensor_t tensor;
    tmsg_request_t *sent;
    uint8_t last;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must(tmsg_publisher_create(pair.b.worker, NULL, &publisher));
    for (int i = 0; i < PEERS; i++) {
        peers[i] = side_dial(&pair.b, &pair.a);
        must(tmsg_publisher_add(publisher, peers[i], NULL));
    }
    map = device_map(1, tensors, 3);
    must(tmsg_map_at(map, 1, NULL, &tensor));
    for (int round = 0; round < 2; round++) {
        device_block(stream);
        must(tmsg_publisher_publish(publisher, map, &params, &sent));
        for (int i = 0; i < 100; i++) {
            tmsg_worker_progress(pair.a.worker);
            tmsg_worker_progress(pair.b.worker);
        }
        must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
        device_unblock(stream);
        for (int i = 0; i < PEERS && round == 0; i++) {
            message = pair_take(&pair, &pair.a);
            device_map_check(1, tensors, 3, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        for (int i = 0; i < PEERS && round == 1; i++) {
            side_await(&pair.b, is_posted_again, peers[i],
                       "the header to be sent");
        }
        if (round == 1) {
            device_peek(&last, (uint8_t *)tensor.data + BYTES - 1, 1);
            last ^= 1;
            device_poke((uint8_t *)tensor.data + BYTES - 1, &last, 1);
        }
        must(pair_finish(&pair, sent)); /* whatever became of each */
    }
    message = NULL;
    must_be(tmsg_worker_recv(pair.a.worker, 200, &message), TMSG_ERR_TIMED_OUT);
    must_eq(refusals.count, PEERS);
    must_eq(tmsg_publisher_size(publisher), PEERS);
    tmsg_publisher_destroy(publisher);
    tmsg_map_destroy(map);
    pair_close(&pair);
    device_maps_end();
}
