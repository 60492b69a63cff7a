/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of UCX and a stream carries a connection, and what a stream is for
 * those who claim it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/hello.h"
#include "am/boot/proof.h"
#include "am/endpoint/endpoint.h"
#include "am/listen/listener.h"
#include "am/ucx/ucx_pipe.h"
#include "core/bytes.h"
#include "support/breaking_relay.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/numbered_keys.h"
#include "support/own_ports.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define CLAIM_BYTES 36
#define LARGE ((size_t)3 << 20)
#define PART ((size_t)60000)
#define COUNT_MOST 40
#define BRIEF_MS 800 /* how long a peer may be silent */

typedef struct {
    tmsg_carrier_t dialling, listening;
    const char *carrier; /* NULL: they are refused */
} choice_t;

static void opened(void *arg, tmsg_endpoint_t *endpoint)
{
    *(tmsg_endpoint_t **)arg = endpoint;
}

static bool is_there(void *arg) { return *(tmsg_endpoint_t **)arg != NULL; }

static void listen_at(side_t *side, const char *url, tmsg_carrier_t carrier,
                      bool open, tmsg_endpoint_t **endpoint_p)
{
    const tmsg_listener_params_t params = {
        .field_mask =
            TMSG_LISTENER_PARAM_ON_ACCEPT |
            (carrier == TMSG_CARRIER_AUTO ? 0 : TMSG_LISTENER_PARAM_CARRIER) |
            TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .on_accept = opened,
        .on_accept_arg = endpoint_p,
        .allow_unauthenticated = open,
        .carrier = carrier};

    *endpoint_p = NULL;
    must(tmsg_listener_create(side->worker, url, &params, &side->listener));
}

static tmsg_endpoint_t *dial(side_t *side, const char *url,
                             tmsg_carrier_t carrier)
{
    const tmsg_endpoint_params_t params = {
        .field_mask =
            TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT | TMSG_ENDPOINT_PARAM_CARRIER,
        .connect_timeout_ms = PEERS_CONNECT_MS,
        .carrier = carrier};
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    return endpoint;
}

static void open_sides(pair_t *pair, const side_options_t *options)
{
    memset(pair, 0, sizeof(*pair));
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_open(&pair->a, options);
    side_open(&pair->b, options);
}

static void is_carried_by(const tmsg_endpoint_t *endpoint, const char *carrier)
{
    char *json, words[64];

    snprintf(words, sizeof(words), "\"carrier\":\t\"%s\"", carrier);
    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, words);
    tmsg_string_free(json);
}

static void choose(const choice_t *choice, const char *url)
{
    tmsg_request_t *ready, *sent;
    pair_t pair;

    open_sides(&pair, NULL);
    listen_at(&pair.a, url, choice->listening, false, &pair.to_b);
    pair.to_a =
        dial(&pair.b, tmsg_listener_url(pair.a.listener), choice->dialling);
    if (choice->carrier == NULL) {
        must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_INCOMPATIBLE);
        must_say(tmsg_endpoint_error(pair.to_a), "carrier=ucx");
        must_say(tmsg_endpoint_error(pair.to_a), "carrier=stream");
        pair_drop(&pair);
        return;
    }
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    must(pair_finish(&pair, ready));
    pair_await(&pair, is_there, &pair.to_b, "an accepted endpoint");
    is_carried_by(pair.to_a, choice->carrier);
    is_carried_by(pair.to_b, choice->carrier);
    sent = send_map(pair.to_a, sample_bytes(1, 1000), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, 1000);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(carrier, is_what_either_side_asks_for)
{
    static const choice_t choices[] = {
        {TMSG_CARRIER_AUTO, TMSG_CARRIER_AUTO, "ucx"},
        {TMSG_CARRIER_AUTO, TMSG_CARRIER_STREAM, "stream"},
        {TMSG_CARRIER_STREAM, TMSG_CARRIER_AUTO, "stream"},
        {TMSG_CARRIER_STREAM, TMSG_CARRIER_STREAM, "stream"},
        {TMSG_CARRIER_UCX, TMSG_CARRIER_AUTO, "ucx"},
        {TMSG_CARRIER_AUTO, TMSG_CARRIER_UCX, "ucx"},
        {TMSG_CARRIER_UCX, TMSG_CARRIER_STREAM, NULL},
        {TMSG_CARRIER_STREAM, TMSG_CARRIER_UCX, NULL},
    };
    char url[128];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("choice"));
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        choose(&choices[i], "tcp://127.0.0.1:0");
        choose(&choices[i], url);
    }
}

