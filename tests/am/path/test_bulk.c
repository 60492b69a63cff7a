/* SPDX-License-Identifier: BSD-3-Clause */
/* The bulk stream over TCP: which payloads go by it, which do not, and how it
 * is made and ends. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/connect/link.h"
#include "am/endpoint/endpoint.h"
#include "am/listen/listener.h"
#include "am/path/bulk_tcp.h"
#include "am/recv/message.h"
#include "am/worker/budget.h"
#include "am/worker/worker.h"
#include "core/bytes.h"
#include "support/channels.h"
#include "support/forged_messages.h"
#include "support/large_messages.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define LARGE ((size_t)3 << 20)
#define HUGE ((size_t)48 << 20)
/* Twice the most that is asked for ahead, and more. */
#define GIANT ((size_t)144 << 20)
#define CLAIM_BYTES 36

static bool both_stand(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_bulk_sends(pair->to_a) && tmsg_bulk_sends(pair->to_b);
}

static void open_bulk(pair_t *pair, drive_t drive, const side_options_t *a,
                      const side_options_t *b)
{
    pair_open(pair, LINK_TCP, drive, a, b);
    pair_await(pair, both_stand, pair, "a bulk stream");
}

static uint64_t by_bulk(const tmsg_endpoint_t *endpoint)
{
    return endpoint->stats.sent_by_bulk;
}

static void carry(drive_t drive)
{
    pair_t pair;

    open_bulk(&pair, drive, NULL, NULL);
    large_exchange(&pair);
    cr_expect(eq(u64, by_bulk(pair.to_a), LARGE_MESSAGES));
    cr_expect(eq(u64, by_bulk(pair.to_b), LARGE_MESSAGES));
    cr_expect(eq(u64, pair.to_a->stats.received_by_bulk, LARGE_MESSAGES));
    pair_close(&pair);
}

Test(bulk, carries_what_is_large) { carry(DRIVE_POLLING); }
Test(bulk, carries_by_descriptor) { carry(DRIVE_FD); }
Test(bulk, carries_by_thread) { carry(DRIVE_THREAD); }

Test(bulk, does_not_carry_what_is_small_or_asked_for)
{
    static const struct {
        size_t bytes;
        int32_t way, protocol;
    } rows[] = {
        {64, TMSG_WAY_AUTO, TMSG_PROTOCOL_AUTO},
        {200 << 10, TMSG_WAY_AUTO, TMSG_PROTOCOL_AUTO},
        {LARGE, TMSG_WAY_FRAGMENTS, TMSG_PROTOCOL_AUTO},
        {LARGE, TMSG_WAY_SCATTER, TMSG_PROTOCOL_AUTO},
        {LARGE, TMSG_WAY_AUTO, TMSG_PROTOCOL_EAGER},
        {LARGE, TMSG_WAY_AUTO, TMSG_PROTOCOL_RNDV},
    };
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                           .way = rows[i].way,
                                           .protocol = rows[i].protocol};
        tmsg_map_t *map = sample_bytes(i, rows[i].bytes);
        tmsg_request_t *sent;

        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
        tmsg_map_destroy(map);
        large_take(&pair, &pair.a, i, rows[i].bytes);
        must(pair_finish(&pair, sent));
        cr_expect(eq(u64, by_bulk(pair.to_a), 0), "row %zu", i);
    }
    pair_close(&pair);
}

static void go_without(link_t link)
{
    pair_t pair;
    tmsg_request_t *sent;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), 0);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(zero(ptr, pair.to_a->paths.bulk));
    cr_expect(zero(ptr, pair.to_b->paths.bulk));
    cr_expect(eq(u64, by_bulk(pair.to_a), 0));
    pair_close(&pair);
}

Test(bulk, is_none_by_blob) { go_without(LINK_BLOB); }

static bool explains(void *arg)
{
    return strncmp(tmsg_bulk_words(arg), "none: ", 6) == 0;
}

