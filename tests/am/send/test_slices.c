/* SPDX-License-Identifier: BSD-3-Clause */
/* A long list of tensors, none of them large, travels in slices: the map
 * arrives whole, once and in its turn, whatever memory its tensors go to. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/send/fragments.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define CHUNK 4096

/* Slices as small as they may be, of lists that are not gathered. */
static void small_slices(void)
{
    setenv(
        "TENSORMSG_THRESHOLDS",
        "shm.slice_bytes=10000,shm.chunk_bytes=4096,shm.fragment_bytes=50000,"
        "shm.gather_bytes=0,shm.gather_mean_bytes=1,"
        "shm.bulk_bytes=never,"
        "tcp.slice_bytes=10000,tcp.chunk_bytes=4096,tcp.fragment_bytes=50000,"
        "tcp.gather_bytes=0,tcp.gather_mean_bytes=1,"
        "other.slice_bytes=10000,other.chunk_bytes=4096,"
        "other.fragment_bytes=50000",
        1);
}

TestSuite(slices, .init = small_slices);

/* Tensors of so many bytes each, whose content says which they are. */
static tmsg_map_t *map_of(uint64_t seed, const size_t *bytes, size_t count,
                          const char *prefix)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < count; i++) {
        const int64_t shape[] = {(int64_t)bytes[i]};
        tmsg_map_add_params_t params = {
            .field_mask = TMSG_MAP_ADD_PARAM_RELEASE, .release = free};
        char name[300];
        uint8_t *data = malloc(bytes[i] + 1);
        const tmsg_tensor_t tensor = {
            data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};

        params.release_arg = data;
        sample_fill(seed + i, data, bytes[i]);
        snprintf(name, sizeof(name), "%s%zu", prefix, i);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static void check(uint64_t seed, const size_t *bytes, size_t count,
                  const tmsg_map_t *map)
{
    must_eq(tmsg_map_size(map), count);
    for (size_t i = 0; i < count; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_at(map, i, NULL, &tensor));
        must_eq(tensor.shape[0], bytes[i]);
        must_eq(sample_compare(seed + i, tensor.data, bytes[i]), bytes[i]);
    }
}

static const size_t even[] = {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096};
static const size_t odd[] = {1,    4095, 0,     4097, 12000, 3, 8192, 40000,
                             9999, 0,    16384, 700,  1,     1, 1,    30000};
static const size_t beside_large[] = {5000,   60000, 5000, 0, 100000, 1,
                                      200000, 9000,  7000, 1, 50000,  3};
static const size_t one[] = {20000}; /* is one piece, and sliced all the same */

static const struct {
    const size_t *bytes;
    size_t count;
} lists[] = {{even, 8}, {odd, 16}, {beside_large, 12}, {one, 1}};

#define LISTS (sizeof(lists) / sizeof(lists[0]))

/* A name that has thousands of bytes spills the body. */
static void arrive(link_t link, drive_t drive, const char *prefix)
{
    uint64_t seed = 1;
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < 4 * LISTS; i++) {
        const size_t *bytes = lists[i % LISTS].bytes;
        size_t count = lists[i % LISTS].count;
        unsigned flags = i / LISTS == 1   ? TMSG_SEND_ACKED
                         : i / LISTS == 2 ? TMSG_SEND_VERIFY
                                          : 0;
        uint64_t before = pair.to_a->tx.fragments_handed;
        tmsg_request_t *sent =
            send_map(pair.to_a, map_of(seed, bytes, count, prefix), flags);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        check(seed, bytes, count, tmsg_message_map(message));
        must_true(pair.to_a->tx.fragments_handed - before >= 20000 / CHUNK);
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
        seed += 100;
    }
    pair_close(&pair);
}

Test(slices, arrive_shm) { arrive(LINK_SHM, DRIVE_POLLING, ""); }
Test(slices, arrive_tcp) { arrive(LINK_TCP, DRIVE_POLLING, ""); }
Test(slices, arrive_unix) { arrive(LINK_UNIX, DRIVE_THREAD, ""); }
Test(slices, arrive_by_descriptor) { arrive(LINK_TCP, DRIVE_FD, ""); }