Test(carrier, cannot_be_had_for_everything)
{
    tmsg_endpoint_params_t params = {.field_mask = TMSG_ENDPOINT_PARAM_CARRIER,
                                     .carrier = TMSG_CARRIER_STREAM};
    tmsg_listener_params_t listening = {.field_mask =
                                            TMSG_LISTENER_PARAM_CARRIER,
                                        .carrier = TMSG_CARRIER_STREAM};
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    side_t side;

    side_open(&side, NULL);
    must_be(tmsg_endpoint_connect(side.worker, "ucx://127.0.0.1:9", &params,
                                  &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "cannot be carried by a stream");
    must_be(tmsg_listener_create(side.worker, "blob://", &listening, &listener),
            TMSG_ERR_UNSUPPORTED);
    params.field_mask |= TMSG_ENDPOINT_PARAM_DEVICES;
    params.devices = "lo";
    must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:9", &params,
                                  &endpoint),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "devices are for UCX");
    params.field_mask = TMSG_ENDPOINT_PARAM_CARRIER;
    params.carrier = 3;
    must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:9", &params,
                                  &endpoint),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown carrier 3");
    side_close(&side);
}

static bool has_one_port(void *arg)
{
    (void)arg;
    return count_ports() == 1;
}

/* UCX is never opened by who asks for a stream, and is closed again by who
 * hears that his peer does. */
Test(carrier, opens_no_port_but_the_listeners)
{
    for (int asks = 0; asks < 2; asks++) {
        tmsg_request_t *ready, *sent;
        pair_t pair;

        open_sides(&pair, NULL);
        listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
                  &pair.to_b);
        must_eq(count_ports(), 1);
        pair.to_a = dial(&pair.b, tmsg_listener_url(pair.a.listener),
                         asks ? TMSG_CARRIER_STREAM : TMSG_CARRIER_AUTO);
        must(tmsg_endpoint_ready(pair.to_a, &ready));
        must(pair_finish(&pair, ready));
        sent = send_map(pair.to_a, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
        large_take(&pair, &pair.a, 1, LARGE);
        must(pair_finish(&pair, sent));
        if (asks) {
            must_eq(count_ports(), 1);
            must_true(pair.b.worker->ucx->pipes != NULL &&
                      pair.b.worker->ucx->next == NULL);
        } else {
            pair_await(&pair, has_one_port, NULL, "UCX's port to be closed");
        }
        pair_close(&pair);
    }
}

