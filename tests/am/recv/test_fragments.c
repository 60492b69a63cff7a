/* SPDX-License-Identifier: BSD-3-Clause */
/* Large tensors as messages of their own: the map arrives whole, once, in its
 * turn, whatever the fragments are. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "memory/domain.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

/* Fragments as small as they may be, so that a small map has many. */
static void small_fragments(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=5000,shm.chunk_bytes=4096,"
           "shm.bulk_bytes=never,"
           "tcp.fragment_bytes=5000,tcp.chunk_bytes=4096,"
           "other.fragment_bytes=5000,other.chunk_bytes=4096",
           1);
}

TestSuite(fragments, .init = small_fragments);

static tmsg_request_t *send_way(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                                unsigned flags, int32_t way, int32_t protocol)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_WAY,
        .flags = flags,
        .way = way,
        .protocol = protocol,
    };
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* Tensors of so many bytes each, whose content says which they are. */
static tmsg_map_t *map_of(uint64_t seed, const size_t *bytes, size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const int64_t shape[] = {(int64_t)bytes[i]};
        const tmsg_map_add_params_t params = {
            .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = free};
        tmsg_map_add_params_t owned = params;
        char name[32];
        uint8_t *data = malloc(bytes[i] + 1);
        const tmsg_tensor_t tensor = {
            data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};

        owned.release_arg = data;
        sample_fill(seed + i, data, bytes[i]);
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, &owned));
    }
    return map;
}

static void check(uint64_t seed, const size_t *bytes, size_t count,
                  const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);

    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(map, i, NULL, &tensor));
        must_eq(tensor.shape[0], bytes[i]);
        must_eq(sample_compare(seed + i, tensor.data, bytes[i]), bytes[i]);
    }
}

static void exchange(pair_t *pair, const size_t *bytes, size_t count,
                     unsigned flags, int32_t way, int32_t protocol)
{
    static uint64_t seed;
    tmsg_request_t *sent = send_way(pair->to_a, map_of(++seed, bytes, count),
                                    flags, way, protocol);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    check(seed, bytes, count, message);
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

static void by_size_and_count(link_t link)
{
    static const size_t sizes[] = {1,    4095,  4096,  4097,
                                   8192, 40000, 65536, 300001};
    size_t bytes[6];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t count = 1; count <= 6; count += count == 1 ? 1 : 4) {
            for (size_t j = 0; j < count; j++) {
                bytes[j] = sizes[i];
            }
            exchange(&pair, bytes, count, 0, TMSG_WAY_AUTO, 0);
            exchange(&pair, bytes, count, 0, TMSG_WAY_FRAGMENTS, 0);
            exchange(&pair, bytes, count, TMSG_SEND_VERIFY, TMSG_WAY_FRAGMENTS,
                     0);
        }
    }
    pair_close(&pair);
}

Test(fragments, arrive_by_size_and_count_shm) { by_size_and_count(LINK_SHM); }
Test(fragments, arrive_by_size_and_count_tcp) { by_size_and_count(LINK_TCP); }

static void mixtures(link_t link)
{
    static const size_t bytes[] = {100,  200000, 0,    64, 5000,
                                   4999, 0,      7000, 1,  20000};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        for (int32_t protocol = TMSG_PROTOCOL_AUTO;
             protocol <= TMSG_PROTOCOL_RNDV; protocol++) {
            exchange(&pair, bytes, 10, 0, way, protocol);
            exchange(&pair, bytes, 10, TMSG_SEND_ACKED, way, protocol);
            exchange(&pair, bytes, 10, TMSG_SEND_VERIFY, way, protocol);
        }
    }
    pair_close(&pair);
}

Test(fragments, are_mixed_with_what_is_gathered_or_listed_shm)
{
    mixtures(LINK_SHM);
}

Test(fragments, are_mixed_with_what_is_gathered_or_listed_tcp)
{
    mixtures(LINK_TCP);
}

