/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting and listening: what works, what is refused and in which words,
 * and what strangers on the bootstrap socket cost. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/endpoint.h"
#include "support/peers.h"
#include "support/raw.h"
#include "support/sample.h"

#define FRAME_HELLO 1
#define FRAME_REFUSE 2
#define FRAME_ADDRESS 3

/* Connects a new side to where `to` listens, passes a map, and closes. */
static void expect_serves(side_t *to)
{
    unsigned before = to->accepts;
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    tmsg_request_t *closed;
    pair_t pair;

    memset(&pair, 0, sizeof(pair));
    side_open(&pair.b, NULL);
    pair.sides[0] = to;
    pair.sides[1] = &pair.b;
    endpoint = side_dial(&pair.b, to);
    tmsg_request_destroy(send_map(endpoint, sample_bytes(7, 1000), 0));
    message = pair_take(&pair, to);
    sample_check_bytes(7, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(tmsg_endpoint_close(endpoint, &closed));
    must(pair_finish(&pair, closed));
    must_eq(to->accepts, before + 1);
    must_be(pair_end_of(&pair, to->accepted), TMSG_ERR_CLOSED);
    tmsg_endpoint_destroy(to->accepted);
    side_close(&pair.b);
}

/* Connects, and gives what became of it, with its words. */
static tmsg_status_t outcome(side_t *side, const char *url, int timeout_ms,
                             char *words, size_t bytes)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = timeout_ms,
    };
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    tmsg_status_t status;

    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    status = side_wait(side, ready);
    snprintf(words, bytes, "%s", tmsg_request_error(ready));
    must_eq(tmsg_endpoint_status(endpoint), status);
    must_say(tmsg_endpoint_error(endpoint), words);
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(endpoint);
    return status;
}

Test(connect, a_port_in_use_is_named)
{
    tmsg_listener_t *listener;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    must_be(tmsg_listener_create(side.worker, tmsg_listener_url(side.listener),
                                 NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), tmsg_listener_url(side.listener));
    side_close(&side);
}

Test(connect, port_0_picks_a_free_port_and_says_which)
{
    side_t a, b;

    side_open(&a, NULL);
    side_open(&b, NULL);
    side_listen(&a, "tcp://127.0.0.1:0");
    side_listen(&b, "127.0.0.1:0");
    must_say(tmsg_listener_url(a.listener), "tcp://127.0.0.1:");
    cr_expect(
        not(zero(int, atoi(strrchr(tmsg_listener_url(a.listener), ':') + 1))));
    cr_expect(ne(str, (char *)(uintptr_t)tmsg_listener_url(a.listener),
                 (char *)(uintptr_t)tmsg_listener_url(b.listener)));
    expect_serves(&b);
    side_close(&a);
    side_close(&b);
}

Test(connect, an_empty_host_is_loopback)
{
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://:0");
    must_say(tmsg_listener_url(side.listener), "tcp://127.0.0.1:");
    expect_serves(&side);
    side_close(&side);
}

Test(connect, names_are_looked_up)
{
    char url[64];
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://localhost:0");
    snprintf(url, sizeof(url), "localhost%s",
             strrchr(tmsg_listener_url(side.listener), ':'));
    side_connect(&side, url);
    expect_serves(&side);
    side_close(&side);
}

static side_t *looking_up;

/* Uses the worker for which a name is looked up. */
static int lookup_by_worker(const char *host, const char *service,
                            const struct addrinfo *hints,
                            struct addrinfo **result_p)
{
    (void)host;
    tmsg_worker_progress(looking_up->worker);
    return getaddrinfo("127.0.0.1", service, hints, result_p);
}

static void listen_in_a_callback(void *arg, tmsg_endpoint_t *endpoint)
{
    side_t *side = arg;
    tmsg_listener_t *listener;

    (void)endpoint;
    must_be(tmsg_listener_create(side->worker, "tcp://some.name:0", NULL,
                                 &listener),
            TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "some.name");
    must_be(
        tmsg_listener_create(side->worker, "blob://some.name", NULL, &listener),
        TMSG_ERR_WOULD_BLOCK);
    must(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", NULL,
                              &listener));
    side->accepts++;
}

/* Whoever looks up a name keeps nobody else from the worker, */
Test(connect, a_name_is_looked_up_without_the_workers_lock)
{
    static const char *const urls[] = {"tcp://some.name:0", "blob://some.name"};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};
    side_t side;

    side_open(&side, &options);
    looking_up = &side;
    tmsg_resolve_set_lookup(lookup_by_worker);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        side_listen(&side, urls[i]);
    }
    side_close(&side);
}

/* and a callback, in which it would, is told. */
Test(connect, a_name_in_a_callback_would_block)
{
    side_t side;
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = listen_in_a_callback,
        .on_accept_arg = &side,
    };

    side_open(&side, NULL);
    must(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &params,
                              &side.listener));
    side_dial(&side, &side);
    side_accept(&side);
    side_close(&side);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool works = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback,
                                 sizeof(loopback)) == 0;

    close(fd);
    return works;
}

Test(connect, ipv6_loopback_works)
{
    side_t side;

    if (!has_ipv6()) {
        cr_skip_test("no IPv6 on this machine");
    }
    side_open(&side, NULL);
    side_listen(&side, "tcp://[::1]:0");
    must_say(tmsg_listener_url(side.listener), "tcp://[::1]:");
    expect_serves(&side);
    side_close(&side);
}

