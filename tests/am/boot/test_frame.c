/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/frame.h"
#include "support/failing_alloc.h"

#define MAX 1000

typedef struct {
    int fds[2];
    tmsg_frame_stream_t streams[2];
} pair_t;

static void open_pair(pair_t *pair)
{
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds) ==
              0);
    tmsg_frame_init(&pair->streams[0], pair->fds[0], MAX);
    tmsg_frame_init(&pair->streams[1], pair->fds[1], MAX);
}

static void close_pair(pair_t *pair)
{
    for (int i = 0; i < 2; i++) {
        tmsg_frame_free(&pair->streams[i]);
        if (pair->fds[i] >= 0) {
            close(pair->fds[i]);
        }
    }
}

/* What the next call to read gives, as a status, with type and data checked. */
static tmsg_status_t read_frame(tmsg_frame_stream_t *stream, uint8_t *type_p,
                                const uint8_t **data_p, size_t *bytes_p)
{
    tmsg_status_t status;

    *type_p = 0xee;
    *data_p = NULL;
    *bytes_p = 12345;
    status = tmsg_frame_read(stream, type_p, data_p, bytes_p);
    if (status != TMSG_OK) {
        cr_expect(eq(uint, *type_p, 0xee));
        cr_expect_null(*data_p);
        cr_expect(eq(sz, *bytes_p, 12345));
    }
    return status;
}

static tmsg_status_t read_nothing(tmsg_frame_stream_t *stream)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    return read_frame(stream, &type, &data, &bytes);
}

static void expect_frame(tmsg_frame_stream_t *stream, unsigned type,
                         const void *data, size_t bytes)
{
    const uint8_t *got_data;
    uint8_t got_type;
    size_t got_bytes;

    cr_assert(
        eq(int, read_frame(stream, &got_type, &got_data, &got_bytes), TMSG_OK),
        "%s", tmsg_error_message());
    cr_assert(eq(uint, got_type, type));
    cr_assert(eq(sz, got_bytes, bytes));
    cr_assert(memcmp(got_data, data, bytes) == 0);
}

static void put(int fd, const void *data, size_t bytes)
{
    cr_assert(eq(int, (int)write(fd, data, bytes), (int)bytes));
}

Test(frame, carries_frames_both_ways_in_order)
{
    pair_t pair;

    open_pair(&pair);
    for (int i = 0; i < 2; i++) {
        tmsg_frame_stream_t *from = &pair.streams[i];
        tmsg_frame_stream_t *to = &pair.streams[1 - i];

        cr_assert(eq(int, read_nothing(to), TMSG_IN_PROGRESS));
        cr_assert(eq(int, tmsg_frame_queue(from, 1, "hello", 5), TMSG_OK));
        cr_assert(eq(int, tmsg_frame_queue(from, 255, NULL, 0), TMSG_OK));
        cr_assert(eq(int, tmsg_frame_queue(from, 0, "x", 1), TMSG_OK));
        cr_assert(eq(sz, tmsg_frame_pending(from), 0));
        expect_frame(to, 1, "hello", 5);
        expect_frame(to, 255, "", 0);
        expect_frame(to, 0, "x", 1);
        cr_assert(eq(int, read_nothing(to), TMSG_IN_PROGRESS));
    }
    close_pair(&pair);
}

Test(frame, writes_the_documented_bytes)
{
    static const uint8_t expected[] = {'T', 'M', 'S', 'G', 'B', 'O', 'O', 'T',
                                       3,   0,   0,   0,   7,   'a', 'b', 'c'};
    uint8_t bytes[64];
    pair_t pair;

    open_pair(&pair);
    cr_assert(
        eq(int, tmsg_frame_queue(&pair.streams[0], 7, "abc", 3), TMSG_OK));
    cr_assert(eq(int, (int)read(pair.fds[1], bytes, sizeof(bytes)),
                 (int)sizeof(expected)));
    cr_assert(memcmp(bytes, expected, sizeof(expected)) == 0);
    close_pair(&pair);
}

Test(frame, flush_sends_the_magic_once)
{
    pair_t pair;
    char bytes[64];

    open_pair(&pair);
    cr_expect(eq(sz, tmsg_frame_pending(&pair.streams[0]), 8));
    cr_assert(eq(int, tmsg_frame_flush(&pair.streams[0]), TMSG_OK));
    cr_assert(eq(int, tmsg_frame_flush(&pair.streams[0]), TMSG_OK));
    cr_expect(eq(sz, tmsg_frame_pending(&pair.streams[0]), 0));
    cr_assert(eq(int, (int)read(pair.fds[1], bytes, sizeof(bytes)), 8));
    cr_assert(memcmp(bytes, TMSG_FRAME_MAGIC, 8) == 0);
    close_pair(&pair);
}