/* Every dtype, strides of every kind, metadata. */
static void any_tensors(link_t link, drive_t drive, unsigned flags)
{
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const sample_t sample = {.seed = seed, .tensors = seed % 13};
        tmsg_request_t *sent =
            send_way(pair.to_a, sample_make(&sample), flags,
                     seed % 2 == 0 ? TMSG_WAY_FRAGMENTS : TMSG_WAY_AUTO, 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

Test(fragments, are_of_tensors_of_any_kind_shm)
{
    any_tensors(LINK_SHM, DRIVE_POLLING, 0);
}

Test(fragments, are_of_tensors_of_any_kind_tcp)
{
    any_tensors(LINK_TCP, DRIVE_POLLING, TMSG_SEND_VERIFY);
}

Test(fragments, are_of_tensors_of_any_kind_unix)
{
    any_tensors(LINK_UNIX, DRIVE_THREAD, TMSG_SEND_ACKED);
}

Test(fragments, are_of_tensors_of_any_kind_blob)
{
    any_tensors(LINK_BLOB, DRIVE_FD, 0);
}

/* Tensors that have to be packed. */
static void strided(link_t link)
{
    const int64_t shape[] = {90, 110, 7};
    const int64_t strides[] = {1, 630, -90}; /* of a view, backwards */
    static float data[90 * 7 * 110];
    const tmsg_tensor_t tensor = {
        &data[540], {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 3, shape,
        strides};
    tmsg_tensor_t got;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    float *expected = malloc(sizeof(data));
    tmsg_map_t *map;
    pair_t pair;

    sample_fill(5, data, sizeof(data));
    must(tmsg_tensor_pack(&tensor, expected));
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "one", &tensor, NULL));
    must(tmsg_map_add(map, "two", &tensor, NULL));
    sent = send_way(pair.to_a, map, TMSG_SEND_VERIFY, TMSG_WAY_AUTO, 0);
    message = pair_take(&pair, &pair.a);
    for (size_t i = 0; i < 2; i++) {
        must(tmsg_map_at(tmsg_message_map(message), i, NULL, &got));
        must_eq(memcmp(got.data, expected, sizeof(data)), 0);
    }
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
    free(expected);
}

Test(fragments, of_strided_tensors_are_packed_shm) { strided(LINK_SHM); }
Test(fragments, of_strided_tensors_are_packed_tcp) { strided(LINK_TCP); }

#define MESSAGES 60

/* Small messages overtake the fragments of large ones, and wait for their turn.
 */
static void in_order(link_t link, drive_t drive)
{
    static const size_t large[] = {30, 90000, 5000, 70000};
    static const size_t small[] = {10};
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_map_t *map =
            i % 3 == 0 ? map_of(i, large, 4) : map_of(i, small, 1);

        sent[i] = send_way(pair.to_a, map, 0, TMSG_WAY_AUTO, 0);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        if (i % 3 == 0) {
            check(i, large, 4, message);
        } else {
            check(i, small, 1, message);
        }
        tmsg_message_destroy(message);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(fragments, keep_the_order_of_their_messages_shm)
{
    in_order(LINK_SHM, DRIVE_POLLING);
}

Test(fragments, keep_the_order_of_their_messages_tcp)
{
    in_order(LINK_TCP, DRIVE_POLLING);
}

Test(fragments, keep_the_order_of_their_messages_thread)
{
    in_order(LINK_SHM, DRIVE_THREAD);
}

Test(fragments, keep_the_order_of_their_messages_fd)
{
    in_order(LINK_TCP, DRIVE_FD);
}

#define HELD 500000

/* The receiver fetches no more than there is memory for, and the rest waits. */
static void within_budget(link_t link)
{
    static const size_t bytes[] = {100, 200000, 100000};
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD}};
    tmsg_request_t *sent[8];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (uint64_t i = 0; i < 8; i++) {
        sent[i] = send_way(pair.to_a, map_of(i, bytes, 3), 0, TMSG_WAY_AUTO, 0);
    }
    for (int i = 0; i < 3000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    must_be(tmsg_request_test(sent[2]), TMSG_IN_PROGRESS);
    for (uint64_t i = 0; i < 8; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        check(i, bytes, 3, message);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(fragments, wait_for_memory_shm) { within_budget(LINK_SHM); }
Test(fragments, wait_for_memory_tcp) { within_budget(LINK_TCP); }

/* A refused message is refused once, and the others arrive. */
static void refused(link_t link, unsigned flags)
{
    static const size_t large[] = {100, 300000, 300000}, small[] = {9000, 40};
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD}};
    tmsg_request_t *sent[3];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (uint64_t round = 0; round < 5; round++) {
        sent[0] = send_way(pair.to_a, map_of(1, small, 2), flags, 0, 0);
        sent[1] = send_way(pair.to_a, map_of(2, large, 3), flags, 0, 0);
        sent[2] = send_way(pair.to_a, map_of(3, small, 2), flags, 0, 0);
        for (uint64_t seed = 1; seed <= 3; seed += 2) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);

            check(seed, small, 2, message);
            tmsg_message_destroy(message);
        }
        must(pair_finish(&pair, sent[0]));
        must_be(pair_wait(&pair, sent[1]), TMSG_ERR_LIMIT_EXCEEDED);
        must_say(tmsg_request_error(sent[1]), "held_bytes");
        tmsg_request_destroy(sent[1]);
        must(pair_finish(&pair, sent[2]));
        must_eq(pair.to_b->stats.refused_messages, round + 1);
    }
    pair_close(&pair);
}

