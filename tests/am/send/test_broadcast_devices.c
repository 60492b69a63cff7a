/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A tensor of a device's memory with a stride of 0 travels with each element
 * once, as the host's does, if its elements leave no gaps. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

#define SEED 77

typedef struct {
    int64_t shape[3];
    int64_t strides[3];
    size_t bytes; /* of its elements, each once */
} expanded_t;

static const expanded_t expanded[] = {
    {{1000, 5, 6}, {0, 6, 1}, 30},
    {{5, 6, 1000}, {1, 5, 0}, 30},
    {{40, 1000, 100}, {100, 0, 1}, 4000},
    {{10, 20, 30}, {0, 0, 0}, 1},
    {{3, 1000, 3001}, {0, 3001, 1}, 3001000},
};

#define COUNT (sizeof(expanded) / sizeof(expanded[0]))

static tmsg_map_t *make(const expanded_t *of, int64_t step)
{
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = device_free,
        .release_arg = device_alloc(1, of->bytes * (size_t)step, SEED)};
    const int64_t strides[] = {of->strides[0] * step, of->strides[1] * step,
                               of->strides[2] * step};
    const tmsg_tensor_t tensor = {.data = params.release_arg,
                                  .device = device_at(1),
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 3,
                                  .shape = of->shape,
                                  .strides = strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, &params));
    return map;
}

static tmsg_tensor_t check(const expanded_t *of, const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
    must_eq(tensor.ndim, 3);
    must_true(memcmp(tensor.shape, of->shape, sizeof(of->shape)) == 0);
    must_true(tensor.strides != NULL);
    for (int i = 0; i < 3; i++) {
        must_eq(tensor.strides[i], of->strides[i]);
    }
    return tensor;
}

static void travels(link_t link, drive_t drive)
{
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < 2 * COUNT; i++) {
        const expanded_t *of = &expanded[i / 2];
        uint64_t before = pair.to_a->stats.sent_bytes;
        tmsg_request_t *sent =
            send_map(pair.to_a, make(of, 1), i % 2 == 0 ? 0 : TMSG_SEND_VERIFY);
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_tensor_t tensor = check(of, message);

        must_eq(tensor.device.type, device_at(1).type);
        must_eq(tensor.device.id, 1);
        must_eq(device_compare(SEED, tensor.data, of->bytes), of->bytes);
        must(pair_finish(&pair, sent));
        must_eq(pair.to_a->stats.sent_bytes - before, of->bytes);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    device_maps_end();
}

Test(broadcast_devices, travels_once_shm) { travels(LINK_SHM, DRIVE_POLLING); }
Test(broadcast_devices, travels_once_tcp) { travels(LINK_TCP, DRIVE_THREAD); }
Test(broadcast_devices, travels_once_blob) { travels(LINK_BLOB, DRIVE_FD); }

Test(broadcast_devices, comes_to_the_host_as_the_hosts_does)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_HOST_ONLY}};
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        const expanded_t *of = &expanded[i];
        tmsg_request_t *sent =
            send_map(pair.to_a, make(of, 1), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_tensor_t tensor = check(of, message);

        must_eq(tensor.device.type, TMSG_DEVICE_CPU);
        must_eq(sample_compare(SEED, tensor.data, of->bytes), of->bytes);
        must(pair_finish(&pair, sent));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
    device_maps_end();
}

static void refuse(pair_t *pair, int64_t step, const char *why)
{
    tmsg_map_t *map = make(&expanded[0], step);

    must_be(tmsg_endpoint_send(pair->to_a, map, NULL, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), why);
    tmsg_map_destroy(map);
}

/* A tensor with gaps goes as its span, if TMSG_SEND_KEEP_STRIDES asks for it.
 */
