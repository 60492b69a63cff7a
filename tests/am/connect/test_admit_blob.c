/* SPDX-License-Identifier: BSD-3-Clause */
/* As test_admit.c, of peers that come by blob: the keys are proved in the blobs
 * and in the messages that join UCX's endpoints. UCX takes messages of anybody:
 * here a stranger's messages go by the UCX endpoint of an honest peer. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "am/connect/admit_blob.h"
#include "am/connect/wireup.h"
#include "am/endpoint/control.h"
#include "am/listen/backlog.h"
#include "am/listen/listener.h"
#include "core/bytes.h"
#include "support/failing_alloc.h"
#include "support/numbered_keys.h"
#include "support/seeded_maps.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define BODY_BYTES (TMSG_TOKEN_BYTES + 8)
#define LEASE_BYTES 8

#define LONG_MS 60000

/* For connections that must not come to stand. */
static const tmsg_endpoint_params_t soon = {
    .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
    .connect_timeout_ms = 500,
};
static const tmsg_endpoint_params_t late = {
    .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
    .connect_timeout_ms = LONG_MS,
};

static void listen_by_blob(side_t *side, tmsg_keyring_t *keyring)
{
    open_side(side, keyring);
    side_listen(side, "blob://");
}

/* Opens two sides that have a key. */
static void open_keyed(pair_t *pair, link_t link)
{
    tmsg_keyring_t *a = ring("alice", 1), *b = ring("the-server", 1);
    const side_options_t server = {.keyring = a,
                                   .ucx_config = link_config(link)};
    const side_options_t client = {.keyring = b,
                                   .ucx_config = link_config(link)};

    pair_open(pair, LINK_BLOB, DRIVE_POLLING, &server, &client);
    tmsg_keyring_destroy(a);
    tmsg_keyring_destroy(b);
}

/* A listener that gives up nobody while the test lasts. */
static void be_patient(const pair_t *pair, uint32_t most)
{
    pair->a.listener->handshake_timeout_ms = LONG_MS;
    pair->a.listener->max_handshakes = most;
}

static void pass_a_map(pair_t *pair, side_t *to, tmsg_endpoint_t *by)
{
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(by, sample_bytes(7, 1000), 0));
    message = pair_take(pair, to);
    sample_check_bytes(7, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

Test(admit_blob, whoever_has_the_key_gets_in_by_name)
{
    static const link_t links[] = {LINK_SHM, LINK_TCP};

    for (size_t i = 0; i < COUNT(links); i++) {
        pair_t pair;

        open_keyed(&pair, links[i]);
        cr_expect_str_eq(tmsg_endpoint_principal(pair.to_b), "alice");
        cr_expect_str_eq(tmsg_endpoint_principal(pair.to_a), "the-server");
        pass_a_map(&pair, &pair.b, pair.to_b);
        pass_a_map(&pair, &pair.a, pair.to_a);
        pair_close(&pair);
    }
}

/* Keys of the two sides, by number; 0: no keyring; 255: an empty one. */
static const struct {
    uint8_t server, client;
    tmsg_status_t status;
    const char *words;
} rows[] = {
    {1, 2, TMSG_ERR_INSECURE, "has proved the blob"},
    {1, 0, TMSG_ERR_REFUSED, "asks for a key, and this side has none"},
    {0, 1, TMSG_ERR_INSECURE, "has no key set"},
    {1, 255, TMSG_ERR_INSECURE, "has proved the blob"},
    {255, 1, TMSG_ERR_INSECURE, "has proved the blob"},
};

static tmsg_keyring_t *ring_of(uint8_t number)
{
    return number == 0     ? NULL
           : number == 255 ? ring(NULL, 0)
                           : ring("somebody", number);
}

static tmsg_status_t dial(side_t *client, const void *blob, size_t bytes)
{
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status = tmsg_endpoint_connect_blob(client->worker, blob,
                                                      bytes, &soon, &endpoint);

    must_true(status != TMSG_OK);
    return status;
}

Test(admit_blob, whoever_lacks_it_finds_out_from_the_blob)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        side_t server, client;
        const void *blob;
        size_t bytes;

        listen_by_blob(&server, ring_of(rows[i].server));
        open_side(&client, ring_of(rows[i].client));
        must(tmsg_listener_blob(server.listener, &blob, &bytes));
        must_be(dial(&client, blob, bytes), rows[i].status);
        must_say(tmsg_error_message(), rows[i].words);
        side_close(&client);
        side_close(&server);
    }
}

