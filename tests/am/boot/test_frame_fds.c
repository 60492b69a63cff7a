/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Descriptors that come with frames: each goes with its own frame, however the
 * bytes are cut, and what a peer sends beyond that is closed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/frame.h"
#include "core/bytes.h"
#include "support/failing_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define MOST 1000
#define WITH 12 /* the type of frames that may have a descriptor */
#define WITHOUT 7
#define BEAT 4

typedef struct {
    int before; /* descriptors of this process */
    int sockets[2];
    tmsg_frame_stream_t from, to;
} pair_of_streams_t;

static void open_streams(pair_of_streams_t *pair)
{
    pair->before = count_descriptors();
    must_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->sockets),
            0);
    tmsg_frame_init(&pair->from, pair->sockets[0], MOST);
    tmsg_frame_init(&pair->to, pair->sockets[1], MOST);
    tmsg_frame_take_fds(&pair->to, UINT64_C(1) << WITH);
}

static void close_streams(pair_of_streams_t *pair)
{
    tmsg_frame_free(&pair->from);
    tmsg_frame_free(&pair->to);
    close(pair->sockets[0]);
    close(pair->sockets[1]);
    must_eq(count_descriptors(), pair->before);
}

/* A file that says which it is. */
static int make_file(uint32_t number)
{
    int fd = memfd_create("numbered", MFD_CLOEXEC);

    must_true(fd >= 0);
    must_eq(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
    return fd;
}

static void expect_file(int fd, uint32_t number)
{
    uint32_t found = 0;

    must_true(fd >= 0);
    must_eq(pread(fd, &found, sizeof(found), 0), sizeof(found));
    must_eq(found, number);
    must_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void queue(tmsg_frame_stream_t *stream, uint32_t number, bool with)
{
    int fd = with ? make_file(number) : -1;

    must(tmsg_frame_queue_fd(stream, with ? WITH : WITHOUT, &number,
                             sizeof(number), fd));
    if (with) {
        close(fd);
    }
}

static tmsg_status_t read_next(tmsg_frame_stream_t *stream, uint8_t *type_p,
                               size_t *bytes_p)
{
    const uint8_t *data;

    return tmsg_frame_read(stream, type_p, &data, bytes_p);
}

static void expect(tmsg_frame_stream_t *stream, uint32_t number, bool with)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    must(tmsg_frame_read(stream, &type, &data, &bytes));
    must_eq(type, with ? WITH : WITHOUT);
    must_eq(bytes, sizeof(number));
    must_eq(tmsg_get_le(data, 4), number);
    if (with) {
        expect_file(tmsg_frame_fd(stream), number);
    }
    must_eq(tmsg_frame_fd(stream), TMSG_FRAME_FD_NONE);
}

static void expect_end(tmsg_frame_stream_t *stream, tmsg_status_t wanted,
                       const char *words)
{
    tmsg_status_t status = TMSG_OK;
    uint8_t type;
    size_t bytes;

    while (status >= 0) {
        status = read_next(stream, &type, &bytes);
    }
    must_be(status, wanted);
    must_say(tmsg_error_message(), words);
    must_be(read_next(stream, &type, &bytes), wanted);
}

/* All lie in the socket before the first is read. */
static void several_in_one_read(bool macs)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {3};
    pair_of_streams_t pair;

    open_streams(&pair);
    if (macs) {
        tmsg_frame_protect(&pair.from, key, key, MOST);
        tmsg_frame_protect(&pair.to, key, key, MOST);
    }
    for (uint32_t i = 0; i < 40; i++) {
        queue(&pair.from, i, (0x2d75 >> i % 16 & 1) != 0);
    }
    for (uint32_t i = 0; i < 40; i++) {
        expect(&pair.to, i, (0x2d75 >> i % 16 & 1) != 0);
    }
    close_streams(&pair);
}

Test(frame_fds, each_comes_with_its_frame) { several_in_one_read(false); }
Test(frame_fds, each_comes_with_its_frame_and_mac)
{
    several_in_one_read(true);
}