Test(fragments, of_a_refused_message_are_rejected_shm) { refused(LINK_SHM, 0); }
Test(fragments, of_a_refused_message_are_rejected_tcp) { refused(LINK_TCP, 0); }

Test(fragments, of_a_refused_message_are_rejected_acked)
{
    refused(LINK_SHM, TMSG_SEND_ACKED);
}

/* The peer's limits count all fragments of a message, and the sender knows
 * them. */
Test(fragments, count_in_the_size_of_their_message)
{
    static const size_t bytes[] = {100, 60000, 60000};
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 100000}};
    tmsg_map_t *map = map_of(1, bytes, 3);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL),
            TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_map_destroy(map);
    exchange(&pair, bytes, 2, 0, TMSG_WAY_AUTO, 0);
    pair_close(&pair);
}

/* Names that do not fit into a header. */
static void spilled(link_t link, uint64_t elements)
{
    const sample_t sample = {.seed = 3,
                             .tensors = 400,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .name_bytes = 300,
                             .elements = elements};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        tmsg_request_t *sent =
            send_way(pair.to_a, sample_make(&sample), TMSG_SEND_VERIFY, way, 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

/* A message with a spilled body and fragments goes eagerly, until the peer's
 * window is used up: from then on it has no fragments. */
static void many_spilled(link_t link)
{
    const sample_t sample = {.seed = 4,
                             .tensors = 400,
                             .shape = SAMPLE_VECTOR,
                             .dtype = 1,
                             .name_bytes = 300,
                             .elements = 6000};
    tmsg_request_t *sent[40];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 40; i++) {
        sent[i] = send_way(pair.to_a, sample_make(&sample), TMSG_SEND_VERIFY,
                           TMSG_WAY_FRAGMENTS, 0);
    }
    for (int i = 0; i < 40; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(fragments, need_room_for_a_spilled_body_shm) { many_spilled(LINK_SHM); }
Test(fragments, need_room_for_a_spilled_body_tcp) { many_spilled(LINK_TCP); }

Test(fragments, follow_a_spilled_body_shm) { spilled(LINK_SHM, 9000); }
Test(fragments, follow_a_spilled_body_tcp) { spilled(LINK_TCP, 9000); }

/* Layouts that repeat go by number, and so do those with fragments. */
Test(fragments, go_with_schemas)
{
    static const size_t bytes[] = {100, 60000, 6000};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 10; i++) {
        exchange(&pair, bytes, 3, i % 2 == 0 ? 0 : TMSG_SEND_VERIFY,
                 i % 4 == 3 ? TMSG_WAY_FRAGMENTS : TMSG_WAY_AUTO, 0);
    }
    cr_expect(ge(u64, pair.to_a->stats.sent_by_schema, 6));
    must_eq(pair.to_b->stats.received_bytes, pair.to_a->stats.sent_bytes);
    pair_close(&pair);
}

static char *captured_header(pair_t *pair, int32_t way)
{
    static const size_t bytes[] = {100, 60000};
    tmsg_request_t *sent = send_way(pair->to_a, map_of(1, bytes, 2), 0, way, 0);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    const void *header;
    size_t header_bytes;
    char *json;

    check(1, bytes, 2, message);
    must(tmsg_message_header(message, &header, &header_bytes));
    must(tmsg_header_to_json(header, header_bytes, &json));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    return json;
}

Test(fragments, are_in_a_captured_header)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_CAPTURE}};
    pair_t pair;
    char *json;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    json = captured_header(&pair, TMSG_WAY_AUTO);
    must_say(json, "\"parts\":");
    tmsg_string_free(json);
    json = captured_header(&pair, TMSG_WAY_SCATTER);
    cr_expect(strstr(json, "\"parts\":") == NULL);
    tmsg_string_free(json);
    pair_close(&pair);
}

