/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving fragments into a map, where their sender gives them up or the
 * connection breaks: the map is the application's again, and takes the next. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define BYTES 2000000

static void small_fragments(void)
{
    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=50000,shm.chunk_bytes=65536,"
           "shm.bulk_bytes=never,"
           "tcp.fragment_bytes=50000,tcp.chunk_bytes=65536",
           1);
}

TestSuite(recv_into_fragments, .init = small_fragments);

/* A receive at a into `map`, which borrows `data`. */
typedef struct {
    joined_t joined;
    uint8_t *data;
    tmsg_map_t *map;
    tmsg_status_t status;
    tmsg_message_t *message;
} into_t;

/* Makes a map of one tensor of that memory, which it frees if it owns it. */
static tmsg_map_t *map_of(uint8_t *data, bool owns)
{
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = data};
    tmsg_map_t *map;

    must_true(data != NULL);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, owns ? &params : NULL));
    return map;
}

static void open_into(into_t *into, link_t link)
{
    const how_t how = {.link = link};

    memset(into, 0, sizeof(*into));
    into->data = malloc(BYTES);
    into->map = map_of(into->data, false);
    joined_open(&into->joined, &how);
}

static void close_into(into_t *into)
{
    joined_close(&into->joined);
    tmsg_map_destroy(into->map);
    free(into->data);
}

static bool poll_into(into_t *into, tmsg_status_t wanted)
{
    into->status = tmsg_endpoint_recv_into(into->joined.pair.to_b, into->map, 0,
                                           &into->message);
    return into->status == wanted;
}

static bool has_come(void *arg) { return poll_into(arg, TMSG_OK); }
static bool is_under_way(void *arg)
{
    return poll_into(arg, TMSG_CANCEL_PENDING);
}

/* Bytes of the message come only while the map is posted. */
static void await_under_way(into_t *into)
{
    side_await(&into->joined.pair.b, is_under_way, into, "a message under way");
}

static bool is_over(void *arg) { return poll_into(arg, TMSG_ERR_TIMED_OUT); }

static void expect(into_t *into, uint64_t seed)
{
    pair_await(&into->joined.pair, has_come, into, "the message");
    must_eq(sample_compare(seed, into->data, BYTES), BYTES);
    tmsg_message_destroy(into->message);
}

static tmsg_request_t *send_seed(into_t *into, uint64_t seed)
{
    uint8_t *data = malloc(BYTES);

    must_true(data != NULL);
    sample_fill(seed, data, BYTES);
    return send_map(into->joined.pair.to_a, map_of(data, true),
                    TMSG_SEND_ACKED);
}

/* No byte that was on its way reaches memory that is the application's again.
 */
static void watch(into_t *into)
{
    memset(into->data, 0x5a, BYTES);
    for (int i = 0; i < 5000; i++) {
        tmsg_worker_progress(into->joined.pair.b.worker);
        tmsg_worker_progress(into->joined.pair.a.worker);
    }
    for (size_t i = 0; i < BYTES; i++) {
        if (into->data[i] != 0x5a) {
            die("byte %zu was written to", i);
        }
    }
}

static void check_given_up(link_t link)
{
    into_t into;
    pair_t *pair = &into.joined.pair;
    tmsg_request_t *sent;

    open_into(&into, link);
    sent = send_seed(&into, 1);
    await_under_way(&into);
    tmsg_request_cancel(sent);
    pair_await(pair, is_over, &into, "its end");
    must(tmsg_map_clear(into.map));
    watch(&into);
    must_be(pair_finish(pair, sent), TMSG_ERR_CANCELED);
    tmsg_map_destroy(into.map);
    into.map = map_of(into.data, false);
    sent = send_seed(&into, 2);
    expect(&into, 2);
    must(pair_finish(pair, sent));
    close_into(&into);
}

Test(recv_into_fragments, given_up_by_shared_memory)
{
    check_given_up(LINK_SHM);
}
Test(recv_into_fragments, given_up_by_tcp) { check_given_up(LINK_TCP); }

static void check_broken(link_t link)
{
    into_t into;
    pair_t *pair = &into.joined.pair;
    tmsg_request_t *sent;

    open_into(&into, link);
    sent = send_seed(&into, 1);
    await_under_way(&into);
    cr_expect(ge(uint, pair->to_a->tx.fragments_in_ucx, 1));
    joined_break(&into.joined);
    pair_await(pair, is_over, &into, "its end");
    watch(&into);
    cr_expect(eq(int, tmsg_request_test(sent), TMSG_IN_PROGRESS));
    joined_mend(&into.joined);
    expect(&into, 1);
    must(pair_finish(pair, sent));
    cr_expect(eq(long, described(pair->to_a, "reconnected"), 1));
    close_into(&into);
}

Test(recv_into_fragments, broken_by_shared_memory) { check_broken(LINK_SHM); }
Test(recv_into_fragments, broken_by_tcp) { check_broken(LINK_TCP); }

/* Only the break gives the fragments back, and nothing is left of them. */
Test(recv_into_fragments, an_endpoint_that_is_away_lets_them_be_given_up)
{
    into_t into;
    pair_t *pair = &into.joined.pair;
    tmsg_request_t *sent;

    open_into(&into, LINK_SHM);
    sent = send_seed(&into, 1);
    await_under_way(&into);
    joined_break(&into.joined);
    tmsg_request_cancel(sent);
    must_be(pair_finish(pair, sent), TMSG_ERR_CANCELED);
    joined_mend(&into.joined);
    sent = send_seed(&into, 2);
    expect(&into, 2);
    must(pair_finish(pair, sent));
    cr_expect(eq(long, described(pair->to_b, "lost_messages"), 1));
    close_into(&into);
}