Test(frame, survives_one_byte_at_a_time)
{
    static const uint8_t wire[] = "TMSGBOOT\x03\0\0\0\x07"
                                  "abc\0\0\0\0\x08\x01\0\0\0\x09z";
    unsigned frames = 0;
    pair_t pair;

    open_pair(&pair);
    for (size_t i = 0; i < sizeof(wire) - 1; i++) {
        const uint8_t *data;
        uint8_t type;
        size_t bytes;
        tmsg_status_t status;

        put(pair.fds[0], &wire[i], 1);
        status = read_frame(&pair.streams[1], &type, &data, &bytes);
        if (status == TMSG_OK) {
            cr_expect(eq(uint, type, 7 + frames));
            frames++;
        } else {
            cr_assert(eq(int, status, TMSG_IN_PROGRESS), "%s",
                      tmsg_error_message());
        }
    }
    cr_assert(eq(uint, frames, 3));
    close_pair(&pair);
}

Test(frame, reads_a_flood_piece_by_piece)
{
    enum { FLOOD = 256 * 1024 };
    uint8_t *flood = calloc(1, FLOOD); /* frames of type 0 without payload */
    int size = 2 * FLOOD;
    size_t calls = 0, left, frames = 0;
    pair_t pair;

    open_pair(&pair);
    setsockopt(pair.fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    put(pair.fds[0], TMSG_FRAME_MAGIC, 8);
    left = (size_t)write(pair.fds[0], flood, FLOOD);
    frames = left / 5;
    while (frames > 0) {
        tmsg_status_t status = read_nothing(&pair.streams[1]);

        calls++;
        cr_assert(status >= 0);
        frames -= status == TMSG_OK;
        cr_assert(pair.streams[1].in.capacity <= 16 * 1024,
                  "the buffer grew to %zu", pair.streams[1].in.capacity);
        cr_assert(calls <= left, "it does not end");
    }
    free(flood);
    close_pair(&pair);
}

static const char *const garbage[] = {
    "GET / HTTP/1.1\r\n", "X", "TMSGBLOB", "TMSGBOO\xff", "\x16\x02\x01\x02",
};

Test(frame, knows_tls_by_its_first_bytes)
{
    pair_t pair;

    open_pair(&pair);
    put(pair.fds[0], "\x16\x03\x01\x02", 4);
    cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_INCOMPATIBLE));
    cr_expect(strstr(tmsg_error_message(), "it uses tls://") != NULL, "%s",
              tmsg_error_message());
    close_pair(&pair);
}

Test(frame, refuses_garbage_at_its_first_byte)
{
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        pair_t pair;

        open_pair(&pair);
        put(pair.fds[0], garbage[i], strlen(garbage[i]));
        cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_MALFORMED),
                  "%s", garbage[i]);
        cr_expect(strstr(tmsg_error_message(), "does not speak tensormsg") !=
                      NULL,
                  "%s", tmsg_error_message());
        cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_MALFORMED),
                  "it must stay refused");
        close_pair(&pair);
    }
}

Test(frame, shows_garbage_as_printable_characters)
{
    pair_t pair;

    open_pair(&pair);
    put(pair.fds[0], "GET\r\n\x1b[2J", 9);
    cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_MALFORMED));
    cr_expect_str_eq(
        tmsg_error_message(),
        "the peer does not speak tensormsg: it began with 'GET...[2'");
    close_pair(&pair);
}

Test(frame, refuses_a_length_beyond_the_limit_by_its_header)
{
    static const struct {
        const char *header;
        tmsg_status_t status;
    } rows[] = {{"\xe8\x03\0\0\1", TMSG_IN_PROGRESS}, /* 1000 */
                {"\xe9\x03\0\0\1", TMSG_ERR_LIMIT_EXCEEDED},
                {"\xff\xff\xff\xff\1", TMSG_ERR_LIMIT_EXCEEDED},
                {"\0\0\0\x80\1", TMSG_ERR_LIMIT_EXCEEDED}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pair_t pair;

        open_pair(&pair);
        put(pair.fds[0], TMSG_FRAME_MAGIC, 8);
        put(pair.fds[0], rows[i].header, 5);
        cr_expect(eq(int, read_nothing(&pair.streams[1]), rows[i].status));
        cr_expect(pair.streams[1].in.capacity <= 1024, "it grew to %zu",
                  pair.streams[1].in.capacity);
        close_pair(&pair);
    }
}

/* Whoever stands between the peers may have written it. */
Test(frame, takes_such_a_length_for_damage_where_frames_have_macs)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};
    pair_t pair;

    open_pair(&pair);
    tmsg_frame_protect(&pair.streams[1], key, key, MAX);
    put(pair.fds[0], TMSG_FRAME_MAGIC, 8);
    put(pair.fds[0], "\xff\xff\xff\xff\1", 5);
    cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_CORRUPT));
    close_pair(&pair);
}