static void reseal(uint8_t *blob, size_t bytes)
{
    tmsg_put_le(blob + bytes - TMSG_BLOB_SEAL_BYTES,
                XXH3_64bits(blob, bytes - TMSG_BLOB_SEAL_BYTES),
                TMSG_BLOB_SEAL_BYTES);
}

/* Whoever carries the blob can write another checksum. */
Test(admit_blob, no_bit_of_a_blob_is_believed_that_no_key_has_proved)
{
    side_t server, client;
    const void *blob;
    size_t bytes;
    uint8_t *copy;

    listen_by_blob(&server, ring("alice", 1));
    open_side(&client, ring("server", 1));
    must(tmsg_listener_blob(server.listener, &blob, &bytes));
    copy = malloc(bytes);
    for (size_t i = 0; i < bytes - TMSG_BLOB_SEAL_BYTES; i++) {
        tmsg_status_t status;

        memcpy(copy, blob, bytes);
        copy[i] ^= (uint8_t)(1 << i % 8);
        reseal(copy, bytes);
        status = dial(&client, copy, bytes);
        must_true(status == TMSG_ERR_INSECURE || status == TMSG_ERR_MALFORMED ||
                  status == TMSG_ERR_INCOMPATIBLE);
    }
    must_eq(client.worker->ucx == NULL, 1);
    free(copy);
    side_close(&client);
    side_close(&server);
}

