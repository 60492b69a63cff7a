/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A pipe by itself: two ends in one process, over a socket pair. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/pipe/pipe.h"
#include "core/bytes.h"
#include "support/failing_alloc.h"
#include "support/must.h"

#define KIB ((size_t)1024)
#define ROUNDS 200000
#define MESSAGES 64

/* One end, and what it was told. */
typedef struct {
    tmsg_pipes_t pipes;
    tmsg_pipe_t *pipe;
    int fd;
    size_t most;     /* bytes that one call moves; 0: all */
    int write_error; /* of all calls; 0: none */
    uint8_t *hoard;  /* what was read ahead; NULL: nothing is */
    size_t hoard_begin, hoard_end;
    unsigned came;
    size_t header_bytes[MESSAGES], bytes[MESSAGES];
    uint8_t first[MESSAGES];  /* byte of each payload that came along */
    tmsg_pipe_offer_t *offer; /* the newest */
    tmsg_status_t ended;
    char why[200];
    unsigned sent, writes;
    bool drops; /* the offer that it keeps, when a message was sent */
    tmsg_pipe_status_t sent_status;
    unsigned received;
    tmsg_pipe_status_t received_status;
} end_t;

typedef struct {
    end_t a, b;
} ends_t;

static size_t trim(const end_t *end, const struct iovec *list, size_t count,
                   struct iovec *trimmed)
{
    size_t left = end->most == 0 ? SIZE_MAX : end->most, used = 0;

    for (; used < count && left > 0; used++) {
        trimmed[used] = list[used];
        if (trimmed[used].iov_len > left) {
            trimmed[used].iov_len = left;
        }
        left -= trimmed[used].iov_len;
    }
    return used;
}

/* Reads what was read ahead, which the socket does not have any more. */
static ssize_t read_hoard(end_t *end, const struct iovec *into, size_t count)
{
    size_t begin = end->hoard_begin;

    for (size_t i = 0; i < count; i++) {
        size_t left = end->hoard_end - end->hoard_begin;
        size_t bytes = into[i].iov_len < left ? into[i].iov_len : left;

        memcpy(into[i].iov_base, end->hoard + end->hoard_begin, bytes);
        end->hoard_begin += bytes;
    }
    errno = EAGAIN;
    return end->hoard_begin == begin ? -1 : (ssize_t)(end->hoard_begin - begin);
}

static ssize_t read_some(void *io, const struct iovec *into, size_t count)
{
    end_t *end = io;
    struct iovec some[128];

    if (end->hoard != NULL) {
        return read_hoard(end, into, count);
    }
    return tmsg_pipe_plain_io.read(tmsg_pipe_socket(end->fd), some,
                                   trim(end, into, count, some));
}

static ssize_t write_some(void *io, const struct iovec *from, size_t count)
{
    end_t *end = io;
    struct iovec some[128];

    end->writes++;
    if (end->write_error != 0) {
        errno = end->write_error;
        return -1;
    }
    return tmsg_pipe_plain_io.write(tmsg_pipe_socket(end->fd), some,
                                    trim(end, from, count, some));
}

static const tmsg_io_t some_io = {.read = read_some, .write = write_some};

static tmsg_pipe_status_t note_message(void *arg,
                                       const tmsg_pipe_message_t *message)
{
    end_t *end = arg;
    unsigned i = end->came++ % MESSAGES;
    const uint8_t *data = message->data;

    end->header_bytes[i] = message->header_bytes;
    end->bytes[i] = message->bytes;
    if (message->offer != NULL) {
        end->offer = message->offer;
        return TMSG_PIPE_IN_PROGRESS;
    }
    for (size_t at = 1; at < message->bytes; at++) {
        must_true(data[at] == (uint8_t)(data[0] + at));
    }
    end->first[i] = message->bytes > 0 ? data[0] : 0;
    return TMSG_PIPE_OK;
}

static void note_end(void *arg, tmsg_pipe_t *pipe, tmsg_status_t status,
                     const char *why)
{
    end_t *end = arg;

    must_true(pipe == end->pipe && end->ended == TMSG_OK);
    end->ended = status;
    snprintf(end->why, sizeof(end->why), "%s", why);
}

