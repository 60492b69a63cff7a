/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that has a key gets in, and is known by its principal. Other peers get
 * nowhere, are told no more than that, and keep nobody out. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "am/connect/link.h"
#include "am/endpoint/endpoint.h"
#include "support/frame_proxy.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

Test(admit, whoever_has_the_key_gets_in_by_name)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_UNIX};

    for (size_t i = 0; i < COUNT(links); i++) {
        tmsg_keyring_t *a = ring("alice", 1), *b = ring("the-server", 1);
        const side_options_t server = {.keyring = a}, client = {.keyring = b};
        pair_t pair;

        pair_open(&pair, links[i], DRIVE_POLLING, &server, &client);
        tmsg_keyring_destroy(a);
        tmsg_keyring_destroy(b);
        cr_expect_str_eq(tmsg_endpoint_principal(pair.to_b), "alice");
        pair_close(&pair);
    }
}

Test(admit, nobody_is_asked_without_a_keyring)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    cr_expect(tmsg_endpoint_principal(pair.to_a) == NULL);
    cr_expect(tmsg_endpoint_principal(pair.to_b) == NULL);
    pair_close(&pair);
}

/* Keys of the two sides, by number; 0: no keyring; 255: an empty one. */
static const struct {
    uint8_t server, client;
    tmsg_status_t status;
    const char *words;   /* to the client */
    const char *counted; /* by the server */
} rows[] = {
    {1, 2, TMSG_ERR_REFUSED, turned_away, "wrong_key"},
    {1, 0, TMSG_ERR_REFUSED, turned_away, "no_key"},
    {1, 255, TMSG_ERR_INSECURE, "this side's keyring is empty", "otherwise"},
    {255, 1, TMSG_ERR_REFUSED, turned_away, "wrong_key"},
    {0, 1, TMSG_ERR_INSECURE, "the peer has no key set", "otherwise"},
};

static tmsg_keyring_t *ring_of(uint8_t number)
{
    return number == 0     ? NULL
           : number == 255 ? ring(NULL, 0)
                           : ring("somebody", number);
}

typedef struct {
    const side_t *side;
    const char *name;
} turned_t;

static bool has_turned(void *arg)
{
    const turned_t *turned = arg;

    return counted(turned->side, turned->name) == 1;
}

Test(admit, whoever_lacks_it_is_refused_in_the_same_words)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        side_t server, client;
        char words[512];

        open_listening(&server, ring_of(rows[i].server));
        open_side(&client, ring_of(rows[i].client));
        must_be(dial_beside(&server, &client,
                            tmsg_listener_url(server.listener), words,
                            sizeof(words)),
                rows[i].status);
        must_say(words, rows[i].words);
        side_close(&client);
        must_eq(server.accepts, 0);
        side_await(&server, has_turned, &(turned_t){&server, rows[i].counted},
                   rows[i].counted);
        if (rows[i].server == 1) {
            expect_serves_key(&server, 1, "somebody");
        }
        side_close(&server);
    }
}

static bool has_accepted(void *arg)
{
    const turned_t *turned = arg;

    return counted(turned->side, turned->name) >= 41;
}

static char log_text[4096];