/* Strangers of other hosts meet no UCX, unless the application says so. */
Test(carrier, is_a_stream_where_strangers_may_come)
{
    static const struct {
        const char *url;
        tmsg_carrier_t carrier;
        bool keys;
        const char *carried;
    } cases[] = {
        {"tcp://0.0.0.0:0", TMSG_CARRIER_AUTO, false, "stream"},
        {"tcp://0.0.0.0:0", TMSG_CARRIER_UCX, false, "ucx"},
        {"tcp://0.0.0.0:0", TMSG_CARRIER_AUTO, true, "ucx"},
        {"tcp://127.0.0.1:0", TMSG_CARRIER_AUTO, false, "ucx"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        side_options_t options = {.keyring =
                                      cases[i].keys ? ring("farm", 1) : NULL};
        tmsg_request_t *ready;
        tmsg_url_t url;
        pair_t pair;
        char at[64];

        open_sides(&pair, &options);
        listen_at(&pair.a, cases[i].url, cases[i].carrier, true, &pair.to_b);
        must(tmsg_url_parse(tmsg_listener_url(pair.a.listener), &url));
        snprintf(at, sizeof(at), "tcp://127.0.0.1:%u", url.port);
        pair.to_a = dial(&pair.b, at, TMSG_CARRIER_AUTO);
        must(tmsg_endpoint_ready(pair.to_a, &ready));
        must(pair_finish(&pair, ready));
        is_carried_by(pair.to_a, cases[i].carried);
        pair_await(&pair, is_there, &pair.to_b, "an accepted endpoint");
        pair_close(&pair);
        tmsg_keyring_destroy(options.keyring);
    }
}

/* A peer of a version before. */
Test(carrier, is_refused_by_name_to_who_does_not_know_it)
{
    raw_reader_t reader = {.fd = -1};
    tmsg_hello_t hello;
    pair_t pair;

    open_sides(&pair, NULL);
    listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
              &pair.to_b);
    reader.fd = raw_dial(tmsg_listener_url(pair.a.listener));
    raw_hello(&hello);
    hello.features &= ~TMSG_FEATURE_CARRIERS;
    raw_send_magic(reader.fd);
    raw_send_hello(reader.fd, &hello);
    pair_await(&pair, raw_closed, &reader, "a refusal");
    must_say(raw_find_frame(&reader, TMSG_FRAME_REFUSE, 4),
             "the peer's version does not know");
    close(reader.fd);
    pair_drop(&pair);
}

/* Half of a dialling side, by hand. */
typedef struct {
    raw_reader_t first, second;
    uint8_t claim[CLAIM_BYTES], address[4 + TMSG_TOKEN_BYTES];
} raw_dialler_t;

static bool has_address(void *arg)
{
    raw_dialler_t *raw = arg;

    must_true(!raw_closed(&raw->first));
    return raw_find_frame(&raw->first, TMSG_FRAME_ADDRESS, 0) != NULL;
}

static bool has_answer(void *arg)
{
    raw_dialler_t *raw = arg;

    must_true(!raw_closed(&raw->second));
    return raw_find_frame(&raw->second, TMSG_FRAME_CARRIER, 0) != NULL;
}

static void begin_raw(pair_t *pair, raw_dialler_t *raw, tmsg_claims_t claims)
{
    const char *url = tmsg_listener_url(pair->a.listener);
    uint8_t said[4 + TMSG_TOKEN_BYTES];
    tmsg_hello_t hello;

    memset(raw, 0, sizeof(*raw));
    raw->first.fd = raw_dial(url);
    raw_hello(&hello);
    hello.features |= TMSG_FEATURE_CARRIERS | TMSG_FEATURE_REPLIES;
    raw_send_magic(raw->first.fd);
    raw_send_hello(raw->first.fd, &hello);
    pair_await(pair, has_address, raw, "an address");
    must_eq(raw_frame_bytes(&raw->first, TMSG_FRAME_ADDRESS), sizeof(said));
    memcpy(said, raw_find_frame(&raw->first, TMSG_FRAME_ADDRESS, 0),
           sizeof(said));
    memcpy(raw->claim, said, 4);
    tmsg_proof_claim(claims, NULL, said, sizeof(said), raw->claim + 4);
    tmsg_put_le(raw->address, 7, 4);
    memcpy(raw->address + 4, said + 4, TMSG_TOKEN_BYTES);
}

static void claim_raw(const pair_t *pair, raw_dialler_t *raw, uint8_t frame,
                      size_t bytes)
{
    raw->second =
        (raw_reader_t){.fd = raw_dial(tmsg_listener_url(pair->a.listener))};
    raw_send_magic(raw->second.fd);
    raw_send_frame(raw->second.fd, frame, raw->claim, bytes);
}