static void note_sent(void *request, tmsg_pipe_status_t status, void *arg)
{
    end_t *end = arg;

    must_true(request == NULL);
    end->sent++;
    end->sent_status = status;
    if (end->drops) {
        tmsg_pipe_drop(end->offer);
        must_eq(tmsg_pipe_send(
                    end->pipe,
                    &(tmsg_pipe_send_t){.header = "x", .header_bytes = 1},
                    note_sent, end),
                TMSG_PIPE_LOST);
    }
}

static void note_received(void *request, tmsg_pipe_status_t status,
                          size_t bytes, void *arg)
{
    end_t *end = arg;

    (void)bytes;
    must_true(request == NULL);
    end->received++;
    end->received_status = status;
}

static tmsg_status_t open_end(end_t *end, int fd)
{
    tmsg_status_t status;

    memset(end, 0, sizeof(*end));
    end->fd = fd;
    end->pipes =
        (tmsg_pipes_t){.arrived = note_message, .ended = note_end, .arg = end};
    status = tmsg_pipes_init(&end->pipes);
    if (status == TMSG_OK) {
        status =
            tmsg_pipe_open(&end->pipes, fd, &some_io, end, NULL, 0, &end->pipe);
        if (status != TMSG_OK) {
            tmsg_pipes_free(&end->pipes);
        }
    }
    return status;
}

static void close_pipe(end_t *end)
{
    if (end->pipe != NULL) {
        tmsg_pipe_close(end->pipe);
        end->pipe = NULL;
    }
}

static void open_ends(ends_t *ends)
{
    int fds[2];

    must_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    must(open_end(&ends->a, fds[0]));
    must(open_end(&ends->b, fds[1]));
}

static void close_ends(ends_t *ends)
{
    close_pipe(&ends->a);
    close_pipe(&ends->b);
    tmsg_pipes_free(&ends->a.pipes);
    tmsg_pipes_free(&ends->b.pipes);
}

/* Moves everything until nothing moves. */
static void settle(ends_t *ends)
{
    unsigned quiet = 0;

    for (unsigned i = 0; i < ROUNDS && quiet < 3; i++) {
        quiet = tmsg_pipes_progress(&ends->a.pipes) +
                            tmsg_pipes_progress(&ends->b.pipes) ==
                        0
                    ? quiet + 1
                    : 0;
    }
    must_eq(quiet, 3);
}

static uint8_t *pattern(size_t bytes, uint8_t first)
{
    uint8_t *data = malloc(bytes + 1);

    must_true(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(first + i);
    }
    return data;
}

static const char header[] = "a header of a message";

static tmsg_pipe_status_t send_to(end_t *end, const void *data, size_t bytes,
                                  size_t pieces, uint32_t flags)
{
    const tmsg_pipe_send_t send = {.header = header,
                                   .header_bytes = sizeof(header),
                                   .data = data,
                                   .bytes = bytes,
                                   .pieces = pieces,
                                   .flags = flags};

    return tmsg_pipe_send(end->pipe, &send, note_sent, end);
}

/* Sends one and expects it at the other end, in one piece and as a list. */
static void carry(ends_t *ends, size_t bytes, uint8_t first)
{
    uint8_t *data = pattern(bytes, first);
    struct iovec list[3] = {{data, bytes / 3},
                            {data + bytes / 3, bytes / 2 - bytes / 3},
                            {data + bytes / 2, bytes - bytes / 2}};

    for (size_t pieces = 0; pieces <= 3; pieces += 3) {
        unsigned came = ends->b.came, sent = ends->a.sent;
        tmsg_pipe_status_t status =
            pieces == 0 ? send_to(&ends->a, data, bytes, 0, TMSG_PIPE_EAGER)
                        : send_to(&ends->a, list, 0, 3, 0);

        must_true(status == TMSG_PIPE_OK || status == TMSG_PIPE_IN_PROGRESS);
        settle(ends);
        must_eq(ends->a.sent - sent, status == TMSG_PIPE_IN_PROGRESS);
        must_eq(ends->b.came - came, 1);
        must_eq(ends->b.header_bytes[came % MESSAGES], sizeof(header));
        must_eq(ends->b.bytes[came % MESSAGES], bytes);
        must_eq(ends->b.first[came % MESSAGES], bytes > 0 ? first : 0);
    }
    free(data);
}