/* Connects by blob while `server` is driven, too, and returns the status. */
static tmsg_status_t outcome(side_t *server, side_t *client, const void *blob,
                             size_t bytes, const tmsg_endpoint_params_t *params,
                             char name[512])
{
    pair_t pair = {.sides = {server, client}};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    tmsg_status_t status;

    must(tmsg_endpoint_connect_blob(client->worker, blob, bytes, params,
                                    &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    status = pair_wait(&pair, ready);
    if (status == TMSG_OK) {
        snprintf(name, 512, "%s", tmsg_endpoint_principal(server->accepted));
    } else {
        must_true(tmsg_endpoint_principal(endpoint) == NULL);
        snprintf(name, 512, "%s", tmsg_request_error(ready));
    }
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(endpoint);
    return status;
}

Test(admit_blob, the_blob_follows_the_keyring)
{
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring};
    const void *first, *second;
    size_t first_bytes, second_bytes;
    uint8_t copy[8192];
    side_t server, client;
    char words[512];

    side_open(&server, &options);
    side_listen(&server, "blob://");
    must(tmsg_listener_blob(server.listener, &first, &first_bytes));
    must_true(first_bytes <= sizeof(copy));
    memcpy(copy, first, first_bytes);
    must(tmsg_listener_blob(server.listener, &second, &second_bytes));
    must_true(second == first && second_bytes == first_bytes);
    add_key(keyring, "bob", 2);
    must(tmsg_listener_blob(server.listener, &second, &second_bytes));
    must_eq(second_bytes, first_bytes + TMSG_PROOF_BYTES);
    must_eq(memcmp(copy, first, first_bytes), 0);
    open_side(&client, ring("server", 2));
    must_be(dial(&client, first, first_bytes), TMSG_ERR_INSECURE);
    must(outcome(&server, &client, second, second_bytes, &late, words));
    cr_expect_str_eq(words, "bob");
    side_close(&client);
    /* A peer that has only the old key gets no answer. */
    must(tmsg_keyring_remove(keyring, "alice"));
    open_side(&client, ring("server", 1));
    must_be(outcome(&server, &client, second, second_bytes, &soon, words),
            TMSG_ERR_TIMED_OUT);
    must_say(words, "has it still a key of this side's");
    must_eq(counted(&server, "wrong_key"), 1);
    side_close(&client);
    tmsg_keyring_destroy(keyring);
    side_close(&server);
}

Test(admit_blob, of_several_keys_the_first_of_the_listener_counts)
{
    tmsg_keyring_t *both = ring("alice", 1), *mine = ring("x", 9);
    const side_options_t options = {.keyring = both};
    const void *blob;
    size_t bytes;
    side_t server, client;
    char name[512];

    add_key(both, "bob", 2);
    add_key(mine, "x", 2);
    side_open(&server, &options);
    tmsg_keyring_destroy(both);
    side_listen(&server, "blob://");
    must(tmsg_listener_blob(server.listener, &blob, &bytes));
    open_side(&client, mine);
    must(outcome(&server, &client, blob, bytes, &late, name));
    cr_expect_str_eq(name, "bob");
    side_close(&client);
    side_close(&server);
}

/* A connect request as somebody might make it by hand. */
typedef struct {
    uint8_t body[BODY_BYTES];
    void *blob;
    size_t bytes;
    tmsg_requester_t expected; /* what its answer will be of */
} connect_request_t;

static void set_ids(connect_request_t *connect_request, const uint8_t *token,
                    uint32_t id, uint32_t number)
{
    memcpy(connect_request->body, token, TMSG_TOKEN_BYTES);
    tmsg_put_le(connect_request->body + TMSG_TOKEN_BYTES, id, 4);
    tmsg_put_le(connect_request->body + TMSG_TOKEN_BYTES + 4, number, 4);
}

/* Makes a connect request of `pair.b`, proved by the key of that number, or (0)
 * with no proof at all. */
static void make_connect_request(pair_t *pair, uint8_t key_number, uint32_t id,
                                 uint32_t number,
                                 connect_request_t *connect_request)
{
    const tmsg_endpoint_t *by = pair->to_a;
    uint8_t digest[2][TMSG_HASH_BYTES], of[TMSG_HASH_BYTES];
    uint8_t proof[TMSG_PROOF_BYTES];
    const void *theirs;
    tmsg_blob_t listeners;
    size_t bytes;
    void *plain;

    must(tmsg_listener_blob(pair->a.listener, &theirs, &bytes));
    must(tmsg_blob_decode(theirs, bytes, &listeners));
    tmsg_proof_hash(theirs, listeners.proved_bytes, digest[0]);
    must(tmsg_wireup_blob_of(by->ucx, by->token, 0, key_number != 0, &plain,
                             &bytes));
    set_ids(connect_request, by->token, id, number);
    connect_request->blob = plain;
    connect_request->bytes = bytes;
    if (key_number == 0) {
        return;
    }
    tmsg_proof_hash(plain, bytes - TMSG_BLOB_SEAL_BYTES, digest[1]);
    tmsg_proof_connect_request(digest[0], digest[1], connect_request->body,
                               BODY_BYTES, of);
    keys_of(key_number, connect_request->expected.key.bytes);
    tmsg_proof_make(connect_request->expected.key.bytes,
                    TMSG_ROLE_CONNECT_REQUEST, of, proof);
    tmsg_proof_bind(of, proof, sizeof(proof), connect_request->expected.bound);
    must(tmsg_blob_prove(plain, bytes - TMSG_BLOB_SEAL_BYTES, proof,
                         sizeof(proof), &connect_request->blob,
                         &connect_request->bytes));
    free(plain);
}

static void send_by(tmsg_endpoint_t *endpoint, uint8_t kind, uint32_t to,
                    const void *body, size_t body_bytes, const void *payload,
                    size_t payload_bytes)
{
    const tmsg_preamble_t head = {.endpoint_id = to};

    tmsg_worker_lock(endpoint->worker);
    must(tmsg_control_post(endpoint, kind, &head, body, body_bytes, payload,
                           payload_bytes));
    tmsg_worker_unlock(endpoint->worker);
}

static void send_connect_request(pair_t *pair,
                                 const connect_request_t *connect_request)
{
    send_by(pair->to_a, TMSG_KIND_CONNECT_REQUEST, 0, connect_request->body,
            BODY_BYTES, connect_request->blob, connect_request->bytes);
}

/* Passes a map: when it has come, everything sent before has come, too. */
static void settle(pair_t *pair) { pass_a_map(pair, &pair->a, pair->to_a); }

typedef struct {
    const side_t *side;
    const char *name;
    unsigned wanted;
} count_t;

static bool has_counted(void *arg)
{
    const count_t *count = arg;

    return counted(count->side, count->name) == count->wanted;
}

static void await_count(pair_t *pair, const char *name, unsigned wanted)
{
    count_t count = {&pair->a, name, wanted};

    pair_await(pair, has_counted, &count, name);
}

Test(admit_blob, a_connect_request_without_a_proof_of_its_own_is_ignored)
{
    connect_request_t connect_request;
    pair_t pair;

    open_keyed(&pair, LINK_SHM);
    make_connect_request(&pair, 0, 77, 1, &connect_request);
    send_connect_request(&pair, &connect_request);
    await_count(&pair, "no_key", 1);
    free(connect_request.blob);

    make_connect_request(&pair, 2, 77, 1, &connect_request);
    send_connect_request(&pair, &connect_request);
    await_count(&pair, "wrong_key", 1);
    free(connect_request.blob);

    /* The proof is right, but for another endpoint, */
    make_connect_request(&pair, 1, 77, 1, &connect_request);
    set_ids(&connect_request, pair.to_a->token, 78, 1);
    send_connect_request(&pair, &connect_request);
    await_count(&pair, "wrong_key", 2);
    /* or for another UCX endpoint. */
    set_ids(&connect_request, pair.to_a->token, 77, 2);
    send_connect_request(&pair, &connect_request);
    await_count(&pair, "wrong_key", 3);
    set_ids(&connect_request, pair.to_a->token, 77, 1);
    for (size_t i = 0; i < connect_request.bytes - TMSG_BLOB_SEAL_BYTES;
         i += 41) {
        ((uint8_t *)connect_request.blob)[i] ^= 4;
        reseal(connect_request.blob, connect_request.bytes);
        send_connect_request(&pair, &connect_request);
        ((uint8_t *)connect_request.blob)[i] ^= 4;
        settle(&pair);
    }
    free(connect_request.blob);
    must_eq(counted(&pair.a, "handshakes"), 0);
    must_eq(pair.a.accepts, 1);
    pair_close(&pair);
}

enum { COUNT_OF_UNNAMED = 100 };

static void is_sent(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    (void)ucs;
    (void)arg;
    tmsg_ucx_request_free(request);
}

/* The same, without telling by which UCX endpoint. UCX keeps no header that it
 * does not send at once. */
static void send_unnamed(const tmsg_endpoint_t *by, uint8_t kind, uint32_t to,
                         const void *body, size_t body_bytes)
{
    static uint8_t headers[COUNT_OF_UNNAMED][128];
    static unsigned count;
    uint8_t *header = headers[count++ % COUNT_OF_UNNAMED];
    const tmsg_preamble_t head = {
        .kind = kind, .endpoint_id = to, .body_bytes = (uint32_t)body_bytes};
    const tmsg_ucx_send_t send = {.header = header,
                                  .header_bytes =
                                      TMSG_PREAMBLE_BYTES + body_bytes,
                                  .flags = TMSG_UCX_SEND_EAGER};

    must_true(send.header_bytes <= sizeof(headers[0]));
    tmsg_preamble_encode(&head, header);
    memcpy(header + TMSG_PREAMBLE_BYTES, body, body_bytes);
    must_true(
        !tmsg_ucx_is_error(tmsg_ucx_am_send(by->ep, &send, is_sent, NULL)));
}

/* Sends messages of all kinds to an endpoint that is still proving its key. */
static void disturb(pair_t *pair, uint32_t id)
{
    static const uint8_t kinds[] = {TMSG_KIND_WIREUP,
                                    TMSG_KIND_WIREUP_REPLY,
                                    TMSG_KIND_CONNECT_REQUEST,
                                    TMSG_KIND_CONNECT_REPLY,
                                    TMSG_KIND_BYE,
                                    TMSG_KIND_FIN,
                                    TMSG_KIND_ACK,
                                    TMSG_KIND_CREDIT,
                                    TMSG_KIND_SCHEMA,
                                    TMSG_KIND_PING,
                                    TMSG_KIND_PONG,
                                    TMSG_KIND_MAP,
                                    TMSG_KIND_CALL,
                                    TMSG_KIND_ABORT};
    static const size_t sizes[] = {
        0, BODY_BYTES, BODY_BYTES + TMSG_JOIN_EXTRA_BYTES,
        BODY_BYTES + LEASE_BYTES + TMSG_JOIN_EXTRA_BYTES,
        BODY_BYTES + TMSG_ANSWER_EXTRA_BYTES};
    uint8_t body[BODY_BYTES + TMSG_ANSWER_EXTRA_BYTES] = {0};

    memcpy(body, pair->to_a->token, TMSG_TOKEN_BYTES);
    for (size_t i = 0; i < COUNT(kinds) * COUNT(sizes); i++) {
        send_unnamed(pair->to_a, kinds[i / COUNT(sizes)], id, body,
                     sizes[i % COUNT(sizes)]);
    }
    settle(pair);
}

/* Returns the listener's endpoint that a connect request made, by its peer's
 * id. */
static tmsg_endpoint_t *half_open(const pair_t *pair, uint32_t peer_id)
{
    const tmsg_worker_t *worker = pair->a.worker;

    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        if (worker->endpoints[i] != NULL &&
            worker->endpoints[i]->peer_id == peer_id) {
            return worker->endpoints[i];
        }
    }
    return NULL;
}