/* Tensors of every kind; the body is spilled where there are many names. */
static void of_any_kind(link_t link, size_t name_bytes)
{
    const sample_t sample = {.seed = 7,
                             .tensors = 500,
                             .name_bytes = name_bytes,
                             .shape = SAMPLE_MIXED,
                             .elements = 900};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        tmsg_request_t *sent =
            send_map(pair.to_a, sample_make(&sample), TMSG_SEND_VERIFY);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(&sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    must_true(pair.to_a->tx.fragments_handed > 3 * 100000 / CHUNK);
    pair_close(&pair);
}

Test(slices, are_of_tensors_of_any_kind_shm) { of_any_kind(LINK_SHM, 0); }
Test(slices, are_of_tensors_of_any_kind_tcp) { of_any_kind(LINK_TCP, 0); }
Test(slices, are_behind_a_spilled_body_shm) { of_any_kind(LINK_SHM, 300); }
Test(slices, are_behind_a_spilled_body_tcp) { of_any_kind(LINK_TCP, 300); }

Test(slices, are_not_sent_to_an_older_peer)
{
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_SLICES;
    tmsg_request_destroy(send_map(pair.to_a, map_of(1, odd, 16, ""), 0));
    message = pair_take(&pair, &pair.a);
    check(1, odd, 16, tmsg_message_map(message));
    must_eq(pair.to_a->tx.fragments_handed, 0);
    tmsg_message_destroy(message);
    pair_close(&pair);
}

/* Each tensor in memory of its own, or every third. */
typedef struct {
    const size_t *bytes;
    size_t count, every;
    uint8_t *places[16];
} placing_t;

static void place(void *arg, tmsg_incoming_t *incoming)
{
    placing_t *placing = arg;

    for (size_t i = 0; i < placing->count; i += placing->every) {
        placing->places[i] = malloc(placing->bytes[i] + 1);
        must(tmsg_incoming_place(incoming, i, placing->places[i],
                                 placing->bytes[i], NULL));
    }
}

static void apart(link_t link)
{
    placing_t placing = {.every = 1};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = place,
                   .on_header_arg = &placing}};
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (size_t i = 0; i < 3 * LISTS; i++) {
        tmsg_request_t *sent;
        tmsg_message_t *message;

        placing.bytes = lists[i % LISTS].bytes;
        placing.count = lists[i % LISTS].count;
        placing.every = 1 + i / LISTS;
        sent = send_map(pair.to_a, map_of(i, placing.bytes, placing.count, ""),
                        TMSG_SEND_VERIFY);
        message = pair_take(&pair, &pair.a);
        check(i, placing.bytes, placing.count, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
        for (size_t j = 0; j < placing.count; j += placing.every) {
            free(placing.places[j]);
        }
    }
    pair_close(&pair);
}

Test(slices, are_received_into_memory_apart_shm) { apart(LINK_SHM); }
Test(slices, are_received_into_memory_apart_tcp) { apart(LINK_TCP); }

Test(slices, are_received_into_a_map)
{
    tmsg_map_t *room = map_of(99, odd, 16, "");
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t seed = 1; seed < 4; seed++) {
        receiving_t receiving = {.pair = &pair, .map = room};

        must_true(seed == 2 || !receiving_has_ended(&receiving));
        tmsg_request_destroy(send_map(pair.to_a, map_of(seed, odd, 16, ""), 0));
        pair_await(&pair, receiving_has_ended, &receiving,
                   "a map in its place");
        must(receiving.status);
        check(seed, odd, 16, room);
        tmsg_message_destroy(receiving.message);
    }
    pair_close(&pair);
    tmsg_map_destroy(room);
}

/* A small message on another channel comes before the list that was sent first
 * is there, and no more than a few slices are ever before it. */
