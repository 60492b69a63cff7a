/* SPDX-License-Identifier: BSD-3-Clause */
/* Small messages that are like the last one of their channel: they go by a
 * template, and nobody sees anything of it but the counters. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/schemas.h"
#include "core/map.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define BYTES 100

static tmsg_map_t *make(uint64_t seed, size_t bytes)
{
    const sample_t sample = sample_plain(seed, bytes);

    return sample_make(&sample);
}

static void check_map(uint64_t seed, size_t bytes, const tmsg_map_t *map)
{
    const sample_t sample = sample_plain(seed, bytes);

    sample_check(&sample, map);
}

static void check(pair_t *pair, side_t *side, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, side);

    check_map(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* Sends a message from b to a. Its map is gone when the message arrives. */
static void pass(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_map_t *map = make(seed, bytes);

    must(tmsg_endpoint_send(pair->to_a, map, NULL, NULL));
    tmsg_map_destroy(map);
    check(pair, &pair->a, seed, bytes);
}

/* The sender hears of the layouts that are kept. */
static void let_hear(pair_t *pair)
{
    tmsg_worker_progress(pair->a.worker);
    tmsg_worker_progress(pair->b.worker);
}

static uint64_t sent(const pair_t *pair)
{
    return pair->to_a->stats.sent_by_template;
}

static uint64_t received(const pair_t *pair)
{
    return pair->to_b->stats.received_by_template;
}

/* Sends until both ends have a template for messages of so many bytes. */
static void warm_up(pair_t *pair, size_t bytes)
{
    uint64_t before = received(pair);

    for (uint64_t i = 0; received(pair) < before + 2; i++) {
        must_true(i < 1000);
        pass(pair, i, bytes);
    }
}

static void go_on_for_ever(link_t link, drive_t drive)
{
    enum { MESSAGES = 2000 };
    pair_t pair;
    uint64_t before;

    pair_open(&pair, link, drive, NULL, NULL);
    warm_up(&pair, BYTES);
    before = pair.to_a->stats.sent_messages;
    must_eq(pair.to_b->stats.received_messages, before);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        pass(&pair, i, BYTES);
    }
    must_eq(pair.to_a->stats.sent_messages, before + MESSAGES);
    must_eq(pair.to_b->stats.received_messages, before + MESSAGES);
    must_eq(pair.to_a->stats.sent_sizes.count, before + MESSAGES);
    must_eq(pair.to_b->stats.received_sizes.count, before + MESSAGES);
    must_eq(pair.to_a->stats.sent_bytes, (before + MESSAGES) * BYTES);
    must_true(pair.to_a->stats.send_ns.count >= MESSAGES / 32);
    /* All but those that a window delayed. */
    cr_expect(ge(u64, received(&pair), MESSAGES / 2));
    cr_expect(ge(u64, sent(&pair), MESSAGES / 2));
    pair_close(&pair);
}

Test(template, many_shm) { go_on_for_ever(LINK_SHM, DRIVE_POLLING); }
Test(template, many_tcp) { go_on_for_ever(LINK_TCP, DRIVE_POLLING); }
Test(template, many_blob) { go_on_for_ever(LINK_BLOB, DRIVE_POLLING); }
Test(template, many_by_descriptor) { go_on_for_ever(LINK_SHM, DRIVE_FD); }
Test(template, many_between_threads) { go_on_for_ever(LINK_SHM, DRIVE_THREAD); }

static const size_t sizes[] = {64, 100, 511, 512, 513, 576, 577, 4000, 1};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Sizes below and above the limit of a template message, in runs of every
 * length. */
Test(template, layouts_that_change)
{
    uint64_t state = 7;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 400; i++) {
        size_t bytes = sizes[sample_random(&state) % SIZES];

        for (uint64_t run = sample_random(&state) % 5; run > 0; run--) {
            pass(&pair, i + run, bytes);
            let_hear(&pair);
        }
    }
    pair_close(&pair);
}

/* One layout and then another one, which stays. */
Test(template, a_shape_that_stays)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, 64);
    warm_up(&pair, 256);
    warm_up(&pair, 100);
    pair_close(&pair);
}

/* Maps that differ in names and dtypes, and have empty tensors among others. */
Test(template, maps_of_many_kinds_in_turn)
{
    enum { KINDS = 7 };
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 600; i++) {
        const sample_t sample = {.seed = i / 3 % KINDS,
                                 .tensors = i / 3 % KINDS,
                                 .without_metadata = i / 3 % 2 == 0};
        tmsg_map_t *map = sample_make(&sample);
        tmsg_message_t *message;

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        message = pair_take(&pair, &pair.a);
        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        let_hear(&pair);
    }
    cr_expect(ge(u64, received(&pair), 100));
    pair_close(&pair);
}

