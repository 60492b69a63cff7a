/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving into a map of the application's: whatever way a payload comes, its
 * tensors are in that map. The memory is the application's again when no byte
 * can be written to it any more. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LARGE (100 << 20)

static const struct {
    const char *what;
    sample_t sample;
} payloads[] = {
    {"no tensor", {.seed = 1}},
    {"empty tensors", {.seed = 2, .tensors = 5, .shape = SAMPLE_EMPTY}},
    {"small", {.seed = 3, .tensors = 4, .shape = SAMPLE_VECTOR, .elements = 9}},
    {"gathered", {.seed = 4, .tensors = 64}},
    {"one piece",
     {.seed = 5, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 3 << 20}},
    {"a scatter list",
     {.seed = 6, .tensors = 7, .shape = SAMPLE_VECTOR, .elements = 300000}},
    {"spilled and gathered", {.seed = 7, .tensors = 2000, .name_bytes = 100}},
    {"spilled and scattered",
     {.seed = 8,
      .tensors = 60,
      .name_bytes = 2000,
      .shape = SAMPLE_VECTOR,
      .elements = 100000}},
};

/* Makes a map like another, with memory of its own for every `every`th tensor.
 */
static tmsg_map_t *like(const tmsg_map_t *map, size_t every)
{
    tmsg_map_t *made;

    must(tmsg_map_create(&made));
    for (size_t i = 0; i < tmsg_map_size(map); i += every) {
        tmsg_map_add_params_t params = {
            .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = free};
        tmsg_tensor_t tensor;
        const char *name;
        uint64_t bytes;

        must(tmsg_map_at(map, i, &name, &tensor));
        must(tmsg_tensor_bytes(&tensor, &bytes));
        tensor.data = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
        must_true(tensor.data != NULL);
        memset(tensor.data, 0xee, (size_t)bytes);
        params.release_arg = tensor.data;
        must(tmsg_map_add(made, name, &tensor, &params));
    }
    return made;
}

/* Drives both sides, receiving into `map` at a. */
static tmsg_message_t *take_into(pair_t *pair, const tmsg_map_t *map)
{
    receiving_t receiving = {.pair = pair, .map = map};

    pair_await(pair, receiving_has_ended, &receiving, "a message into a map");
    must(receiving.status);
    return receiving.message;
}

/* The tensors of both maps are the same memory. */
static void expect_in(const tmsg_map_t *map, const tmsg_map_t *got)
{
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor, wanted;
        const char *name;
        uint64_t bytes;

        must(tmsg_map_at(map, i, &name, &wanted));
        must(tmsg_map_find(got, name, &tensor));
        must(tmsg_tensor_bytes(&tensor, &bytes));
        must_true(bytes == 0 || tensor.data == wanted.data);
    }
}

static void receives(link_t link, drive_t drive, unsigned flags)
{
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < COUNT(payloads); i++) {
        const sample_t *sample = &payloads[i].sample;
        tmsg_map_t *sent = sample_make(sample);
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                           .flags = flags};

        for (size_t every = 1; every < 4; every++) {
            tmsg_map_t *map = like(sent, every);

            for (int again = 0; again < 3; again++) {
                tmsg_message_t *message;
                tmsg_request_t *request;

                must(tmsg_endpoint_send(pair.to_a, sent, &params, &request));
                message = take_into(&pair, map);
                sample_check(sample, tmsg_message_map(message));
                expect_in(map, tmsg_message_map(message));
                must(pair_finish(&pair, request));
                must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
                tmsg_message_destroy(message);
            }
            must(tmsg_map_clear(map));
            tmsg_map_destroy(map);
        }
        tmsg_map_destroy(sent);
    }
    pair_close(&pair);
}