Test(frame, tells_an_end_between_frames_from_one_inside)
{
    static const struct {
        size_t bytes;
        const char *message;
    } rows[] = {
        {0, "the peer closed the connection without a word"},
        {3, "the peer closed the connection inside a frame"},
        {8, "the peer closed the connection"},
        {9, "the peer closed the connection inside a frame"},
        {15, "the peer closed the connection inside a frame"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pair_t pair;
        tmsg_status_t status;

        open_pair(&pair);
        put(pair.fds[0],
            "TMSGBOOT\x03\0\0\0\x07"
            "ab",
            rows[i].bytes);
        close(pair.fds[0]);
        pair.fds[0] = -1;
        do {
            status = read_nothing(&pair.streams[1]);
        } while (status == TMSG_IN_PROGRESS);
        cr_expect(eq(int, status, TMSG_ERR_CLOSED));
        cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_CLOSED));
        close_pair(&pair);
    }
}

Test(frame, gives_what_came_before_the_end)
{
    pair_t pair;

    open_pair(&pair);
    cr_assert(
        eq(int, tmsg_frame_queue(&pair.streams[0], 3, "bye", 3), TMSG_OK));
    close(pair.fds[0]);
    pair.fds[0] = -1;
    expect_frame(&pair.streams[1], 3, "bye", 3);
    cr_assert(eq(int, read_nothing(&pair.streams[1]), TMSG_ERR_CLOSED));
    close_pair(&pair);
}

/* Fills the socket of a peer that does not read; returns how many frames of
 * MAX bytes were taken before BUSY. */
static unsigned fill(tmsg_frame_stream_t *stream, const uint8_t *data)
{
    unsigned frames = 0;
    tmsg_status_t status;

    while ((status = tmsg_frame_queue(stream, (uint8_t)frames, data, MAX)) ==
           TMSG_OK) {
        frames++;
        cr_assert(frames < 100000, "the queue has no bound");
    }
    cr_assert(eq(int, status, TMSG_ERR_BUSY));
    cr_assert(strstr(tmsg_error_message(), "does not read") != NULL, "%s",
              tmsg_error_message());
    return frames;
}

Test(frame, bounds_what_waits_and_loses_none_of_it)
{
    uint8_t data[MAX];
    unsigned frames;
    pair_t pair;

    memset(data, 0xa5, sizeof(data));
    open_pair(&pair);
    frames = fill(&pair.streams[0], data);
    cr_assert(tmsg_frame_pending(&pair.streams[0]) <= 2 * MAX + 64);
    cr_assert(eq(int, tmsg_frame_flush(&pair.streams[0]), TMSG_IN_PROGRESS));
    for (unsigned i = 0; i < frames;) {
        const uint8_t *got;
        uint8_t type;
        size_t bytes;
        tmsg_status_t status =
            read_frame(&pair.streams[1], &type, &got, &bytes);

        cr_assert(status >= 0, "%s", tmsg_error_message());
        cr_assert(tmsg_frame_flush(&pair.streams[0]) >= 0);
        if (status == TMSG_OK) {
            cr_assert(eq(uint, type, (uint8_t)i));
            cr_assert(eq(sz, bytes, MAX));
            cr_assert(memcmp(got, data, MAX) == 0);
            i++;
        }
    }
    cr_assert(eq(int, tmsg_frame_flush(&pair.streams[0]), TMSG_OK));
    cr_assert(eq(sz, tmsg_frame_pending(&pair.streams[0]), 0));
    close_pair(&pair);
}

Test(frame, keeps_little_memory_when_idle)
{
    uint8_t *data = calloc(1, TMSG_FRAME_MAX_BYTES);
    tmsg_status_t status;
    pair_t pair;

    open_pair(&pair);
    for (int i = 0; i < 2; i++) {
        pair.streams[i].max_bytes = TMSG_FRAME_MAX_BYTES;
    }
    cr_assert(eq(
        int, tmsg_frame_queue(&pair.streams[0], 1, data, TMSG_FRAME_MAX_BYTES),
        TMSG_OK));
    do {
        cr_assert(tmsg_frame_flush(&pair.streams[0]) >= 0);
    } while ((status = read_nothing(&pair.streams[1])) == TMSG_IN_PROGRESS);
    cr_assert(eq(int, status, TMSG_OK));
    cr_assert(eq(int, read_nothing(&pair.streams[1]), TMSG_IN_PROGRESS));
    cr_expect(pair.streams[0].out.capacity <= 1024);
    cr_expect(pair.streams[1].in.capacity <= 1024);
    free(data);
    close_pair(&pair);
}