Test(connect, binding_beyond_loopback_needs_to_be_allowed)
{
    static const char *const urls[] = {"tcp://0.0.0.0:0", "tcp://[::]:0"};
    const tmsg_listener_params_t allowed = {
        .field_mask = TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .allow_unauthenticated = 1,
    };
    tmsg_listener_t *listener;
    side_t side;

    side_open(&side, NULL);
    for (size_t i = 0; i < 2; i++) {
        must_be(tmsg_listener_create(side.worker, urls[i], NULL, &listener),
                TMSG_ERR_INSECURE);
        must_say(tmsg_error_message(), urls[i]);
        must_say(tmsg_error_message(), "allow_unauthenticated");
        must(tmsg_listener_create(side.worker, urls[i], &allowed, &listener));
        tmsg_listener_destroy(listener);
    }
    must_be(
        tmsg_listener_create(side.worker, "blob://0.0.0.0", NULL, &listener),
        TMSG_ERR_INSECURE);
    side_close(&side);
}

Test(connect, an_unknown_host_is_not_found)
{
    char words[512];
    side_t side;

    side_open(&side, NULL);
    must_be(outcome(&side, "tcp://no-such-host.invalid:4000", 20000, words,
                    sizeof(words)),
            TMSG_ERR_NOT_FOUND);
    must_say(words, "no-such-host.invalid");
    side_close(&side);
}

Test(connect, nobody_listening_is_unreachable)
{
    char url[64], words[512];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    close(fd);
    side_open(&side, NULL);
    must_be(outcome(&side, url, 5000, words, sizeof(words)),
            TMSG_ERR_UNREACHABLE);
    must_say(words, url);
    must_be(outcome(&side, "unix:///tmp/tmsg-nobody-is-here", 5000, words,
                    sizeof(words)),
            TMSG_ERR_UNREACHABLE);
    must_say(words, "unix:///tmp/tmsg-nobody-is-here");
    side_close(&side);
}

Test(connect, malformed_urls_are_refused_by_name)
{
    static const char *const urls[] = {
        "",           "tcp://host",    "rdma://a:1", "tcp://a:65536",
        "unix://rel", "tcp://[::1:80", "blob://",    "tcp://a:1/x"};
    tmsg_endpoint_t *endpoint = NULL;
    side_t side;

    side_open(&side, NULL);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        must_be(tmsg_endpoint_connect(side.worker, urls[i], NULL, &endpoint),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), urls[i]);
        cr_expect(eq(ptr, endpoint, NULL));
    }
    side_close(&side);
}

Test(connect, a_silent_listener_times_out)
{
    char url[64], words[512];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    side_open(&side, NULL);
    must_be(outcome(&side, url, 300, words, sizeof(words)), TMSG_ERR_TIMED_OUT);
    must_say(words, url);
    side_close(&side);
    close(fd);
}

/* A listener that answers by hand: takes the one connection, then says. */
typedef struct {
    int listener;
    int fd;
    const void *answer;
    size_t bytes;
    const tmsg_hello_t *hello;
    tmsg_endpoint_t *endpoint;
} false_listener_t;

static bool answered(void *arg)
{
    false_listener_t *false_one = arg;

    if (false_one->fd < 0) {
        false_one->fd = accept4(false_one->listener, NULL, NULL, SOCK_CLOEXEC);
        if (false_one->fd >= 0 && false_one->hello != NULL) {
            raw_send_magic(false_one->fd);
            raw_send_hello(false_one->fd, false_one->hello);
        } else if (false_one->fd >= 0 && false_one->bytes > 0) {
            raw_send(false_one->fd, false_one->answer, false_one->bytes);
        } else if (false_one->fd >= 0) {
            shutdown(false_one->fd, SHUT_RDWR);
        }
    }
    return tmsg_endpoint_status(false_one->endpoint) < 0;
}

/* What dialling it comes to. */
static tmsg_status_t dial_false(side_t *side, false_listener_t *false_one,
                                char *words, size_t bytes)
{
    char url[64];
    tmsg_status_t status;

    false_one->listener = raw_listen(url, sizeof(url));
    false_one->fd = -1;
    fcntl(false_one->listener, F_SETFL, O_NONBLOCK);
    must(tmsg_endpoint_connect(side->worker, url, NULL, &false_one->endpoint));
    side_await(side, answered, false_one, "an end");
    status = tmsg_endpoint_status(false_one->endpoint);
    snprintf(words, bytes, "%s", tmsg_endpoint_error(false_one->endpoint));
    must_say(words, url);
    tmsg_endpoint_destroy(false_one->endpoint);
    close(false_one->fd);
    close(false_one->listener);
    return status;
}

Test(connect, a_listener_of_another_kind_is_malformed)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    false_listener_t false_one = {.answer = http, .bytes = sizeof(http) - 1};
    char words[512];
    side_t side;

    side_open(&side, NULL);
    must_be(dial_false(&side, &false_one, words, sizeof(words)),
            TMSG_ERR_MALFORMED);
    must_say(words, "HTTP/1.1");
    side_close(&side);
}

Test(connect, a_listener_that_hangs_up_is_lost)
{
    false_listener_t false_one = {.bytes = 0};
    char words[512];
    side_t side;

    side_open(&side, NULL);
    must_be(dial_false(&side, &false_one, words, sizeof(words)),
            TMSG_ERR_PEER_LOST);
    side_close(&side);
}