static void log_line(void *arg, tmsg_log_level_t level, const char *line)
{
    size_t used = strlen(log_text);

    (void)arg;
    (void)level;
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

Test(admit, the_log_of_a_listener_tells_them_apart)
{
    side_t server, client;
    char words[512];

    tmsg_log_set(TMSG_LOG_WARN, log_line, NULL);
    open_listening(&server, ring("alice", 1));
    open_side(&client, NULL);
    dial_beside(&server, &client, tmsg_listener_url(server.listener), words,
                sizeof(words));
    side_close(&client);
    must_say(log_text, "the peer has no key set, and this side asks for one");
    open_side(&client, ring("alice", 2));
    dial_beside(&server, &client, tmsg_listener_url(server.listener), words,
                sizeof(words));
    side_close(&client);
    must_say(log_text, "has proved no key that is in this side's keyring");
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    side_close(&server);
}

Test(admit, an_old_and_a_new_key_may_be_known_at_once)
{
    tmsg_keyring_t *keyring = ring("alice", 1);
    const side_options_t options = {.keyring = keyring};
    side_t server, client;
    char words[512];

    add_key(keyring, "alice", 2);
    add_key(keyring, "bob", 3);
    side_open(&server, &options);
    side_listen(&server, "tcp://127.0.0.1:0");
    expect_serves_key(&server, 1, "alice");
    expect_serves_key(&server, 2, "alice");
    expect_serves_key(&server, 3, "bob");
    must(tmsg_keyring_remove(keyring, "alice"));
    add_key(keyring, "alice", 2);
    expect_serves_key(&server, 2, "alice");
    open_side(&client, ring("alice", 1));
    must_be(dial_beside(&server, &client, tmsg_listener_url(server.listener),
                        words, sizeof(words)),
            TMSG_ERR_REFUSED);
    side_close(&client);
    tmsg_keyring_destroy(keyring);
    side_close(&server);
}

/* Keys are changed: the dialling side changes its own first, or last. */
Test(admit, a_dialling_side_proves_all_that_it_has)
{
    tmsg_keyring_t *keyring = ring("server", 1);
    side_t server, client;
    char words[512];

    open_listening(&server, ring("alice", 16));
    for (uint8_t i = 2; i <= TMSG_PROOFS_MOST; i++) {
        add_key(keyring, "server", i);
    }
    open_side(&client, keyring);
    must_be(dial_beside(&server, &client, tmsg_listener_url(server.listener),
                        words, sizeof(words)),
            TMSG_OK);
    side_close(&client);
    side_close(&server);
}

Test(admit, a_keyring_of_ones_own_outranks_the_contexts)
{
    tmsg_keyring_t *own = ring("own", 2);
    tmsg_listener_params_t listener = {
        .field_mask = TMSG_LISTENER_PARAM_KEYRING, .keyring = own};
    tmsg_endpoint_params_t dial = {.field_mask = TMSG_ENDPOINT_PARAM_KEYRING,
                                   .keyring = own};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    side_t side;

    open_side(&side, ring("context", 1));
    for (int i = 0; i < 2; i++) {
        must(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &listener,
                                  &side.listener));
        must(tmsg_endpoint_connect(
            side.worker, tmsg_listener_url(side.listener), &dial, &endpoint));
        must(tmsg_endpoint_ready(endpoint, &ready));
        must(side_finish(&side, ready));
        if (i == 0) {
            cr_expect_str_eq(tmsg_endpoint_principal(endpoint), "own");
        } else {
            cr_expect(tmsg_endpoint_principal(endpoint) == NULL);
        }
        tmsg_endpoint_destroy(endpoint);
        tmsg_listener_destroy(side.listener);
        listener.keyring = NULL; /* once more without any */
        dial.keyring = NULL;
        tmsg_keyring_destroy(i == 0 ? own : NULL);
    }
    side_close(&side);
}

Test(admit, with_a_key_any_address_may_be_bound)
{
    tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES,
        .max_handshake_bytes = 1023};
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    side_t side;

    open_side(&side, NULL);
    must_be(
        tmsg_listener_create(side.worker, "tcp://0.0.0.0:0", NULL, &listener),
        TMSG_ERR_INSECURE);
    must_say(tmsg_error_message(), "keyring");
    side_close(&side);
    open_side(&side, ring("alice", 1));
    must(tmsg_listener_create(side.worker, "tcp://0.0.0.0:0", NULL, &listener));
    must_be(
        tmsg_listener_create(side.worker, "ucx://127.0.0.1:0", NULL, &listener),
        TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "NULL keyring");
    must_be(tmsg_endpoint_connect(side.worker, "ucx://127.0.0.1:1", NULL,
                                  &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &params,
                                 &listener),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "1024");
    side_close(&side);
}

/* Makes a hello that the server accepts, up to the proof. */
static void good_hello(const side_t *server, tmsg_hello_t *hello)
{
    const tmsg_hello_t *theirs = &server->worker->ucx->hello;

    raw_hello(hello);
    hello->ucx_major = theirs->ucx_major;
    hello->ucx_minor = theirs->ucx_minor;
    hello->tcp_tx_seg = theirs->tcp_tx_seg;
    hello->tcp_rx_seg = theirs->tcp_rx_seg;
    hello->posix_seg = theirs->posix_seg;
    hello->admission = 1;
    hello->nonce[0] = 1;
}

/* A stranger has sent something to a listener that asks for a key, and its
 * connection ends. */
static void expect_end(side_t *server, raw_reader_t *reader, const char *what)
{
    side_await(server, raw_closed, reader, what);
    must_true(raw_find_frame(reader, TMSG_FRAME_ADDRESS, 0) == NULL);
    close(reader->fd);
    must_eq(server->accepts, 0);
}

