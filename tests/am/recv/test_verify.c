/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Checksums: whatever way the payload takes, a changed message is not
 * delivered, and both ends hear which tensor was changed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *what;
    sample_t sample;
} payloads[] = {
    {"no tensor", {.seed = 1}},
    {"empty tensors", {.seed = 2, .tensors = 5, .shape = SAMPLE_EMPTY}},
    {"gathered", {.seed = 3, .tensors = 64}},
    {"one piece",
     {.seed = 4, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 3 << 20}},
    {"a scatter list",
     {.seed = 5, .tensors = 5, .shape = SAMPLE_VECTOR, .elements = 1 << 20}},
    {"spilled and gathered", {.seed = 6, .tensors = 3000, .name_bytes = 100}},
    {"spilled and scattered",
     {.seed = 7,
      .tensors = 60,
      .name_bytes = 2000,
      .shape = SAMPLE_VECTOR,
      .elements = 100000}},
};

static void arrives(link_t link, drive_t drive)
{
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < COUNT(payloads); i++) {
        tmsg_request_t *sent = send_map(
            pair.to_a, sample_make(&payloads[i].sample), TMSG_SEND_VERIFY);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&payloads[i].sample, tmsg_message_map(message));
        must(pair_finish(&pair, sent));
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

Test(verify, every_payload_arrives_shm) { arrives(LINK_SHM, DRIVE_POLLING); }
Test(verify, every_payload_arrives_tcp) { arrives(LINK_TCP, DRIVE_THREAD); }

/* The checksum of a packed tensor is of its packed bytes. */
Test(verify, packed_tensors_arrive)
{
    static const int64_t shape[] = {300, 100}, strides[] = {200, -2};
    const tmsg_tensor_t tensor = {calloc(2, 60000),
                                  {TMSG_DEVICE_CPU, 0},
                                  {TMSG_DTYPE_INT, 16, 1},
                                  2,
                                  shape,
                                  strides};
    tmsg_tensor_t view = tensor;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    sample_fill(9, tensor.data, 120000);
    view.data = (uint8_t *)tensor.data + 198 * 2;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "view", &view, NULL));
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, map, TMSG_SEND_VERIFY);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    pair_close(&pair);
    free(tensor.data);
}

Test(verify, waits_for_the_application)
{
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, sample_bytes(1, 100), TMSG_SEND_VERIFY);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(verify, a_peer_that_cannot_is_named_at_once)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_VERIFY};
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_request_t *sent = NULL;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.checksums = ~(1u << 1);
    must_be(tmsg_endpoint_send(pair.to_a, map, &params, &sent),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "cannot check checksums");
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    must_true(sent == NULL);
    must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* A map of two tensors, the second of which is borrowed. */
static tmsg_map_t *borrow(size_t names, uint8_t *data, int64_t bytes)
{
    const sample_t sample = {.seed = 3, .tensors = names, .name_bytes = 500};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, &bytes, NULL};
    tmsg_map_t *map = sample_make(&sample);

    must(tmsg_map_add(map, "large", &tensor, NULL));
    return map;
}

static void count_refusal(void *arg, tmsg_endpoint_t *endpoint,
                          uint16_t channel, uint32_t sequence,
                          tmsg_status_t status, const char *error)
{
    (void)channel;
    (void)endpoint;
    must_eq(sequence, 0);
    must_be(status, TMSG_ERR_CORRUPT);
    must_say(error, "tensor ");
    must_say(error, "'large': xxh3_64 is ");
    ++*(unsigned *)arg;
}

/* The buffer is read when the receiver fetches it, so a write after the send
 * has begun damages the message under way. */
static void damage(link_t link, size_t names)
{
    enum { BYTES = 8 << 20 };
    uint8_t *data = malloc(BYTES);
    tmsg_message_t *message = NULL;
    unsigned refusals = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                   .on_refused = count_refusal,
                   .on_refused_arg = &refusals}};
    tmsg_request_t *sent;
    pair_t pair;

    sample_fill(1, data, BYTES);
    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    sent = send_map(pair.to_a, borrow(names, data, BYTES), TMSG_SEND_VERIFY);
    data[BYTES - 1] ^= 1;
    must_be(pair_wait(&pair, sent), TMSG_ERR_CORRUPT);
    must_say(tmsg_request_error(sent), "'large': xxh3_64 is ");
    must_say(tmsg_request_error(sent), tmsg_endpoint_peer(pair.to_a));
    must_be(tmsg_worker_recv(pair.a.worker, 0, &message), TMSG_ERR_TIMED_OUT);
    must_eq(pair.to_b->stats.refused_messages, 1);
    must_eq(refusals, 1);
    tmsg_request_destroy(sent);
    sent = send_map(pair.to_a, borrow(names, data, BYTES), TMSG_SEND_VERIFY);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
    free(data);
}

Test(verify, damage_fails_the_message_shm) { damage(LINK_SHM, 0); }
Test(verify, damage_fails_the_message_tcp) { damage(LINK_TCP, 0); }
Test(verify, damage_fails_a_spilled_message_shm) { damage(LINK_SHM, 200); }
Test(verify, damage_fails_a_spilled_message_tcp) { damage(LINK_TCP, 200); }