Test(broadcast_devices, is_refused_where_the_cpu_would_have_to_write)
{
    tmsg_tensor_t tensor;
    tmsg_request_t *sent;
    tmsg_message_t *message;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    refuse(&pair, 2,
           "tensor 'x': its strides leave gaps or overlap "
           "(TMSG_SEND_KEEP_STRIDES sends it unpacked)");
    sent = send_map(pair.to_a, make(&expanded[0], 2), TMSG_SEND_KEEP_STRIDES);
    message = pair_take(&pair, &pair.a);
    must(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
    must_eq(tensor.strides[0], 0);
    must_eq(tensor.strides[1], 12);
    must_eq(tensor.strides[2], 2);
    must_eq(device_compare(SEED, tensor.data, 59), 59);
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_BROADCAST;
    refuse(&pair, 1,
           "tensor 'x': a stride of it is 0, which is written out "
           "for a peer of an older version, which the CPU cannot do "
           "in memory of device type");
    pair_close(&pair);
    device_maps_end();
}

static bool has_ready(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->ready.count > 0;
}

/* If the tensor would have to be written out on a device, the message stays the
 * next to be received, and nothing of it is in the map. */
Test(broadcast_devices, is_not_lost_where_it_cannot_be_received_into)
{
    const int64_t five[] = {5};
    const expanded_t plain = {{1000, 5, 6}, {30, 6, 1}, 30000};
    uint8_t theirs[5] = {1, 2, 3, 4, 5}, ours[5] = {0};
    tmsg_tensor_t first = {.data = theirs,
                           .device = {TMSG_DEVICE_CPU, 0},
                           .dtype = {TMSG_DTYPE_UINT, 8, 1},
                           .ndim = 1,
                           .shape = five};
    tmsg_map_t *map, *into;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    map = make(&expanded[0], 1);
    must(tmsg_map_add(map, "first", &first, NULL));
    sent = send_map(pair.to_a, map, 0);
    into = make(&plain, 1);
    first.data = ours;
    must(tmsg_map_add(into, "first", &first, NULL));
    must(pair_finish(&pair, sent));
    pair_await(&pair, has_ready, pair.to_b, "the message");
    must_be(tmsg_endpoint_recv_into(pair.to_b, into, 0, &message),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "tensor 'x': a stride of it is 0, and only "
                                   "the CPU can write it out");
    must_eq(ours[0], 0);
    message = pair_take(&pair, &pair.a);
    check(&expanded[0], message);
    tmsg_message_destroy(message);
    tmsg_map_destroy(into);
    pair_close(&pair);
    device_maps_end();
}

/* The same for a tensor with gaps from the host's memory, which came before the
 * receive or comes while that waits. A receive without a map gets it. */
static void stays_with_gaps(pair_t *pair, bool before)
{
    static uint8_t bytes[2 * 210];
    const expanded_t gaps = {{5, 6, 7}, {84, 14, 2}, 419};
    const expanded_t plain = {{5, 6, 7}, {42, 7, 1}, 210};
    const tmsg_tensor_t tensor = {.data = bytes,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 3,
                                  .shape = gaps.shape,
                                  .strides = gaps.strides};
    tmsg_map_t *map, *into = make(&plain, 1);
    tmsg_message_t *message;
    tmsg_request_t *sent;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)i;
    }
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    sent = send_map(pair->to_a, map, TMSG_SEND_KEEP_STRIDES);
    if (before) {
        pair_await(pair, has_ready, pair->to_b, "the message");
    }
    must_be(
        tmsg_endpoint_recv_into(pair->to_b, into, before ? 0 : 10000, &message),
        TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "tensor 'x': its strides leave gaps or "
                                   "overlap, and only the CPU can write it "
                                   "out");
    message = pair_take(pair, &pair->a);
    must_true(memcmp(check(&gaps, message).data, bytes, gaps.bytes) == 0);
    must(pair_finish(pair, sent));
    tmsg_message_destroy(message);
    tmsg_map_destroy(into);
}

Test(broadcast_devices, with_gaps_it_is_not_lost_either)
{
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    stays_with_gaps(&pair, true);
    stays_with_gaps(&pair, false);
    pair_close(&pair);
    device_maps_end();
}
