/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Where tensors of a device come to: the receiver's choice, and its sender's
 * policy. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

static const tmsg_stream_t none;

static const device_tensor_t sent_from[] = {{.device = 0, .bytes = 2500000},
                                            {.device = ON_HOST, .bytes = 70000},
                                            {.device = 1, .bytes = 300},
                                            {.device = ON_HOST, .bytes = 40}};
#define COUNT 4

static tmsg_request_t *send_from(pair_t *pair, uint64_t seed, int32_t policy)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_POLICY,
                                       .flags = TMSG_SEND_ACKED,
                                       .policy = policy};
    tmsg_map_t *map = device_map(seed, sent_from, COUNT);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* Sends, and finds each tensor where `there` says. */
static void comes_to(pair_t *pair, int32_t policy, const device_tensor_t *there)
{
    static uint64_t seed = 50;
    tmsg_request_t *sent = send_from(pair, seed += 10, policy);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    device_map_check(seed, there, COUNT, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

static void on_host(device_tensor_t *there)
{
    memcpy(there, sent_from, sizeof(sent_from));
    for (size_t i = 0; i < COUNT; i++) {
        there[i].device = ON_HOST;
    }
}

static const side_options_t host_only = {
    .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
               .flags = TMSG_WORKER_HOST_ONLY}};

static void falls_back(link_t link)
{
    device_tensor_t there[COUNT];
    char *json;
    pair_t pair;

    on_host(there);
    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, &host_only, NULL);
    comes_to(&pair, TMSG_POLICY_HOST_FALLBACK, there);
    must(tmsg_endpoint_describe(pair.to_b, &json));
    must_say(json, "\"received_on_host\":\t2");
    tmsg_string_free(json);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, is_the_host_if_that_is_allowed_shm) { falls_back(LINK_SHM); }
Test(stage_where, is_the_host_if_that_is_allowed_tcp) { falls_back(LINK_TCP); }

static const char *words_of_the_strict(void)
{
    return devices_are_cuda() ? "tensor '0': no memory of device type 2 here, "
                                "and the policy is strict"
                              : "tensor '0': no memory of device type 12 here, "
                                "and the policy is strict";
}

static void note_refusal(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                         uint32_t sequence, tmsg_status_t status,
                         const char *error)
{
    char *words = arg;

    (void)endpoint;
    (void)channel;
    (void)sequence;
    must_be(status, TMSG_ERR_REFUSED);
    snprintf(words, 300, "%s", error);
}

static bool has_words(void *arg) { return *(const char *)arg != '\0'; }

static void is_strict(link_t link)
{
    static char words[300];
    side_options_t strict = host_only;
    tmsg_request_t *sent;
    pair_t pair;

    strict.worker.field_mask |= TMSG_WORKER_PARAM_ON_REFUSED;
    strict.worker.on_refused = note_refusal;
    strict.worker.on_refused_arg = words;
    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, &strict, NULL);
    sent = send_from(&pair, 5, TMSG_POLICY_STRICT);
    must_be(pair_wait(&pair, sent), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(sent), words_of_the_strict());
    tmsg_request_destroy(sent);
    pair_await(&pair, has_words, words, "the refusal");
    cr_expect_str_eq(words, words_of_the_strict());
    pair_close(&pair);
    device_maps_end();
}

/* Eager or by rendezvous, alone or not: one policy. */
static void is_strict_about(link_t link, size_t bytes)
{
    static char words[300];
    const device_tensor_t alone = {.device = 1, .bytes = bytes};
    side_options_t strict = host_only;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_POLICY,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_map_t *map;
    pair_t pair;

    words[0] = '\0';
    strict.worker.field_mask |= TMSG_WORKER_PARAM_ON_REFUSED;
    strict.worker.on_refused = note_refusal;
    strict.worker.on_refused_arg = words;
    device_maps_begin();
    pair_open(&pair, link, DRIVE_POLLING, &strict, NULL);
    map = device_map(3, &alone, 1);
    must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
    tmsg_map_destroy(map);
    pair_await(&pair, has_words, words, "the refusal");
    cr_expect_str_eq(words, words_of_the_strict());
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, is_nowhere_whatever_its_size)
{
    static const size_t sizes[] = {1, 100, 900, 9000, 100000, 3000000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        is_strict_about(LINK_SHM, sizes[i]);
        is_strict_about(LINK_TCP, sizes[i]);
    }
}