Test(pipe, carries_payloads_that_come_along)
{
    static const size_t sizes[] = {0,           1,         64,       8 * KIB,
                                   8 * KIB + 1, 100 * KIB, 256 * KIB};
    ends_t ends;

    open_ends(&ends);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        carry(&ends, sizes[i], (uint8_t)(i + 7));
    }
    must_true(tmsg_pipes_arm(&ends.a.pipes) && tmsg_pipes_arm(&ends.b.pipes));
    close_ends(&ends);
}

Test(pipe, carries_by_any_split)
{
    ends_t ends;

    open_ends(&ends);
    for (size_t most = 1; most < 60; most += most < 20 ? 1 : 13) {
        ends.a.most = most;
        ends.b.most = most;
        carry(&ends, 100, 3);
        ends.b.most = 0;
        carry(&ends, 9 * KIB, 4);
        ends.a.most = 0;
        ends.b.most = most;
        carry(&ends, 9 * KIB, 5);
    }
    close_ends(&ends);
}

/* Has b say so many messages, all of which a has read ahead. */
static void hoard(ends_t *ends, unsigned messages, size_t bytes)
{
    size_t room = messages * (bytes + KIB);
    uint8_t *data = pattern(bytes, 1);

    ends->a.hoard = malloc(room);
    must_true(ends->a.hoard != NULL);
    for (unsigned i = 0; i < messages; i++) {
        send_to(&ends->b, data, bytes, 0, TMSG_PIPE_EAGER);
    }
    for (unsigned i = 0; i < ROUNDS / 10; i++) {
        ssize_t got = recv(ends->a.fd, ends->a.hoard + ends->a.hoard_end,
                           room - ends->a.hoard_end, MSG_DONTWAIT);

        ends->a.hoard_end += got > 0 ? (size_t)got : 0;
        tmsg_pipes_progress(&ends->b.pipes);
    }
    must_true(ends->a.hoard_end > messages * bytes);
    free(data);
}

/* More of it than it reads in a turn, and meanwhile it may write again. */
Test(pipe, reads_what_was_read_ahead)
{
    enum { AHEAD = 60, BACK = 20 };
    uint8_t *data = pattern(30 * KIB, 3);
    ends_t ends;

    open_ends(&ends);
    hoard(&ends, AHEAD, 30 * KIB);
    for (unsigned i = 0; i < BACK; i++) {
        send_to(&ends.a, data, 30 * KIB, 0, TMSG_PIPE_EAGER);
    }
    tmsg_pipes_progress(&ends.b.pipes);
    settle(&ends);
    must_eq(ends.a.came, AHEAD);
    must_eq(ends.b.came, BACK);
    free(ends.a.hoard);
    free(data);
    close_ends(&ends);
}

/* Fetches the newest offer at b, into three places. */
static void fetch(ends_t *ends, uint8_t *into, size_t bytes)
{
    struct iovec list[3] = {{into, 1},
                            {into + 1, bytes / 2},
                            {into + 1 + bytes / 2, bytes - 1 - bytes / 2}};

    must_eq(tmsg_pipe_fetch(ends->b.offer, list, 0, 3, note_received, &ends->b),
            TMSG_PIPE_IN_PROGRESS);
    settle(ends);
}

static void offer(ends_t *ends, const void *data, size_t bytes)
{
    ends->b.offer = NULL;
    must_eq(send_to(&ends->a, data, bytes, 0, TMSG_PIPE_OFFERED),
            TMSG_PIPE_IN_PROGRESS);
    settle(ends);
    must_true(ends->b.offer != NULL);
}

Test(pipe, fetches_what_is_offered)
{
    static const size_t sizes[] = {1, 1000, 300 * KIB, 2048 * KIB};
    ends_t ends;

    open_ends(&ends);
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t bytes = sizes[i / 2];
        uint8_t *data = pattern(bytes, (uint8_t)i), *into = malloc(bytes);

        ends.a.most = ends.b.most = i % 2 * (bytes / 50 + 1);
        offer(&ends, data, bytes);
        must_eq(ends.a.sent, i);
        fetch(&ends, into, bytes);
        must_eq(ends.a.sent, i + 1);
        must_eq(ends.a.sent_status, TMSG_PIPE_OK);
        must_eq(ends.b.received, i + 1);
        must_eq(ends.b.received_status, TMSG_PIPE_OK);
        must_true(memcmp(data, into, bytes) == 0);
        free(data);
        free(into);
    }
    offer(&ends, header, sizeof(header));
    tmsg_pipe_drop(ends.b.offer);
    settle(&ends);
    must_eq(ends.a.sent_status, TMSG_PIPE_OK);
    /* Numbers are used again. */
    offer(&ends, header, sizeof(header));
    tmsg_pipe_drop(ends.b.offer);
    settle(&ends);
    close_ends(&ends);
}