Test(template, metadata_now_and_then)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    for (int64_t i = 0; i < 300; i++) {
        tmsg_map_t *map = make((uint64_t)i, BYTES);
        tmsg_message_t *message;
        int64_t frame = -1;
        tmsg_tensor_t tensor;

        if (i % 3 == 0) {
            must(tmsg_map_set_i64(map, TMSG_META_FRAME, i));
        }
        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        message = pair_take(&pair, &pair.a);
        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        must_eq(sample_compare((uint64_t)i, tensor.data, BYTES), BYTES);
        must_eq(tmsg_map_meta_size(tmsg_message_map(message)),
                (size_t)(i % 3 == 0));
        if (i % 3 == 0) {
            must(tmsg_map_get_i64(tmsg_message_map(message), TMSG_META_FRAME,
                                  &frame));
            must_eq(frame, i);
        }
        tmsg_message_destroy(message);
    }
    cr_expect(ge(u64, sent(&pair), 100));
    pair_close(&pair);
}

/* `count` tensors, of 1, 2 and more bytes up to 16, and each fifth of none. */
static tmsg_map_t *make_few(uint32_t count, uint8_t *data)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (uint32_t i = 0; i < count; i++) {
        const int64_t shape = i % 5 == 4 ? 0 : 1 + (int64_t)i % 16;
        const tmsg_tensor_t tensor = {.data = shape == 0 ? NULL : data + 16 * i,
                                      .device = {TMSG_DEVICE_CPU, 0},
                                      .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                      .ndim = 1,
                                      .shape = &shape};
        char name[16];

        snprintf(name, sizeof(name), "few %u", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

/* Each tensor has its bytes, and what is between two of them is zero. */
static void check_few(uint32_t count, const uint8_t *data,
                      const tmsg_map_t *map)
{
    const uint8_t *end = NULL;

    must_eq(tmsg_map_size(map), (size_t)count);
    for (uint32_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;
        const uint8_t *at;

        must(tmsg_map_at(map, i, NULL, &tensor));
        at = tensor.data;
        if (tensor.shape[0] == 0) {
            continue;
        }
        must_true(memcmp(at, data + 16 * i, (size_t)tensor.shape[0]) == 0);
        while (end != NULL && end < at) {
            must_eq(*end++, 0);
        }
        end = at + tensor.shape[0];
    }
}

/* On another channel, so that both ends' records are full of something. */
static void pass_full(pair_t *pair)
{
    const tmsg_send_params_t aside = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                      .channel = 1};
    const int64_t shape = TMSG_TEMPLATE_BYTES;
    uint8_t data[TMSG_TEMPLATE_BYTES];
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    tmsg_map_t *map;

    memset(data, 0xff, sizeof(data));
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "full", &tensor, NULL));
    must(tmsg_endpoint_send(pair->to_a, map, &aside, NULL));
    tmsg_message_destroy(pair_take(pair, &pair->a));
    tmsg_map_destroy(map);
}

/* Bytes that were in the record before do not travel with a message: they may
 * have been meant for somebody else. */
Test(template, tensors_of_nothing_and_gaps)
{
    static const uint32_t counts[] = {
        1, 5, 8, 31, TMSG_TEMPLATE_TENSORS, TMSG_TEMPLATE_TENSORS + 1};
    uint8_t data[16 * (TMSG_TEMPLATE_TENSORS + 1)];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        tmsg_map_t *map = make_few(counts[c], data);
        uint64_t repeated = 0;

        for (uint64_t i = 0; i < 20; i++) {
            uint64_t before = sent(&pair);
            tmsg_message_t *message;

            sample_fill(i, data, sizeof(data));
            must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
            repeated += sent(&pair) - before;
            message = pair_take(&pair, &pair.a);
            check_few(counts[c], data, tmsg_message_map(message));
            tmsg_message_destroy(message);
            pass_full(&pair);
            let_hear(&pair);
        }
        if (counts[c] <= TMSG_TEMPLATE_TENSORS) {
            cr_expect(ge(u64, repeated, 15));
        } else {
            cr_expect(eq(u64, repeated, 0));
        }
        tmsg_map_destroy(map);
    }
    pair_close(&pair);
}

