/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners and diallers of another kind or version, what they are told, and
 * what strangers on the bootstrap socket cost. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "core/log.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/still_serves.h"

#define FRAME_HELLO 1
#define FRAME_REFUSE 2
#define FRAME_ADDRESS 3
#define LONG_MS 600000 /* longer than any test waits */

/* A false listener takes one connection, and then sends these bytes. */
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

/* Dials a false listener, and returns the status. */
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

Test(strangers, a_listener_of_another_kind_is_malformed)
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

Test(strangers, a_listener_that_hangs_up_is_lost)
{
    false_listener_t false_one = {.bytes = 0};
    char words[512];
    side_t side;

    side_open(&side, NULL);
    must_be(dial_false(&side, &false_one, words, sizeof(words)),
            TMSG_ERR_PEER_LOST);
    side_close(&side);
}

/* If UCX never met the peer, its UCX worker is not retired. */
Test(strangers, a_peer_that_hangs_up_at_once_costs_no_ucx_worker)
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

Test(strangers, a_listener_of_another_wire_version_is_refused_by_both_versions)
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

Test(strangers, a_listener_of_another_ucx_is_refused_by_both_versions)
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

/* A stranger sends a hello to a listener, and is told why it is refused. */
static void expect_refusal(uint8_t wire_version, const char *words)
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
    must_say(raw_find_frame(&reader, FRAME_REFUSE, 4), words);
    close(reader.fd);
    side_serves(&side);
    side_close(&side);
}

Test(strangers, a_dialler_of_another_wire_version_is_told)
{
    expect_refusal(9, "wire version 9");
}

Test(strangers, a_dialler_of_another_ucx_is_told)
{
    expect_refusal(0, "1.2.3");
}

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
    side_serves(&side);
    side_close(&side);
}

Test(strangers, garbage_costs_its_peer_only)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    uint8_t noise[65536];

    expect_hang_up("http", http, sizeof(http) - 1);
    memset(noise, 0xff, sizeof(noise));
    expect_hang_up("ones", noise, sizeof(noise));
    sample_fill(1, noise, sizeof(noise));
    expect_hang_up("noise", noise, sizeof(noise));
}

Test(strangers, wrong_frames_cost_their_peer_only)
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

/* Opens a listener with other bounds for handshakes than the default ones. */
static void listen_within(side_t *side, int timeout_ms, uint32_t max_handshakes)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |
                      TMSG_LISTENER_PARAM_MAX_HANDSHAKES,
        .handshake_timeout_ms = timeout_ms,
        .max_handshakes = max_handshakes,
    };

    side_open(side, NULL);
    must(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", &params,
                              &side->listener));
}

Test(strangers, silence_is_cut_off_after_the_handshake_timeout)
{
    raw_reader_t reader = {.bytes = 0};
    side_t side;

    listen_within(&side, 300, 128);
    reader.fd = raw_dial(tmsg_listener_url(side.listener));
    side_await(&side, raw_closed, &reader, "the end of a silent connection");
    close(reader.fd);
    side_close(&side);
}

/* Sends a byte of a hello now and then, never the whole. */
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

Test(strangers, a_slow_drip_is_cut_off_too)
{
    drip_t drip = {.sent = 0};
    side_t side;

    memcpy(drip.hello, "TMSGBOOT\xff\0\0\0\1", 13);
    listen_within(&side, 300, 128);
    drip.reader.fd = raw_dial(tmsg_listener_url(side.listener));
    side_await(&side, dripped_out, &drip, "the end of a slow connection");
    cr_expect(ge(sz, drip.sent, 1));
    close(drip.reader.fd);
    side_close(&side);
}

Test(strangers, a_half_open_connection_is_ended_at_once)
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
    side_serves(&side);
    side_close(&side);
}

Test(strangers, strangers_leave_no_descriptors_behind)
{
    int before;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    side_serves(&side);
    before = count_descriptors();
    for (int i = 0; i < 200; i++) {
        raw_reader_t reader = {.fd =
                                   raw_dial(tmsg_listener_url(side.listener))};

        raw_send(reader.fd, "x", 1);
        side_await(&side, raw_closed, &reader, "the end of a stranger");
        close(reader.fd);
    }
    /* Fewer, once the UCX worker of who was served before is closed. */
    cr_expect(le(int, count_descriptors(), before));
    side_close(&side);
}