static void turn(pair_t *pair, int turns)
{
    for (int i = 0; i < turns; i++) {
        tmsg_worker_progress(pair->a.worker);
    }
}

/* Two TCP connections keep no order between them. */
Test(carrier, may_be_claimed_before_the_address_comes)
{
    raw_dialler_t raw;
    pair_t pair;

    open_sides(&pair, NULL);
    listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
              &pair.to_b);
    begin_raw(&pair, &raw, TMSG_CLAIMS_CARRIER);
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES);
    turn(&pair, 2000);
    must_true(pair.to_b == NULL);
    raw_send_frame(raw.first.fd, TMSG_FRAME_ADDRESS, raw.address,
                   sizeof(raw.address));
    pair_await(&pair, is_there, &pair.to_b, "an accepted endpoint");
    pair_await(&pair, has_answer, &raw, "the answer to a claim");
    is_carried_by(pair.to_b, "stream");
    close(raw.first.fd);
    close(raw.second.fd);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
    pair_drop(&pair);
}

static void is_turned_away(pair_t *pair, raw_dialler_t *raw)
{
    pair_await(pair, raw_closed, &raw->second, "the end of a false claim");
    must_true(raw_find_frame(&raw->second, TMSG_FRAME_CARRIER, 0) == NULL);
    close(raw->second.fd);
}

Test(carrier, claims_of_strangers_are_turned_away)
{
    raw_dialler_t raw;
    pair_t pair;

    open_sides(&pair, NULL);
    listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
              &pair.to_b);
    begin_raw(&pair, &raw, TMSG_CLAIMS_BULK); /* a proof for something else */
    raw_send_frame(raw.first.fd, TMSG_FRAME_ADDRESS, raw.address,
                   sizeof(raw.address));
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES);
    is_turned_away(&pair, &raw);
    claim_raw(&pair, &raw, TMSG_FRAME_BULK, CLAIM_BYTES); /* not open yet */
    is_turned_away(&pair, &raw);
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES - 1);
    is_turned_away(&pair, &raw);
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, 0);
    is_turned_away(&pair, &raw);
    close(raw.first.fd);

    begin_raw(&pair, &raw, TMSG_CLAIMS_CARRIER);
    raw_send_frame(raw.first.fd, TMSG_FRAME_ADDRESS, raw.address,
                   sizeof(raw.address));
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES);
    pair_await(&pair, is_there, &pair.to_b, "an accepted endpoint");
    pair_await(&pair, has_answer, &raw, "the answer to a claim");
    close(raw.second.fd);
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES); /* it has one */
    is_turned_away(&pair, &raw);
    close(raw.first.fd);
    pair_drop(&pair);
}

/* Else it would be a connection of its own when it becomes a stream, with
 * heartbeats that go on behind its end. */
Test(carrier, who_claims_says_no_hello)
{
    raw_dialler_t raw;
    tmsg_hello_t hello;
    pair_t pair;

    open_sides(&pair, NULL);
    listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
              &pair.to_b);
    begin_raw(&pair, &raw, TMSG_CLAIMS_CARRIER);
    claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES);
    for (int i = 0; i < 20; i++) { /* until the claim was read */
        turn(&pair, 20);
        usleep(2000);
    }
    raw_hello(&hello);
    hello.features |= TMSG_FEATURE_CARRIERS | TMSG_FEATURE_REPLIES;
    raw_send_hello(raw.second.fd, &hello);
    is_turned_away(&pair, &raw);
    must_true(raw_find_frame(&raw.second, TMSG_FRAME_HELLO, 0) == NULL);
    close(raw.first.fd);
    pair_drop(&pair);
}