Test(stage_where, is_nowhere_if_it_is_not_shm) { is_strict(LINK_SHM); }
Test(stage_where, is_nowhere_if_it_is_not_tcp) { is_strict(LINK_TCP); }

/* A process that has never heard of such memory. */
static void receive_apart(pipes_t *pipes, void *arg)
{
    tmsg_message_t *message;
    side_t side;

    (void)arg;
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    side_open(&side, NULL);
    side_listen_link(&side, LINK_SHM);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    message = side_take(&side);
    for (size_t i = 0; i < COUNT; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(tmsg_message_map(message), i, NULL, &tensor));
        must_eq(tensor.device.type, TMSG_DEVICE_CPU);
        must_eq(sample_compare(5 + i, tensor.data, sent_from[i].bytes),
                sent_from[i].bytes);
    }
    line_put(pipes->out, "got");
    tmsg_message_destroy(message);
    side_end_of(&side, side_accept(&side));
    side_close(&side);
}

Test(stage_where, is_the_host_in_a_process_without_such_memory)
{
    tmsg_endpoint_t *endpoint;
    char line[300];
    child_t child;
    pair_t pair = {0};
    tmsg_request_t *sent;

    child_start(&child, receive_apart, NULL);
    device_maps_begin();
    side_open(&pair.b, NULL);
    line_get(child.in, line, sizeof(line));
    endpoint = side_connect(&pair.b, line);
    pair.to_a = endpoint;
    sent = send_from(&pair, 2, TMSG_POLICY_STRICT);
    must_be(side_wait(&pair.b, sent), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(sent), "tensor '0': no memory of device type");
    must_say(tmsg_request_error(sent), ", and the policy is strict");
    tmsg_request_destroy(sent);
    sent = send_from(&pair, 5, TMSG_POLICY_HOST_FALLBACK);
    must(side_finish(&pair.b, sent));
    child_await(&pair.b, &child);
    line_get(child.in, line, sizeof(line));
    cr_expect_str_eq(line, "got");
    tmsg_endpoint_destroy(endpoint);
    child_join(&child);
    side_close(&pair.b);
    device_maps_end();
}

/* A device that is not there. */
static void choose_none(void *arg, tmsg_incoming_t *incoming)
{
    must(tmsg_incoming_choose(incoming, 1, device_at(77), none));
    (void)arg;
}

static void refused_for(tmsg_header_fn on_header, tmsg_status_t status,
                        const char *why)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = on_header}};
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent = send_from(&pair, 5, TMSG_POLICY_HOST_FALLBACK);
    must_be(pair_wait(&pair, sent), status);
    must_say(tmsg_request_error(sent), why);
    tmsg_request_destroy(sent);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, is_no_device_that_is_not_there)
{
    refused_for(choose_none, TMSG_ERR_NOT_FOUND, "tensor '1' (there is no ");
}

static const device_tensor_t chosen[] = {{.device = 3, .bytes = 2500000},
                                         {.device = 2, .bytes = 70000},
                                         {.device = ON_HOST, .bytes = 300},
                                         {.device = 3, .bytes = 40}};

/* For each tensor another device than it comes from. */
static void choose(void *arg, tmsg_incoming_t *incoming)
{
    const tmsg_stream_t *stream = arg;
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};

    must_be(tmsg_incoming_choose(incoming, COUNT, cpu, none),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_incoming_choose(incoming, 0, (tmsg_device_t){99, 0}, none),
            TMSG_ERR_NOT_FOUND);
    must(tmsg_incoming_choose_all(incoming, device_at(3), none));
    must(tmsg_incoming_choose(incoming, 1, device_at(2), *stream));
    must(tmsg_incoming_choose(incoming, 2, cpu, none));
}

static void is_chosen(link_t link, drive_t drive, tmsg_stream_t stream)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &stream}};
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, link, drive, &options, NULL);
    for (int i = 0; i < 3; i++) {
        comes_to(&pair, i % 2, chosen);
    }
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, is_what_the_header_callback_says_shm)
{
    is_chosen(LINK_SHM, DRIVE_POLLING, none);
}
Test(stage_where, is_what_the_header_callback_says_tcp)
{
    is_chosen(LINK_TCP, DRIVE_POLLING, device_stream(2));
}
Test(stage_where, is_what_the_header_callback_says_unix)
{
    is_chosen(LINK_UNIX, DRIVE_FD, device_stream(2));
}