static void overtaken(link_t link)
{
    enum { TENSORS = 400, EACH = 20000 };
    const tmsg_send_params_t other = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                      .channel = 1};
    static size_t bytes[TENSORS];
    tmsg_map_t *small = sample_bytes(5, 64), *list;
    tmsg_message_t *message;
    pair_t pair;

    for (size_t i = 0; i < TENSORS; i++) {
        bytes[i] = EACH;
    }
    list = map_of(1, bytes, TENSORS, "");
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        must(tmsg_endpoint_send(pair.to_a, list, NULL, NULL));
        must_true(pair.to_a->tx.fragments_in_ucx <= TMSG_FRAGMENTS_SENT);
        must(tmsg_endpoint_send(pair.to_a, small, &other, NULL));
        message = pair_take(&pair, &pair.a);
        must_eq(tmsg_message_channel(message), 1);
        tmsg_message_destroy(message);
        message = pair_take(&pair, &pair.a);
        check(1, bytes, TENSORS, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    tmsg_map_destroy(small);
    tmsg_map_destroy(list);
    pair_close(&pair);
}

Test(slices, let_small_messages_pass_shm) { overtaken(LINK_SHM); }
Test(slices, let_small_messages_pass_tcp) { overtaken(LINK_TCP); }

static bool has_some(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->tx.fragments_handed > 5;
}

/* A message is given up halfway; the messages behind it arrive. */
Test(slices, are_given_up)
{
    enum { TENSORS = 200, EACH = 20000 };
    static size_t bytes[TENSORS];
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_status_t status;
    pair_t pair;

    for (size_t i = 0; i < TENSORS; i++) {
        bytes[i] = EACH;
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, map_of(1, bytes, TENSORS, ""), 0);
    pair_await(&pair, has_some, &pair, "a few slices");
    status = tmsg_request_cancel(sent);
    must_true(status == TMSG_ERR_CANCELED || status == TMSG_CANCEL_PENDING);
    must_be(pair_wait(&pair, sent), TMSG_ERR_CANCELED);
    tmsg_request_destroy(sent);
    tmsg_request_destroy(send_map(pair.to_a, map_of(2, odd, 16, ""), 0));
    message = pair_take(&pair, &pair.a);
    check(2, odd, 16, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_close(&pair);
}

/* A message under way when the connection breaks is sent again from its
 * beginning. */
static void over_a_break(link_t link)
{
    enum { MESSAGES = 6 };
    const how_t how = {.link = link};
    tmsg_request_t *sent[MESSAGES];
    joined_t joined;

    joined_open(&joined, &how);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        if (i == MESSAGES / 2) {
            joined_break(&joined);
        }
        sent[i] =
            send_map(joined.pair.to_a, map_of(i, odd, 16, ""), TMSG_SEND_ACKED);
    }
    joined_mend(&joined);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&joined.pair, &joined.pair.a);

        check(i, odd, 16, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&joined.pair, sent[i]));
    }
    joined_close(&joined);
}

Test(slices, outlive_a_break_shm) { over_a_break(LINK_SHM); }
Test(slices, outlive_a_break_tcp) { over_a_break(LINK_TCP); }

/* One list to several peers is planned once. */
Test(slices, are_published)
{
    enum { PEERS = 3 };
    tmsg_publisher_t *publisher;
    tmsg_map_t *map = map_of(3, odd, 16, "");
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_publisher_create(pair.b.worker, NULL, &publisher));
    for (int i = 0; i < PEERS; i++) {
        tmsg_endpoint_t *endpoint = side_dial(&pair.b, &pair.a);

        tmsg_request_destroy(send_map(endpoint, sample_bytes(1, 10), 0));
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(tmsg_publisher_add(publisher, endpoint, NULL));
    }
    for (int round = 0; round < 3; round++) {
        must(tmsg_publisher_publish(publisher, map, NULL, &sent));
        for (int i = 0; i < PEERS; i++) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);

            check(3, odd, 16, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        must(pair_finish(&pair, sent));
    }
    tmsg_publisher_destroy(publisher);
    tmsg_map_destroy(map);
    pair_close(&pair);
}