/* Many payloads are offered at once, and fetched from the last to the first. */
Test(pipe, keeps_many_offers)
{
    enum { COUNT = 100 };
    tmsg_pipe_offer_t *offers[COUNT];
    uint32_t data[COUNT], into[COUNT] = {0};
    ends_t ends;

    open_ends(&ends);
    for (uint32_t i = 0; i < COUNT; i++) {
        data[i] = i * i;
        offer(&ends, &data[i], sizeof(data[i]));
        offers[i] = ends.b.offer;
    }
    for (uint32_t i = COUNT; i-- > 0;) {
        must_eq(tmsg_pipe_fetch(offers[i], &into[i], sizeof(into[i]), 0,
                                note_received, &ends.b),
                TMSG_PIPE_IN_PROGRESS);
    }
    settle(&ends);
    must_eq(ends.b.received, COUNT);
    must_true(memcmp(data, into, sizeof(data)) == 0);
    close_ends(&ends);
}

Test(pipe, lets_small_messages_pass_a_large_payload)
{
    size_t bytes = 16 * 1024 * KIB;
    uint8_t *data = calloc(1, bytes), *into = malloc(bytes);
    ends_t ends;
    unsigned came;

    open_ends(&ends);
    offer(&ends, data, bytes);
    came = ends.b.came;
    must_eq(
        tmsg_pipe_fetch(ends.b.offer, into, bytes, 0, note_received, &ends.b),
        TMSG_PIPE_IN_PROGRESS);
    for (int i = 0; i < 3; i++) {
        tmsg_pipes_progress(&ends.a.pipes);
    }
    (void)send_to(&ends.a, "z", 1, 0, 0);
    while (ends.b.came == came) {
        tmsg_pipes_progress(&ends.a.pipes);
        tmsg_pipes_progress(&ends.b.pipes);
        must_eq(ends.b.received, 0);
    }
    settle(&ends);
    must_eq(ends.b.received, 1);
    free(data);
    free(into);
    close_ends(&ends);
}

Test(pipe, ends_when_the_peer_closes_and_all_was_read)
{
    ends_t ends;

    open_ends(&ends);
    must_eq(send_to(&ends.a, "x", 1, 0, 0), TMSG_PIPE_OK);
    close_pipe(&ends.a);
    while (ends.b.ended == TMSG_OK) {
        tmsg_pipes_progress(&ends.b.pipes);
    }
    must_eq(ends.b.came, 1);
    must_eq(ends.b.ended, TMSG_ERR_PEER_LOST);
    must_say(ends.b.why, "closed");
    must_eq(send_to(&ends.b, "x", 1, 0, 0), TMSG_PIPE_LOST);
    must_eq(tmsg_pipes_progress(&ends.b.pipes), 0);
    close_ends(&ends);
}

/* Which may have said something, and says nothing more. */
Test(pipe, ends_when_nothing_can_be_written)
{
    ends_t ends;

    open_ends(&ends);
    must_eq(send_to(&ends.b, "x", 1, 0, 0), TMSG_PIPE_OK);
    ends.a.write_error = EIO;
    must_eq(send_to(&ends.a, "x", 1, 0, 0), TMSG_PIPE_IN_PROGRESS);
    settle(&ends);
    must_eq(ends.a.came, 1);
    must_eq(ends.a.ended, TMSG_ERR_PEER_LOST);
    must_say(ends.a.why, strerror(EIO));
    close_ends(&ends);
}