Test(recv_into, every_payload_comes_into_the_map_shm)
{
    receives(LINK_SHM, DRIVE_POLLING, 0);
}
Test(recv_into, every_payload_comes_into_the_map_tcp)
{
    receives(LINK_TCP, DRIVE_POLLING, TMSG_SEND_VERIFY);
}
Test(recv_into, every_payload_comes_into_the_map_of_a_thread)
{
    receives(LINK_UNIX, DRIVE_THREAD, TMSG_SEND_ACKED);
}

/* A payload that arrives while the receive waits is in no other memory before:
 * only the receive itself drives the receiver. */
Test(recv_into, nothing_is_between)
{
    static const size_t bytes[] = {100, 5000, 200000, 3000000};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < COUNT(bytes); i++) {
        tmsg_map_t *sent = sample_bytes(1, bytes[i]), *map = like(sent, 1);
        tmsg_request_t *request = send_map(pair.to_a, sent, 0);
        receiving_t receiving = {.pair = &pair, .map = map};

        side_await(&pair.b, receiving_has_ended, &receiving, "a message");
        must(receiving.status);
        sample_check_bytes(1, bytes[i], tmsg_message_map(receiving.message));
        expect_in(map, tmsg_message_map(receiving.message));
        must_true(receiving.message->block.data == NULL);
        tmsg_message_destroy(receiving.message);
        must(pair_finish(&pair, request));
        tmsg_map_destroy(map);
    }
    pair_close(&pair);
}

Test(recv_into, waits_for_a_message)
{
    tmsg_map_t *sent = sample_bytes(1, 3000000), *map = like(sent, 1);
    tmsg_request_t *request;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 20, &message),
            TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "no message from");
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    must(tmsg_endpoint_recv_into(pair.to_b, map, PEERS_BOUND_MS, &message));
    sample_check_bytes(1, 3000000, tmsg_message_map(message));
    expect_in(map, tmsg_message_map(message));
    /* The map may go before the message. */
    tmsg_map_destroy(map);
    sample_check_bytes(1, 3000000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, request));
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

/* Messages that came before are copied, in their order; nothing is lost. */
Test(recv_into, takes_what_came_before)
{
    static const size_t bytes[] = {100, 5000, 3000000};

    for (size_t i = 0; i < COUNT(bytes); i++) {
        tmsg_request_t *sent[4];
        tmsg_map_t *maps[4];
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        for (size_t j = 0; j < 4; j++) {
            maps[j] = sample_bytes(1, bytes[i]); /* that seed names it */
            sent[j] = send_map(pair.to_a, maps[j], 0);
        }
        for (int j = 0; j < 2000; j++) {
            tmsg_worker_progress(pair.b.worker);
            tmsg_worker_progress(pair.a.worker);
        }
        for (size_t j = 0; j < 4; j++) {
            tmsg_map_t *map = sample_bytes(1, bytes[i]);
            tmsg_message_t *message = take_into(&pair, map);

            sample_check_bytes(1, bytes[i], tmsg_message_map(message));
            expect_in(map, tmsg_message_map(message));
            tmsg_message_destroy(message);
            tmsg_map_destroy(map);
            must(pair_finish(&pair, sent[j]));
        }
        pair_close(&pair);
    }
}

static tmsg_map_t *one_tensor(const char *name, tmsg_dtype_t dtype,
                              int32_t ndim, const int64_t *shape,
                              const int64_t *strides, void *data)
{
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, dtype, ndim, shape, strides};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, name, &tensor, NULL));
    return map;
}

/* The error names the tensor that differs, and the next call gets the message.
 */
