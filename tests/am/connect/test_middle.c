/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody in the middle who changes, leaves out, repeats or answers frames of
 * a connection with keys can break it, and no more. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/connect/link.h"
#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "support/breaking_relay.h"
#include "support/channels.h"
#include "support/frame_proxy.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* What an attacker in the middle does to one frame. */
typedef struct {
    middle_way_t way;
    uint8_t type;
    size_t at;       /* the byte, and which bit of it is turned */
    uint8_t bit;     /* 0: none */
    unsigned copies; /* 0: it is left out */
    const uint8_t *instead;
    size_t instead_bytes;
    uint32_t says; /* the header, of the length; 0: the truth */
    bool late; /* the server may have taken the connection for good before */
    atomic_bool done;
} attack_t;

static void attack(void *arg, middle_frame_t *frame)
{
    attack_t *what = arg;

    if (frame->way != what->way || frame->type != what->type || what->done) {
        return;
    }
    what->done = true;
    frame->copies = what->copies;
    frame->says = what->says;
    if (what->instead != NULL) {
        memcpy(frame->payload, what->instead, what->instead_bytes);
        frame->bytes = what->instead_bytes;
    }
    if (what->bit != 0) {
        frame->payload[what->at < frame->bytes ? what->at : frame->bytes - 1] ^=
            what->bit;
    }
}

typedef struct {
    const tmsg_endpoint_t *endpoint;
    const attack_t *what;
    unsigned accepts;
} settling_t;

static bool has_failed(void *arg)
{
    const settling_t *settling = arg;

    return tmsg_endpoint_status(settling->endpoint) < 0 ||
           (settling->what->copies == 0 && settling->what->done);
}

/* The attacked connection does not come to stand on either side. A frame that
 * was left out is not noticed at once. */
static void expect_foiled(side_t *server, attack_t *what)
{
    middle_t *middle =
        middle_open(tmsg_listener_url(server->listener), attack, what);
    pair_t pair = {.sides = {server, &pair.b}};
    settling_t settling = {.what = what, .accepts = server->accepts};
    tmsg_endpoint_t *endpoint;

    open_side(&pair.b, ring("server", 1));
    must(tmsg_endpoint_connect(pair.b.worker, middle_url(middle), NULL,
                               &endpoint));
    settling.endpoint = endpoint;
    pair_await(&pair, has_failed, &settling, "a connection that is attacked");
    must_true(what->done);
    must_true(what->late || server->accepts == settling.accepts);
    side_close(&pair.b);
    middle_close(middle);
}