static tmsg_map_t *named(uint64_t name, uint8_t *data)
{
    const int64_t shape = 8;
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    char text[24];
    tmsg_map_t *map;

    snprintf(text, sizeof(text), "tensor %llu", (unsigned long long)name);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, text, &tensor, NULL));
    return map;
}

/* Slots are used again by other layouts, and their numbers by the headers. */
Test(template, more_layouts_than_slots)
{
    enum { LAYOUTS = 3 * TMSG_SCHEMA_SLOTS };
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 9 * LAYOUTS; i++) {
        uint8_t data[8];
        tmsg_map_t *map = named(i / 9, data);
        tmsg_message_t *message;
        const char *name, *wanted;
        tmsg_tensor_t tensor;

        sample_fill(i, data, sizeof(data));
        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        message = pair_take(&pair, &pair.a);
        must(tmsg_map_at(map, 0, &wanted, NULL));
        must(tmsg_map_at(tmsg_message_map(message), 0, &name, &tensor));
        must_true(strcmp(name, wanted) == 0);
        must_eq(sample_compare(i, tensor.data, sizeof(data)), sizeof(data));
        tmsg_message_destroy(message);
        tmsg_map_destroy(map);
        let_hear(&pair);
    }
    cr_expect(ge(u64, received(&pair), 3 * LAYOUTS));
    pair_close(&pair);
}

static bool all_queued_are_gone(void *arg)
{
    return ((pair_t *)arg)->to_a->channels.queued == 0;
}

/* The window is full, a queue forms in the middle of it, and drains. */
Test(template, credits_run_out)
{
    enum { DEPTH = 8, MESSAGES = 100 };
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &narrow, NULL);
    for (int round = 0; round < 20; round++) {
        warm_up(&pair, BYTES);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            tmsg_map_t *map = make(i, BYTES);

            must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
            tmsg_map_destroy(map);
        }
        must_true(pair.to_a->channels.queued >= MESSAGES - DEPTH);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            check(&pair, &pair.a, i, BYTES);
        }
        pair_await(&pair, all_queued_are_gone, &pair, "the queue's end");
    }
    pair_close(&pair);
}

/* More messages at once than UCX's queue of shared memory takes: UCX keeps
 * those that it cannot copy at once, which have a time of their own. */
Test(template, ucx_is_full)
{
    enum { MESSAGES = 200 };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                       .timeout_ms = PEERS_BOUND_MS};
    tmsg_request_t *requests[MESSAGES];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 5; round++) {
        warm_up(&pair, BYTES);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            tmsg_map_t *map = make(i, BYTES);

            must(tmsg_endpoint_send(pair.to_a, map, &params, &requests[i]));
            tmsg_map_destroy(map);
        }
        for (uint64_t i = 0; i < MESSAGES; i++) {
            check(&pair, &pair.a, i, BYTES);
            must(pair_finish(&pair, requests[i]));
        }
    }
    pair_close(&pair);
}

/* Those with a time go by a template, too; a time that is none is refused. */
Test(template, a_send_may_have_a_time)
{
    static const int32_t times[] = {-1, PEERS_BOUND_MS, 2 * PEERS_BOUND_MS};
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT};
    tmsg_map_t *map = make(1, BYTES);
    uint64_t before;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    before = sent(&pair);
    for (int i = 0; i < 90; i++) {
        params.timeout_ms = times[i % 3];
        must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
        check(&pair, &pair.a, 1, BYTES);
        let_hear(&pair);
    }
    cr_expect(ge(u64, sent(&pair), before + 60));
    for (params.timeout_ms = -2; params.timeout_ms < 1;
         params.timeout_ms += 2) {
        must_be(tmsg_endpoint_send(pair.to_a, map, &params, NULL),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "is neither above 0 nor -1");
    }
    tmsg_map_destroy(map);
    pair_close(&pair);
}

typedef struct {
    bool sending;
    unsigned calls;
} told_t;

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    told_t *told = arg;

    must(status);
    must_eq(error[0], '\0');
    must_true(!told->sending);
    told->calls++;
}