Test(admit, a_peer_of_a_version_without_admission_is_told_so)
{
    raw_reader_t reader = {.bytes = 0};
    uint8_t data[TMSG_HELLO_BYTES_MAX];
    tmsg_hello_t hello;
    side_t server;
    size_t bytes;

    tmsg_log_set(TMSG_LOG_WARN, log_line, NULL);
    open_listening(&server, ring("alice", 1));
    raw_hello(&hello);
    tmsg_hello_untell_memory(
        &hello); /* so that admission, of 5 bytes, is last */
    must(tmsg_hello_encode(&hello, data, sizeof(data), &bytes));
    reader.fd = raw_dial(tmsg_listener_url(server.listener));
    raw_send_magic(reader.fd);
    raw_send_frame(reader.fd, TMSG_FRAME_HELLO, data, bytes - 5);
    expect_end(&server, &reader, "the end of an older peer");
    must_say(raw_find_frame(&reader, TMSG_FRAME_REFUSE, 4),
             "a version of tensormsg without admission");
    must_say(log_text, "older version of tensormsg, without admission");
    must_eq(counted(&server, "older"), 1);
    must_true(raw_find_frame(&reader, TMSG_FRAME_HELLO, 0) == NULL);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

Test(admit, a_peer_of_another_wire_version_is_told_no_more_than_that)
{
    raw_reader_t reader = {.bytes = 0};
    tmsg_hello_t hello;
    side_t server;

    open_listening(&server, ring("alice", 1));
    good_hello(&server, &hello);
    hello.wire_version++;
    reader.fd = raw_dial(tmsg_listener_url(server.listener));
    raw_send_magic(reader.fd);
    raw_send_hello(reader.fd, &hello);
    expect_end(&server, &reader, "the end of a peer of the future");
    must_say(raw_find_frame(&reader, TMSG_FRAME_REFUSE, 4), "wire version");
    must_true(raw_find_frame(&reader, TMSG_FRAME_HELLO, 0) == NULL);
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

/* Frames other than a hello and then a proof end the connection before anything
 * is told. */
Test(admit, other_frames_before_the_proof_end_it)
{
    static const struct {
        bool hello; /* comes first */
        uint8_t type;
        size_t bytes;
    } frames[] = {{true, TMSG_FRAME_ADDRESS, 64},
                  {true, TMSG_FRAME_RESUME, 64},
                  {true, TMSG_FRAME_RESUMED, 64},
                  {true, TMSG_FRAME_BYE, 4},
                  {true, TMSG_FRAME_FIN, 4},
                  {true, TMSG_FRAME_HEARTBEAT, 0},
                  {true, 99, 10},
                  {true, TMSG_FRAME_HELLO, 64},
                  {true, TMSG_FRAME_PROOF, 0},
                  {true, TMSG_FRAME_PROOF, 31},
                  {true, TMSG_FRAME_PROOF, 33},
                  {true, TMSG_FRAME_PROOF, 17 * 32},
                  {true, TMSG_FRAME_PROOF, 4096},
                  {true, TMSG_FRAME_PROOF, 4097},
                  {false, TMSG_FRAME_PROOF, 32},
                  {true, TMSG_FRAME_PROOF, 32},
                  {true, TMSG_FRAME_PROOF, 16 * 32}};
    static const uint8_t payload[5000] = {1};
    side_t server;

    open_listening(&server, ring("alice", 1));
    for (size_t i = 0; i < COUNT(frames); i++) {
        raw_reader_t reader = {.bytes = 0};
        tmsg_hello_t hello;

        good_hello(&server, &hello);
        reader.fd = raw_dial(tmsg_listener_url(server.listener));
        raw_send_magic(reader.fd);
        if (frames[i].hello) {
            raw_send_hello(reader.fd, &hello);
        }
        raw_send_frame(reader.fd, frames[i].type, payload, frames[i].bytes);
        expect_end(&server, &reader, "the end of a stranger");
    }
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

/* The recorded bytes of an honest peer get nobody in a second time. */
Test(admit, a_replayed_handshake_gets_nowhere)
{
    raw_reader_t reader = {.bytes = 0};
    side_t server, client;
    const uint8_t *said;
    middle_t *middle;
    char words[512];
    size_t bytes;

    open_listening(&server, ring("alice", 1));
    middle = middle_open(tmsg_listener_url(server.listener), NULL, NULL);
    open_side(&client, ring("server", 1));
    must_be(
        dial_beside(&server, &client, middle_url(middle), words, sizeof(words)),
        TMSG_OK);
    side_close(&client);
    bytes = middle_heard(middle, MIDDLE_THERE, &said);
    must_true(bytes > 500);
    must_eq(server.accepts, 1);
    server.accepts = 0;
    reader.fd = raw_dial(tmsg_listener_url(server.listener));
    raw_send(reader.fd, said, bytes);
    expect_end(&server, &reader, "the end of a replay");
    must_eq(counted(&server, "wrong_key"), 1);
    middle_close(middle);
    expect_serves_key(&server, 1, "alice");
    side_close(&server);
}

/* Sends back all that the dialling side says: hello, nonce, proof. */
static void *echo(void *arg)
{
    int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    char data[8192];
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), 0)) > 0) {
        send(fd, data, (size_t)n, MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

Test(admit, a_reflected_handshake_gets_nowhere)
{
    side_t nobody, client;
    char url[64], words[512];
    pthread_t thread;
    int fd = raw_listen(url, sizeof(url));

    must_eq(pthread_create(&thread, NULL, echo, &fd), 0);
    open_side(&nobody, NULL);
    open_side(&client, ring("server", 1));
    must_be(dial_beside(&nobody, &client, url, words, sizeof(words)),
            TMSG_ERR_INSECURE);
    must_say(words, "has proved no key");
    pthread_join(thread, NULL);
    close(fd);
    side_close(&client);
    side_close(&nobody);
}

/* No descriptors are reserved for UCX for peers that have proved nothing. */
Test(admit, who_only_holds_places_takes_no_descriptors)
{
    const char *url;
    struct rlimit limit;
    tmsg_endpoint_t *warm;
    tmsg_request_t *ready;
    side_t server, client;
    char words[512];
    int held[40];
    int next;

    open_listening(&server, ring("alice", 1));
    url = tmsg_listener_url(server.listener);
    open_side(&client, ring("server", 1));
    must(tmsg_endpoint_connect(client.worker, url, NULL, &warm));
    must(tmsg_endpoint_ready(warm, &ready)); /* UCX has opened what it needs */
    must(pair_finish(&(pair_t){.sides = {&server, &client}}, ready));
    for (size_t i = 0; i < COUNT(held); i++) {
        held[i] = raw_dial(url);
        raw_send(held[i], "TMSG", 4);
    }
    side_await(&server, has_accepted, &(turned_t){&server, "accepted"},
               "strangers");
    next = dup(0);
    must_true(next > 0 && close(next) == 0);
    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)next + 40;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    must_be(dial_beside(&server, &client, url, words, sizeof(words)), TMSG_OK);
    for (size_t i = 0; i < COUNT(held); i++) {
        close(held[i]);
    }
    tmsg_endpoint_destroy(warm);
    side_close(&client);
    side_close(&server);
}

/* Many peers connect and say nothing, for longer than this test waits. */
Test(admit, who_only_holds_places_makes_way)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |
                      TMSG_LISTENER_PARAM_MAX_HANDSHAKES,
        .handshake_timeout_ms = 600000,
        .max_handshakes = 4,
    };
    raw_reader_t first = {.bytes = 0};
    int held[24];
    side_t server, client;
    char words[512];

    open_side(&server, ring("alice", 1));
    must(tmsg_listener_create(server.worker, "tcp://127.0.0.1:0", &params,
                              &server.listener));
    first.fd = raw_dial(tmsg_listener_url(server.listener));
    raw_send_magic(first.fd);
    for (size_t i = 0; i < COUNT(held); i++) {
        held[i] = raw_dial(tmsg_listener_url(server.listener));
        raw_send(held[i], "TMSG", 4);
    }
    open_side(&client, ring("server", 1));
    for (int i = 0; i < 3; i++) {
        must_be(dial_beside(&server, &client,
                            tmsg_listener_url(server.listener), words,
                            sizeof(words)),
                TMSG_OK);
    }
    side_close(&client);
    side_await(&server, raw_closed, &first, "the end of the oldest");
    must_say(raw_find_frame(&first, TMSG_FRAME_REFUSE, 4), "gave way");
    must_true(counted(&server, "too_many") >= COUNT(held) - 3);
    close(first.fd);
    for (size_t i = 0; i < COUNT(held); i++) {
        close(held[i]);
    }
    side_close(&server);
}

Test(admit, time_and_length_are_bounded_and_counted)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |
                      TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES,
        .handshake_timeout_ms = 1000,
        .max_handshake_bytes = 1024,
    };
    static const uint8_t header[] = {1, 4, 0, 0, TMSG_FRAME_HELLO};
    raw_reader_t silent = {.bytes = 0}, loud = {.bytes = 0};
    side_t server;

    open_side(&server, ring("alice", 1));
    must(tmsg_listener_create(server.worker, "tcp://127.0.0.1:0", &params,
                              &server.listener));
    silent.fd = raw_dial(tmsg_listener_url(server.listener));
    loud.fd = raw_dial(tmsg_listener_url(server.listener));
    raw_send_magic(loud.fd);
    raw_send(loud.fd, header, sizeof(header)); /* 1025 bytes */
    expect_end(&server, &loud, "the end of who says too much");
    expect_end(&server, &silent, "the end of who says nothing");
    must_eq(counted(&server, "too_long"), 1);
    must_eq(counted(&server, "timed_out"), 1);
    must_eq(counted(&server, "accepted"), 2);
    must_eq(counted(&server, "connected"), 0);
    side_close(&server);
}