/* The listener is gone before its peer has dialled once more. */
Test(bulk, is_none_without_a_listener)
{
    pair_t pair;
    tmsg_request_t *sent;
    char *json;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    tmsg_listener_destroy(pair.a.listener);
    pair.a.listener = NULL;
    pair_await(&pair, explains, pair.to_a, "why there is no bulk stream");
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    must(tmsg_endpoint_describe(pair.to_a, &json));
    cr_expect(ne(ptr, strstr(json, "\"bulk\":\t\"none: "), NULL), "%s", json);
    tmsg_string_free(json);
    pair_close(&pair);
}

/* The listener counts peers, and no bulk streams. */
Test(bulk, is_no_peer_of_its_listener)
{
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(u64, pair.a.listener->accepted, 1));
    cr_expect(eq(u64, pair.a.listener->connected, 1));
    cr_expect(eq(u64, pair.a.listener->turned[TMSG_TURNED_OTHERWISE], 0));
    cr_expect(eq(uint, pair.a.accepts, 1));
    pair_close(&pair);
}

static tmsg_log_level_t bulk_level; /* of the line that tells of it */

static void note_bulk(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    if (strstr(line, "this connection is now the bulk stream of ") != NULL) {
        bulk_level = level;
    }
}

Test(bulk, is_no_news)
{
    pair_t pair;

    tmsg_log_set(TMSG_LOG_DEBUG, note_bulk, NULL);
    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    cr_expect(eq(int, (int)bulk_level, TMSG_LOG_DEBUG));
    pair_close(&pair);
}

/* Drives the sender until it has written so many bytes to the bulk stream. */
static void write_until(const pair_t *pair, uint64_t bytes)
{
    while (pair->to_a->paths.bulk->written < bytes) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

Test(bulk, small_messages_pass)
{
    pair_t pair;
    tmsg_request_t *large;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    large = send_on(pair.to_a, 0, sample_bytes(1, HUGE), 0);
    write_until(&pair, 1 << 20);
    large_is_passed(&pair, large, HUGE, 100);
    pair_close(&pair);
}

/* The message on channel 1 passes most of the message on channel 0. */
Test(bulk, channels_take_turns)
{
    pair_t pair;
    tmsg_request_t *first;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    first = send_on(pair.to_a, 0, sample_bytes(1, HUGE), 0);
    large_is_passed(&pair, first, HUGE, LARGE);
    pair_close(&pair);
}

/* The messages of a channel come in order, whatever way each took. */
Test(bulk, order_is_that_of_sending)
{
    static const size_t sizes[] = {LARGE, 64, 400000, 5 << 20, 1, 100000};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    tmsg_request_t *sent[COUNT];
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        sent[i] =
            send_on(pair.to_a, 0, sample_bytes(i, sizes[i]), TMSG_SEND_ACKED);
    }
    for (size_t i = 0; i < COUNT; i++) {
        large_take(&pair, &pair.a, i, sizes[i]);
        must(pair_finish(&pair, sent[i]));
    }
    cr_expect(eq(u64, by_bulk(pair.to_a), 3));
    pair_close(&pair);
}

static void refuse_first(void *arg, tmsg_incoming_t *incoming)
{
    int *count = arg;

    if ((*count)++ == 0) {
        tmsg_incoming_refuse(incoming, TMSG_ERR_REFUSED, "not the first");
    }
}

Test(bulk, a_refused_message_is_not_pulled)
{
    int count = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = refuse_first,
                   .on_header_arg = &count}};
    tmsg_request_t *refused, *taken;
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, &options, NULL);
    refused = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    taken = send_on(pair.to_a, 0, sample_bytes(2, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 2, LARGE);
    cr_expect(eq(int, pair_finish(&pair, refused), TMSG_ERR_REFUSED));
    must(pair_finish(&pair, taken));
    cr_expect(lt(u64, pair.to_a->paths.bulk->written, 2 * LARGE));
    pair_close(&pair);
}

static bool has_begun(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->paths.bulk->written > 0;
}

