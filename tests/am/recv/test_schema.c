/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Layouts that travel once: messages arrive as if each had its layout. */
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

static void pass(pair_t *pair, tmsg_map_t *map, const sample_t *sample)
{
    tmsg_request_t *request = send_map(pair->to_a, map, TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check(sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, request));
}

static void pass_sample(pair_t *pair, const sample_t *sample)
{
    pass(pair, sample_make(sample), sample);
}

/* Returns how many of b's messages went without their layout. */
static uint64_t referred(const pair_t *pair)
{
    return pair->to_a->stats.sent_by_schema;
}

static void repeat(link_t link)
{
    const sample_t sample = {.seed = 3, .tensors = 9};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        pass_sample(&pair, &sample);
    }
    cr_expect(eq(u64, referred(&pair), 19));
    pair_close(&pair);
}

Test(schema, layouts_that_come_again_travel_once_tcp) { repeat(LINK_TCP); }
Test(schema, layouts_that_come_again_travel_once_unix) { repeat(LINK_UNIX); }
Test(schema, layouts_that_come_again_travel_once_blob) { repeat(LINK_BLOB); }

/* The map's own metadata are not part of its layout. */
Test(schema, metadata_travel_with_each_message)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (int64_t i = 0; i < 10; i++) {
        tmsg_map_t *map = sample_bytes(1, 100);
        tmsg_message_t *message;
        tmsg_request_t *request;
        int64_t frame;

        must(tmsg_map_set_i64(map, TMSG_META_FRAME, i));
        request = send_map(pair.to_a, map, TMSG_SEND_ACKED);
        message = pair_take(&pair, &pair.a);
        must(tmsg_map_get_i64(tmsg_message_map(message), TMSG_META_FRAME,
                              &frame));
        cr_expect(eq(i64, frame, i));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
    }
    cr_expect(eq(u64, referred(&pair), 9));
    pair_close(&pair);
}

Test(schema, an_extent_that_varies_is_no_new_layout)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < 30; i++) {
        size_t bytes = 1 + i * 37 % 1000;
        tmsg_request_t *request =
            send_map(pair.to_a, sample_bytes(i, bytes), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check_bytes(i, bytes, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
    }
    cr_expect(eq(u64, referred(&pair), 28), "two definitions, then numbers");
    pair_close(&pair);
}

Test(schema, more_layouts_than_slots_all_arrive)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 12 * TMSG_SCHEMA_SLOTS; i++) {
        const sample_t sample = {.seed = i % (3 * TMSG_SCHEMA_SLOTS),
                                 .tensors = 1 + i % 11};

        pass_sample(&pair, &sample);
    }
    pair_close(&pair);
}

/* Nobody waits for an answer: many messages are under way before the first one
 * is answered. */
Test(schema, layouts_come_and_go_while_messages_are_under_way)
{
    enum { MESSAGES = 600 };
    tmsg_request_t *requests[MESSAGES];
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        const sample_t sample = {.seed = i / 7 % 90, .tensors = 1 + i / 7 % 5};

        requests[i] = send_map(pair.to_a, sample_make(&sample), 0);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        const sample_t sample = {.seed = i / 7 % 90, .tensors = 1 + i / 7 % 5};
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (int i = 0; i < MESSAGES; i++) {
        must(pair_finish(&pair, requests[i]));
    }
    cr_expect(ge(u64, referred(&pair), 1));
    pair_close(&pair);
}

Test(schema, ten_thousand_tensors_are_sent_by_number)
{
    const sample_t sample = {.seed = 1,
                             .tensors = 10000,
                             .shape = SAMPLE_VECTOR,
                             .elements = 4,
                             .name_bytes = 30};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pass_sample(&pair, &sample);
    pass_sample(&pair, &sample);
    cr_expect(eq(u64, referred(&pair), 1));
    pair_close(&pair);
}

/* A layout larger than what the peer keeps travels in full each time. */
Test(schema, a_layout_beyond_the_budget_travels_in_full)
{
    const sample_t sample = {.seed = 1, .tensors = 2000, .name_bytes = 2000};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        pass_sample(&pair, &sample);
    }
    cr_expect(eq(u64, referred(&pair), 0));
    pair_close(&pair);
}