/* Memory of the application's own, in each kind. */
typedef struct {
    void *data[COUNT];
    unsigned released;
} places_t;

static void release_one(void *arg) { ++*(unsigned *)arg; }

static void place(void *arg, tmsg_incoming_t *incoming)
{
    places_t *places = arg;
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = release_one,
                                          .release_arg = &places->released};

    for (size_t i = 0; i < COUNT; i++) {
        if (chosen[i].device != ON_HOST) {
            must(tmsg_incoming_choose(incoming, i, device_at(chosen[i].device),
                                      none));
        }
        must(tmsg_incoming_place(incoming, i, places->data[i], chosen[i].bytes,
                                 &params));
        must_be(tmsg_incoming_choose(incoming, i, device_at(1), none),
                TMSG_ERR_ALREADY_EXISTS);
    }
}

Test(stage_where, is_memory_that_the_header_callback_gives)
{
    places_t places = {.released = 0};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = place,
                   .on_header_arg = &places}};
    pair_t pair;

    device_maps_begin();
    for (size_t i = 0; i < COUNT; i++) {
        places.data[i] =
            chosen[i].device == ON_HOST
                ? malloc(chosen[i].bytes)
                : device_alloc(chosen[i].device, chosen[i].bytes, 0);
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    comes_to(&pair, TMSG_POLICY_STRICT, chosen);
    cr_expect_eq(places.released, COUNT);
    pair_close(&pair);
    for (size_t i = 0; i < COUNT; i++) {
        (chosen[i].device == ON_HOST ? free : device_free)(places.data[i]);
    }
    device_maps_end();
}

/* An allocator for devices. */
static unsigned allocs, frees;

static tmsg_status_t own_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                               uint64_t alignment, tmsg_stream_t stream,
                               void **data_p, void **token_p)
{
    if (device.id == 1) {
        return TMSG_ERR_UNSUPPORTED; /* the library's, then */
    }
    must_eq(alignment, 64);
    allocs++;
    *token_p = arg;
    return device_domain()->alloc(NULL, device, bytes, alignment, stream,
                                  data_p);
}

static void own_free(void *arg, tmsg_device_t device, void *data,
                     uint64_t bytes, tmsg_stream_t stream, void *token)
{
    must_true(token == arg);
    frees++;
    device_domain()->free(NULL, device, data, bytes, stream);
}

Test(stage_where, is_memory_of_the_allocator_of_devices)
{
    const tmsg_device_allocator_t allocator = {own_alloc, own_free, &allocs};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_DEVICE_ALLOCATOR,
                   .device_allocator = &allocator}};
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    comes_to(&pair, TMSG_POLICY_STRICT, sent_from);
    cr_expect_eq(allocs, 1);
    cr_expect_eq(frees, 1);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, an_allocator_lacks_nothing)
{
    const tmsg_device_allocator_t allocator = {own_alloc, NULL, NULL};
    const tmsg_worker_params_t params = {.field_mask =
                                             TMSG_WORKER_PARAM_DEVICE_ALLOCATOR,
                                         .device_allocator = &allocator};
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    must(tmsg_context_create(NULL, &context));
    must_be(tmsg_worker_create(context, &params, &worker),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "device allocator");
    tmsg_context_destroy(context);
}