/* Callbacks come from progress, one a message; requests have ended with OK. */
Test(template, whoever_asks_is_told)
{
    enum { MESSAGES = 300 };
    told_t told = {false, 0};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = on_done,
                                       .on_done_arg = &told};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    for (unsigned i = 0; i < MESSAGES; i++) {
        tmsg_map_t *map = make(i, BYTES);
        tmsg_request_t *request;

        told.sending = true;
        must(tmsg_endpoint_send(pair.to_a, map, &params, &request));
        told.sending = false;
        tmsg_map_destroy(map);
        check(&pair, &pair.a, i, BYTES);
        must(pair_finish(&pair, request));
        while (told.calls <= i) {
            tmsg_worker_progress(pair.b.worker);
        }
        must_eq(told.calls, i + 1);
    }
    cr_expect(ge(u64, sent(&pair), MESSAGES / 2));
    pair_close(&pair);
}

/* Messages that the application keeps are not overwritten by later ones. */
Test(template, received_messages_may_be_kept)
{
    enum { KEPT = 100 };
    tmsg_message_t *kept[KEPT] = {NULL};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    for (uint64_t i = 0; i < 1000; i++) {
        tmsg_message_t **place = &kept[i * 7 % KEPT];
        tmsg_map_t *map = make(i, BYTES);

        if (*place != NULL) {
            check_map(i - KEPT, BYTES, tmsg_message_map(*place));
            tmsg_message_destroy(*place);
        }
        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        *place = pair_take(&pair, &pair.a);
    }
    pair_drop(&pair);
    for (int i = 0; i < KEPT; i++) { /* which outlive their worker */
        tmsg_message_destroy(kept[i]);
    }
}

/* A received map is sent back, and its message destroyed before that ends. */
Test(template, received_maps_are_sent_on)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 300; i++) {
        tmsg_map_t *map = make(i, BYTES);
        tmsg_message_t *message;

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        message = pair_take(&pair, &pair.a);
        must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(message), NULL,
                                NULL));
        tmsg_message_destroy(message);
        check(&pair, &pair.b, i, BYTES);
    }
    cr_expect(ge(u64, pair.to_b->stats.sent_by_template, 100));
    cr_expect(ge(u64, pair.to_a->stats.received_by_template, 100));
    pair_close(&pair);
}

static bool has_ready(void *arg)
{
    return ((pair_t *)arg)->to_b->ready.count > 0;
}

/* The tensors are copied to the application's map; the record that they lay in
 * can be used for the next message. */
Test(template, received_into_a_map_after_it_came)
{
    pair_t pair;
    tmsg_map_t *target = make(0, BYTES);

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    for (uint64_t i = 0; i < 100; i++) {
        tmsg_map_t *map = make(i, BYTES);
        tmsg_message_t *message;

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        tmsg_map_destroy(map);
        pair_await(&pair, has_ready, &pair, "a message");
        must(tmsg_endpoint_recv_into(pair.to_b, target, 0, &message));
        tmsg_message_destroy(message);
        pass(&pair, i + 1000, BYTES);
        check_map(i, BYTES, target);
    }
    tmsg_map_destroy(target);
    pair_close(&pair);
}

static void receive_in_callback(void *arg, tmsg_status_t status,
                                const char *error)
{
    receiving_t *into = arg;

    (void)error;
    must(status);
    into->status =
        tmsg_endpoint_recv_into(into->pair->to_b, into->map, 0, &into->message);
    if (into->status == TMSG_OK) {
        tmsg_message_destroy(into->message);
    }
}

static bool has_been_called(void *arg)
{
    return ((const receiving_t *)arg)->status != TMSG_IN_PROGRESS;
}

/* The same in a callback, where the worker takes records back at once. A map
 * without tensors takes none. */
static void receive_by_callbacks(size_t bytes)
{
    pair_t pair;
    tmsg_map_t *target = make(0, bytes);

    if (bytes == 0) {
        must(tmsg_map_clear(target));
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair, BYTES);
    for (uint64_t i = 0; i < 30; i++) {
        receiving_t into = {
            .pair = &pair, .map = target, .status = TMSG_IN_PROGRESS};
        const tmsg_send_params_t params = {.field_mask =
                                               TMSG_SEND_PARAM_ON_DONE,
                                           .on_done = receive_in_callback,
                                           .on_done_arg = &into};
        tmsg_map_t *map = make(i, BYTES);

        must(tmsg_endpoint_send(pair.to_a, map, NULL, NULL));
        pair_await(&pair, has_ready, &pair, "a message");
        must(tmsg_endpoint_send(pair.to_b, map, &params, NULL));
        tmsg_map_destroy(map);
        pair_await(&pair, has_been_called, &into, "the callback");
        must(into.status);
        must_true(tmsg_map_is_idle(target));
        check(&pair, &pair.b, i, BYTES);
        pass(&pair, i + 1000, BYTES);
        if (bytes > 0) {
            check_map(i, bytes, target);
        }
    }
    must(tmsg_map_clear(target));
    tmsg_map_destroy(target);
    pair_close(&pair);
}