/* A definition of the layout takes 4 bytes more. */
Test(schema, a_header_as_long_as_the_peer_allows_is_sent_all_the_same)
{
    side_options_t exact = {.limits = {.field_mask = TMSG_LIMIT_HEADER_BYTES}};
    tmsg_map_t *map = sample_bytes(1, 100);
    size_t bytes;
    pair_t pair;

    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
    tmsg_map_destroy(map);
    exact.limits.header_bytes = bytes;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &exact, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_request_t *request =
            send_map(pair.to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check_bytes(i, 100, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
    }
    pair_close(&pair);
}

/* A message that is refused may be the one that defined its layout: its slot,
 * the only one here, is free again. */
Test(schema, a_refused_definition_is_answered)
{
    enum { PAUSE = 256 }; /* messages in full after one that was not kept */
    const sample_t large = {.seed = 1, .tensors = 5};
    const sample_t sample = {.seed = 2, .tensors = 4};
    const side_options_t small = {
        .limits = {.field_mask = TMSG_LIMIT_TENSORS, .tensors = 4}};
    pair_t pair;
    tmsg_request_t *request;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &small, NULL);
    pair.to_a->peer_hello.schema_slots = 1;
    pair.to_a->peer_hello.max_tensors = UINT64_MAX; /* b asks anyway */
    request = send_map(pair.to_a, sample_make(&large), TMSG_SEND_ACKED);
    must_be(pair_finish(&pair, request), TMSG_ERR_LIMIT_EXCEEDED);
    for (int i = 0; i < 2 * PAUSE; i++) {
        pass_sample(&pair, &sample);
    }
    cr_expect(ge(u64, referred(&pair), 1));
    pair_close(&pair);
}

/* The message is refused for its length, before its definition is read. */
Test(schema, a_definition_that_nobody_read_costs_its_slot_alone)
{
    const sample_t sample = {.seed = 2, .tensors = 4};
    const side_options_t small = {
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 4096}};
    pair_t pair;
    tmsg_request_t *request;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &small, NULL);
    pair.to_a->peer_hello.max_message_bytes = UINT64_MAX; /* b asks anyway */
    request = send_map(pair.to_a, sample_bytes(1, 5000), TMSG_SEND_ACKED);
    must_be(pair_finish(&pair, request), TMSG_ERR_LIMIT_EXCEEDED);
    for (size_t i = 0; i < 5; i++) {
        tmsg_message_t *message;

        request = send_map(pair.to_a, sample_bytes(i, 1000 + i), 0);
        message = pair_take(&pair, &pair.a);
        sample_check_bytes(i, 1000 + i, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
        pass_sample(&pair, &sample);
    }
    cr_expect(eq(u64, referred(&pair), 4));
    pair_close(&pair);
}

Test(schema, a_capturing_worker_is_sent_whole_headers)
{
    const sample_t sample = {.seed = 4, .tensors = 5};
    const side_options_t capturing = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_CAPTURE}};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &capturing, NULL);
    for (int i = 0; i < 5; i++) {
        pass_sample(&pair, &sample);
    }
    cr_expect(eq(u64, referred(&pair), 0));
    pair_close(&pair);
}

/* The receiver knows a received map's layout by a number, and sends the map on
 * by a number of its own. */
Test(schema, received_maps_are_relayed)
{
    const sample_t sample = {.seed = 6, .tensors = 8};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 6; i++) {
        tmsg_request_t *there =
            send_map(pair.to_a, sample_make(&sample), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_message_t *back;
        tmsg_request_t *request;

        must(tmsg_endpoint_send(pair.to_b, tmsg_message_map(message), NULL,
                                &request));
        tmsg_message_destroy(message);
        back = pair_take(&pair, &pair.b);
        sample_check(&sample, tmsg_message_map(back));
        tmsg_message_destroy(back);
        must(pair_finish(&pair, request));
        must(pair_finish(&pair, there));
    }
    cr_expect(eq(u64, pair.to_b->stats.sent_by_schema, 5));
    pair_close(&pair);
}

/* The budget is that of one connection: the next one starts empty. */
Test(schema, a_new_connection_starts_empty)
{
    const sample_t sample = {.seed = 2, .tensors = 4};
    pair_t pair;
    tmsg_endpoint_t *again;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pass_sample(&pair, &sample);
    pass_sample(&pair, &sample);
    again = side_dial(&pair.b, &pair.a);
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_request_t *request =
            send_map(again, sample_make(&sample), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
        cr_expect(eq(u64, again->stats.sent_by_schema, i));
    }
    pair_drop(&pair);
}

/* The header of a message of a known layout. */
Test(schema, the_header_has_40_bytes_at_most)
{
    const sample_t sample = {.seed = 5, .tensors = 8};
    const tmsg_send_params_t acked = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                      .flags = TMSG_SEND_ACKED};
    tmsg_map_t *map = sample_make(&sample);
    tmsg_body_extra_t extra = {0};
    pair_t pair;
    size_t bytes;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    while (tmsg_map_meta_size(map) > 0) {
        must(tmsg_map_remove_meta(map, tmsg_map_meta_entries(map)->key));
    }
    for (int i = 0; i < 3; i++) {
        tmsg_request_t *request;

        must(tmsg_endpoint_send(pair.to_a, map, &acked, &request));
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, request));
    }
    must(tmsg_schema_table_choose(pair.to_a->channels.zero.tx_schemas, map,
                                  &extra, &bytes));
    cr_expect(eq(int, (int)extra.schema.form, TMSG_SCHEMA_REFERS));
    cr_expect(le(sz, TMSG_PREAMBLE_BYTES + bytes, 40));
    tmsg_map_destroy(map);
    pair_close(&pair);
}