/* Where UCX never met the peer nothing can have happened to its worker. */
Test(connect, a_peer_that_hangs_up_at_once_costs_no_ucx_worker)
{
    false_listener_t false_one;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    char words[512];
    tmsg_ucx_t *ucx;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    ucx = pair.to_a->ucx;
    for (int i = 0; i < 3; i++) {
        false_one = (false_listener_t){.bytes = 0};
        must_be(dial_false(&pair.b, &false_one, words, sizeof(words)),
                TMSG_ERR_PEER_LOST);
        endpoint = side_dial(&pair.b, &pair.a);
        must(tmsg_endpoint_ready(endpoint, &ready));
        must(pair_finish(&pair, ready));
        must_true(endpoint->ucx == ucx);
    }
    must_true(!ucx->retired);
    pair_close(&pair);
}

Test(connect, a_listener_of_another_wire_version_is_refused_by_both_versions)
{
    false_listener_t false_one = {.bytes = 0};
    tmsg_hello_t hello;
    char words[512];
    side_t side;

    raw_hello(&hello);
    hello.wire_version = 9;
    false_one.hello = &hello;
    side_open(&side, NULL);
    must_be(dial_false(&side, &false_one, words, sizeof(words)),
            TMSG_ERR_INCOMPATIBLE);
    must_say(words, "version 9");
    must_say(words, "this side 0");
    side_close(&side);
}

Test(connect, a_listener_of_another_ucx_is_refused_by_both_versions)
{
    false_listener_t false_one = {.bytes = 0};
    tmsg_hello_t hello;
    char words[512];
    side_t side;

    raw_hello(&hello);
    false_one.hello = &hello;
    side_open(&side, NULL);
    must_be(dial_false(&side, &false_one, words, sizeof(words)),
            TMSG_ERR_INCOMPATIBLE);
    must_say(words, "UCX 1.2.3");
    must_say(words, "this side UCX 1.");
    side_close(&side);
}

/* What a stranger says to a listener, and what it is told. */
static void expect_refusal(uint8_t wire_version, const char *part)
{
    raw_reader_t reader = {.bytes = 0};
    tmsg_hello_t hello;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    raw_hello(&hello);
    hello.wire_version = wire_version;
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    raw_send_magic(reader.fd);
    raw_send_hello(reader.fd, &hello);
    side_await(&side, raw_closed, &reader, "the refusal of a stranger");
    must_true(raw_find_frame(&reader, FRAME_HELLO, 0) != NULL);
    must_say(raw_find_frame(&reader, FRAME_REFUSE, 4), part);
    close(reader.fd);
    expect_serves(&side);
    side_close(&side);
}

Test(connect, a_dialler_of_another_wire_version_is_told)
{
    expect_refusal(9, "wire version 9");
}

Test(connect, a_dialler_of_another_ucx_is_told) { expect_refusal(0, "1.2.3"); }

/* Bytes that no dialler of ours would send; each ends its connection. */
static void expect_hang_up(const char *what, const void *data, size_t bytes)
{
    raw_reader_t reader = {.bytes = 0};
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    raw_send(reader.fd, data, bytes);
    side_await(&side, raw_closed, &reader, what);
    close(reader.fd);
    must_eq(side.accepts, 0);
    expect_serves(&side);
    side_close(&side);
}

Test(connect, garbage_costs_its_peer_only)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    uint8_t noise[65536];

    expect_hang_up("http", http, sizeof(http) - 1);
    memset(noise, 0xff, sizeof(noise));
    expect_hang_up("ones", noise, sizeof(noise));
    sample_fill(1, noise, sizeof(noise));
    expect_hang_up("noise", noise, sizeof(noise));
}

Test(connect, wrong_frames_cost_their_peer_only)
{
    static const struct {
        const char *what;
        uint8_t header[5];
        size_t bytes; /* of payload that follows */
    } rows[] = {
        {"a frame of 4 GiB", {255, 255, 255, 255, FRAME_HELLO}, 0},
        {"a frame of 64 KiB + 1", {1, 0, 1, 0, FRAME_HELLO}, 0},
        {"an empty hello", {0, 0, 0, 0, FRAME_HELLO}, 0},
        {"a hello of zeros", {64, 0, 0, 0, FRAME_HELLO}, 64},
        {"an address before the hello", {64, 0, 0, 0, FRAME_ADDRESS}, 64},
        {"an end before the hello", {4, 0, 0, 0, 6}, 4},
        {"a refusal of our own", {8, 0, 0, 0, FRAME_REFUSE}, 8},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t data[256] = "TMSGBOOT";

        memcpy(data + 8, rows[i].header, 5);
        expect_hang_up(rows[i].what, data, 13 + rows[i].bytes);
    }
}

/* A listener with short patience. */
static void listen_short(side_t *side, uint32_t max_handshakes)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |
                      TMSG_LISTENER_PARAM_MAX_HANDSHAKES,
        .handshake_timeout_ms = 300,
        .max_handshakes = max_handshakes,
    };

    side_open(side, NULL);
    must(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", &params,
                              &side->listener));
}

Test(connect, silence_is_cut_off_after_the_handshake_timeout)
{
    raw_reader_t reader = {.bytes = 0};
    side_t side;

    listen_short(&side, 128);
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    side_await(&side, raw_closed, &reader, "the end of a silent connection");
    close(reader.fd);
    side_close(&side);
}

/* A byte of a hello now and then, never the whole. */
typedef struct {
    raw_reader_t reader;
    uint8_t hello[TMSG_HELLO_BYTES_MAX];
    size_t sent;
    unsigned rounds;
} drip_t;