/* Cancels a message before the receiver has memory for it, and halfway. */
Test(bulk, a_canceled_message_harms_no_other)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = HUGE + LARGE}};
    tmsg_request_t *held, *waiting, *amid;
    tmsg_message_t *message;
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, &options, NULL);
    held = send_on(pair.to_a, 0, sample_bytes(1, 2 * LARGE), TMSG_SEND_ACKED);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, held));
    waiting = send_on(pair.to_a, 0, sample_bytes(2, HUGE), TMSG_SEND_ACKED);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    tmsg_request_cancel(waiting);
    cr_expect(eq(int, pair_finish(&pair, waiting), TMSG_ERR_CANCELED));
    tmsg_message_destroy(message);

    pair.to_a->paths.bulk->written = 0;
    amid = send_on(pair.to_a, 0, sample_bytes(3, HUGE), TMSG_SEND_ACKED);
    pair_await(&pair, has_begun, &pair, "its beginning");
    tmsg_request_cancel(amid);
    cr_expect(eq(int, pair_finish(&pair, amid), TMSG_ERR_CANCELED));
    held = send_on(pair.to_a, 0, sample_bytes(4, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 4, LARGE);
    must(pair_finish(&pair, held));
    pair_close(&pair);
}

static uint64_t held(const side_t *side)
{
    return tmsg_budget_held(side->worker->budget);
}

static void send_giants(pair_t *pair, drive_t drive, tmsg_request_t **first_p,
                        tmsg_request_t **second_p)
{
    open_bulk(pair, drive, NULL, NULL);
    *first_p = send_on(pair->to_a, 0, sample_bytes(1, GIANT), TMSG_SEND_ACKED);
    *second_p = send_on(pair->to_a, 0, sample_bytes(2, GIANT), TMSG_SEND_ACKED);
    pair_await(pair, has_begun, pair, "its beginning");
}

/* Messages that wait for their turn hold no memory. */
Test(bulk, memory_is_taken_when_its_turn_is_near)
{
    tmsg_request_t *first, *second;
    uint64_t ahead;
    pair_t pair;

    send_giants(&pair, DRIVE_POLLING, &first, &second);
    ahead = tmsg_bulk_ahead(pair.to_b);
    cr_assert(ge(u64, ahead, 4 * MIB));
    cr_assert(le(u64, ahead, 64 * MIB));
    while (pair.to_a->paths.bulk->written < GIANT - ahead) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
        cr_assert(lt(u64, held(&pair.a), GIANT + LARGE));
    }
    while (held(&pair.a) < 2 * GIANT - LARGE) { /* and in time */
        cr_assert(eq(u64, pair.to_b->stats.received_messages, 0));
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    large_take(&pair, &pair.a, 1, GIANT);
    large_take(&pair, &pair.a, 2, GIANT);
    must(pair_finish(&pair, first));
    must(pair_finish(&pair, second));
    pair_close(&pair);
}

Test(bulk, a_message_before_that_is_canceled_holds_none_up)
{
    tmsg_request_t *first, *second;
    pair_t pair;

    send_giants(&pair, DRIVE_FD, &first, &second);
    tmsg_request_cancel(first);
    large_take(&pair, &pair.a, 2, GIANT);
    cr_expect(eq(int, pair_finish(&pair, first), TMSG_ERR_CANCELED));
    must(pair_finish(&pair, second));
    pair_close(&pair);
}