/* What cannot be in a stream ends its connection, and no other. */
Test(carrier, lies_in_a_stream_end_its_connection)
{
    static const uint8_t junk[64] = {9, 9, 9};
    tmsg_endpoint_t *other;
    tmsg_request_t *ready, *sent;
    pair_t pair;

    pair_open(&pair, LINK_STREAM, DRIVE_POLLING, NULL, NULL);
    other = side_dial(&pair.b, &pair.a);
    must(tmsg_endpoint_ready(other, &ready));
    must(pair_finish(&pair, ready));
    must_eq(send(tmsg_pipe_fd(tmsg_ucx_pipe_of(pair.to_a->ep)), junk,
                 sizeof(junk), 0),
            sizeof(junk));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "unknown type");
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
    sent = send_map(other, sample_bytes(1, 100), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, 100);
    must(pair_finish(&pair, sent));
    pair_drop(&pair);
}

/* A stream that is cut is the end, as UCX's is. */
Test(carrier, a_cut_stream_is_the_end)
{
    pair_t pair;

    pair_open(&pair, LINK_STREAM, DRIVE_FD, NULL, NULL);
    shutdown(tmsg_pipe_fd(tmsg_ucx_pipe_of(pair.to_a->ep)), SHUT_RDWR);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair.to_b), "the stream of messages");
    pair_drop(&pair);
}

/* Large payloads go by a bulk stream beside it; small ones and headers that do
 * not fit into a frame do not. */
Test(carrier, carries_what_is_large)
{
    pair_t pair;

    pair_open(&pair, LINK_STREAM, DRIVE_FD, NULL, NULL);
    pair_await(&pair, endpoint_has_bulk, pair.to_a, "a bulk stream");
    large_exchange(&pair);
    must_true(pair.to_a->stats.sent_by_bulk > 0);
    pair_close(&pair);
}

/* With keys the proof of a claim takes the key of the frames as well. A
 * connection that waits for its stream does not take the place of that. */
Test(carrier, is_let_in_by_the_last_place)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_CARRIER |
                      TMSG_LISTENER_PARAM_MAX_HANDSHAKES,
        .on_accept = opened,
        .max_handshakes = 1,
        .carrier = TMSG_CARRIER_STREAM};

    for (int keys = 0; keys < 2; keys++) {
        side_options_t options = {.keyring = keys ? ring("farm", 1) : NULL};
        tmsg_listener_params_t here = params;
        tmsg_endpoint_t *peers[3];
        tmsg_request_t *ready;
        pair_t pair;

        open_sides(&pair, &options);
        here.on_accept_arg = &pair.to_b;
        must(tmsg_listener_create(pair.a.worker, "tcp://127.0.0.1:0", &here,
                                  &pair.a.listener));
        for (int i = 0; i < 3; i++) {
            peers[i] = dial(&pair.b, tmsg_listener_url(pair.a.listener),
                            TMSG_CARRIER_AUTO);
        }
        for (int i = 0; i < 3; i++) {
            must(tmsg_endpoint_ready(peers[i], &ready));
            must(pair_finish(&pair, ready));
            is_carried_by(peers[i], "stream");
        }
        must_eq(pair.a.listener->streams.all, 0);
        must_eq(pair.a.listener->streams.awaited, 0);
        pair_drop(&pair);
        tmsg_keyring_destroy(options.keyring);
    }
}

static void brief_sides(pair_t *pair)
{
    const side_options_t brief = {.peer_timeout_ms = BRIEF_MS};

    open_sides(pair, &brief);
    listen_at(&pair->a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
              &pair->to_b);
}

static void join(pair_t *pair, const char *url)
{
    tmsg_request_t *ready;

    pair->to_a = dial(&pair->b, url, TMSG_CARRIER_STREAM);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    must(pair_finish(pair, ready));
    pair_await(pair, is_there, &pair->to_b, "an accepted endpoint");
}

/* A relay acknowledges what it keeps, and the link's heartbeats pass. What one
 * side sends is kept, or what the other does: more than the relay's socket
 * holds. */