/* A slow reader and lengths of all kinds: the kernel takes parts of frames, and
 * other frames wait in the stream. */
Test(frame_fds, each_comes_with_its_frame_however_bytes_are_cut)
{
    enum { FRAMES = 600 };
    uint8_t data[MOST] = {0};
    uint32_t sent = 0, got = 0;
    uint64_t seed = 11;
    int little = 1;
    pair_of_streams_t pair;

    open_streams(&pair);
    must_eq(setsockopt(pair.sockets[0], SOL_SOCKET, SO_SNDBUF, &little,
                       sizeof(little)),
            0);
    while (got < FRAMES) {
        bool with = sent % 3 != 1;
        int fd = make_file(sent);
        tmsg_status_t status = TMSG_ERR_BUSY;
        uint8_t type;
        size_t bytes;

        if (sent < FRAMES) {
            tmsg_put_le(data, sent, 4);
            status = tmsg_frame_queue_fd(
                &pair.from, with ? WITH : WITHOUT, data,
                4 + sample_random(&seed) % (MOST - 4), with ? fd : -1);
            sent += status == TMSG_OK;
        }
        close(fd);
        if (status == TMSG_ERR_BUSY || sample_random(&seed) % 4 == 0) {
            const uint8_t *in;

            must_true(tmsg_frame_flush(&pair.from) >= 0);
            status = tmsg_frame_read(&pair.to, &type, &in, &bytes);
            must_true(status >= 0);
            if (status == TMSG_OK) {
                must_eq(tmsg_get_le(in, 4), got);
                must_eq(type, got % 3 != 1 ? WITH : WITHOUT);
                if (type == WITH) {
                    expect_file(tmsg_frame_fd(&pair.to), got);
                }
                got++;
            }
        }
    }
    close_streams(&pair);
}

/* Sends bytes past all rules, with so many descriptors of one file. */
static void put_with(int sock, const void *data, size_t bytes, unsigned count)
{
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(253 * sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec one = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    int fd = make_file(1);

    if (count > 0) {
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        for (unsigned i = 0; i < count; i++) {
            memcpy(CMSG_DATA(&control.head) + i * sizeof(fd), &fd, sizeof(fd));
        }
    }
    must_eq(sendmsg(sock, &message, MSG_NOSIGNAL), bytes);
    close(fd);
}

static const char with_frame[] = "\x04\0\0\0\x0c"
                                 "abcd";
#define WITH_BYTES (sizeof(with_frame) - 1)

Test(frame_fds, one_comes_with_any_byte_of_its_frame)
{
    for (size_t with = 0; with < WITH_BYTES; with++) {
        pair_of_streams_t pair;
        uint8_t type;
        size_t bytes;

        open_streams(&pair);
        put_with(pair.sockets[0], TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES, 0);
        for (size_t i = 0; i < WITH_BYTES; i++) {
            must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
            put_with(pair.sockets[0], with_frame + i, 1, i == with);
        }
        must(read_next(&pair.to, &type, &bytes));
        expect_file(tmsg_frame_fd(&pair.to), 1);
        close_streams(&pair);
    }
}

/* The frame comes in two writes, with so many descriptors each. */
static const struct {
    const char *what;
    uint64_t takes; /* types */
    unsigned counts[2];
    char type;
    const char *words;
} lies[] = {
    {"before any is taken", 0, {1, 0}, WITH, "where none is taken"},
    {"many before any is taken", 0, {253, 0}, WITH, "where none is taken"},
    {"with a frame that takes none", 1 << BEAT, {1, 0}, WITH, "takes none"},
    {"with a type beyond 63", UINT64_MAX, {1, 0}, 'L', "takes none"},
    {"two at once", 1 << WITH, {2, 0}, WITH, "several descriptors"},
    {"three at once", 1 << WITH, {3, 0}, WITH, "several descriptors"},
    {"253 at once", 1 << WITH, {253, 0}, WITH, "several descriptors"},
    {"two with one frame", 1 << WITH, {1, 1}, WITH, "2 descriptors came"},
};

Test(frame_fds, what_a_peer_may_not_send_ends_the_stream)
{
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        char frame[WITH_BYTES];
        pair_of_streams_t pair;
        uint8_t type;
        size_t bytes;

        open_streams(&pair);
        tmsg_frame_take_fds(&pair.to, lies[i].takes);
        memcpy(frame, with_frame, sizeof(frame));
        frame[4] = lies[i].type;
        put_with(pair.sockets[0], TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES, 0);
        must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
        put_with(pair.sockets[0], frame, 6, lies[i].counts[0]);
        if (lies[i].counts[0] == 1 && lies[i].takes != 0) {
            must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
        }
        put_with(pair.sockets[0], frame + 6, sizeof(frame) - 6,
                 lies[i].counts[1]);
        expect_end(&pair.to, TMSG_ERR_MALFORMED, lies[i].words);
        must_eq(count_descriptors(), pair.before + 2);
        close_streams(&pair);
    }
}