Test(bulk, a_message_may_be_canceled_before_its_turn)
{
    tmsg_request_t *first, *second;
    pair_t pair;

    send_giants(&pair, DRIVE_POLLING, &first, &second);
    tmsg_request_cancel(second);
    cr_expect(eq(int, pair_finish(&pair, second), TMSG_ERR_CANCELED));
    large_take(&pair, &pair.a, 1, GIANT);
    must(pair_finish(&pair, first));
    second = send_on(pair.to_a, 0, sample_bytes(3, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 3, LARGE);
    must(pair_finish(&pair, second));
    pair_close(&pair);
}

/* A message that comes by UCX does not take the memory of an earlier one that
 * still waits for its turn on the bulk stream. */
Test(bulk, order_is_that_of_memory)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = GIANT + (64 << 10)}};
    tmsg_request_t *sent[3];
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, &options, NULL);
    sent[0] = send_on(pair.to_a, 0, sample_bytes(1, GIANT), TMSG_SEND_ACKED);
    sent[1] = send_on(pair.to_a, 0, sample_bytes(2, GIANT), TMSG_SEND_ACKED);
    sent[2] = send_on(pair.to_a, 0, sample_bytes(3, 200000), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, GIANT);
    large_take(&pair, &pair.a, 2, GIANT);
    large_take(&pair, &pair.a, 3, 200000);
    for (size_t i = 0; i < 3; i++) {
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

/* The connection ends while one message is under way and another waits for it.
 */
Test(bulk, ends_with_messages_that_wait_for_their_turn)
{
    tmsg_request_t *first, *second;
    pair_t pair;

    send_giants(&pair, DRIVE_POLLING, &first, &second);
    must(tmsg_endpoint_abort(pair.to_b, TMSG_ERR_CANCELED, "enough"));
    cr_expect(eq(int, pair_finish(&pair, first), TMSG_ERR_CANCELED));
    cr_expect(eq(int, pair_finish(&pair, second), TMSG_ERR_CANCELED));
    cr_expect(eq(u64, held(&pair.a), 0));
    pair_drop(&pair);
}

/* The bulk stream breaks: both sides hear of it, and the messages under way end
 * with that error. */
static void break_bulk(pair_t *pair, tmsg_endpoint_t *whose)
{
    tmsg_request_t *sent =
        send_on(pair->to_a, 0, sample_bytes(1, HUGE), TMSG_SEND_ACKED);

    pair_await(pair, has_begun, pair, "its beginning");
    shutdown(tmsg_bulk_tcp_of(whose->paths.bulk)->claim.fd, SHUT_RDWR);
    cr_expect(eq(int, pair_finish(pair, sent), TMSG_ERR_PEER_LOST));
    cr_expect(eq(int, pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST));
    cr_expect(eq(int, pair_end_of(pair, pair->to_b), TMSG_ERR_PEER_LOST));
    cr_expect(ne(ptr,
                 strstr(tmsg_endpoint_error(whose),
                        "the connection for large payloads is lost"),
                 NULL),
              "%s", tmsg_endpoint_error(whose));
}

Test(bulk, ends_the_connection_where_it_breaks_at_its_sender)
{
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    break_bulk(&pair, pair.to_a);
    pair_drop(&pair);
}

Test(bulk, ends_the_connection_where_it_breaks_at_its_receiver)
{
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    break_bulk(&pair, pair.to_b);
    pair_drop(&pair);
}

/* Sends bytes as a fragment, with a header that says what it is of. */
static void send_fragment(pair_t *pair, uint16_t channel, uint32_t sequence,
                          uint32_t number, uint64_t says, size_t bytes)
{
    forged_t forged = {.way = BY_BULK,
                       .header_bytes = TMSG_BULK_HEADER_BYTES,
                       .payload_bytes = bytes};

    tmsg_put_le(forged.header, channel, 2);
    tmsg_put_le(forged.header + 4, sequence, 4);
    tmsg_put_le(forged.header + 8, number, 4);
    tmsg_put_le(forged.header + 16, says, 8);
    forged_put(pair, &forged);
}

/* Fragments of no message that waits for them are thrown away; impossible ones
 * end the connection. */
Test(bulk, lies_end_the_connection_and_no_more)
{
    static const struct {
        uint16_t channel;
        uint32_t sequence, number;
        uint64_t bytes;
        tmsg_status_t status; /* OK: it is thrown away */
    } rows[] = {
        {0, 0, 0, 0, TMSG_ERR_MALFORMED},
        {0, 0, 0, UINT64_MAX, TMSG_ERR_MALFORMED},
        {0, 7, 0, 100, TMSG_OK},
        {900, 0, 0, 100, TMSG_OK},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_request_t *sent;
        pair_t pair;

        open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
        send_fragment(&pair, rows[i].channel, rows[i].sequence, rows[i].number,
                      rows[i].bytes, 100);
        if (rows[i].status == TMSG_OK) {
            sent =
                send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
            large_take(&pair, &pair.a, 1, LARGE);
            must(pair_finish(&pair, sent));
            pair_close(&pair);
            continue;
        }
        cr_expect(eq(int, pair_end_of(&pair, pair.to_b), rows[i].status),
                  "row %zu", i);
        pair_drop(&pair);
    }
}

static bool are_without(void *arg)
{
    const pair_t *pair = arg;

    return strncmp(tmsg_bulk_words(pair->to_a), "none: ", 6) == 0 &&
           strncmp(tmsg_bulk_words(pair->to_b), "none: ", 6) == 0;
}

/* One side has the bulk stream already, and the other never hears of it. */
Test(bulk, that_ends_before_both_have_it_costs_no_connection)
{
    uint8_t answer[64];
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    while (!tmsg_bulk_sends(pair.to_b)) {
        if (pair.to_a->paths.bulk == NULL ||
            !tmsg_bulk_tcp_of(pair.to_a->paths.bulk)->claim.connected) {
            tmsg_worker_progress(pair.b.worker);
        }
        tmsg_worker_progress(pair.a.worker);
    }
    must_true(!tmsg_bulk_sends(pair.to_a));
    tmsg_worker_progress(pair.a.worker); /* its answer goes */
    must_true(recv(tmsg_bulk_tcp_of(pair.to_a->paths.bulk)->claim.fd, answer,
                   sizeof(answer), 0) > 0);
    shutdown(tmsg_bulk_tcp_of(pair.to_a->paths.bulk)->claim.fd, SHUT_RDWR);
    pair_await(&pair, are_without, &pair, "their going without");
    for (int i = 0; i < 2; i++) {
        tmsg_request_t *there =
            send_on(pair.to_a, 0, sample_bytes(1, LARGE), 0);
        tmsg_request_t *back = send_on(pair.to_b, 0, sample_bytes(2, LARGE), 0);

        large_take(&pair, &pair.a, 1, LARGE);
        large_take(&pair, &pair.b, 2, LARGE);
        must(pair_finish(&pair, there));
        must(pair_finish(&pair, back));
    }
    cr_expect(eq(u64, by_bulk(pair.to_a) + by_bulk(pair.to_b), 0));
    pair_close(&pair);
}

static bool waits(void *arg)
{
    const pair_t *pair = arg;
    const tmsg_message_t *message = pair->to_b->channels.zero.rx;

    return message != NULL && message->by_bulk;
}

/* Forges fragments of a message that waits: a number that it does not have,
 * another length, one that came before. The sender stands still meanwhile. */
Test(bulk, fragments_that_their_message_does_not_have_end_the_connection)
{
    static const struct {
        uint32_t number;
        uint64_t bytes;
        const char *words;
    } rows[] = {{1, 300000, "does not have"},
                {UINT32_MAX, 300000, "does not have"},
                {0, 299999, "of another length"},
                {0, 300001, "of another length"},
                {0, 1 << 20, "of another length"}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pair_t pair;

        open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
        tmsg_request_destroy(send_on(pair.to_a, 0, sample_bytes(1, 300000), 0));
        while (!waits(&pair)) {
            tmsg_worker_progress(pair.a.worker);
        }
        send_fragment(&pair, 0, pair.to_b->channels.zero.rx->head.sequence,
                      rows[i].number, rows[i].bytes, 0);
        while (tmsg_endpoint_status(pair.to_b) == TMSG_OK) {
            tmsg_worker_progress(pair.a.worker);
        }
        cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_ERR_MALFORMED),
                  "row %zu", i);
        cr_expect(ne(ptr, strstr(tmsg_endpoint_error(pair.to_b), rows[i].words),
                     NULL),
                  "row %zu: %s", i, tmsg_endpoint_error(pair.to_b));
        pair_drop(&pair);
    }
}