Test(middle, changes_no_bit)
{
    static const uint8_t types[] = {TMSG_FRAME_HELLO, TMSG_FRAME_PROOF,
                                    TMSG_FRAME_ADDRESS};
    /* Bits at the beginning, in the fields, and in the MAC. */
    static const size_t places[] = {4, 21, 60, SIZE_MAX};
    side_t server;

    open_listening(&server, ring("alice", 1));
    for (unsigned way = 0; way < 2; way++) {
        for (size_t i = 0; i < COUNT(types) * COUNT(places); i++) {
            attack_t what = {.way = (middle_way_t)way,
                             .type = types[i % COUNT(types)],
                             .at = places[i / COUNT(types)],
                             .bit = (uint8_t)(1 << i % 8),
                             .copies = 1};

            if (is_due(i)) {
                expect_foiled(&server, &what);
            }
        }
    }
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

Test(middle, leaves_out_and_repeats_nothing)
{
    static const uint8_t types[] = {TMSG_FRAME_HELLO, TMSG_FRAME_PROOF,
                                    TMSG_FRAME_ADDRESS};
    side_t server;

    open_listening(&server, ring("alice", 1));
    for (unsigned way = 0; way < 2; way++) {
        for (size_t i = 0; i < 2 * COUNT(types); i++) {
            attack_t what = {.way = (middle_way_t)way,
                             .type = types[i / 2],
                             .copies = i % 2 == 0 ? 0 : 2,
                             .late = true};

            if (what.way == MIDDLE_BACK || what.copies == 0) {
                expect_foiled(&server, &what);
            }
        }
    }
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

/* What an attacker does to a list of two proofs. */
typedef enum { KEEP_FIRST, KEEP_SECOND, SWAP, REPEAT, TRICKS } trick_t;

static void rearrange(void *arg, middle_frame_t *frame)
{
    const trick_t *trick = arg;
    uint8_t *second = frame->payload + TMSG_PROOF_BYTES;
    uint8_t first[TMSG_PROOF_BYTES];

    if (frame->way != MIDDLE_THERE || frame->type != TMSG_FRAME_PROOF) {
        return;
    }
    memcpy(first, frame->payload, sizeof(first));
    if (*trick == KEEP_SECOND || *trick == SWAP) {
        memcpy(frame->payload, second, sizeof(first));
    }
    if (*trick == SWAP) {
        memcpy(second, first, sizeof(first));
    } else if (*trick == REPEAT) {
        memcpy(second + TMSG_PROOF_BYTES, first, sizeof(first));
    }
    frame->bytes = (size_t)TMSG_PROOF_BYTES * (*trick == SWAP     ? 2
                                               : *trick == REPEAT ? 3
                                                                  : 1);
}

static bool has_no_handshake(void *arg)
{
    return counted(arg, "handshakes") == 0;
}

/* Both proofs are right, and either would get the dialling side in. */
Test(middle, chooses_nobodys_key)
{
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring};
    side_t server;

    add_key(keyring, "bob", 2);
    side_open(&server, &options);
    side_listen(&server, "tcp://127.0.0.1:0");
    for (int i = 0; i < TRICKS; i++) {
        trick_t trick = (trick_t)i;
        middle_t *middle =
            middle_open(tmsg_listener_url(server.listener), rearrange, &trick);
        side_t client;
        char words[512];

        side_open(&client, &options);
        must_be(dial_beside(&server, &client, middle_url(middle), words,
                            sizeof(words)),
                TMSG_ERR_INSECURE);
        must_say(words, "has proved no key");
        side_await(&server, has_no_handshake, &server, "the end at the server");
        must_eq(server.accepts, 0);
        side_close(&client);
        middle_close(middle);
    }
    tmsg_keyring_destroy(keyring);
    expect_serves_key(&server, 2, "bob");
    side_close(&server);
}

/* Returns the payload of the first frame of that type. */
static const uint8_t *find_payload(const uint8_t *data, size_t bytes,
                                   uint8_t type, size_t *payload_p)
{
    size_t at = TMSG_FRAME_MAGIC_BYTES;

    while (at + TMSG_FRAME_HEADER_BYTES <= bytes) {
        *payload_p = (size_t)tmsg_get_le(data + at, 4);
        if (data[at + 4] == type) {
            return data + at + TMSG_FRAME_HEADER_BYTES;
        }
        at += TMSG_FRAME_HEADER_BYTES + *payload_p;
    }
    die("no frame of type %u", type);
}

Test(middle, swaps_no_address)
{
    uint8_t kept[2][4096];
    attack_t what = {.type = TMSG_FRAME_ADDRESS, .copies = 1};
    side_t server, client;
    middle_t *middle;
    char words[512];

    open_listening(&server, ring("alice", 1));
    middle = middle_open(tmsg_listener_url(server.listener), NULL, NULL);
    open_side(&client, ring("server", 1));
    must_be(
        dial_beside(&server, &client, middle_url(middle), words, sizeof(words)),
        TMSG_OK);
    for (int way = 0; way < 2; way++) {
        const uint8_t *data, *payload;
        size_t bytes = middle_heard(middle, (middle_way_t)way, &data);

        payload =
            find_payload(data, bytes, TMSG_FRAME_ADDRESS, &what.instead_bytes);
        must_true(what.instead_bytes <= sizeof(kept[0]));
        memcpy(kept[way], payload, what.instead_bytes);
        what.way = (middle_way_t)way;
        what.instead = kept[way];
        what.done = false;
        expect_foiled(&server, &what);
        /* Nor one without a MAC. */
        what.instead_bytes -= TMSG_MAC_BYTES;
        what.done = false;
        expect_foiled(&server, &what);
        what.instead_bytes = 3;
        what.done = false;
        expect_foiled(&server, &what);
    }
    side_close(&client);
    middle_close(middle);
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

/* A connection through a middle that attacks later. */
typedef struct {
    pair_t pair;
    middle_t *middle;
    tmsg_endpoint_t *endpoint; /* b's */
} attacked_t;

static void open_attacked(attacked_t *attacked, middle_fn edit, void *arg,
                          const tmsg_endpoint_params_t *params)
{
    const tmsg_listener_params_t resume = {
        .field_mask = TMSG_LISTENER_PARAM_RESUME, .resume_ms = -1};
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring,
                                    .peer_timeout_ms = 4000};
    tmsg_request_t *ready;

    memset(attacked, 0, sizeof(*attacked));
    attacked->pair.sides[0] = &attacked->pair.a;
    attacked->pair.sides[1] = &attacked->pair.b;
    side_open(&attacked->pair.a, &options);
    side_open(&attacked->pair.b, &options);
    tmsg_keyring_destroy(keyring);
    must(tmsg_listener_create(attacked->pair.a.worker, "tcp://127.0.0.1:0",
                              params == NULL ? NULL : &resume,
                              &attacked->pair.a.listener));
    attacked->middle =
        middle_open(tmsg_listener_url(attacked->pair.a.listener), edit, arg);
    must(tmsg_endpoint_connect(attacked->pair.b.worker,
                               middle_url(attacked->middle), params,
                               &attacked->endpoint));
    must(tmsg_endpoint_ready(attacked->endpoint, &ready));
    must(pair_finish(&attacked->pair, ready));
}

static void close_attacked(attacked_t *attacked)
{
    pair_drop(&attacked->pair);
    middle_close(attacked->middle);
}

/* The last words of the server, which ends the connection in order or not. */
Test(middle, last_words_are_the_peers_own)
{
    for (int i = 0; i < 2; i++) {
        attack_t what = {.way = MIDDLE_THERE,
                         .type = TMSG_FRAME_BYE,
                         .at = i == 0 ? 0 : SIZE_MAX,
                         .bit = 1,
                         .copies = 1};
        attacked_t attacked;
        tmsg_status_t end;

        open_attacked(&attacked, attack, &what, NULL);
        must(tmsg_endpoint_close(attacked.endpoint, NULL));
        end = pair_end_of(&attacked.pair, attacked.endpoint);
        must_true(what.done);
        must_true(end == TMSG_ERR_CORRUPT || end == TMSG_ERR_PEER_LOST);
        close_attacked(&attacked);
    }
}

static bool is_back(void *arg)
{
    char *json;
    bool back;

    must(tmsg_endpoint_describe(arg, &json));
    back = strstr(json, "\"reconnected\":\t1") != NULL ||
           strstr(json, "\"reconnected\": 1") != NULL;
    tmsg_string_free(json);
    return back;
}

static bool is_decided(void *arg)
{
    return tmsg_endpoint_status(arg) < 0 || is_back(arg);
}

static const tmsg_endpoint_params_t comes_back = {
    .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT,
    .reconnect = {.first_backoff_ms = 5, .most_backoff_ms = 20}};

static void expect_back(attacked_t *attacked)
{
    tmsg_message_t *message;
    tmsg_request_t *sent;

    pair_await(&attacked->pair, is_decided, attacked->endpoint,
               "a session that comes back");
    must(tmsg_endpoint_status(attacked->endpoint));
    cr_expect_str_eq(tmsg_endpoint_principal(attacked->endpoint), "alice");
    sent = send_map(attacked->endpoint, sample_bytes(1, 100), TMSG_SEND_ACKED);
    message = pair_take(&attacked->pair, &attacked->pair.a);
    tmsg_message_destroy(message);
    must(pair_finish(&attacked->pair, sent));
}

/* An attacker cannot end a session: the peer comes back, and proves its key
 * again. */
Test(middle, ends_no_session)
{
    static const attack_t attacks[] = {
        {.way = MIDDLE_BACK, .bit = 1},
        {.way = MIDDLE_BACK, .says = UINT32_MAX},
        {.way = MIDDLE_THERE, .says = UINT32_MAX},
    };

    for (size_t i = 0; i < COUNT(attacks); i++) {
        attack_t what = attacks[i];
        attacked_t attacked;

        what.type = TMSG_FRAME_HEARTBEAT;
        what.copies = 1;
        open_attacked(&attacked, attack, &what, &comes_back);
        expect_back(&attacked);
        must_true(what.done);
        close_attacked(&attacked);
    }
}

/* An impostor without a key, who answers in the peer's place when this side
 * dials again. */
typedef struct {
    atomic_bool armed;
    atomic_uint count; /* of refusals */
} impostor_t;

/* Every status, and some numbers that are none. */
#define REFUSALS ((unsigned)(3 - TMSG_ERR_APPLICATION))

/* Sends a REFUSE in place of the hello, or of the proof. */
static void refuse(void *arg, middle_frame_t *frame)
{
    impostor_t *impostor = arg;
    int32_t status = 1 - (int32_t)impostor->count;

    if (impostor->armed && frame->way == MIDDLE_BACK &&
        impostor->count < REFUSALS && frame->index == impostor->count % 2) {
        impostor->count++;
        frame->type = TMSG_FRAME_REFUSE;
        frame->bytes = 4;
        tmsg_put_le(frame->payload, (uint32_t)status, 4);
    }
}

/* Breaks the connection as a network does. */
static void break_connection(attacked_t *attacked)
{
    must_eq(shutdown(attacked->endpoint->link.fd, SHUT_RDWR), 0);
}

Test(middle, who_answers_without_a_key_ends_no_session)
{
    impostor_t impostor = {.count = 0};
    attacked_t attacked;

    open_attacked(&attacked, refuse, &impostor, &comes_back);
    impostor.armed = true;
    break_connection(&attacked);
    expect_back(&attacked);
    must_eq(impostor.count, REFUSALS);
    close_attacked(&attacked);
}

/* Sends a hello that allows nothing in the peer's place, and no proof. */
static void belittle(void *arg, middle_frame_t *frame)
{
    impostor_t *impostor = arg;
    tmsg_hello_t hello;

    if (impostor->armed && frame->way == MIDDLE_BACK &&
        frame->type == TMSG_FRAME_HELLO) {
        must(tmsg_hello_decode(frame->payload, frame->bytes, &hello));
        hello.features = 0;
        hello.channels = 1;
        must(tmsg_hello_encode(&hello, frame->payload, TMSG_HELLO_BYTES_MAX,
                               &frame->bytes));
    } else if (impostor->armed && frame->type == TMSG_FRAME_PROOF) {
        frame->copies = 0;
        impostor->count++;
    }
}

static bool has_count(void *arg)
{
    const impostor_t *impostor = arg;

    return impostor->count > 0;
}

static bool is_away(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->state == TMSG_EP_AWAY;
}

/* The application goes on sending within the limits of its peer's own hello. */
Test(middle, a_hello_without_a_proof_changes_nothing)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT,
        .reconnect = {.first_backoff_ms = 500, .most_backoff_ms = 500}};
    impostor_t impostor = {.count = 0};
    attacked_t attacked;
    tmsg_request_t *sent;

    open_attacked(&attacked, belittle, &impostor, &params);
    impostor.armed = true;
    break_connection(&attacked);
    pair_await(&attacked.pair, has_count, &impostor, "a proof for nobody");
    impostor.armed = false;
    break_connection(&attacked);
    pair_await(&attacked.pair, is_away, attacked.endpoint, "the next attempt");
    sent = send_on(attacked.endpoint, 2, sample_bytes(5, 100), TMSG_SEND_ACKED);
    expect(&attacked.pair, 2, 5, 100);
    must(pair_finish(&attacked.pair, sent));
    expect_back(&attacked);
    close_attacked(&attacked);
}