/* With MACs it may be somebody between the peers, who must not end a
 * session. */
Test(frame_fds, with_macs_it_may_be_somebody_else)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {3};

    for (int several = 0; several < 2; several++) {
        pair_of_streams_t pair;
        uint8_t type;
        size_t bytes;
        int fd;

        open_streams(&pair);
        tmsg_frame_protect(&pair.from, key, key, MOST);
        tmsg_frame_protect(&pair.to, key, key, MOST);
        must(tmsg_frame_flush(&pair.from));
        must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
        if (several) {
            put_with(pair.sockets[0], with_frame, WITH_BYTES, 2);
        } else {
            fd = make_file(1);
            must(tmsg_frame_queue_fd(&pair.from, WITHOUT, NULL, 0, fd));
            close(fd);
        }
        expect_end(&pair.to, TMSG_ERR_CORRUPT,
                   several ? "several descriptors" : "takes none");
        close_streams(&pair);
    }
}

/* Nobody takes them: there is one at a time. */
Test(frame_fds, a_flood_is_closed_as_it_comes)
{
    pair_of_streams_t pair;
    uint8_t type;
    size_t bytes;

    open_streams(&pair);
    put_with(pair.sockets[0], TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES, 0);
    for (int i = 0; i < 10000; i++) {
        put_with(pair.sockets[0], with_frame, WITH_BYTES, 1);
        if (i % 32 == 31) {
            while (read_next(&pair.to, &type, &bytes) == TMSG_OK) {
                must_true(count_descriptors() <= pair.before + 2 + 2);
            }
        }
    }
    close_streams(&pair);
}