Test(bulk, a_fragment_that_comes_twice_ends_the_connection)
{
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(
        send_on(pair.to_a, 0, sample_bytes(1, (1 << 20) + 5), 0));
    while (!waits(&pair)) {
        tmsg_worker_progress(pair.a.worker);
    }
    send_fragment(&pair, 0, pair.to_b->channels.zero.rx->head.sequence, 1, 5,
                  5);
    send_fragment(&pair, 0, pair.to_b->channels.zero.rx->head.sequence, 1, 5,
                  5);
    while (tmsg_endpoint_status(pair.to_b) == TMSG_OK) {
        tmsg_worker_progress(pair.a.worker);
    }
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

/* Sends the frame BULK with these bytes; the listener hangs up without a word.
 */
static void claim(pair_t *pair, const uint8_t *data, size_t bytes)
{
    raw_reader_t reader = {.fd = raw_dial(tmsg_listener_url(pair->a.listener))};

    raw_send_magic(reader.fd);
    raw_send_frame(reader.fd, TMSG_FRAME_BULK, data, bytes);
    pair_await(pair, raw_closed, &reader, "the end of a false bulk stream");
    cr_expect(raw_find_frame(&reader, TMSG_FRAME_BULK, 0) == NULL);
    close(reader.fd);
}

static bool is_answered(void *reader)
{
    return raw_closed(reader) ||
           raw_find_frame(reader, TMSG_FRAME_BULK, 0) != NULL;
}

/* Claims to be a further subflow, which may be. */
static void claim_subflow(pair_t *pair, const uint8_t *data,
                          raw_reader_t *reader)
{
    *reader =
        (raw_reader_t){.fd = raw_dial(tmsg_listener_url(pair->a.listener))};
    raw_send_magic(reader->fd);
    raw_send_frame(reader->fd, TMSG_FRAME_BULK, data, CLAIM_BYTES);
    pair_await(pair, is_answered, reader, "the answer to a subflow");
    cr_assert(raw_find_frame(reader, TMSG_FRAME_BULK, 0) != NULL);
}

static bool has_one_subflow(void *endpoint)
{
    return tmsg_bulk_subflows(endpoint) == 1;
}

static void prove(const pair_t *pair, uint8_t *data)
{
    uint8_t said[4 + TMSG_TOKEN_BYTES];

    tmsg_put_le(said, pair->to_b->id, 4);
    memcpy(said + 4, pair->to_b->token, TMSG_TOKEN_BYTES);
    tmsg_put_le(data, pair->to_b->id, 4);
    tmsg_proof_claim(TMSG_CLAIMS_BULK, NULL, said, sizeof(said), data + 4);
}

Test(bulk, claims_of_strangers_are_turned_away)
{
    raw_reader_t further[TMSG_BULK_SUBFLOWS_MOST - 1];
    uint8_t data[CLAIM_BYTES + 1] = {0};
    tmsg_request_t *sent;
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, NULL, NULL);
    claim(&pair, data, CLAIM_BYTES);     /* of no endpoint */
    claim(&pair, data, CLAIM_BYTES - 1); /* too short */
    claim(&pair, data, CLAIM_BYTES + 1); /* too long */
    claim(&pair, data, 0);
    prove(&pair, data);
    pair.to_b->peer_hello.features &= ~TMSG_FEATURE_SUBFLOWS;
    claim(&pair, data, CLAIM_BYTES); /* right, of a peer that knows of one */
    pair.to_b->peer_hello.features |= TMSG_FEATURE_SUBFLOWS;
    for (size_t i = 0; i < TMSG_BULK_SUBFLOWS_MOST - 1; i++) {
        claim_subflow(&pair, data, &further[i]);
        cr_expect(eq(int, (int)tmsg_bulk_subflows(pair.to_b), (int)i + 2));
    }
    claim(&pair, data, CLAIM_BYTES); /* right, and that has enough */
    tmsg_bulk_give_up(pair.to_b->paths.bulk->next, "it is silent");
    cr_expect(eq(int, (int)tmsg_bulk_subflows(pair.to_b),
                 TMSG_BULK_SUBFLOWS_MOST - 1)); /* the others go on */
    for (size_t i = 0; i < TMSG_BULK_SUBFLOWS_MOST - 1; i++) {
        close(further[i].fd); /* nothing went by it */
    }
    pair_await(&pair, has_one_subflow, pair.to_b, "their end");
    claim(&pair, data, CLAIM_BYTES); /* nor is one made in their place */
    tmsg_bulk_end(pair.to_b);
    data[10] ^= 1;
    claim(&pair, data, CLAIM_BYTES); /* wrong */
    cr_expect(zero(ptr, pair.to_b->paths.bulk));
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_OK));
    sent = send_on(pair.to_b, 0, sample_bytes(1, LARGE), 0);
    large_take(&pair, &pair.b, 1, LARGE);
    must(pair_finish(&pair, sent));
    pair_drop(&pair);
}