Test(recv_into, a_tensor_that_differs_is_named)
{
    static const tmsg_dtype_t f32 = {TMSG_DTYPE_FLOAT, 32, 1};
    static const tmsg_dtype_t i32 = {TMSG_DTYPE_INT, 32, 1};
    static const int64_t shape[] = {40, 50}, turned[] = {50, 40};
    static const int64_t fortran[] = {1, 40}, flat[] = {2000};
    static int64_t ones[64];
    static const struct {
        const char *words;
        const tmsg_dtype_t *dtype;
        int32_t ndim;
        const int64_t *shape;
        const int64_t *strides;
    } rows[] = {
        {"float32[40,50], the map to receive into has int32[40,50]", &i32, 2,
         shape, NULL},
        {"float32[40,50], the map to receive into has float32[50,40]", &f32, 2,
         turned, NULL},
        {"has float32[2000]", &f32, 1, flat, NULL},
        {"has float32[]", &f32, 0, NULL, NULL},
        {"has float32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,...]",
         &f32, 64, ones, NULL},
        {"the elements of float32[40,50] came in another order, with strides "
         "of [50,1], than the map to receive into has, [1,40]",
         &f32, 2, shape, fortran},
    };
    static float from[2000], into[2000];
    tmsg_map_t *sent = one_tensor("x", f32, 2, shape, NULL, from);
    pair_t pair;

    for (size_t i = 0; i < COUNT(ones); i++) {
        ones[i] = 1;
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < COUNT(rows); i++) {
        receiving_t receiving = {.pair = &pair};
        tmsg_request_t *request;
        tmsg_message_t *message;
        tmsg_tensor_t tensor;
        tmsg_map_t *map = one_tensor("x", *rows[i].dtype, rows[i].ndim,
                                     rows[i].shape, rows[i].strides, into);
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                           .flags = TMSG_SEND_ACKED};

        sample_fill(i, from, sizeof(from));
        must(tmsg_endpoint_send(pair.to_a, sent, &params, &request));
        receiving.map = map;
        pair_await(&pair, receiving_has_ended, &receiving,
                   "a message that differs");
        must_be(receiving.status, TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "tensor 'x'");
        must_say(tmsg_error_message(), rows[i].words);
        must(tmsg_map_clear(map)); /* it is free */
        must_be(tmsg_request_test(request), TMSG_IN_PROGRESS);
        message = pair_take(&pair, &pair.a);
        must(tmsg_map_find(tmsg_message_map(message), "x", &tensor));
        must_true(tensor.data != into);
        must_eq(sample_compare(i, tensor.data, sizeof(from)), sizeof(from));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
        tmsg_map_destroy(map);
    }
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

/* The map is refused, and no byte of a message is written. */
Test(recv_into, memory_that_overlaps_is_refused)
{
    static const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};
    static const int64_t shape[] = {10};
    static uint8_t from[10] = {1, 2, 3}, into[19];
    tmsg_map_t *sent = one_tensor("x", u8, 1, shape, NULL, from);
    tmsg_map_t *map = one_tensor("x", u8, 1, shape, NULL, into);
    tmsg_tensor_t tensor;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    must(tmsg_map_find(map, "x", &tensor));
    tensor.data = into + 9;
    must(tmsg_map_add(map, "never sent", &tensor, NULL));
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 0, &message),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "tensors 'x' and 'never sent' overlap");
    must(tmsg_map_remove(map, "never sent")); /* it is free */
    message = take_into(&pair, map);
    must_eq(memcmp(into, from, sizeof(from)), 0);
    tmsg_message_destroy(message);
    must(pair_finish(&pair, request));
    tmsg_map_destroy(map);
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

/* Any order of elements without gaps, if both have the same. */
Test(recv_into, strides_that_agree)
{
    static const tmsg_dtype_t f32 = {TMSG_DTYPE_FLOAT, 32, 1};
    static const int64_t shape[] = {40, 50}, fortran[] = {1, 40};
    static const int64_t gaps[] = {100, 1};
    static float from[2000], into[2000];
    tmsg_map_t *sent = one_tensor("x", f32, 2, shape, fortran, from);
    tmsg_map_t *map = one_tensor("x", f32, 2, shape, fortran, into);
    tmsg_map_t *gappy = one_tensor("x", f32, 2, shape, gaps, into);
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    sample_fill(5, from, sizeof(from));
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    must_be(tmsg_endpoint_recv_into(pair.to_b, gappy, 0, &message),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "'x'");
    must_be(tmsg_endpoint_recv_into(pair.to_b, NULL, 0, &message),
            TMSG_ERR_INVALID_PARAM);
    message = take_into(&pair, map);
    must_eq(sample_compare(5, into, sizeof(into)), sizeof(into));
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 0, &message),
            TMSG_ERR_BUSY);
    tmsg_message_destroy(message);
    must(pair_finish(&pair, request));
    tmsg_map_destroy(gappy);
    tmsg_map_destroy(map);
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