/* A peer that does not take fragments gets none, whatever the caller asks for.
 */
Test(fragments, are_not_sent_to_a_peer_that_takes_none)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_CAPTURE}};
    pair_t pair;
    char *json;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    pair.to_a->peer_hello.fragments = 0;
    json = captured_header(&pair, TMSG_WAY_FRAGMENTS);
    cr_expect(strstr(json, "\"parts\":") == NULL);
    tmsg_string_free(json);
    pair_close(&pair);
}

/* What a message from somebody else has to wait for: over shared memory one
 * fragment is read at a time, and after each there is a turn that reads none;
 * by TCP one is under way while the next is asked for. */
static void few_at_a_time(link_t link, uint32_t most)
{
    enum { EACH = 400000, PIECES = 2 * (EACH / 4096 + 1) };
    static const size_t bytes[] = {EACH, EACH};
    uint32_t asked = 0, came = 0, under_way = 0;
    bool has_read = false;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    if (link == LINK_SHM) {
        pair_await(&pair, endpoint_is_read, pair.to_a, "a peer that reads");
    }
    sent = send_way(pair.to_a, map_of(1, bytes, 2), 0, TMSG_WAY_AUTO, 0);
    for (unsigned turns = 0; came < PIECES; turns++) {
        must_true(turns < 10000000);
        if (turns % 8 == 0) { /* so that several lie there */
            tmsg_worker_progress(pair.b.worker);
        }
        tmsg_worker_progress(pair.a.worker);
        if (link == LINK_SHM) {
            must_true(pair.to_b->rx.fragments_came - came <=
                      (has_read ? 0 : 1));
            has_read = pair.to_b->rx.fragments_came != came;
        }
        asked = pair.to_b->rx.fragments_asked;
        came = pair.to_b->rx.fragments_came;
        must_true(asked - came <= most);
        under_way = asked - came > under_way ? asked - came : under_way;
    }
    must_eq(came, PIECES);
    must_eq(under_way, most);
    message = pair_take(&pair, &pair.a);
    check(1, bytes, 2, message);
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(fragments, are_fetched_few_at_a_time_shm) { few_at_a_time(LINK_SHM, 0); }
Test(fragments, are_fetched_few_at_a_time_tcp) { few_at_a_time(LINK_TCP, 2); }

/* A connection that ends in the middle of fragments leaves nothing behind, on
 * either side. */
static void dropped(link_t link, unsigned turns, bool by_sender)
{
    static const size_t bytes[] = {100, 400000, 400000};
    tmsg_request_t *sent[4];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 4; i++) {
        sent[i] = send_way(pair.to_a, map_of(i, bytes, 3), TMSG_SEND_ACKED,
                           TMSG_WAY_AUTO, 0);
    }
    for (unsigned i = 0; i < turns; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    if (by_sender) {
        tmsg_endpoint_destroy(pair.to_a);
        pair.to_a = NULL;
        must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
    } else {
        tmsg_endpoint_destroy(pair.to_b);
        pair.to_b = NULL;
        must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST);
    }
    for (uint64_t i = 0; i < 4; i++) {
        must_be(pair_finish(&pair, sent[i]),
                by_sender ? TMSG_ERR_CANCELED : TMSG_ERR_PEER_LOST);
    }
    pair_drop(&pair);
}

static void drop_all(link_t link)
{
    for (unsigned turns = 0; turns < 40; turns += turns < 8 ? 1 : 5) {
        dropped(link, turns, true);
        dropped(link, turns, false);
    }
}

Test(fragments, that_are_given_up_leave_nothing_behind_shm)
{
    drop_all(LINK_SHM);
}
Test(fragments, that_are_given_up_leave_nothing_behind_tcp)
{
    drop_all(LINK_TCP);
}

/* A message that is canceled in the middle is skipped, and nothing waits for
 * it. */