static bool dripped_out(void *arg)
{
    drip_t *drip = arg;

    if (++drip->rounds % 500 == 0 && drip->sent < sizeof(drip->hello)) {
        send(drip->reader.fd, drip->hello + drip->sent++, 1, MSG_NOSIGNAL);
    }
    return raw_closed(&drip->reader);
}

Test(connect, a_slow_drip_is_cut_off_too)
{
    drip_t drip = {.sent = 0};
    side_t side;

    memcpy(drip.hello, "TMSGBOOT\xff\0\0\0\1", 13);
    listen_short(&side, 128);
    drip.reader.fd = raw_dial(tmsg_listener_url(side.listener));
    side_await(&side, dripped_out, &drip, "the end of a slow connection");
    cr_expect(ge(sz, drip.sent, 1));
    close(drip.reader.fd);
    side_close(&side);
}

Test(connect, a_half_open_connection_is_ended_at_once)
{
    raw_reader_t reader = {.bytes = 0};
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    raw_send(reader.fd, "TMSG", 4);
    shutdown(reader.fd, SHUT_WR);
    side_await(&side, raw_closed, &reader, "the end of a half-open connection");
    close(reader.fd);
    expect_serves(&side);
    side_close(&side);
}

Test(connect, strangers_leave_no_descriptors_behind)
{
    int before;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    expect_serves(&side);
    before = count_descriptors();
    for (int i = 0; i < 200; i++) {
        raw_reader_t reader = {.fd =
                                   raw_dial(tmsg_listener_url(side.listener))};

        raw_send(reader.fd, "x", 1);
        side_await(&side, raw_closed, &reader, "the end of a stranger");
        close(reader.fd);
    }
    cr_expect(eq(int, count_descriptors(), before));
    side_close(&side);
}

#define FLOOD_FRAMES 10000
#define FLOOD_FRAME_BYTES 105

/* Writes frames of no known type for as long as somebody reads them. */
typedef struct {
    int fd;
    size_t sent; /* of frames, in this round */
    uint8_t frames[FLOOD_FRAMES * FLOOD_FRAME_BYTES];
} flood_t;

static bool pour(flood_t *stream, int flags)
{
    ssize_t put = send(stream->fd, stream->frames + stream->sent,
                       sizeof(stream->frames) - stream->sent, flags);

    if (put > 0) {
        stream->sent = (stream->sent + (size_t)put) % sizeof(stream->frames);
    }
    return put > 0;
}

static void *flood(void *arg)
{
    while (pour(arg, MSG_NOSIGNAL)) {
    }
    return NULL;
}

static void fill_flood(flood_t *stream, int fd)
{
    memset(stream->frames, 0, sizeof(stream->frames));
    for (size_t i = 0; i < FLOOD_FRAMES; i++) {
        stream->frames[i * FLOOD_FRAME_BYTES] = FLOOD_FRAME_BYTES - 5;
        stream->frames[i * FLOOD_FRAME_BYTES + 4] = 200;
    }
    stream->fd = fd;
    stream->sent = 0;
}

static int waiting(int fd)
{
    int bytes = 0;

    must_eq(ioctl(fd, FIONREAD, &bytes), 0);
    return bytes;
}

/* Before its hello nobody says anything that we do not know. */
Test(connect, a_strangers_flood_of_frames_ends_it)
{
    flood_t *stream = malloc(sizeof(*stream));
    raw_reader_t reader = {.bytes = 0};
    pthread_t thread;
    side_t side;

    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT,
        .handshake_timeout_ms = 2 * PEERS_BOUND_MS,
    };

    side_open(&side, NULL);
    must(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &params,
                              &side.listener));
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    raw_send_magic(reader.fd);
    fill_flood(stream, reader.fd);
    must_eq(pthread_create(&thread, NULL, flood, stream), 0);
    side_await(&side, raw_closed, &reader, "the end of a flood");
    must_eq(pthread_join(thread, NULL), 0);
    close(reader.fd);
    side_close(&side);
    free(stream);
}

/* One that was admitted may say what a later version knows, but no call stays
 * with it for as long as it speaks, and the others are served meanwhile. */
Test(connect, a_peers_flood_of_frames_starves_nobody)
{
    flood_t *stream = malloc(sizeof(*stream));
    pthread_t thread;
    pair_t pair;
    int fd, most = 0;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    fd = dup(pair.to_a->link.fd);
    fill_flood(stream, fd);
    while (pour(stream, MSG_NOSIGNAL | MSG_DONTWAIT)) {
    }
    must_true(waiting(pair.to_b->link.fd) > 100000);
    for (int before = waiting(pair.to_b->link.fd), now; before > 0;
         before = now) {
        tmsg_worker_progress(pair.a.worker);
        now = waiting(pair.to_b->link.fd);
        most = before - now > most ? before - now : most;
    }
    cr_expect(le(int, most, 64 * 1024));
    must(tmsg_endpoint_status(pair.to_b));
    must_true(fcntl(fd, F_SETFL, 0) == 0);
    must_eq(pthread_create(&thread, NULL, flood, stream), 0);
    expect_serves(&pair.a);
    tmsg_endpoint_destroy(pair.to_a);
    must_true(pair_end_of(&pair, pair.to_b) < 0);
    must_eq(pthread_join(thread, NULL), 0);
    close(fd);
    pair_drop(&pair);
    free(stream);
}

/* Two silent connections fill both places; the next waits and is served when
 * their time is over. */
Test(connect, handshakes_beyond_the_most_wait_for_a_place)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    int silent[2];
    side_t side;

    listen_short(&side, 2);
    for (size_t i = 0; i < 2; i++) {
        silent[i] = raw_dial(tmsg_listener_url(side.listener));
    }
    must(tmsg_endpoint_connect(side.worker, tmsg_listener_url(side.listener),
                               NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(&side, ready));
    close(silent[0]);
    close(silent[1]);
    side_close(&side);
}