Test(template, received_into_a_map_by_a_callback)
{
    receive_by_callbacks(BYTES);
    receive_by_callbacks(0);
}

/* From b to a, into a map. Only the receive drives a: the map is posted when
 * the message comes. */
static void pass_into(pair_t *pair, const tmsg_map_t *sent,
                      receiving_t *receiving)
{
    must(tmsg_endpoint_send(pair->to_a, sent, NULL, NULL));
    receiving->pair = pair;
    side_await(&pair->b, receiving_has_ended, receiving, "a message");
    tmsg_worker_progress(pair->b.worker); /* hears of layouts and credit */
}

/* What is received into a map goes by a template from the first message on. The
 * message has the places of that map, if it is asked for. */
Test(template, received_into_a_map_that_waits)
{
    for (int unwanted = 0; unwanted < 2; unwanted++) {
        tmsg_map_t *target = make(0, BYTES);
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        for (uint64_t i = 0; i < 300; i++) {
            receiving_t into = {.map = target, .unwanted = unwanted};
            tmsg_map_t *map = make(i, BYTES);

            pass_into(&pair, map, &into);
            must(into.status);
            tmsg_map_destroy(map);
            check_map(i, BYTES, target);
            if (!unwanted) {
                tmsg_tensor_t there, here;

                must(tmsg_map_at(tmsg_message_map(into.message), 0, NULL,
                                 &here));
                must(tmsg_map_at(target, 0, NULL, &there));
                must_true(here.data == there.data);
                must_be(tmsg_map_clear(target), TMSG_ERR_BUSY);
                tmsg_message_destroy(into.message);
            }
            if (i % 7 == 0) {
                pass(&pair, i + 1000, BYTES);
                check_map(i, BYTES, target);
            }
        }
        cr_expect(ge(u64, received(&pair), 200));
        must(tmsg_map_clear(target));
        tmsg_map_destroy(target);
        pair_close(&pair);
    }
}

static void add(tmsg_map_t *map, const char *name, tmsg_dtype_t dtype,
                void *data)
{
    const int64_t shape = 4;
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = dtype,
                                  .ndim = 1,
                                  .shape = &shape};

    must(tmsg_map_add(map, name, &tensor, NULL));
}

/* Tensors find their places by name, and one that does not fit is named. */
Test(template, received_into_maps_of_other_layouts)
{
    static const tmsg_dtype_t ints = {TMSG_DTYPE_INT, 32, 1};
    static const tmsg_dtype_t floats = {TMSG_DTYPE_FLOAT, 32, 1};
    int32_t x[4] = {0}, y[4] = {0}, to_x[4], to_y[4], more[4] = {9, 9, 9, 9};
    tmsg_map_t *sent, *turned, *less, *other;
    pair_t pair;

    must(tmsg_map_create(&sent));
    must(tmsg_map_create(&turned));
    must(tmsg_map_create(&less));
    must(tmsg_map_create(&other));
    add(sent, "x", ints, x);
    add(sent, "y", ints, y);
    add(turned, "y", ints, to_y);
    add(turned, "x", ints, to_x);
    add(less, "more", ints, more);
    add(less, "y", ints, to_y);
    add(other, "x", ints, to_x);
    add(other, "y", floats, to_y);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int32_t i = 0; i < 100; i++) {
        receiving_t into = {.map = i % 2 == 0 ? turned : less,
                            .unwanted = i % 4 > 1};
        receiving_t wrong = {.map = other, .unwanted = into.unwanted};

        x[3] = i;
        y[0] = -i;
        pass_into(&pair, sent, &wrong);
        must_be(wrong.status, TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "tensor 'y': the message has int32[4]");
        into.pair = &pair;
        must_true(receiving_has_ended(&into));
        must(into.status);
        must_true(to_y[0] == -i);
        must_true(i % 2 == 1 || to_x[3] == i);
        must_true(more[3] == 9);
        if (!into.unwanted) {
            tmsg_message_destroy(into.message);
        }
    }
    cr_expect(ge(u64, received(&pair), 50));
    pair_close(&pair);
    tmsg_map_destroy(sent);
    tmsg_map_destroy(turned);
    tmsg_map_destroy(less);
    tmsg_map_destroy(other);
}