static void canceled(link_t link, unsigned turns)
{
    static const size_t large[] = {100, 400000, 400000}, small[] = {40};
    tmsg_request_t *sent[2];
    tmsg_message_t *message;
    tmsg_status_t status;
    bool whole = false;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent[0] = send_way(pair.to_a, map_of(1, large, 3), TMSG_SEND_ACKED, 0, 0);
    sent[1] = send_way(pair.to_a, map_of(9, small, 1), TMSG_SEND_ACKED, 0, 0);
    for (unsigned i = 0; i < turns; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    tmsg_request_cancel(sent[0]);
    message = pair_take(&pair, &pair.a);
    if (tmsg_map_size(tmsg_message_map(message)) == 3) { /* it was whole */
        check(1, large, 3, message);
        tmsg_message_destroy(message);
        message = pair_take(&pair, &pair.a);
        whole = true;
    }
    check(9, small, 1, message);
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent[1]));
    status = pair_finish(&pair, sent[0]);
    must_true(status == TMSG_ERR_CANCELED || (whole && status == TMSG_OK));
    exchange(&pair, large, 3, TMSG_SEND_ACKED, 0, 0);
    must_eq(pair.to_b->rx.kept_fragments.count, 0);
    pair_close(&pair);
}

static void cancel_all(link_t link)
{
    for (unsigned turns = 0; turns < 40; turns += turns < 8 ? 1 : 5) {
        canceled(link, turns);
    }
}

Test(fragments, of_a_canceled_message_are_dropped_shm) { cancel_all(LINK_SHM); }
Test(fragments, of_a_canceled_message_are_dropped_tcp) { cancel_all(LINK_TCP); }

#define OTHER_DEVICE 12 /* DLPack's kDLExtDev */

/* A second kind of host memory, which nothing else may travel with. */
static int holds(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == OTHER_DEVICE;
}

static void add_other_memory(void)
{
    tmsg_domain_t other = tmsg_domain_host;

    other.name = "other";
    other.holds = holds;
    must(tmsg_domain_register(&other));
}

static tmsg_map_t *mixed_map(const int32_t *devices, const int64_t *bytes,
                             uint8_t (*data)[60000], size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const tmsg_tensor_t tensor = {
            data[i], {devices[i], 0}, {TMSG_DTYPE_UINT, 8, 1},
            1,       &bytes[i],       NULL};
        char name[32];

        sample_fill(i, data[i], (size_t)bytes[i]);
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

/* One map, in one message, whatever memory its tensors lie in. */
static void mixed_memory(link_t link)
{
    static uint8_t data[6][60000];
    static const int32_t devices[] = {TMSG_DEVICE_CPU, OTHER_DEVICE,
                                      OTHER_DEVICE,    TMSG_DEVICE_CPU,
                                      OTHER_DEVICE,    TMSG_DEVICE_CPU};
    static const int64_t bytes[] = {100, 10, 60000, 60000, 0, 7};
    pair_t pair;

    add_other_memory();
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int32_t way = TMSG_WAY_AUTO; way <= TMSG_WAY_FRAGMENTS; way++) {
        tmsg_request_t *sent =
            send_way(pair.to_a, mixed_map(devices, bytes, data, 6),
                     TMSG_SEND_VERIFY, way, 0);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        for (size_t i = 0; i < 6; i++) {
            tmsg_tensor_t tensor;

            must(tmsg_map_at(tmsg_message_map(message), i, NULL, &tensor));
            must_eq(tensor.device.type, devices[i]);
            must_eq(sample_compare(i, tensor.data, (size_t)bytes[i]), bytes[i]);
        }
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

Test(fragments, carry_what_lies_in_other_memory_shm) { mixed_memory(LINK_SHM); }
Test(fragments, carry_what_lies_in_other_memory_tcp) { mixed_memory(LINK_TCP); }

Test(fragments, are_needed_for_other_memory)
{
    static uint8_t data[1][60000];
    const int32_t device = OTHER_DEVICE;
    const int64_t bytes = 10;
    tmsg_map_t *map = mixed_map(&device, &bytes, data, 1);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "device type 12");
    add_other_memory();
    pair.to_a->peer_hello.fragments = 0;
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "only tensors in host memory");
    tmsg_map_destroy(map);
    pair_close(&pair);
}