typedef struct {
    char words[512];
    atomic_bool done;
} overheard_t;

static void overhear(void *arg, middle_frame_t *frame)
{
    overheard_t *overheard = arg;

    if (frame->way == MIDDLE_THERE && frame->type == TMSG_FRAME_REFUSE &&
        !overheard->done) {
        snprintf(overheard->words, sizeof(overheard->words), "%.*s",
                 (int)(frame->bytes - 4), (const char *)frame->payload + 4);
        overheard->done = true;
    }
}

static bool has_overheard(void *arg)
{
    const overheard_t *overheard = arg;

    return overheard->done;
}

/* A session belongs to one principal. Neither the other side nor an
 * eavesdropper learns the names of the other principals. */
Test(middle, another_principal_takes_no_session_and_hears_no_name)
{
    overheard_t overheard = {.words = ""};
    tmsg_keyring_t *keyring;
    attacked_t attacked;

    open_attacked(&attacked, overhear, &overheard, &comes_back);
    keyring = attacked.endpoint->admit.keyring; /* of both sides */
    add_key(keyring, "bob", 2);
    must(tmsg_keyring_remove(keyring, "alice"));
    break_connection(&attacked);
    pair_await(&attacked.pair, has_overheard, &overheard, "a refusal");
    cr_expect_str_eq(overheard.words, turned_away);
    cr_expect_str_eq(tmsg_endpoint_principal(attacked.endpoint), "alice");
    close_attacked(&attacked);
}