/* A replayed connect request makes one half-open connection to the honest
 * peer's UCX worker. Nobody gets any further with it, and it disturbs nobody.
 */
Test(admit_blob, a_connect_request_that_is_repeated_gets_nowhere)
{
    const uint32_t nobody = 0xfffff077;
    connect_request_t connect_request;
    pair_t pair;

    open_keyed(&pair, LINK_SHM);
    be_patient(&pair, 100);
    make_connect_request(&pair, 1, nobody, pair.to_a->conn.number + 1,
                         &connect_request);
    send_connect_request(&pair, &connect_request);
    await_count(&pair, "handshakes", 1);
    for (int older = 0; older < 2; older++) { /* than TMSG_FEATURE_REPLIES */
        disturb(&pair, half_open(&pair, nobody)->id);
        must_eq(counted(&pair.a, "handshakes"), 1);
        half_open(&pair, nobody)->peer_hello.features &= ~TMSG_FEATURE_REPLIES;
    }
    for (int i = 0; i < 50; i++) {
        send_connect_request(&pair, &connect_request);
    }
    await_count(&pair, "otherwise", 50);
    must_eq(counted(&pair.a, "handshakes"), 1);
    must_true(tmsg_endpoint_principal(half_open(&pair, nobody)) == NULL);
    must_eq(pair.a.accepts, 1);
    settle(&pair);
    free(connect_request.blob);
    pair_close(&pair);
}