/* With keys the proof needs the key of the frames, too: a stranger who has seen
 * the token go by cannot make one. */
Test(bulk, keys_are_proved_there)
{
    side_options_t options = {.keyring = ring("farm", 1)};
    uint8_t data[CLAIM_BYTES];
    tmsg_request_t *sent;
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, &options, &options);
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, by_bulk(pair.to_a), 1));
    tmsg_bulk_end(pair.to_b);
    prove(&pair, data);
    claim(&pair, data, CLAIM_BYTES);
    cr_expect(zero(ptr, pair.to_b->paths.bulk));
    pair_drop(&pair);
    tmsg_keyring_destroy(options.keyring);
}

static void count_message(void *arg, tmsg_message_t *message)
{
    unsigned *count = arg;

    (*count)++;
    tmsg_message_destroy(message);
}

/* One call of progress() for each wake-up of the descriptor, as worker.h says:
 * however the bytes come, nothing is left that does not wake it again. */
Test(bulk, wakes_who_progresses_once_and_sleeps)
{
    static const size_t sizes[] = {5 * LARGE, 5 * LARGE, 5 * LARGE,
                                   300000,    1 << 20,   (1 << 20) + 5,
                                   LARGE,     1 << 20,   1 << 20};
    unsigned count = 0, still;
    const side_options_t options = {
        .quiet = true,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = count_message,
                   .handler_arg = &count}};
    const side_options_t quiet = {.quiet = true};
    struct pollfd awake = {.events = POLLIN};
    pair_t pair;

    open_bulk(&pair, DRIVE_POLLING, &options, &quiet);
    awake.fd = tmsg_worker_fd(pair.a.worker);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tmsg_request_t *sent =
            send_on(pair.to_a, 0, sample_bytes(i, sizes[i]), 0);

        still = 0;
        while (count == i) {
            for (int j = 0; j < 30; j++) { /* as much as the window takes */
                tmsg_worker_progress(pair.b.worker);
            }
            if (tmsg_worker_arm(pair.a.worker) == TMSG_OK &&
                poll(&awake, 1, 0) == 0) {
                must_true(++still < 3000);
                continue;
            }
            still = 0;
            tmsg_worker_progress(pair.a.worker);
        }
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

static bool joined_stands(void *arg)
{
    joined_t *joined = arg;

    return both_stand(&joined->pair);
}

/* A session gets another bulk stream with each of its connections, and messages
 * that were under way go again: they arrive whole, once and in order. */
Test(bulk, comes_back_with_a_session)
{
    tmsg_request_t *sent[6];
    joined_t joined;

    joined_open(&joined, &(how_t){.link = LINK_TCP});
    for (size_t round = 0; round < 3; round++) {
        pair_await(&joined.pair, joined_stands, &joined, "a bulk stream");
        for (size_t i = 0; i < 6; i++) {
            sent[i] = send_on(joined.pair.to_a, 0,
                              sample_bytes(10 * round + i, 4 * LARGE),
                              TMSG_SEND_ACKED);
        }
        pair_await(&joined.pair, has_begun, &joined.pair, "its beginning");
        joined_break(&joined);
        joined_mend(&joined);
        for (size_t i = 0; i < 6; i++) {
            large_take(&joined.pair, &joined.pair.a, 10 * round + i, 4 * LARGE);
            must(pair_finish(&joined.pair, sent[i]));
        }
    }
    joined_close(&joined);
}