Test(frame, reports_a_lost_peer_without_a_signal)
{
    pair_t pair;

    open_pair(&pair);
    close(pair.fds[1]);
    pair.fds[1] = -1;
    cr_expect(eq(int, tmsg_frame_queue(&pair.streams[0], 1, "x", 1),
                 TMSG_ERR_PEER_LOST));
    cr_expect_str_eq(tmsg_error_message(), "writing to the peer: Broken pipe");
    cr_expect(eq(int, tmsg_frame_flush(&pair.streams[0]), TMSG_ERR_PEER_LOST));
    cr_expect(eq(sz, tmsg_frame_pending(&pair.streams[0]), 0));
    close_pair(&pair);
}

/* The two ends of a connection over 127.0.0.1. */
static void open_tcp_pair(pair_t *pair)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(in);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert(bind(listener, (struct sockaddr *)&in, sizeof(in)) == 0);
    cr_assert(listen(listener, 1) == 0);
    cr_assert(getsockname(listener, (struct sockaddr *)&in, &bytes) == 0);
    pair->fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(connect(pair->fds[0], (struct sockaddr *)&in, bytes) == 0);
    pair->fds[1] = accept(listener, NULL, NULL);
    cr_assert(pair->fds[1] >= 0);
    close(listener);
    tmsg_frame_init(&pair->streams[0], pair->fds[0], MAX);
    tmsg_frame_init(&pair->streams[1], pair->fds[1], MAX);
}

Test(frame, reports_a_reset)
{
    struct linger abort_on_close = {.l_onoff = 1};
    tmsg_status_t status;
    pair_t pair;

    open_tcp_pair(&pair);
    setsockopt(pair.fds[1], SOL_SOCKET, SO_LINGER, &abort_on_close,
               sizeof(abort_on_close));
    close(pair.fds[1]);
    pair.fds[1] = -1;
    do { /* the reset is delivered by the kernel in its own time */
        status = read_nothing(&pair.streams[0]);
    } while (status == TMSG_IN_PROGRESS);
    cr_expect(eq(int, status, TMSG_ERR_PEER_LOST));
    cr_expect_str_eq(tmsg_error_message(),
                     "reading from the peer: Connection reset by peer");
    close_pair(&pair);
}

Test(frame, reads_on_after_a_failed_write)
{
    pair_t pair;

    open_pair(&pair);
    cr_assert(eq(int, tmsg_frame_queue(&pair.streams[1], 9, "no", 2), TMSG_OK));
    shutdown(pair.fds[1], SHUT_RD);
    cr_assert(eq(int, tmsg_frame_queue(&pair.streams[0], 1, "x", 1),
                 TMSG_ERR_PEER_LOST));
    expect_frame(&pair.streams[0], 9, "no", 2);
    close_pair(&pair);
}

Test(frame, works_on_a_blocking_socket_without_blocking)
{
    pair_t pair;

    open_tcp_pair(&pair);
    cr_expect(eq(int, read_nothing(&pair.streams[1]), TMSG_IN_PROGRESS));
    close_pair(&pair);
}

Test(frame, reports_a_bad_descriptor)
{
    tmsg_frame_stream_t stream;

    tmsg_frame_init(&stream, -1, MAX);
    cr_expect(eq(int, read_nothing(&stream), TMSG_ERR_IO));
    cr_expect(eq(int, tmsg_frame_flush(&stream), TMSG_ERR_IO));
    tmsg_frame_free(&stream);
}

Test(frame, survives_every_failing_allocation)
{
    uint8_t data[MAX];
    unsigned failures = 0;
    bool failed = true;

    memset(data, 0x77, sizeof(data));
    for (unsigned long n = 1; failed; n++) {
        const uint8_t *got;
        tmsg_status_t status;
        uint8_t type;
        size_t bytes;
        pair_t pair;

        open_pair(&pair);
        failing_alloc_arm(n);
        status = tmsg_frame_queue(&pair.streams[0], 1, data, MAX);
        if (status != TMSG_OK) {
            cr_assert(eq(int, status, TMSG_ERR_NO_MEMORY));
            failures++;
            status = tmsg_frame_queue(&pair.streams[0], 1, data, MAX);
        }
        cr_assert(eq(int, status, TMSG_OK));
        do {
            status = tmsg_frame_read(&pair.streams[1], &type, &got, &bytes);
            failures += status == TMSG_ERR_NO_MEMORY;
        } while (status == TMSG_IN_PROGRESS || status == TMSG_ERR_NO_MEMORY);
        failed = failing_alloc_disarm();
        cr_assert(eq(int, status, TMSG_OK));
        cr_assert(eq(sz, bytes, MAX));
        cr_assert(memcmp(got, data, MAX) == 0);
        close_pair(&pair);
    }
    cr_expect(ge(uint, failures, 2));
}