/* What is unfinished ends with CANCELED, and an offer that is kept stays. */
Test(pipe, cancels_what_is_unfinished)
{
    size_t bytes = 8 * 1024 * KIB;
    uint8_t *data = calloc(1, bytes), *into = malloc(bytes);
    tmsg_pipe_offer_t *kept[2];
    ends_t ends;
    unsigned sends = 4;

    open_ends(&ends);
    offer(&ends, data, bytes);
    must_eq(
        tmsg_pipe_fetch(ends.b.offer, into, bytes, 0, note_received, &ends.b),
        TMSG_PIPE_IN_PROGRESS);
    for (int i = 0; i < 3; i++) {
        tmsg_pipes_progress(&ends.a.pipes);
    }
    must_eq(send_to(&ends.a, data, 256 * KIB, 0, 0), TMSG_PIPE_IN_PROGRESS);
    must_eq(ends.a.sent, 0);
    close_pipe(&ends.a);
    must_eq(ends.a.sent, 2);
    must_eq(ends.a.sent_status, TMSG_PIPE_CANCELED);
    close_pipe(&ends.b);
    must_eq(ends.b.received, 1);
    must_eq(ends.b.received_status, TMSG_PIPE_CANCELED);
    close_ends(&ends);

    open_ends(&ends);
    for (int i = 0; i < 2; i++) {
        offer(&ends, data, bytes);
        kept[i] = ends.b.offer;
    }
    close_pipe(&ends.b);
    must_eq(tmsg_pipe_fetch(kept[0], into, bytes, 0, note_received, &ends.b),
            TMSG_PIPE_CANCELED);
    tmsg_pipe_drop(kept[1]);
    must_eq(ends.a.sent, 0);
    close_pipe(&ends.a);
    must_eq(ends.a.sent, 2);
    must_eq(sends, 4);
    close_ends(&ends);
    free(data);
    free(into);
}

/* The callbacks of its end may use a pipe: nothing is written any more. */
Test(pipe, writes_nothing_when_it_is_closed)
{
    static uint8_t data[1000];
    unsigned writes;
    ends_t ends;

    open_ends(&ends);
    offer(&ends, data, sizeof(data));
    must_eq(send_to(&ends.b, data, sizeof(data), 0, TMSG_PIPE_OFFERED),
            TMSG_PIPE_IN_PROGRESS);
    ends.b.drops = true;
    writes = ends.b.writes;
    close_pipe(&ends.b);
    must_eq(ends.b.sent, 1);
    must_eq(ends.b.writes, writes);
    close_ends(&ends);
}

/* Memory that is gone fails its message alone. */
Test(pipe, survives_memory_that_cannot_be_read)
{
    size_t bytes = 1024 * KIB, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *into = malloc(bytes);
    ends_t ends;

    must_true(data != MAP_FAILED);
    open_ends(&ends);
    offer(&ends, data, bytes);
    must_true(mprotect(data + 64 * page, page, PROT_NONE) == 0);
    fetch(&ends, into, bytes);
    must_eq(ends.a.sent_status, TMSG_PIPE_UNREADABLE);
    must_eq(ends.b.received_status, TMSG_PIPE_UNREADABLE);
    must_eq(send_to(&ends.a, data + 64 * page, 100, 0, 0),
            TMSG_PIPE_UNREADABLE);
    carry(&ends, 1000, 9);
    munmap(data, bytes);
    free(into);
    close_ends(&ends);
}

typedef struct {
    const char *what;
    uint8_t type, reserved;
    unsigned header_bytes, id;
    uint64_t bytes;
    const char *words;
} lie_t;

static void put_frame(int fd, const lie_t *lie)
{
    uint8_t frame[16 + 64] = {lie->type, lie->reserved};

    tmsg_put_le(frame + 2, lie->header_bytes, 2);
    tmsg_put_le(frame + 4, lie->id, 4);
    tmsg_put_le(frame + 8, lie->bytes, 8);
    must_true(write(fd, frame, sizeof(frame)) == sizeof(frame));
}

/* Each frame stands behind an offer that b keeps, with number 0, and a fetch of
 * another one, with number 1. */