Test(connect, a_stale_socket_file_is_replaced_and_a_live_one_kept)
{
    tmsg_listener_t *listener;
    char url[256], path[200];
    struct stat file;
    side_t side;

    snprintf(path, sizeof(path), "%s", scratch_path("sock"));
    snprintf(url, sizeof(url), "unix://%s", path);
    side_open(&side, NULL);
    side_listen(&side, url);
    must_be(tmsg_listener_create(side.worker, url, NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), path);
    expect_serves(&side);
    tmsg_listener_destroy(side.listener);
    must_true(stat(path, &file) != 0);
    side_close(&side);

    must_eq(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    side_open(&side, NULL);
    must_be(tmsg_listener_create(side.worker, url, NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_eq(unlink(path), 0);
    side_close(&side);
}

static void listen_and_die(pipes_t *pipes, void *arg)
{
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, arg);
    line_put(pipes->out, "listening");
    for (;;) {
        pause();
    }
}

Test(connect, the_socket_file_of_a_killed_listener_is_replaced)
{
    char url[256], line[32];
    struct stat file;
    child_t child;
    side_t side;

    snprintf(url, sizeof(url), "unix://%s", scratch_path("killed"));
    child_start(&child, listen_and_die, url);
    line_get(child.in, line, sizeof(line));
    child_kill(&child);
    must_eq(stat(url + 7, &file), 0);
    side_open(&side, NULL);
    side_listen(&side, url);
    expect_serves(&side);
    side_close(&side);
}

/* Whether a socket is one of this process's. */
static bool is_ours(unsigned long inode)
{
    for (int fd = 0; fd < 256; fd++) {
        struct stat file;

        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) &&
            file.st_ino == inode) {
            return true;
        }
    }
    return false;
}

/* Ports that this process listens on, those of loopback left out if asked. */
static int count_ports(bool loopback_too)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int count = 0;

    for (size_t i = 0; i < 2; i++) {
        FILE *table = fopen(tables[i], "r");
        char line[512], address[64];
        unsigned state;
        unsigned long inode;

        while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
            if (sscanf(line, "%*s %63s %*s %x %*s %*s %*s %*s %*s %lu", address,
                       &state, &inode) == 3 &&
                state == 10 && is_ours(inode)) {
                bool loopback = strncmp(address, "0100007F:", 9) == 0 ||
                                strncmp(address,
                                        "0000000000000000000000000100"
                                        "0000:",
                                        33) == 0;

                count += loopback_too || !loopback;
            }
        }
        if (table != NULL) {
            fclose(table);
        }
    }
    return count;
}

Test(connect, unix_opens_no_port)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(int, count_ports(true), 0));
    cr_expect(endpoint_uses(pair.to_a, "posix/"));
    cr_expect(not(endpoint_uses(pair.to_a, "tcp/")));
    pair_close(&pair);
}

Test(connect, a_loopback_listener_opens_loopback_ports_alone)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_BLOB};

    for (size_t i = 0; i < 3; i++) {
        pair_t pair;

        pair_open(&pair, links[i], DRIVE_POLLING, NULL, NULL);
        cr_expect(ge(int, count_ports(true), 1));
        cr_expect(eq(int, count_ports(false), 0));
        pair_close(&pair);
    }
}