/* 50 strangers replay connect requests that they overheard, and the listener
 * takes 4 of them at a time. Honest peers connect meanwhile. */
Test(admit_blob, strangers_shut_nobody_out)
{
    pair_t pair;

    open_keyed(&pair, LINK_SHM);
    be_patient(&pair, 4);
    for (uint32_t i = 0; i < 50; i++) {
        connect_request_t connect_request;

        make_connect_request(&pair, i % 5 == 4 ? 2 : 1, 0xfffff000 + i,
                             pair.to_a->conn.number + 1 + i - i / 5,
                             &connect_request);
        send_connect_request(&pair, &connect_request);
        free(connect_request.blob);
        settle(&pair);
        must_true(counted(&pair.a, "handshakes") <= 4);
        if (i % 10 == 9) {
            const void *blob;
            char name[512];
            size_t bytes;
            side_t client;

            open_side(&client, ring("server", 1));
            must(tmsg_listener_blob(pair.a.listener, &blob, &bytes));
            must(outcome(&pair.a, &client, blob, bytes, &late, name));
            side_close(&client);
        }
    }
    must_eq(counted(&pair.a, "wrong_key"), 10);
    must_true(counted(&pair.a, "too_many") >= 30);
    must_eq(counted(&pair.a, "connected"), 6);
    pair_close(&pair);
}