static void send_and_wait(pipes_t *pipes, void *arg)
{
    char url[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    (void)side_finish(
        &side, send_map(side_connect(&side, url), sample_bytes(1, LARGE), 0));
    for (;;) {
        tmsg_worker_progress(side.worker);
    }
}

/* The sender dies during the transfer: the memory is lent until the call fails,
 * and nothing is written to it after that. */
static void dies_in_between(link_t link)
{
    static const int64_t count = LARGE;
    static const tmsg_dtype_t u8 = {TMSG_DTYPE_UINT, 8, 1};
    const side_options_t options = {.ucx_config = link_config(link)};
    uint8_t *memory = malloc(LARGE);
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    tmsg_message_t *message = NULL;
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;
    bool killed = false;
    child_t child;
    side_t side;

    must_true(memory != NULL);
    memset(memory, 0, LARGE);
    map = one_tensor("weights 0", u8, 1, &count, NULL, memory);
    child_start(&child, send_and_wait, NULL);
    side_open(&side, &options);
    side_listen_link(&side, link);
    line_put(child.out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    while (status == TMSG_ERR_TIMED_OUT || status == TMSG_CANCEL_PENDING) {
        status = tmsg_endpoint_recv_into(endpoint, map, 0, &message);
        if (status == TMSG_CANCEL_PENDING && !killed) {
            must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
            child_kill(&child);
            killed = true;
        }
    }
    must_true(killed); /* it does not come in one step */
    must_be(status, TMSG_ERR_PEER_LOST);
    must(tmsg_map_clear(map));
    memset(memory, 0x5a, LARGE);
    for (int i = 0; i < 20000; i++) {
        tmsg_worker_progress(side.worker);
    }
    for (size_t i = 0; i < LARGE; i++) {
        if (memory[i] != 0x5a) {
            die("byte %zu was written to", i);
        }
    }
    tmsg_map_destroy(map);
    side_close(&side);
    free(memory);
}

Test(recv_into, a_sender_dies_in_between_tcp) { dies_in_between(LINK_TCP); }
Test(recv_into, a_sender_dies_in_between_shm) { dies_in_between(LINK_SHM); }

/* The receiver destroys the endpoint while a message is under way. */
Test(recv_into, an_endpoint_is_given_up_in_between)
{
    tmsg_map_t *sent = sample_bytes(1, LARGE), *map = like(sent, 1);
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    tmsg_request_t *request;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    while (status == TMSG_ERR_TIMED_OUT) {
        tmsg_worker_progress(pair.b.worker);
        status = tmsg_endpoint_recv_into(pair.to_b, map, 0, &message);
    }
    must_be(status, TMSG_CANCEL_PENDING);
    tmsg_map_destroy(map); /* lives while it is written to */
    pair_drop(&pair);
    must_true(tmsg_request_test(request) < 0);
    tmsg_request_destroy(request);
    tmsg_map_destroy(sent);
}

/* What a's application does when it hears that the message was given up. */
typedef struct {
    const tmsg_map_t *map;
    tmsg_status_t status;
    unsigned calls;
} again_t;

static void receive_again(void *arg, tmsg_endpoint_t *endpoint,
                          uint16_t channel, uint32_t sequence,
                          tmsg_status_t status, const char *error)
{
    again_t *again = arg;
    tmsg_message_t *message;

    (void)channel;
    (void)sequence;
    (void)status;
    (void)error;
    again->calls++;
    again->status = tmsg_endpoint_recv_into(endpoint, again->map, 0, &message);
}

static bool was_given_up(void *arg) { return ((again_t *)arg)->calls > 0; }

/* A message under way into a map is given up by its sender: the map may be
 * received into again from then on, and is the application's otherwise. */
Test(recv_into, a_message_is_given_up_in_between)
{
    tmsg_map_t *sent = sample_bytes(1, LARGE), *map = like(sent, 1);
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    again_t again = {.map = map};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                   .on_refused = receive_again,
                   .on_refused_arg = &again}};
    tmsg_request_t *request;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &options, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    while (status == TMSG_ERR_TIMED_OUT) {
        tmsg_worker_progress(pair.b.worker);
        status = tmsg_endpoint_recv_into(pair.to_b, map, 0, &message);
    }
    must_be(status, TMSG_CANCEL_PENDING);
    tmsg_request_cancel(request);
    pair_await(&pair, was_given_up, &again, "the word of it");
    must_be(again.status, TMSG_ERR_WOULD_BLOCK);
    must(tmsg_map_clear(map));
    must_be(pair_finish(&pair, request), TMSG_ERR_CANCELED);
    tmsg_map_destroy(map);
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

/* A message that was under way into a map is delivered to any receive. */
Test(recv_into, a_message_under_way_is_not_lost)
{
    tmsg_map_t *sent = sample_bytes(1, LARGE), *map = like(sent, 1);
    tmsg_map_t *other = like(sent, 1);
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    tmsg_request_t *request;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    while (status == TMSG_ERR_TIMED_OUT) {
        tmsg_worker_progress(pair.b.worker);
        status = tmsg_endpoint_recv_into(pair.to_b, map, 0, &message);
    }
    must_be(status, TMSG_CANCEL_PENDING);
    must_be(tmsg_endpoint_recv_into(pair.to_b, other, 0, &message),
            TMSG_ERR_BUSY);
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(1, LARGE, tmsg_message_map(message));
    expect_in(map, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(tmsg_map_clear(map));
    must(pair_finish(&pair, request));
    tmsg_map_destroy(other);
    tmsg_map_destroy(map);
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

static bool has_ready(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->ready.count > 0;
}

/* Or it is copied to the map of another call, and the first map is free. */
Test(recv_into, a_message_under_way_comes_into_another_map)
{
    tmsg_map_t *sent = sample_bytes(1, LARGE), *map = like(sent, 1);
    tmsg_map_t *other = like(sent, 1);
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;
    tmsg_request_t *request;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, sent, NULL, &request));
    while (status == TMSG_ERR_TIMED_OUT) {
        tmsg_worker_progress(pair.b.worker);
        status = tmsg_endpoint_recv_into(pair.to_b, map, 0, &message);
    }
    must_be(status, TMSG_CANCEL_PENDING);
    pair_await(&pair, has_ready, pair.to_b, "the message");
    must(tmsg_endpoint_recv_into(pair.to_b, other, 0, &message));
    sample_check_bytes(1, LARGE, tmsg_message_map(message));
    expect_in(other, tmsg_message_map(message));
    must(tmsg_map_clear(map));
    must_be(tmsg_map_clear(other), TMSG_ERR_BUSY);
    tmsg_message_destroy(message);
    must(tmsg_map_clear(other));
    must(pair_finish(&pair, request));
    tmsg_map_destroy(other);
    tmsg_map_destroy(map);
    tmsg_map_destroy(sent);
    pair_close(&pair);
}

static void ignore(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

Test(recv_into, not_beside_a_handler)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = ignore}};
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 0, &message),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "handler");
    tmsg_map_destroy(map);
    pair_close(&pair);
}