Test(connect, fifty_endpoints_on_a_worker_each_carry_their_own)
{
    enum { PEERS = 50 };
    tmsg_endpoint_t *endpoints[PEERS], *from[PEERS];
    bool seen[PEERS] = {false};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < PEERS; i++) {
        endpoints[i] = side_dial(&pair.b, &pair.a);
        tmsg_request_destroy(
            send_map(endpoints[i], sample_bytes(100 + i, 100 + i), 0));
    }
    for (size_t i = 0; i < PEERS; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_tensor_t tensor;
        size_t who;

        must(tmsg_map_find(tmsg_message_map(message), "weights 0", &tensor));
        who = (size_t)tensor.shape[0] - 100;
        must_true(who < PEERS && !seen[who]);
        seen[who] = true;
        from[who] = tmsg_message_endpoint(message);
        tmsg_message_destroy(message);
    }
    for (size_t i = 0; i < PEERS; i++) {
        tmsg_message_t *message = NULL;

        tmsg_request_destroy(
            send_map(from[i], sample_bytes(200 + i, 9), TMSG_SEND_ACKED));
        message = pair_take(&pair, &pair.b);
        must_true(tmsg_message_endpoint(message) == endpoints[i]);
        sample_check_bytes(200 + i, 9, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    pair_drop(&pair);
}

/* Each dials the other at the same time. */
static void crossing(link_t link)
{
    tmsg_endpoint_t *a_to_b, *b_to_a;
    tmsg_request_t *ready[2];
    tmsg_message_t *message;
    pair_t pair = {.to_a = NULL};

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, NULL);
    side_open(&pair.b, NULL);
    side_listen_link(&pair.a, link);
    side_listen_link(&pair.b, link);
    a_to_b = side_dial(&pair.a, &pair.b);
    b_to_a = side_dial(&pair.b, &pair.a);
    must(tmsg_endpoint_ready(a_to_b, &ready[0]));
    must(tmsg_endpoint_ready(b_to_a, &ready[1]));
    must(pair_finish(&pair, ready[0]));
    must(pair_finish(&pair, ready[1]));
    tmsg_request_destroy(send_map(a_to_b, sample_bytes(1, 11), 0));
    tmsg_request_destroy(send_map(b_to_a, sample_bytes(2, 22), 0));
    message = pair_take(&pair, &pair.b);
    must_true(tmsg_message_endpoint(message) == pair.b.accepted);
    sample_check_bytes(1, 11, tmsg_message_map(message));
    tmsg_message_destroy(message);
    message = pair_take(&pair, &pair.a);
    must_true(tmsg_message_endpoint(message) == pair.a.accepted);
    sample_check_bytes(2, 22, tmsg_message_map(message));
    tmsg_message_destroy(message);
    /* One ends, the other goes on. */
    tmsg_endpoint_destroy(a_to_b);
    must_be(pair_end_of(&pair, pair.b.accepted), TMSG_ERR_PEER_LOST);
    tmsg_request_destroy(send_map(b_to_a, sample_bytes(3, 33), 0));
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(3, 33, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_drop(&pair);
}

Test(connect, crossing_connects_stay_two_connections)
{
    for (link_t link = 0; link < LINKS; link++) {
        crossing(link);
    }
}

/* Many connections of one pair of workers at once, whose attaches may overtake
 * each other: each keeps its own two ends. */
static void many_at_once(link_t link)
{
    enum { AT_ONCE = 20 };
    tmsg_endpoint_t *endpoints[AT_ONCE];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            endpoints[i] = side_dial(&pair.b, &pair.a);
        }
        for (size_t i = AT_ONCE; i-- > 0;) {
            tmsg_request_t *sent = send_map(
                endpoints[i], sample_bytes(i, 50 + i), TMSG_SEND_ACKED);
            tmsg_message_t *message = pair_take(&pair, &pair.a), *answer;

            sample_check_bytes(i, 50 + i, tmsg_message_map(message));
            must(pair_finish(&pair, sent));
            tmsg_request_destroy(send_map(tmsg_message_endpoint(message),
                                          sample_bytes(~i, 60 + i), 0));
            answer = pair_take(&pair, &pair.b);
            must_true(tmsg_message_endpoint(answer) == endpoints[i]);
            tmsg_message_destroy(answer);
            tmsg_message_destroy(message);
        }
        for (size_t i = 0; i < AT_ONCE; i += 2) {
            tmsg_endpoint_destroy(endpoints[i]);
        }
    }
    pair_drop(&pair);
}

Test(connect, connections_of_one_pair_keep_their_ends_apart)
{
    for (link_t link = 0; link < LINKS; link++) {
        many_at_once(link);
    }
}

/* Drives the dialling side alone until UCX has an endpoint for it, and gives it
 * up before it can knock. */
static void abandon_a_dial(pair_t *pair)
{
    tmsg_endpoint_t *endpoint = side_dial(&pair->b, &pair->a);

    while (endpoint->ep == NULL) {
        must(tmsg_endpoint_status(endpoint) < 0 ? TMSG_ERR_INTERNAL : TMSG_OK);
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    tmsg_endpoint_destroy(endpoint);
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

/* Connects as from another host, so that UCX takes the network. */
static tmsg_status_t dial_again(pair_t *pair, tmsg_endpoint_t **endpoint_p)
{
    tmsg_request_t *ready;

    *endpoint_p = side_dial(&pair->b, &pair->a);
    must(tmsg_endpoint_ready(*endpoint_p, &ready));
    return pair_finish(pair, ready);
}

static void carry(pair_t *pair, tmsg_endpoint_t *endpoint, uint64_t seed)
{
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(endpoint, sample_bytes(seed, 1000), 0));
    message = pair_take(pair, &pair->a);
    sample_check_bytes(seed, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* UCX goes on counting the endpoints of two workers whose dials came to
 * nothing. */
Test(connect, abandoned_dials_do_not_confuse_those_that_follow)
{
    tmsg_endpoint_t *endpoint;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    pair.to_a->ucx->hello.boot_id[0] ^= 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 30; i++) {
            abandon_a_dial(&pair);
        }
        must(dial_again(&pair, &endpoint));
        carry(&pair, endpoint, 1);
        carry(&pair, pair.to_a, 2);
        tmsg_endpoint_destroy(endpoint);
    }
    pair_drop(&pair);
}

/* And where they are too many, the next ones go to another UCX worker. */
Test(connect, too_many_abandoned_dials_are_said_and_survived)
{
    tmsg_endpoint_t *endpoint;
    tmsg_ucx_t *ucx;
    tmsg_status_t status;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    ucx = pair.to_b->ucx;
    pair.to_a->ucx->hello.boot_id[0] ^= 1;
    for (int i = 0; i < 2 * TMSG_UCX_SPARES; i++) {
        abandon_a_dial(&pair);
    }
    status = dial_again(&pair, &endpoint);
    if (status != TMSG_OK) { /* else all of them had time to knock */
        must_be(status, TMSG_ERR_BUSY);
        must_say(tmsg_endpoint_error(endpoint), "connect again");
        tmsg_endpoint_destroy(endpoint);
        must_true(ucx->retired);
        must(dial_again(&pair, &endpoint));
        must_true(pair.a.accepted->ucx != ucx);
    }
    carry(&pair, pair.to_a, 1);
    carry(&pair, endpoint, 2);
    carry(&pair, pair.to_a, 3);
    pair_drop(&pair);
}

Test(connect, a_worker_may_connect_to_itself)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        tmsg_endpoint_t *endpoint;
        tmsg_message_t *message;
        side_t side;

        side_open(&side, &options);
        side_listen_link(&side, link);
        endpoint = side_dial(&side, &side);
        tmsg_request_destroy(send_map(endpoint, sample_bytes(4, 300000), 0));
        message = side_take(&side);
        sample_check_bytes(4, 300000, tmsg_message_map(message));
        tmsg_message_destroy(message);
        side_close(&side);
    }
}