/* From b to a, by a channel. */
static void pass_by(pair_t *pair, uint16_t channel, uint64_t seed, size_t bytes)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = channel};
    tmsg_map_t *map = make(seed, bytes);
    tmsg_message_t *message;

    must(tmsg_endpoint_send(pair->to_a, map, &params, NULL));
    tmsg_map_destroy(map);
    message = pair_take(pair, &pair->a);
    must_eq(tmsg_message_channel(message), channel);
    check_map(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
    let_hear(pair);
}

Test(template, each_channel_by_itself)
{
    enum { CHANNELS = 5 };
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 500; i++) {
        pass_by(&pair, (uint16_t)(i % CHANNELS), i, 10 + i % CHANNELS);
    }
    cr_expect(ge(u64, received(&pair), 200));
    pair_close(&pair);
}

/* More channels than the worker has records ready for. What one channel sends
 * in another layout does not matter to the others. */
Test(template, channels_with_one_layout_share_it)
{
    enum { CHANNELS = 3 * TMSG_WORKER_RECENT };
    const tmsg_map_t *layout;
    unsigned ready = 0;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 40 * CHANNELS; i++) {
        pass_by(&pair, (uint16_t)(i % CHANNELS), i, BYTES);
    }
    cr_expect(ge(u64, received(&pair), 20 * CHANNELS));
    layout = pair.a.worker->layout;
    for (uint16_t i = 0; i < CHANNELS; i++) {
        must_eq(tmsg_channel_find(pair.to_b, i)->template_in.layout, layout);
        ready += tmsg_channel_find(pair.to_a, i)->template_out.ready != NULL;
    }
    cr_expect(le(uint, ready, TMSG_WORKER_RECENT));
    for (uint64_t i = 0; i < 40 * CHANNELS; i++) {
        bool alike = i % CHANNELS > 2 || i < 10 * CHANNELS;

        pass_by(&pair, (uint16_t)(i % CHANNELS), i,
                alike ? BYTES : BYTES + i % CHANNELS + 1);
    }
    cr_expect(ge(u64, received(&pair), 50 * CHANNELS));
    must_true(pair.a.worker->layout != layout);
    must_eq(tmsg_channel_find(pair.to_b, 5)->template_in.layout, layout);
    must_true(tmsg_channel_find(pair.to_b, 1)->template_in.layout != layout);
    pair_close(&pair);
}

/* A map of two tensors, one of which has other memory in each message. */
Test(template, data_in_other_memory)
{
    static const int64_t shape[] = {BYTES};
    static uint8_t frames[3][BYTES], still[BYTES];
    tmsg_tensor_t tensor = {.data = frames[0],
                            .device = {.type = TMSG_DEVICE_CPU},
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1,
                            .shape = shape};
    tmsg_map_t *map;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "frame", &tensor, NULL));
    tensor.data = still;
    must(tmsg_map_add(map, "still", &tensor, NULL));
    for (int i = 0; i < 400; i++) {
        tmsg_message_t *message;
        tmsg_request_t *request;

        memset(frames[i % 3], i, BYTES);
        memset(still, -i, BYTES);
        must(tmsg_map_set_data(map, 0, frames[i % 3], NULL));
        must(tmsg_endpoint_send(pair.to_a, map, NULL, &request));
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, request));
        must(tmsg_map_find(tmsg_message_map(message), "frame", &tensor));
        must_eq(memcmp(tensor.data, frames[i % 3], BYTES), 0);
        must(tmsg_map_find(tmsg_message_map(message), "still", &tensor));
        must_eq(memcmp(tensor.data, still, BYTES), 0);
        tmsg_message_destroy(message);
    }
    cr_expect(ge(u64, sent(&pair), 50));
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Params with which a message cannot go by a template have their effect in the
 * midst of template messages. */
Test(template, other_sends_between)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 400; i++) {
        static const uint32_t flags[] = {0,
                                         TMSG_SEND_ACKED,
                                         0,
                                         0,
                                         TMSG_SEND_VERIFY,
                                         TMSG_SEND_UNORDERED,
                                         TMSG_SEND_TRY};
        tmsg_request_t *request =
            send_map(pair.to_a, make(i, BYTES),
                     flags[i % (sizeof(flags) / sizeof(flags[0]))]);

        check(&pair, &pair.a, i, BYTES);
        must(pair_finish(&pair, request));
    }
    cr_expect(ge(u64, received(&pair), 50));
    pair_close(&pair);
}