/* A principal of the same name in another keyring is somebody else. */
Test(middle, a_namesake_takes_no_session)
{
    pair_t pair = {.sides = {&pair.a, &pair.b}};
    tmsg_keyring_t *rings[] = {ring("default", 1), ring("default", 2)};
    tmsg_keyring_t *own = ring("server", 1);
    tmsg_listener_params_t params = {.field_mask = TMSG_LISTENER_PARAM_RESUME |
                                                   TMSG_LISTENER_PARAM_KEYRING,
                                     .resume_ms = -1};
    tmsg_endpoint_params_t same = comes_back; /* and no new session */
    tmsg_listener_t *listeners[2];
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    relay_t *relay;

    same.field_mask |= TMSG_ENDPOINT_PARAM_FLAGS;
    same.flags = TMSG_ENDPOINT_SAME_PROCESS;
    add_key(own, "server", 2);
    open_side(&pair.a, NULL);
    open_side(&pair.b, own);
    for (int i = 0; i < 2; i++) {
        params.keyring = rings[i];
        must(tmsg_listener_create(pair.a.worker, "tcp://127.0.0.1:0", &params,
                                  &listeners[i]));
        tmsg_keyring_destroy(rings[i]);
    }
    relay = relay_open(tmsg_listener_url(listeners[0]));
    must(tmsg_endpoint_connect(pair.b.worker, relay_url(relay), &same,
                               &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(pair_finish(&pair, ready));
    relay_turn(relay, tmsg_listener_url(listeners[1]));
    relay_cut(relay);
    pair_await(&pair, is_decided, endpoint, "the end of a session");
    must_be(tmsg_endpoint_status(endpoint), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(endpoint), "was never here");
    tmsg_listener_destroy(listeners[0]);
    tmsg_listener_destroy(listeners[1]);
    pair_drop(&pair);
    relay_close(relay);
}