Test(connect, sends_before_the_connection_wait_for_it)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        pair_t pair = {.to_a = NULL};

        pair.sides[0] = &pair.a;
        pair.sides[1] = &pair.b;
        side_open(&pair.a, &options);
        side_open(&pair.b, &options);
        side_listen_link(&pair.a, link);
        pair.to_a = side_dial(&pair.b, &pair.a);
        for (uint64_t i = 0; i < 10; i++) {
            tmsg_request_destroy(send_map(pair.to_a, sample_bytes(i, 99), 0));
        }
        for (uint64_t i = 0; i < 10; i++) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);

            sample_check_bytes(i, 99, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        pair_drop(&pair);
    }
}

Test(connect, sends_on_a_connection_that_fails_fail_with_its_error)
{
    char url[64];
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    close(fd);
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    sent = send_map(endpoint, sample_bytes(1, 10), 0);
    must_be(side_wait(&side, sent), TMSG_ERR_UNREACHABLE);
    must_say(tmsg_request_error(sent), url);
    tmsg_request_destroy(sent);
    map = sample_bytes(1, 10);
    must_be(tmsg_endpoint_send(endpoint, map, NULL, &sent),
            TMSG_ERR_UNREACHABLE);
    must_say(tmsg_error_message(), url);
    tmsg_map_destroy(map);
    side_close(&side);
}

__attribute__((weak)) void __lsan_disable(void);
__attribute__((weak)) void __lsan_enable(void);

Test(connect, a_blob_of_a_listener_that_is_gone_fails_in_time)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = 500,
    };
    tmsg_endpoint_t *endpoint;
    uint8_t copy[4096];
    const void *blob;
    size_t bytes;
    side_t a, b;

    side_open(&a, NULL);
    side_open(&b, NULL);
    side_listen(&a, "blob://");
    must(tmsg_listener_blob(a.listener, &blob, &bytes));
    must_true(bytes <= sizeof(copy));
    memcpy(copy, blob, bytes);
    tmsg_listener_destroy(a.listener);
    if (tmsg_endpoint_connect_blob(b.worker, copy, bytes, &params, &endpoint) ==
        TMSG_OK) {
        must_true(side_end_of(&b, endpoint) < 0);
    }
    side_close(&a);
    /* UCX 1.13 leaks what it made for a segment that it could not attach. */
    if (__lsan_disable != NULL) {
        __lsan_disable();
    }
    if (tmsg_endpoint_connect_blob(b.worker, copy, bytes, &params, &endpoint) ==
        TMSG_OK) {
        must_true(side_end_of(&b, endpoint) < 0);
    }
    if (__lsan_enable != NULL) {
        __lsan_enable();
    }
    side_close(&b);
}

Test(connect, only_a_blob_listener_has_a_blob)
{
    const void *blob;
    size_t bytes;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://:0");
    must_be(tmsg_listener_blob(side.listener, &blob, &bytes),
            TMSG_ERR_INVALID_PARAM);
    side_close(&side);
}

/* Takes every descriptor there is. */
static size_t exhaust(int *fds, size_t most)
{
    struct rlimit limit;
    size_t used = 0;

    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)count_descriptors() + 70;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (used < most && (fds[used] = open("/dev/null", O_RDONLY)) >= 0) {
        used++;
    }
    must_eq(errno, EMFILE);
    return used;
}

