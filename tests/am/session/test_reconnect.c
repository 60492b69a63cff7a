/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that come back by themselves: what is acknowledged is neither lost
 * nor doubled, however often the connection breaks. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MESSAGES 300
#define WINDOW 24 /* sent and not taken */
#define TOO_LARGE (3u << 20)

/* One direction of a stream of acknowledged messages. */
typedef struct {
    tmsg_endpoint_t *from, *to;
    uint64_t sent, taken, seed; /* taken: or refused */
    tmsg_request_t *requests[MESSAGES];
    bool refuses; /* the receiver, what is too large */
    uint64_t refused;
} way_t;

typedef struct {
    joined_t *joined;
    way_t ways[2];
    uint64_t next_cut, cut_every;
} stream_t;

static size_t size_of(uint64_t i)
{
    return i % 41 == 40 ? TOO_LARGE : i % 7 == 6 ? 300000 + i : i * 37 % 2000;
}

static bool is_refused(const way_t *way, uint64_t i)
{
    return way->refuses && size_of(i) == TOO_LARGE;
}

static void send_some(way_t *way)
{
    while (way->sent < MESSAGES && way->sent < way->taken + WINDOW) {
        uint64_t i = way->sent++;

        way->requests[i] =
            send_map(way->from, sample_bytes(way->seed + i, size_of(i)),
                     TMSG_SEND_ACKED);
    }
}