/* A stranger reaches the dialling side's UCX, and has read all that was sent.
 */
Test(admit_blob, nobody_answers_in_the_listeners_place)
{
    uint8_t body[BODY_BYTES + TMSG_ANSWER_EXTRA_BYTES] = {0};
    const uint8_t *overheard[3];
    tmsg_endpoint_t *endpoint;
    tmsg_blob_t listeners;
    uint8_t blob[8192];
    const void *data;
    size_t bytes;
    pair_t pair;

    open_keyed(&pair, LINK_SHM);
    must(tmsg_listener_blob(pair.a.listener, &data, &bytes));
    must_true(bytes <= sizeof(blob));
    memcpy(blob, data, bytes);
    must(tmsg_blob_decode(blob, bytes, &listeners));
    tmsg_listener_destroy(pair.a.listener); /* who could answer */
    pair.a.listener = NULL;
    must(tmsg_endpoint_connect_blob(pair.b.worker, blob, bytes, &late,
                                    &endpoint));
    overheard[0] = listeners.proofs;
    overheard[1] = endpoint->admit.theirs; /* the hash of the blob */
    overheard[2] = blob;
    memcpy(body, endpoint->token, TMSG_TOKEN_BYTES);
    for (size_t i = 0; i < COUNT(overheard); i++) {
        memcpy(body + BODY_BYTES, overheard[i], TMSG_PROOF_BYTES);
        memcpy(body + BODY_BYTES + TMSG_NONCE_BYTES, overheard[i],
               TMSG_PROOF_BYTES);
        send_unnamed(pair.to_b, TMSG_KIND_CONNECT_REPLY, endpoint->id, body,
                     sizeof(body));
        send_unnamed(pair.to_b, TMSG_KIND_WIREUP_REPLY, endpoint->id, body,
                     BODY_BYTES + TMSG_JOIN_EXTRA_BYTES);
        send_unnamed(pair.to_b, TMSG_KIND_WIREUP_REPLY, endpoint->id, body,
                     BODY_BYTES + LEASE_BYTES + TMSG_JOIN_EXTRA_BYTES);
        send_unnamed(pair.to_b, TMSG_KIND_CONNECT_REPLY, endpoint->id, body,
                     BODY_BYTES);
        send_unnamed(pair.to_b, TMSG_KIND_WIREUP_REPLY, endpoint->id, body,
                     BODY_BYTES);
        pass_a_map(&pair, &pair.b, pair.to_b);
        must_be(tmsg_endpoint_status(endpoint), TMSG_IN_PROGRESS);
        must_true(tmsg_endpoint_principal(endpoint) == NULL);
    }
    tmsg_endpoint_destroy(endpoint);
    pair_close(&pair);
}

