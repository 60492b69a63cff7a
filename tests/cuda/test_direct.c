/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory that UCX reads and writes itself: into how many messages and
 * copies a map is cut, which nobody sees from what arrives. UCX's endpoints are
 * those of fakes/ucx.h, which counts. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/staging/pin.h"
#include "fakes/ucx.h"
#include "memory/cuda_driver.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/simulated_devices.h"

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define CUDA_TYPE 1 /* UCS_MEMORY_TYPE_CUDA */

static bool is_device(const void *data)
{
    tmsg_memory_t memory;

    must(tmsg_memory_query(data, &memory));
    return memory.device.type == device_at(0).type;
}

static void move(void *to, const void *from, size_t bytes)
{
    if (is_device(from)) {
        device_peek(to, from, bytes);
    } else if (is_device(to)) {
        device_poke(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

static void begin(pair_t *pair)
{
    fake_ucx = (fake_ucx_t){.memory_types = 1 << CUDA_TYPE, .move = move};
    device_maps_begin();
    pair_open(pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair->to_a->peer_memory = UINT64_MAX; /* its UCX knows it, too */
}

static void end(pair_t *pair)
{
    pair_close(pair);
    device_maps_end();
}

/* What one map took, the second of two alike: the first defines a schema. */
typedef struct {
    uint64_t messages, rendezvous;
} counts_t;

static counts_t carry(pair_t *pair, const device_tensor_t *tensors,
                      size_t count)
{
    static uint64_t seed = 1000;
    counts_t counts = {0, 0};

    for (int i = 0; i < 2; i++) {
        tmsg_request_t *sent;
        tmsg_message_t *message;
        tmsg_map_t *map = device_map(++seed, tensors, count);

        counts = (counts_t){fake_ucx.arrived, fake_ucx.rendezvous};
        must(tmsg_endpoint_send(pair->to_a, map, NULL, &sent));
        message = pair_take(pair, &pair->a);
        device_map_check(seed, tensors, count, tmsg_message_map(message));
        must(pair_finish(pair, sent));
        counts = (counts_t){fake_ucx.arrived - counts.messages,
                            fake_ucx.rendezvous - counts.rendezvous};
        tmsg_message_destroy(message);
        tmsg_map_destroy(map);
        seed += count;
    }
    return counts;
}

Test(direct, a_large_tensor_is_one_message)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 16 * MIB}};
    pair_t pair;

    begin(&pair);
    cr_expect(eq(u64, carry(&pair, one, 1).rendezvous, 1));
    cr_expect(eq(u64, pair.to_a->stats.sent_direct, 2));
    cr_expect(eq(u64, pair.to_b->stats.received_direct, 2));
    end(&pair);
}

/* The host's keeps its own fragments. */
Test(direct, a_tensor_of_the_host_beside_it_is_cut_as_ever)
{
    static const device_tensor_t both[] = {
        {.device = 0, .bytes = 9 * MIB}, {.device = ON_HOST, .bytes = 9 * MIB}};
    counts_t counts;
    pair_t pair;

    begin(&pair);
    counts = carry(&pair, both, 2);
    cr_expect(eq(u64, counts.rendezvous, 1));
    cr_expect(ge(u64, counts.messages, 1 + 1 + 36));
    end(&pair);
}

Test(direct, several_tensors_are_copied_at_a_time)
{
    static const device_tensor_t many[] = {
        {.device = 0, .bytes = MIB}, {.device = 0, .bytes = MIB},
        {.device = 1, .bytes = MIB}, {.device = 0, .bytes = MIB},
        {.device = 0, .bytes = MIB}, {.device = 0, .bytes = MIB}};
    pair_t pair;

    begin(&pair);
    cr_expect(eq(u64, carry(&pair, many, 6).rendezvous, 6));
    cr_expect(ge(uint, fake_ucx.most_fetching, 2));
    end(&pair);
}

/* A peer that does not say so gets fragments of the usual size. */
Test(direct, a_peer_whose_ucx_writes_no_devices_gets_them_in_small_pieces)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 16 * MIB}};
    pair_t pair;

    begin(&pair);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_DEVICES;
    cr_expect(eq(u64, carry(&pair, one, 1).rendezvous, 64));
    end(&pair);
}

/* Copies that the driver was told of, by any of its functions for them. */
static unsigned long copies(void)
{
    const fake_cuda_t *driver = devices_driver();

    return driver->calls("cuMemcpyBatchAsync") +
           driver->calls("cuMemcpyDtoHAsync_v2") +
           driver->calls("cuMemcpyHtoDAsync_v2");
}

static unsigned long events(void)
{
    return devices_driver()->calls("cuEventRecord");
}

static bool has_batches(void)
{
    return tmsg_cuda_driver()->fn.cuMemcpyBatchAsync != NULL;
}

/* One copy out, one message, one copy in, and nobody waits for more. */
Test(direct, small_tensors_are_one_message_and_one_copy_at_each_side)
{
    device_tensor_t small[8];
    unsigned long before, waits;
    counts_t counts;
    pair_t pair;

    for (size_t i = 0; i < 8; i++) {
        small[i] = (device_tensor_t){.device = 0, .bytes = 64};
    }
    begin(&pair);
    carry(&pair, small, 8);
    before = copies();
    waits = events();
    counts = carry(&pair, small, 8); /* two maps */
    cr_expect(eq(u64, counts.rendezvous, 0));
    cr_expect(le(u64, counts.messages, 2)); /* the map, and credit for it */
    cr_expect(eq(ulong, copies() - before, has_batches() ? 4 : 32));
    cr_expect(eq(ulong, events() - waits, 4));
    cr_expect(eq(u64, pair.to_a->stats.sent_gathered, 32));
    cr_expect(eq(u64, pair.to_b->stats.received_gathered, 32));
    cr_expect(zero(u64, pair.to_a->stats.sent_staged));
    cr_expect(zero(u64, pair.to_b->stats.received_staged));
    end(&pair);
}