Test(connect, running_out_of_descriptors_is_said_and_survived)
{
    raw_reader_t reader = {.bytes = 0};
    tmsg_endpoint_t *endpoint;
    tmsg_worker_t *worker;
    int fds[200];
    size_t used;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    reader.fd = raw_dial(tmsg_listener_url(pair.a.listener));
    raw_send(reader.fd, "garbage", 7);
    used = exhaust(fds, 200);
    must_be(tmsg_endpoint_connect(pair.b.worker,
                                  tmsg_listener_url(pair.a.listener), NULL,
                                  &endpoint),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_be(tmsg_worker_create(pair.a.context, NULL, &worker),
            TMSG_ERR_LIMIT_EXCEEDED);
    for (int i = 0; i < 10000; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    while (used > 0) {
        close(fds[--used]);
    }
    /* Who came meanwhile waited in the kernel's queue. */
    pair_await(&pair, raw_closed, &reader, "a connection that waited");
    close(reader.fd);
    endpoint = side_dial(&pair.b, &pair.a);
    tmsg_request_destroy(send_map(endpoint, sample_bytes(1, 10), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    pair_close(&pair);
}

/* UCX, which takes some 25 of them, aborts where it runs out. */
Test(connect, too_few_descriptors_for_ucx_are_said_in_words)
{
    for (size_t left = 1; left < 60; left += 7) {
        tmsg_listener_t *listener;
        tmsg_status_t status;
        int fds[200];
        size_t used;
        side_t side;

        side_open(&side, NULL);
        used = exhaust(fds, 200);
        for (size_t i = 0; i < left && used > 0; i++) {
            close(fds[--used]);
        }
        status = tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL,
                                      &listener);
        if (status != TMSG_OK) {
            must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
        }
        while (used > 0) {
            close(fds[--used]);
        }
        side_close(&side);
    }
}

/* Two sides with configurations of their own: how it ends, at both. */
static void expect_incompatible(const char *a_config, const char *b_config,
                                link_t link, const char *part)
{
    const side_options_t a = {.ucx_config = a_config};
    const side_options_t b = {.ucx_config = b_config};
    pair_t pair = {.to_a = NULL};
    tmsg_request_t *ready;

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, &a);
    side_open(&pair.b, &b);
    side_listen_link(&pair.a, link);
    pair.to_a = side_dial(&pair.b, &pair.a);
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    must_be(pair_wait(&pair, ready), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_request_error(ready), part);
    tmsg_request_destroy(ready);
    must_eq(pair.a.accepts, 0);
    pair_drop(&pair);
}

static bool is_new_ucx(void)
{
    char *json, *at;
    side_t side;
    bool is_new;

    side_open(&side, NULL);
    must(tmsg_context_describe(side.context, &json));
    at = strstr(json, "\"ucx_version\"");
    must_true(at != NULL);
    is_new = strstr(at, "1.13.") == NULL || strstr(at, "1.13.") > at + 30;
    tmsg_string_free(json);
    side_close(&side);
    return is_new;
}

/* UCX before 1.17 takes it from the environment alone: see below. */
Test(connect, shared_memory_segments_that_differ_are_refused_by_name)
{
    const char *config = "POSIX_SEG_SIZE=32k";

    if (is_new_ucx()) {
        expect_incompatible(config, NULL, LINK_SHM, "UCX_POSIX_SEG_SIZE");
        expect_incompatible(NULL, config, LINK_SHM, "UCX_POSIX_SEG_SIZE");
        expect_incompatible(NULL, config, LINK_UNIX, "UCX_POSIX_SEG_SIZE");
    }
}

Test(connect, tcp_segments_that_do_not_fit_are_refused_by_name)
{
    expect_incompatible("TLS=tcp;TCP_RX_SEG_SIZE=16k;TCP_TX_SEG_SIZE=8k",
                        "TLS=tcp", LINK_TCP, "UCX_TCP_RX_SEG_SIZE");
    expect_incompatible("TLS=tcp",
                        "TLS=tcp;TCP_RX_SEG_SIZE=16k;TCP_TX_SEG_SIZE=8k",
                        LINK_TCP, "UCX_TCP_RX_SEG_SIZE");
}

/* The same, by the user's environment. */
static void dial_with_environment(pipes_t *pipes, void *arg)
{
    tmsg_request_t *ready;
    tmsg_endpoint_t *endpoint;
    char url[256];
    side_t side;

    (void)arg;
    setenv("UCX_POSIX_SEG_SIZE", "32k", 1);
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must_be(side_wait(&side, ready), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_request_error(ready), "UCX_POSIX_SEG_SIZE=8256");
    must_say(tmsg_request_error(ready), "this side 32768");
    tmsg_request_destroy(ready);
    side_close(&side);
    line_put(pipes->out, "done");
}

static bool has_line(void *arg)
{
    struct pollfd fd = {*(int *)arg, POLLIN, 0};

    return poll(&fd, 1, 0) == 1;
}

Test(connect, says_which_setting_keeps_shared_memory_out)
{
    const side_options_t by_code = {.ucx_config = "TLS=tcp,self"};
    char *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &by_code, &by_code);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "same machine, but UCX_TLS=tcp,self (code)");
    tmsg_string_free(json);
    pair_close(&pair);
    setenv("UCX_TLS", "tcp", 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "same machine, but UCX_TLS=tcp (environment)");
    tmsg_string_free(json);
    pair_close(&pair);
}

Test(connect, a_users_variable_on_one_end_is_enough_to_be_refused)
{
    char line[32];
    child_t child;
    side_t side;

    child_start(&child, dial_with_environment, NULL);
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    line_put(child.out, tmsg_listener_url(side.listener));
    side_await(&side, has_line, &child.in, "the other process");
    line_get(child.in, line, sizeof(line));
    child_join(&child);
    must_eq(side.accepts, 0);
    expect_serves(&side);
    side_close(&side);
}

/* Values that a UCX aborts on, refused where they would take effect. */
static void expect_dangerous(const char *config, const char *part)
{
    const side_options_t options = {.ucx_config = config};
    tmsg_endpoint_t *endpoint;
    char url[64];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    side_open(&side, &options);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must_be(side_end_of(&side, endpoint), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_endpoint_error(endpoint), part);
    side_close(&side);
    close(fd);
}

Test(connect, deadly_ucx_values_are_refused_by_name)
{
    expect_dangerous("POSIX_SEG_SIZE=64k", "UCX_POSIX_SEG_SIZE");
    expect_dangerous("POSIX_SEG_SIZE=1m", "UCX_POSIX_SEG_SIZE");
    expect_dangerous("TCP_MAX_IOV=64", "UCX_TCP_MAX_IOV");
    expect_dangerous("MAX_IOV=64", "MAX_IOV");
    expect_dangerous("TCP_TX_SEG_SIZE=65k", "UCX_TCP_TX_SEG_SIZE");
    expect_dangerous("TX_SEG_SIZE=65k", "TX_SEG_SIZE");
    expect_dangerous("TX_SEG_SIZE=1m", "TX_SEG_SIZE");
    if (!is_new_ucx()) {
        expect_dangerous("PROTO_ENABLE=y", "UCX_PROTO_ENABLE");
        expect_dangerous("PROTO_ENABLE=try", "UCX_PROTO_ENABLE");
    }
}