/* Returns whether the call worked. If not, it was for want of memory. */
static bool had_memory(tmsg_status_t status)
{
    bool failed = failing_alloc_disarm();

    must_true(failed == (status != TMSG_OK));
    return !failed;
}

Test(admit_blob, every_allocation_may_fail)
{
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring};
    tmsg_listener_t *listener;
    const void *blob = NULL;
    size_t bytes = 0, n;
    bool done = false;
    pair_t pair;

    pair_open(&pair, LINK_BLOB, DRIVE_POLLING, &options, &options);
    for (n = 1; !done; n++) {
        failing_alloc_arm(n);
        done = had_memory(
            tmsg_listener_create(pair.a.worker, "blob://", NULL, &listener));
    }
    must_true(n > 4);
    done = false;
    for (n = 1; !done; n++) {
        failing_alloc_arm(n);
        done = had_memory(tmsg_listener_blob(listener, &blob, &bytes));
    }
    must_true(n > 2);
    tmsg_listener_destroy(listener);
    tmsg_keyring_destroy(keyring);
    pair_close(&pair);
}

static bool have_passed(void *arg)
{
    return ((const side_t *)arg)->listener->backlog.count == 0;
}

enum { MOST = 4, REQUESTS = 20 };

/* Without keys no peer is a stranger, so none makes way for others: a connect
 * request beyond the limit waits in the backlog, without a UCX endpoint. */
static void fill_with_connect_requests(pair_t *pair)
{
    pair_open(pair, LINK_BLOB, DRIVE_POLLING, NULL, NULL);
    be_patient(pair, MOST);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        connect_request_t connect_request;

        make_connect_request(pair, 0, 0xfffff000 + i,
                             pair->to_a->conn.number + 1 + i, &connect_request);
        send_connect_request(pair, &connect_request);
        free(connect_request.blob);
    }
    settle(pair);
    must_eq(counted(&pair->a, "handshakes"), MOST);
    must_eq(pair->a.listener->backlog.count, REQUESTS - MOST);
}

Test(admit_blob, half_open_ones_without_a_key_are_bounded)
{
    const void *blob;
    side_t client;
    char name[512];
    size_t bytes;
    pair_t pair;

    fill_with_connect_requests(&pair);
    /* The strangers of the backlog pass by. The honest peer, which is the last,
     * still gets in within its time. */
    pair.a.listener->max_handshakes = 2 * MOST;
    pair.a.listener->handshake_timeout_ms = 100;
    tmsg_backlog_call(pair.a.listener);
    pair_await(&pair, have_passed, &pair.a, "the end of those behind");
    await_count(&pair, "handshakes", MOST);
    pair.a.listener->handshake_timeout_ms = LONG_MS;
    must(tmsg_listener_blob(pair.a.listener, &blob, &bytes));
    open_side(&client, NULL);
    must(outcome(&pair.a, &client, blob, bytes, &late, name));
    must_true(counted(&pair.a, "handshakes") <= 2 * MOST);
    side_close(&client);
    pair_close(&pair);
}

/* A connect request that has waited for longer than a handshake may take is
 * dropped: its peer has given up. */
Test(admit_blob, who_has_waited_for_too_long_takes_no_place)
{
    pair_t pair;

    fill_with_connect_requests(&pair);
    pair.a.listener->max_handshakes = 2 * MOST;
    pair.a.listener->handshake_timeout_ms = 1;
    usleep(5000);
    tmsg_backlog_call(pair.a.listener);
    pair_await(&pair, have_passed, &pair.a, "the end of those who waited");
    must_eq(counted(&pair.a, "handshakes"), MOST);
    must_eq(counted(&pair.a, "timed_out"), REQUESTS - MOST);
    pair_close(&pair);
}