static void take_some(way_t *way)
{
    tmsg_message_t *message;

    while (tmsg_endpoint_recv(way->to, 0, &message) == TMSG_OK) {
        must_true(!is_refused(way, way->taken));
        sample_check_bytes(way->seed + way->taken, size_of(way->taken),
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
        way->taken++;
        way->taken += is_refused(way, way->taken);
    }
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    way_t *way = arg;

    (void)channel;
    must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
    must_say(error, "held_bytes");
    must_true(endpoint == way->to);
    must_eq(sequence, 40 + 41 * way->refused);
    way->refused++;
}

static bool is_confirmed(const way_t *way)
{
    for (uint64_t i = 0; i < MESSAGES; i++) {
        if (i >= way->sent ||
            tmsg_request_test(way->requests[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

static bool stream_is_over(void *arg)
{
    stream_t *stream = arg;
    uint64_t taken = 0;

    for (int i = 0; i < 2; i++) {
        send_some(&stream->ways[i]);
        take_some(&stream->ways[i]);
        taken += stream->ways[i].taken;
    }
    if (taken >= stream->next_cut && taken < 2 * MESSAGES) {
        if (taken % 3 == 0) {
            relay_lose(stream->joined->relay);
        } else {
            relay_cut(stream->joined->relay);
        }
        stream->next_cut = taken + stream->cut_every;
    }
    return is_confirmed(&stream->ways[0]) && is_confirmed(&stream->ways[1]);
}

static void check_way(way_t *way)
{
    must_eq(way->taken, MESSAGES);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        must_be(tmsg_request_wait(way->requests[i], 0),
                is_refused(way, i) ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK);
        tmsg_request_destroy(way->requests[i]);
    }
    must_eq(way->refused, way->refuses ? MESSAGES / 41 : 0);
}

static void check_stream(link_t link, drive_t drive, bool refuses)
{
    stream_t *stream = calloc(1, sizeof(*stream));
    how_t how = {.link = link, .drive = drive};
    joined_t joined;
    pair_t *pair = &joined.pair;

    must_true(stream != NULL);
    if (refuses) {
        how.a.limits = (tmsg_limits_t){.field_mask = TMSG_LIMIT_HELD_BYTES,
                                       .held_bytes = 2000000};
        how.a.worker =
            (tmsg_worker_params_t){.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                                   .on_refused = on_refused,
                                   .on_refused_arg = &stream->ways[0]};
    }
    joined_open(&joined, &how);
    stream->joined = &joined;
    stream->ways[0] =
        (way_t){.from = pair->to_a, .to = pair->to_b, .refuses = refuses};
    stream->ways[1] =
        (way_t){.from = pair->to_b, .to = pair->to_a, .seed = 1000000};
    stream->cut_every = stream->next_cut = 20;
    pair_await(pair, stream_is_over, stream, "a stream of messages");
    check_way(&stream->ways[0]);
    check_way(&stream->ways[1]);
    cr_expect(ge(long, described(pair->to_a, "reconnected"), 5));
    cr_expect(eq(long, described(pair->to_b, "lost_messages"), 0));
    cr_expect(eq(long, described(pair->to_a, "lost_messages"), 0));
    joined_close(&joined);
    free(stream);
}

Test(reconnect, tcp_goes_on) { check_stream(LINK_TCP, DRIVE_POLLING, false); }
Test(reconnect, shared_memory_goes_on)
{
    check_stream(LINK_SHM, DRIVE_POLLING, false);
}
Test(reconnect, unix_goes_on) { check_stream(LINK_UNIX, DRIVE_POLLING, false); }
Test(reconnect, goes_on_by_descriptor)
{
    check_stream(LINK_TCP, DRIVE_FD, false);
}
Test(reconnect, goes_on_by_thread)
{
    check_stream(LINK_SHM, DRIVE_THREAD, false);
}
Test(reconnect, refuses_once) { check_stream(LINK_TCP, DRIVE_POLLING, true); }
Test(reconnect, refuses_once_by_shared_memory)
{
    check_stream(LINK_SHM, DRIVE_POLLING, true);
}

/* Messages that are not acknowledged arrive once at most. */
typedef struct {
    joined_t joined;
    uint64_t sent, taken, lost, next_cut;
    int64_t latest;
    bool cutting; /* until it is known */
    tmsg_request_t *last;
} loose_t;

#define LOOSE 400
#define LOOSE_BYTES 60000

static void on_lost(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                    uint32_t sequence, tmsg_status_t status, const char *error)
{
    loose_t *loose = arg;

    (void)channel;
    must_true(endpoint == loose->joined.pair.to_b);
    must_be(status, TMSG_ERR_PEER_LOST);
    must_say(error, "when the connection broke");
    must_true((int64_t)sequence > loose->latest);
    loose->latest = sequence;
    loose->lost++;
}

static void take_loose(void *arg, tmsg_message_t *message)
{
    loose_t *loose = arg;
    int64_t i;

    must(tmsg_map_get_i64(tmsg_message_map(message), "i", &i));
    must_true(i > loose->latest);
    loose->latest = i;
    loose->taken++;
    tmsg_message_destroy(message);
}

static tmsg_map_t *numbered(uint64_t i)
{
    tmsg_map_t *map = sample_bytes(i, i % 5 == 4 ? LOOSE_BYTES : 100);

    must(tmsg_map_set_i64(map, "i", (int64_t)i));
    return map;
}

static bool loose_is_over(void *arg)
{
    loose_t *loose = arg;
    tmsg_endpoint_t *to_a = loose->joined.pair.to_a;
    uint64_t turns = loose->taken + loose->lost;

    if (turns >= loose->next_cut && turns < LOOSE / 2) {
        relay_cut(loose->joined.relay);
        loose->next_cut = turns + 25;
        loose->cutting = true;
    }
    loose->cutting = loose->cutting && !joined_is_away(to_a);
    while (!loose->cutting && loose->sent < LOOSE &&
           loose->sent - turns < WINDOW) {
        tmsg_request_destroy(send_map(to_a, numbered(loose->sent++), 0));
    }
    if (loose->sent == LOOSE && loose->last == NULL) {
        loose->last = send_map(to_a, numbered(LOOSE), TMSG_SEND_ACKED);
    }
    return loose->last != NULL &&
           tmsg_request_test(loose->last) != TMSG_IN_PROGRESS;
}

static void check_loose(link_t link)
{
    loose_t loose = {.latest = -1, .next_cut = 10};
    const how_t how = {.link = link,
                       .a.worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER |
                                                  TMSG_WORKER_PARAM_ON_REFUSED,
                                    .handler = take_loose,
                                    .handler_arg = &loose,
                                    .on_refused = on_lost,
                                    .on_refused_arg = &loose}};

    joined_open(&loose.joined, &how);
    pair_await(&loose.joined.pair, loose_is_over, &loose, "the last message");
    must(pair_finish(&loose.joined.pair, loose.last));
    cr_expect(eq(u64, loose.taken + loose.lost, LOOSE + 1));
    cr_expect(eq(i64, loose.latest, LOOSE));
    cr_expect(eq(long, described(loose.joined.pair.to_b, "lost_messages"),
                 (long)loose.lost));
    cr_expect(ge(long, described(loose.joined.pair.to_a, "reconnected"), 3));
    joined_close(&loose.joined);
}

Test(reconnect, unacknowledged_come_once_at_most) { check_loose(LINK_TCP); }
Test(reconnect, unacknowledged_by_shared_memory) { check_loose(LINK_SHM); }

static bool is_second_attempt(void *arg)
{
    return strstr(tmsg_endpoint_error(arg), "attempt 2") != NULL;
}

Test(reconnect, says_so_while_it_is_away)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_request_t *ready;
    joined_t joined;

    joined_open(&joined, &how);
    cr_expect(eq(long, described(joined.pair.to_a, "reconnects"), 1));
    joined_break(&joined);
    pair_await(&joined.pair, is_second_attempt, joined.pair.to_a, "attempts");
    must_say(tmsg_endpoint_error(joined.pair.to_a), "tcp://127.0.0.1:");
    must_say(tmsg_endpoint_error(joined.pair.to_a), ": reconnecting, attempt");
    must_say(tmsg_endpoint_error(joined.pair.to_a),
             "; why the connection broke: ");
    must_say(tmsg_endpoint_error(joined.pair.to_a), "the connection broke");
    must_say(tmsg_endpoint_error(joined.pair.to_a), "; the last attempt: ");
    must_say(tmsg_endpoint_error(joined.pair.to_b), /* UCX may tell it first */
             "waiting for it to come back: ");
    must(tmsg_endpoint_ready(joined.pair.to_a, &ready));
    cr_expect(eq(int, tmsg_request_test(ready), TMSG_IN_PROGRESS));
    joined_mend(&joined);
    must(pair_finish(&joined.pair, ready));
    cr_expect_str_eq(tmsg_endpoint_error(joined.pair.to_a), "");
    cr_expect_str_eq(tmsg_endpoint_error(joined.pair.to_b), "");
    joined_close(&joined);
}

static bool has_got_three(void *endpoint)
{
    return described(endpoint, "received_messages") == 3;
}

/* What waits, and what the peer has and has not taken, when it breaks. */
Test(reconnect, keeps_what_was_not_taken_yet)
{
    const how_t how = {.link = LINK_SHM};
    tmsg_request_t *sent[6];
    tmsg_message_t *message;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    for (uint64_t i = 0; i < 3; i++) {
        sent[i] = send_map(pair->to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
    }
    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent[0]));
    pair_await(pair, has_got_three, pair->to_b, "the two behind it");
    joined_break(&joined);
    for (uint64_t i = 3; i < 6; i++) {
        sent[i] = send_map(pair->to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
    }
    /* One is taken while the connection is away, which the sender hears. */
    must(tmsg_worker_recv(pair->a.worker, 0, &message));
    sample_check_bytes(1, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    cr_expect(eq(long, described(pair->to_a, "waiting_messages"), 3));
    joined_mend(&joined);
    must(pair_finish(pair, sent[1]));
    cr_expect(eq(int, tmsg_request_test(sent[2]), TMSG_IN_PROGRESS));
    for (uint64_t i = 2; i < 6; i++) {
        message = pair_take(pair, &pair->a);
        sample_check_bytes(i, 100, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(pair, sent[i]));
    }
    joined_close(&joined);
}

static bool freed(void *arg) { return *(bool *)arg; }
static void release_data(void *arg) { *(bool *)arg = true; }

static tmsg_map_t *borrowed_map(bool *is_free)
{
    static uint8_t bytes[64];
    const int64_t shape[] = {64};
    const tmsg_tensor_t tensor = {.data = bytes,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .ndim = 1,
                                  .shape = shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = release_data,
                                          .release_arg = is_free};
    tmsg_map_t *map;

    *is_free = false;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, &params));
    return map;
}

Test(reconnect, borrows_data_until_it_is_confirmed)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_request_t *sent;
    joined_t joined;
    bool is_free;

    joined_open(&joined, &how);
    sent = send_map(joined.pair.to_a, borrowed_map(&is_free), TMSG_SEND_ACKED);
    joined_break(&joined);
    cr_expect_not(is_free);
    joined_mend(&joined);
    tmsg_message_destroy(pair_take(&joined.pair, &joined.pair.a));
    must(pair_finish(&joined.pair, sent));
    pair_await(&joined.pair, freed, &is_free, "the end of the map");
    joined_close(&joined);
}

/* The same names and shapes by number, before and after. */
Test(reconnect, schemas_begin_anew)
{
    const how_t how = {.link = LINK_TCP};
    long by_schema;
    joined_t joined;

    joined_open(&joined, &how);
    for (int i = 0; i < 40; i++) {
        tmsg_request_t *sent =
            send_map(joined.pair.to_a, sample_bytes(7, 500), TMSG_SEND_ACKED);

        if (i == 20) {
            by_schema = described(joined.pair.to_a, "sent_by_schema");
            cr_expect(ge(long, by_schema, 15));
            joined_break(&joined);
            joined_mend(&joined);
        }
        tmsg_message_destroy(pair_take(&joined.pair, &joined.pair.a));
        must(pair_finish(&joined.pair, sent));
    }
    cr_expect(ge(long, described(joined.pair.to_a, "sent_by_schema"), 30));
    cr_expect(eq(long, described(joined.pair.to_a, "reconnected"), 1));
    joined_close(&joined);
}

enum { UNTAKEN = 3 };

static bool all_wait(void *arg)
{
    return tmsg_endpoint_waiting(arg) == UNTAKEN;
}

/* The answers cannot be sent: the sender hears of it when the session goes
 * on. */
Test(reconnect, tells_what_was_discarded_while_it_was_away)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_request_t *sent[UNTAKEN];
    joined_t joined;

    joined_open(&joined, &how);
    for (uint64_t i = 0; i < UNTAKEN; i++) {
        sent[i] =
            send_map(joined.pair.to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
    }
    pair_await(&joined.pair, all_wait, joined.pair.to_b, "the messages");
    joined_break(&joined);
    must(tmsg_endpoint_discard(joined.pair.to_b));
    joined_mend(&joined);
    for (int i = 0; i < UNTAKEN; i++) {
        must_be(pair_finish(&joined.pair, sent[i]), TMSG_ERR_REFUSED);
    }
    joined_close(&joined);
}