/* As many as this process has, so that no other can be had. */
static void have_no_more(bool none)
{
    struct rlimit most;
    int next = dup(0);

    must_true(none == (next >= 0));
    close(next);
    must_eq(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = none ? (rlim_t)next : most.rlim_max;
    must_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
}

Test(frame_fds, a_frame_comes_without_the_one_that_cannot_be_had)
{
    pair_of_streams_t pair;
    uint8_t type;
    size_t bytes;
    int fd;

    open_streams(&pair);
    fd = make_file(5);
    queue(&pair.from, 1, true);
    have_no_more(true);
    must(read_next(&pair.to, &type, &bytes));
    must_eq(tmsg_frame_fd(&pair.to), TMSG_FRAME_FD_LOST);
    must_say(tmsg_frame_fd_words(TMSG_FRAME_FD_LOST), "RLIMIT_NOFILE");
    must_be(tmsg_frame_queue_fd(&pair.from, WITH, "abcd", 4, fd),
            TMSG_ERR_LIMIT_EXCEEDED);
    have_no_more(false);
    queue(&pair.from, 2, true);
    expect(&pair.to, 2, true);
    close(fd);
    close_streams(&pair);
}

/* The kernel does not let more pass than the sender may have open: the frame
 * comes all the same. */
Test(frame_fds, a_frame_goes_without_the_one_that_may_not_pass)
{
    pair_of_streams_t pair;
    uint8_t type;
    size_t bytes;
    int none = 0;

    open_streams(&pair);
    if (setsockopt(pair.sockets[1], SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &none,
                   sizeof(none)) != 0) {
        close_streams(&pair);
        cr_skip_test("only Linux 6.16 and later can refuse descriptors");
    }
    queue(&pair.from, 1, true);
    queue(&pair.from, 2, false);
    must(read_next(&pair.to, &type, &bytes));
    must_eq(type, WITH);
    must_eq(tmsg_frame_fd(&pair.to), TMSG_FRAME_FD_NONE);
    expect(&pair.to, 2, false);
    close_streams(&pair);
}

Test(frame_fds, a_bounded_number_waits)
{
    uint32_t sent = 0;
    tmsg_status_t status = TMSG_OK;
    pair_of_streams_t pair;
    int fd;

    open_streams(&pair);
    fd = make_file(0);
    while (tmsg_frame_pending(&pair.from) == 0 || status == TMSG_OK) {
        status = tmsg_frame_queue_fd(&pair.from, WITH, NULL, 0, fd);
        sent += status == TMSG_OK;
    }
    must_be(status, TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "64 descriptors wait");
    must_eq(count_descriptors(), pair.before + 2 + 1 + TMSG_PASSING_MOST);
    must(tmsg_frame_queue(&pair.from, WITHOUT, NULL, 0));
    for (uint32_t i = 0; i < sent;) {
        uint8_t type;
        size_t bytes;

        must_true(tmsg_frame_flush(&pair.from) >= 0);
        while (read_next(&pair.to, &type, &bytes) == TMSG_OK) {
            must_eq(type, i < sent ? WITH : WITHOUT);
            expect_file(tmsg_frame_fd(&pair.to), 0);
            i++;
            if (i == sent) {
                break;
            }
        }
    }
    close(fd);
    close_streams(&pair);
}

/* The thread that hears heartbeats leaves them to whoever reads. */
Test(frame_fds, who_listens_leaves_them)
{
    static const char beat[] = {0, 0, 0, 0, BEAT};
    pair_of_streams_t pair;
    uint8_t type;
    size_t bytes;

    open_streams(&pair);
    must(tmsg_frame_flush(&pair.from));
    must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
    tmsg_frame_beat(&pair.from, BEAT);
    queue(&pair.from, 9, true);
    tmsg_frame_beat(&pair.from, BEAT);
    tmsg_frame_listen(&pair.to, BEAT);
    must(read_next(&pair.to, &type, &bytes));
    must_eq(type, BEAT);
    expect(&pair.to, 9, true);
    tmsg_frame_listen(&pair.to, BEAT); /* nothing but the heartbeat is there */
    must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
    put_with(pair.sockets[0], beat, sizeof(beat), 1);
    tmsg_frame_listen(&pair.to, BEAT);
    expect_end(&pair.to, TMSG_ERR_MALFORMED, "takes none");
    close_streams(&pair);
}

typedef struct {
    pair_of_streams_t *pair;
    atomic_bool over;
} hearts_t;

static void *beat_and_listen(void *arg)
{
    hearts_t *hearts = arg;

    while (!atomic_load(&hearts->over)) {
        tmsg_frame_beat(&hearts->pair->from, BEAT);
        tmsg_frame_listen(&hearts->pair->to, BEAT);
    }
    return NULL;
}

/* Another thread beats at one end and listens at the other all the while. */
Test(frame_fds, none_is_lost_beside_heartbeats)
{
    enum { FRAMES = 2000 };
    uint32_t sent = 0, got = 0;
    pair_of_streams_t pair;
    hearts_t hearts = {.pair = &pair};
    pthread_t thread;

    open_streams(&pair);
    must(tmsg_frame_flush(&pair.from));
    must_eq(pthread_create(&thread, NULL, beat_and_listen, &hearts), 0);
    while (got < FRAMES) {
        const uint8_t *data;
        tmsg_status_t status;
        uint8_t type;
        size_t bytes;

        for (; sent < FRAMES && sent < got + 20; sent++) {
            queue(&pair.from, sent, sent % 3 != 0);
        }
        must_true(tmsg_frame_flush(&pair.from) >= 0);
        status = tmsg_frame_read(&pair.to, &type, &data, &bytes);
        must_true(status >= 0);
        if (status == TMSG_OK && type != BEAT) {
            must_eq(tmsg_get_le(data, 4), got);
            must_eq(type, got % 3 != 0 ? WITH : WITHOUT);
            if (type == WITH) {
                expect_file(tmsg_frame_fd(&pair.to), got);
            }
            got++;
        }
    }
    atomic_store(&hearts.over, true);
    must_eq(pthread_join(thread, NULL), 0);
    close_streams(&pair);
}

/* Some are in the streams, of whole frames and of one that has begun. */
Test(frame_fds, what_is_kept_moves_and_is_closed)
{
    for (int end = 0; end < 4; end++) {
        tmsg_frame_stream_t moved;
        pair_of_streams_t pair;
        uint8_t type;
        size_t bytes;

        open_streams(&pair);
        queue(&pair.from, 1, true);
        put_with(pair.sockets[0], with_frame, WITH_BYTES - 1, 1);
        must(read_next(&pair.to, &type, &bytes));
        expect_file(tmsg_frame_fd(&pair.to), 1);
        must_be(read_next(&pair.to, &type, &bytes), TMSG_IN_PROGRESS);
        if (end < 2) {
            tmsg_frame_move(&moved, &pair.to);
            tmsg_frame_init(&pair.to, pair.sockets[1], MOST);
            tmsg_frame_move(&pair.to, &moved);
        }
        if (end % 2 == 0) {
            put_with(pair.sockets[0], with_frame + WITH_BYTES - 1, 1, 0);
            must(read_next(&pair.to, &type, &bytes));
            must_eq(count_descriptors(), pair.before + 2 + 1);
        } else {
            shutdown(pair.sockets[0], SHUT_WR);
            expect_end(&pair.to, TMSG_ERR_CLOSED, "inside a frame");
            must_eq(count_descriptors(), pair.before + 2);
        }
        close_streams(&pair);
    }
}

Test(frame_fds, what_waits_moves)
{
    uint32_t sent = 0, got = 0;
    tmsg_frame_stream_t moved;
    pair_of_streams_t pair;

    open_streams(&pair);
    while (tmsg_frame_pending(&pair.from) < 100) {
        queue(&pair.from, sent++, true);
    }
    tmsg_frame_move(&moved, &pair.from);
    pair.from = (tmsg_frame_stream_t){.socket = -1};
    tmsg_frame_init(&pair.from, pair.sockets[0], MOST);
    tmsg_frame_move(&pair.from, &moved);
    while (got < sent) {
        must_true(tmsg_frame_flush(&pair.from) >= 0);
        expect(&pair.to, got++, true);
    }
    close_streams(&pair);
}

Test(frame_fds, every_failing_allocation_is_survived)
{
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        pair_of_streams_t pair;
        tmsg_status_t status;
        int fd;

        open_streams(&pair);
        fd = make_file(3);
        failing_alloc_arm(n);
        status = tmsg_frame_queue_fd(&pair.from, WITH, "\3\0\0\0", 4, fd);
        failed = failing_alloc_disarm();
        if (status != TMSG_OK) {
            must_be(status, TMSG_ERR_NO_MEMORY);
            must(tmsg_frame_queue_fd(&pair.from, WITH, "\3\0\0\0", 4, fd));
        }
        expect(&pair.to, 3, true);
        close(fd);
        close_streams(&pair);
    }
}