static void keep_back(unsigned count, bool back)
{
    tmsg_request_t *sent[COUNT_MOST];
    relay_t *relay;
    pair_t pair;

    brief_sides(&pair);
    relay = relay_open(tmsg_listener_url(pair.a.listener));
    join(&pair, relay_url(relay));
    sent[0] = send_map(pair.to_a, sample_bytes(1, PART), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, PART);
    must(pair_finish(&pair, sent[0]));
    relay_stall(relay, 1);
    for (unsigned i = 0; i < count; i++) {
        sent[i] = send_map(back ? pair.to_b : pair.to_a, sample_bytes(2, PART),
                           TMSG_SEND_ACKED);
    }
    for (unsigned i = 0; i < count; i++) {
        must_be(pair_finish(&pair, sent[i]), TMSG_ERR_PEER_LOST);
    }
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair.to_a), "hold the stream back");
    must_say(tmsg_endpoint_error(pair.to_b), "hold the stream back");
    pair_drop(&pair);
    relay_close(relay);
}

Test(carrier, a_relay_that_keeps_a_message_back_is_found_out)
{
    keep_back(1, false);
}

Test(carrier, a_relay_that_is_full_is_found_out)
{
    keep_back(COUNT_MOST, true);
}

static uint64_t now_ms(void) { return tmsg_now_ns() / 1000000; }

/* A peer that is not driven reads nothing for as long, and says nothing. */
Test(carrier, a_peer_that_computes_need_not_read_the_stream)
{
    uint64_t end = now_ms() + 5 * BRIEF_MS / 2;
    tmsg_request_t *sent;
    pair_t pair;

    brief_sides(&pair);
    join(&pair, tmsg_listener_url(pair.a.listener));
    sent = send_map(pair.to_a, sample_bytes(1, 1000), TMSG_SEND_ACKED);
    while (now_ms() < end) {
        tmsg_worker_progress(pair.b.worker);
        usleep(1000);
    }
    must_true(pair.to_a->conn.counted.asked);
    large_take(&pair, &pair.a, 1, 1000);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

static bool has_count(void *arg)
{
    raw_dialler_t *raw = arg;

    must_true(!raw_closed(&raw->first));
    return raw_find_frame(&raw->first, TMSG_FRAME_COUNTED, 0) != NULL;
}

/* What the peer says of the stream is what may be, and was asked for. */
Test(carrier, a_count_that_cannot_be_is_malformed)
{
    static const uint8_t none[8] = {0};
    static const struct {
        uint8_t frame;
        size_t bytes;
    } said[] = {{TMSG_FRAME_COUNT, 1},
                {TMSG_FRAME_COUNTED, 8},
                {TMSG_FRAME_COUNTED, 0}};

    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        raw_dialler_t raw;
        pair_t pair;

        open_sides(&pair, NULL);
        listen_at(&pair.a, "tcp://127.0.0.1:0", TMSG_CARRIER_STREAM, false,
                  &pair.to_b);
        begin_raw(&pair, &raw, TMSG_CLAIMS_CARRIER);
        raw_send_frame(raw.first.fd, TMSG_FRAME_ADDRESS, raw.address,
                       sizeof(raw.address));
        claim_raw(&pair, &raw, TMSG_FRAME_CARRIER, CLAIM_BYTES);
        pair_await(&pair, is_there, &pair.to_b, "an accepted endpoint");
        raw_send_frame(raw.first.fd, TMSG_FRAME_COUNT, NULL, 0);
        pair_await(&pair, has_count, &raw, "a count");
        must_eq(memcmp(raw_find_frame(&raw.first, TMSG_FRAME_COUNTED, 0), none,
                       sizeof(none)),
                0);
        raw_send_frame(raw.first.fd, said[i].frame, none, said[i].bytes);
        must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
        must_say(tmsg_endpoint_error(pair.to_b), "COUNT");
        close(raw.first.fd);
        close(raw.second.fd);
        pair_drop(&pair);
    }
}