/* A map that is received into, in each kind of memory. */
static void is_posted(link_t link, bool early, tmsg_stream_t stream)
{
    device_tensor_t there[COUNT];
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    memcpy(there, chosen, sizeof(there));
    there[1].stream = stream;
    device_maps_begin();
    pair_open(&pair, link, DRIVE_THREAD, NULL, NULL);
    map = device_map_empty(there, COUNT);
    for (uint64_t seed = 100; seed < 400; seed += 100) {
        sent = send_from(&pair, seed, TMSG_POLICY_HOST_FALLBACK);
        if (!early) { /* the payload stays at its sender until it is fetched */
            must_be(tmsg_request_wait(sent, 300), TMSG_ERR_TIMED_OUT);
        }
        must(tmsg_endpoint_recv_into(pair.to_b, map, PEERS_BOUND_MS, &message));
        device_map_check(seed, there, COUNT, tmsg_message_map(message));
        device_map_check(seed, there, COUNT, map);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_where, is_a_map_that_is_received_into_shm)
{
    is_posted(LINK_SHM, true, none);
}
Test(stage_where, is_a_map_that_is_received_into_tcp)
{
    is_posted(LINK_TCP, true, device_stream(2));
}
Test(stage_where, is_a_map_that_is_received_into_late)
{
    is_posted(LINK_SHM, false, device_stream(2));
}

static bool has_one(void *endpoint)
{
    return tmsg_endpoint_waiting(endpoint) == 1;
}

/* Who receives into a map whose stream is not done waits no longer than it
 * says, and the message stays. */
Test(stage_where, is_a_map_whose_stream_is_awaited)
{
    const tmsg_stream_t stream = device_stream(2);
    device_tensor_t there[COUNT];
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    memcpy(there, chosen, sizeof(there));
    there[1].stream = stream;
    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    map = device_map_empty(there, COUNT);
    sent = send_from(&pair, 100, TMSG_POLICY_HOST_FALLBACK);
    pair_await(&pair, has_one, pair.to_b, "a message");
    device_block(stream);
    for (int timeout_ms = 0; timeout_ms <= 20; timeout_ms += 20) {
        must_be(tmsg_endpoint_recv_into(pair.to_b, map, timeout_ms, &message),
                TMSG_ERR_TIMED_OUT);
        must_say(tmsg_error_message(),
                 "the streams of the map to receive into were not done");
    }
    device_unblock(stream);
    must(tmsg_endpoint_recv_into(pair.to_b, map, PEERS_BOUND_MS, &message));
    device_map_check(100, there, COUNT, map);
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    tmsg_map_destroy(map);
    pair_close(&pair);
    device_maps_end();
}

/* More than the receiver may ever hold: refused, not waited for. */
Test(stage_where, is_bounded_by_what_may_be_held)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 2000000},
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = (void *)(uintptr_t)&none}};
    static const device_tensor_t few[] = {{.device = 1, .bytes = 1200000},
                                          {.device = 1, .bytes = 1200000},
                                          {.device = 1, .bytes = 100}};
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent = send_map(pair.to_a, device_map(1, few, 3), TMSG_SEND_ACKED);
    must_be(pair_wait(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_request_error(sent), "exceeds held_bytes 2000000");
    tmsg_request_destroy(sent);
    pair_close(&pair);
    device_maps_end();
}

/* Less, but more than it holds at once: others wait for their turn. */
Test(stage_where, is_waited_for)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 3000000}};
    static const device_tensor_t few[] = {{.device = 1, .bytes = 1200000},
                                          {.device = 2, .bytes = 1200000}};
    tmsg_request_t *sent[5];
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (uint64_t i = 0; i < 5; i++) {
        sent[i] = send_map(pair.to_a, device_map(i + 1, few, 2), 0);
    }
    for (uint64_t i = 0; i < 5; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        device_map_check(i + 1, few, 2, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (uint64_t i = 0; i < 5; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
    device_maps_end();
}

static void choose_all(void *arg, tmsg_incoming_t *incoming)
{
    (void)arg;
    must(tmsg_incoming_choose_all(incoming, device_at(1), none));
}

/* Where names come with a payload it is known only then that it is for a
 * device: what that takes must not be with those behind it. */
Test(stage_where, is_waited_for_by_what_has_landed)
{
    enum { MANY = 1000, BYTES = 1000 };
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = 5 * (uint64_t)MANY * BYTES / 2},
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose_all}};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .protocol = TMSG_PROTOCOL_RNDV,
                                       .way = TMSG_WAY_GATHER};
    static device_tensor_t sent[MANY], received[MANY];
    pair_t pair;

    for (size_t i = 0; i < MANY; i++) {
        sent[i] = (device_tensor_t){.device = ON_HOST, .bytes = BYTES};
        received[i] = (device_tensor_t){.device = 1, .bytes = BYTES};
    }
    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    tmsg_request_destroy(send_map(pair.to_a, device_map(9, sent, 1), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a)); /* so it is known */
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_map_t *map = device_map(i + 1, sent, MANY);

        must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
        tmsg_map_destroy(map);
    }
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        device_map_check(i + 1, received, MANY, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    cr_expect(eq(u64, tmsg_budget_held(pair.a.worker->budget), 0));
    pair_close(&pair);
    device_maps_end();
}