Test(pipe, refuses_lies)
{
    static const lie_t lies[] = {
        {"no type", 0, 0, 8, 0, 8, "unknown type"},
        {"a type to come", 7, 0, 8, 0, 8, "unknown type"},
        {"a reserved byte", 1, 1, 8, 0, 8, "unknown type"},
        {"no header", 1, 0, 0, 0, 8, "message header"},
        {"a long header", 1, 0, 8193, 0, 8, "message header"},
        {"a header of a GET", 3, 0, 8, 0, 0, "message header"},
        {"a number of an EAGER", 1, 0, 8, 1, 8, "should have been offered"},
        {"a long payload", 1, 0, 8, 0, (8 << 20) + 1, "have been offered"},
        {"an offer of nothing", 2, 0, 8, 2, 0, "offer of nothing"},
        {"the same offer", 2, 0, 8, 0, 8, "second offer"},
        {"an offer too many", 2, 0, 8, 1u << 17, 8, "more offers"},
        {"GET of nothing", 3, 0, 0, 0, 0, "waits for none"},
        {"DROP of nothing", 4, 0, 0, 77, 0, "waits for none"},
        {"GET of bytes", 3, 0, 0, 0, 1, "malformed answer"},
        {"DROP of bytes", 4, 0, 0, 0, 2, "malformed answer"},
        {"DATA that was not asked for", 5, 0, 0, 0, 8, "not asked for"},
        {"DATA of nobody", 5, 0, 0, 9, 8, "not asked for"},
        {"no DATA", 5, 0, 0, 1, 0, "impossible length"},
        {"more DATA than offered", 5, 0, 0, 1, 101, "impossible length"},
        {"a long piece", 5, 0, 0, 1, 128 * 1024 + 1, "impossible length"},
        {"LOST that was not asked for", 6, 0, 0, 0, 0, "not asked for"},
        {"LOST of a length", 6, 0, 0, 1, 1, "of some length"},
    };

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        const lie_t one = {"", 2, 0, 64, 0, 100, ""};
        const lie_t other = {"", 2, 0, 64, 1, 100, ""};
        uint8_t into[100];
        tmsg_pipe_offer_t *kept;
        end_t end;
        int fds[2];

        must_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ==
                  0);
        must(open_end(&end, fds[0]));
        put_frame(fds[1], &one);
        tmsg_pipes_progress(&end.pipes);
        kept = end.offer;
        put_frame(fds[1], &other);
        tmsg_pipes_progress(&end.pipes);
        must_true(kept != NULL && end.offer != kept);
        must_eq(tmsg_pipe_fetch(end.offer, into, sizeof(into), 0, note_received,
                                &end),
                TMSG_PIPE_IN_PROGRESS);
        put_frame(fds[1], &lies[i]);
        tmsg_pipes_progress(&end.pipes);
        cr_expect(eq(int, end.ended, TMSG_ERR_MALFORMED), "%s", lies[i].what);
        cr_expect(strstr(end.why, lies[i].words) != NULL, "%s: %s",
                  lies[i].what, end.why);
        close_pipe(&end);
        must_eq(end.received_status, TMSG_PIPE_CANCELED);
        tmsg_pipe_drop(kept);
        tmsg_pipes_free(&end.pipes);
        close(fds[1]);
    }
}

/* Nothing is left behind, and whoever waits is told, whatever fails. */
Test(pipe, survives_every_failing_allocation)
{
    uint8_t *data = pattern(300 * KIB, 1), *into = malloc(300 * KIB);
    bool failed = true;

    for (unsigned long n = 1; failed && n < 100; n++) {
        unsigned begun = 0;
        int fds[2];
        ends_t ends = {.a = {.fd = -1}};

        must_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ==
                  0);
        failing_alloc_arm(n);
        if (open_end(&ends.a, fds[0]) != TMSG_OK) {
            failed = failing_alloc_disarm();
            close(fds[0]);
            close(fds[1]);
            continue;
        }
        if (open_end(&ends.b, fds[1]) != TMSG_OK) {
            failed = failing_alloc_disarm();
            close(fds[1]);
            close_pipe(&ends.a);
            tmsg_pipes_free(&ends.a.pipes);
            continue;
        }
        ends.a.most = 20 * KIB;
        begun +=
            send_to(&ends.a, data, 100 * KIB, 0, 0) == TMSG_PIPE_IN_PROGRESS;
        begun += send_to(&ends.a, data, 10, 0, 0) == TMSG_PIPE_IN_PROGRESS;
        begun +=
            send_to(&ends.a, data, 300 * KIB, 0, 0) == TMSG_PIPE_IN_PROGRESS;
        settle(&ends);
        if (ends.b.offer != NULL) {
            (void)tmsg_pipe_fetch(ends.b.offer, into, 300 * KIB, 0,
                                  note_received, &ends.b);
            settle(&ends);
        }
        failed = failing_alloc_disarm();
        close_ends(&ends);
        must_eq(ends.a.sent, begun);
        must_true(failed || ends.b.received_status == TMSG_PIPE_OK);
    }
    must_true(!failed);
    free(data);
    free(into);
}