/* Of two devices, the host, and too large: whatever is in a map arrives. */
Test(direct, small_tensors_go_beside_others)
{
    const device_tensor_t mixed[] = {
        {.device = 0, .bytes = 100},
        {.device = ON_HOST, .bytes = 3},
        {.device = 1, .bytes = 64 * KIB - 1},
        {.device = 0, .bytes = 64 * KIB},
        {.device = ON_HOST, .bytes = 9 * MIB},
        {.device = 1, .bytes = 1},
        {.device = 0, .bytes = 0},
        {.device = 0, .bytes = 5000, .stream = device_stream(0)}};
    pair_t pair;

    begin(&pair);
    cr_expect(eq(u64, carry(&pair, mixed, 8).rendezvous, 1));
    cr_expect(eq(u64, pair.to_a->stats.sent_gathered, 2 * 4));
    cr_expect(eq(u64, pair.to_a->stats.sent_direct, 2 * 1));
    end(&pair);
}

/* More than the chunk takes: what has no room there goes in fragments. */
Test(direct, what_is_gathered_is_bounded)
{
    enum { TENSORS = 70 };
    static device_tensor_t many[TENSORS];
    pair_t pair;

    for (size_t i = 0; i < TENSORS; i++) {
        many[i] = (device_tensor_t){.device = 0, .bytes = 64 * KIB - 64};
    }
    begin(&pair);
    carry(&pair, many, TENSORS);
    cr_expect(eq(u64, pair.to_a->stats.sent_gathered, 2 * 64));
    cr_expect(eq(u64, pair.to_a->stats.sent_direct, 2 * 6));
    cr_expect(le(u64, pair.b.worker->stage.out.bytes, TMSG_CHUNKS_BYTES));
    end(&pair);
}

/* A path that is required is not missed where tensors are gathered. */
Test(direct, small_tensors_are_no_detour)
{
    static const device_tensor_t small[] = {{.device = 0, .bytes = 64},
                                            {.device = 0, .bytes = 64}};
    pair_t pair;

    begin(&pair);
    pair.a.context->flags |= TMSG_CONTEXT_REQUIRE_PATH;
    pair.b.context->flags |= TMSG_CONTEXT_REQUIRE_PATH;
    cr_expect(zero(u64, carry(&pair, small, 2).rendezvous));
    end(&pair);
}

static void to_device(void *arg, tmsg_incoming_t *incoming)
{
    static const tmsg_stream_t none;

    (void)arg;
    must(tmsg_incoming_choose_all(incoming, device_at(0), none));
}

static bool has_pinned(void *arg)
{
    tmsg_worker_t *worker = arg;
    const tmsg_chunks_t *chunks = &worker->stage.in;

    tmsg_pin_poll(worker); /* as whoever takes a chunk does */
    return chunks->spare.count > 0 &&
           TMSG_CONTAINER_OF(chunks->spare.head, tmsg_chunk_t, node)->pinned;
}

/* The driver would copy pageable memory by the CPU, while nothing progresses.
 */
Test(direct, tensors_of_the_host_go_to_a_device_by_pinned_memory)
{
    static const device_tensor_t sent[] = {
        {.device = ON_HOST, .bytes = 3 * MIB},
        {.device = ON_HOST, .bytes = 70},
        {.device = ON_HOST, .bytes = 0}};
    static const device_tensor_t wanted[] = {{.device = 0, .bytes = 3 * MIB},
                                             {.device = 0, .bytes = 70},
                                             {.device = 0, .bytes = 0}};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = to_device}};
    pair_t pair;

    fake_ucx = (fake_ucx_t){.memory_types = 1 << CUDA_TYPE, .move = move};
    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (uint64_t i = 0; i < 2; i++) {
        tmsg_map_t *map = device_map(7, sent, 3);
        tmsg_message_t *message;

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        message = pair_take(&pair, &pair.a);
        device_map_check(7, wanted, 3, tmsg_message_map(message));
        tmsg_message_destroy(message);
        tmsg_map_destroy(map);
        /* A chunk is pinned behind its first use, on a thread beside. */
        pair_await(&pair, has_pinned, pair.a.worker, "a pin");
        devices_driver()->pinned_only(true);
    }
    end(&pair);
}

/* What UCX reads in one piece may go to a device that it does not write. */
Test(direct, a_long_fragment_goes_by_a_chunk_of_its_own)
{
    static const device_tensor_t one[] = {{.device = 0, .bytes = 40 * MIB}};
    pair_t pair;

    begin(&pair);
    pair.a.worker->ucx->memory_types = 1;
    cr_expect(eq(u64, carry(&pair, one, 1).rendezvous, 1));
    cr_expect(eq(u64, pair.to_b->stats.received_staged, 2));
    cr_expect(le(u64, pair.a.worker->stage.in.bytes, TMSG_CHUNKS_BYTES));
    end(&pair);
}