/* Sends bytes, and a descriptor with them so many times. */
static ssize_t raw_send_fds(int to, const void *data, size_t bytes, int fd,
                            unsigned count)
{
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(16 * sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(count * sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec all = {(void *)(uintptr_t)data, bytes};
    const struct msghdr message = {.msg_iov = &all,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen =
                                       CMSG_SPACE(count * sizeof(int))};

    for (unsigned i = 0; i < count; i++) {
        memcpy(CMSG_DATA(&control.head) + i * sizeof(fd), &fd, sizeof(fd));
    }
    return sendmsg(to, &message, MSG_NOSIGNAL);
}

/* A TCP socket that lingers for as long as this test may take. Whoever closes
 * it last waits until the other end has read what was written. */
static int make_lingering(int *reader_p)
{
    const struct linger linger = {1, 2 * PEERS_BOUND_MS / 1000};
    static char bytes[65536];
    char url[64];
    int listener = raw_listen(url, sizeof(url)), fd = raw_dial(url);

    *reader_p = accept(listener, NULL, NULL);
    must_true(*reader_p >= 0);
    must_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    must_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    while (send(fd, bytes, sizeof(bytes), 0) > 0) {
    }
    close(listener);
    return fd;
}

/* Nor one that takes long to close. Older kernels drop it in the receiver. */
Test(strangers, strangers_stop_nobody_by_a_descriptor)
{
    side_t side;
    int reader, lingering, stranger;

    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    stranger = raw_dial(tmsg_listener_url(side.listener));
    lingering = make_lingering(&reader);
    if (raw_send_fds(stranger, TMSG_FRAME_MAGIC, 8, lingering, 1) > 0) {
        close(reader);
        cr_skip_test("only Linux 6.16 and later can refuse descriptors");
    }
    must_eq(errno, EPERM);
    side_serves(&side);
    close(reader); /* and with it ends the wait of the close */
    close(lingering);
    close(stranger);
    side_close(&side);
}

/* With the magic, with a frame that takes none, and with one that may have one
 * later. Frames with none of these follow: the end is that of the first. */
Test(strangers, strangers_pass_no_descriptors)
{
    static const char frame[] = "TMSGBOOT\x11\0\0\0\x0c"
                                "\1.mark of memory."
                                "\0\0\0\0\xc8";
    static const size_t with[] = {1, 8, 12, 30};
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    side_serves(&side);
    for (size_t i = 0; i < 64; i++) {
        size_t first = with[i % 4];
        int before = count_descriptors();
        raw_reader_t reader = {.fd =
                                   raw_dial(tmsg_listener_url(side.listener))};

        (void)!raw_send_fds(reader.fd, frame, first, 0, i < 4 ? 1 : 16);
        (void)!send(reader.fd, frame + first, sizeof(frame) - 1 - first,
                    MSG_NOSIGNAL);
        side_await(&side, raw_closed, &reader, "the end of a stranger");
        close(reader.fd);
        must_true(count_descriptors() <= before);
    }
    side_serves(&side);
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

/* Before its hello a peer may not send frames of an unknown type. */
Test(strangers, a_strangers_flood_of_frames_ends_it)
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

/* An admitted peer may send frames of a later version. But no call of progress
 * stays with it for as long as it sends: other peers are served meanwhile. */
Test(strangers, a_peers_flood_of_frames_starves_nobody)
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
    side_serves(&pair.a);
    tmsg_endpoint_destroy(pair.to_a);
    must_true(pair_end_of(&pair, pair.to_b) < 0);
    must_eq(pthread_join(thread, NULL), 0);
    close(fd);
    pair_drop(&pair);
    free(stream);
}

/* Two silent connections fill both places, and make way for the next. */
Test(strangers, silent_connections_beyond_the_most_make_way)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    int silent[2];
    side_t side;

    listen_within(&side, LONG_MS, 2);
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

typedef struct {
    const side_t *side;
    const char *name;
    unsigned least;
} count_t;

static bool has_counted(void *arg)
{
    const count_t *count = arg;

    return counted(count->side, count->name) >= count->least;
}

Test(strangers, length_and_time_are_bounded_without_a_key_and_counted)
{
    static const uint8_t header[] = {1, 16, 0, 0, FRAME_HELLO}; /* 4097 */
    raw_reader_t silent = {.bytes = 0}, loud = {.bytes = 0};
    side_t side;

    listen_within(&side, 300, 128);
    silent.fd = raw_dial(tmsg_listener_url(side.listener));
    loud.fd = raw_dial(tmsg_listener_url(side.listener));
    raw_send_magic(loud.fd);
    raw_send(loud.fd, header, sizeof(header));
    side_await(&side, raw_closed, &loud, "the end of who says too much");
    side_await(&side, raw_closed, &silent, "the end of who says nothing");
    must_eq(counted(&side, "too_long"), 1);
    must_eq(counted(&side, "timed_out"), 1);
    must_eq(counted(&side, "accepted"), 2);
    must_eq(counted(&side, "connected"), 0);
    close(loud.fd);
    close(silent.fd);
    side_close(&side);
}

/* Dials from another address of loopback's. */
static int dial_from(const char *url, const char *address)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must_eq(inet_pton(AF_INET, address, &in.sin_addr), 1);
    must_eq(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    must_eq(inet_pton(AF_INET, "127.0.0.1", &in.sin_addr), 1);
    in.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    must_eq(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

/* The oldest makes way, but first that of who holds the most places. */
Test(strangers, one_address_does_not_fill_the_places)
{
    enum { FLOOD = 20, PLACES = 4 };
    raw_reader_t first = {.bytes = 0};
    int flooders[FLOOD];
    count_t gone;
    side_t side;

    listen_within(&side, LONG_MS, PLACES);
    first.fd = raw_dial(tmsg_listener_url(side.listener));
    for (size_t i = 0; i < FLOOD; i++) {
        flooders[i] = dial_from(tmsg_listener_url(side.listener), "127.0.0.2");
    }
    gone = (count_t){&side, "too_many", FLOOD + 1 - PLACES};
    side_await(&side, has_counted, &gone, "the end of a flood");
    must_true(!raw_closed(&first));
    must_eq(counted(&side, "handshakes"), PLACES);
    tmsg_endpoint_destroy(
        side_connect(&side, tmsg_listener_url(side.listener)));
    close(first.fd);
    for (size_t i = 0; i < FLOOD; i++) {
        close(flooders[i]);
    }
    side_close(&side);
}

/* Takes connections and refuses them, as BUSY but for the last. */
typedef struct {
    int listener;
    unsigned busy; /* still to be refused so */
    unsigned refused;
    tmsg_endpoint_t *endpoint;
} full_listener_t;

static bool refused_all(void *arg)
{
    full_listener_t *full = arg;
    int fd = accept4(full->listener, NULL, NULL, SOCK_CLOEXEC);
    int32_t status = full->busy > 0 ? TMSG_ERR_BUSY : TMSG_ERR_REFUSED;

    if (fd >= 0) {
        raw_send_magic(fd);
        raw_send_frame(fd, FRAME_REFUSE, &status, sizeof(status));
        close(fd);
        full->busy -= full->busy > 0;
        full->refused++;
    }
    return tmsg_endpoint_status(full->endpoint) < 0;
}

Test(strangers, who_is_told_that_there_is_no_place_comes_again)
{
    full_listener_t full = {.busy = 5};
    side_t side;
    char url[64];

    full.listener = raw_listen(url, sizeof(url));
    fcntl(full.listener, F_SETFL, O_NONBLOCK);
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &full.endpoint));
    side_await(&side, refused_all, &full, "the last refusal");
    must_eq(full.refused, 6);
    must_be(tmsg_endpoint_status(full.endpoint), TMSG_ERR_REFUSED);
    must_say(tmsg_endpoint_error(full.endpoint),
             "no free place for it 5 times");
    tmsg_endpoint_destroy(full.endpoint);
    /* Its time ends with the true reason. */
    full.busy = UINT_MAX;
    must(tmsg_endpoint_connect(
        side.worker, url,
        &(tmsg_endpoint_params_t){.field_mask =
                                      TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
                                  .connect_timeout_ms = 300},
        &full.endpoint));
    full.refused = 0;
    side_await(&side, refused_all, &full, "the end of the time");
    must_true(full.refused > 1);
    must_be(tmsg_endpoint_status(full.endpoint), TMSG_ERR_BUSY);
    must_say(tmsg_endpoint_error(full.endpoint), "had no free place");
    tmsg_endpoint_destroy(full.endpoint);
    /* It may be closed while it waits. */
    full.refused = 6;
    must(tmsg_endpoint_connect(side.worker, url, NULL, &full.endpoint));
    while (full.refused < 8) {
        must_true(!refused_all(&full));
        tmsg_worker_progress(side.worker);
    }
    tmsg_endpoint_destroy(full.endpoint);
    close(full.listener);
    side_close(&side);
}

/* Adds up what the log tells of strangers: a line of its own is one, a count
 * as many as it says. */
typedef struct {
    unsigned lines, counts, events;
    char last[256];
} told_t;

static void add_up(void *arg, tmsg_log_level_t level, const char *line)
{
    told_t *told = arg;
    bool is_count = strstr(line, " in the last ") != NULL;

    (void)level;
    told->lines += !is_count;
    told->counts += is_count;
    told->events += is_count ? (unsigned)strtoul(line, NULL, 10) : 1;
    snprintf(told->last, sizeof(told->last), "%s", line);
}

/* A clock that is late, by all of an interval but a tenth of a second. */
static uint64_t late_clock(void)
{
    return tmsg_now_ns() -
           (TMSG_LOG_INTERVAL_S * UINT64_C(1000) - 100) * 1000000;
}

static void come_in_vain(side_t *side, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        raw_reader_t reader = {.fd =
                                   raw_dial(tmsg_listener_url(side->listener))};

        raw_send(reader.fd, "GET /", 5);
        side_await(side, raw_closed, &reader, "the end of a stranger");
        close(reader.fd);
    }
}

/* Drives a side that sleeps whenever it may. */
static void sleep_until_counted(side_t *side, const told_t *told)
{
    struct pollfd fd = {tmsg_worker_fd(side->worker), POLLIN, 0};

    while (told->counts == 0) {
        if (tmsg_worker_arm(side->worker) == TMSG_OK) {
            must_eq(poll(&fd, 1, PEERS_BOUND_MS), 1);
        }
        tmsg_worker_progress(side->worker);
    }
}

/* A worker that sleeps tells the count when its time has come, and at its end
 * what was counted since. */
Test(strangers, a_flood_of_them_is_counted_in_the_log)
{
    enum { COME = 40 };
    told_t told = {.lines = 0};
    side_t side;

    tmsg_log_set_clock(late_clock);
    tmsg_log_set(TMSG_LOG_WARN, add_up, &told);
    side_open(&side, &(side_options_t){.quiet = true});
    side_listen(&side, "tcp://127.0.0.1:0");
    come_in_vain(&side, COME);
    must_eq(told.lines, TMSG_LOG_LINES);
    must_eq(told.counts, 0);
    tmsg_log_set_clock(NULL);
    sleep_until_counted(&side, &told);
    must_eq(told.events, COME);
    must_say(told.last,
             "30 connections from 127.0.0.1 did not speak tensormsg in ");
    come_in_vain(&side, COME);
    side_close(&side);
    must_eq(told.events, 2 * COME);
    must_eq(told.lines, 2 * TMSG_LOG_LINES);
    must_eq(told.counts, 2);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
}

/* No descriptors are reserved for UCX for connections that have said
 * nothing. */
Test(strangers, who_says_nothing_takes_no_descriptors_of_ucx)
{
    enum { HELD = 40 };
    tmsg_endpoint_t *warm;
    struct rlimit limit;
    int held[HELD], next;
    count_t count;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    warm = side_connect(&side, tmsg_listener_url(side.listener));
    for (size_t i = 0; i < HELD; i++) {
        held[i] = raw_dial(tmsg_listener_url(side.listener));
        raw_send(held[i], "TMSG", 4);
    }
    count = (count_t){&side, "handshakes", HELD};
    side_await(&side, has_counted, &count, "strangers");
    next = dup(0);
    must_true(next > 0 && close(next) == 0);
    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)next + HELD;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    tmsg_endpoint_destroy(
        side_connect(&side, tmsg_listener_url(side.listener)));
    for (size_t i = 0; i < HELD; i++) {
        close(held[i]);
    }
    tmsg_endpoint_destroy(warm);
    side_close(&side);
}
