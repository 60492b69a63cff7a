/* SPDX-License-Identifier: BSD-3-Clause */
/* Large payloads over shared memory, by rings: what goes by them, what does
 * not, what becomes of it, and what a peer may lie about. How fragments travel
 * by any bulk stream is test_bulk's. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/keepalive.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/link_ops.h"
#include "am/path/bulk_ring.h"
#include "am/shm/ring.h"
#include "am/worker/budget.h"
#include "core/bytes.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/numbered_keys.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define KIB ((size_t)1 << 10)
#define LARGE ((size_t)3 << 20)
#define HUGE ((size_t)48 << 20)
#define GIANT ((size_t)144 << 20)
#define MARK TMSG_SEGMENT_MARK_BYTES
#define STREAM 32
#define RING_BYTES ((size_t)1 << 20)

/* A thread closes descriptors that may not pass. */
static void must_be_closed(int before)
{
    for (int ms = 0; ms < 5000 && count_descriptors() > before; ms++) {
        usleep(1000);
    }
    must_eq(count_descriptors(), before);
}

static uint64_t by_ring(const tmsg_endpoint_t *endpoint)
{
    return endpoint->stats.sent_by_bulk;
}

/* Over unix:// a ring goes by the socket and the header of the first message by
 * UCX. Who hears of the message first takes that one by UCX. */
static bool all_but_early(link_t link, uint64_t count, uint64_t most)
{
    return count == most || (link == LINK_UNIX && count == most - 1);
}

static void carry(link_t link, drive_t drive)
{
    const side_options_t quiet = {.quiet = true};
    uint64_t most = link == LINK_BLOB ? 0 : LARGE_MESSAGES;
    pair_t pair;

    pair_open(&pair, link, drive, &quiet, &quiet);
    large_exchange(&pair);
    cr_expect(all_but_early(link, by_ring(pair.to_a), most));
    cr_expect(all_but_early(link, by_ring(pair.to_b), most));
    cr_expect(eq(u64, pair.to_a->stats.received_by_bulk, by_ring(pair.to_b)));
    pair_close(&pair);
}

Test(ring, carries_what_is_large) { carry(LINK_SHM, DRIVE_POLLING); }
Test(ring, carries_by_descriptor) { carry(LINK_SHM, DRIVE_FD); }
Test(ring, carries_by_thread) { carry(LINK_SHM, DRIVE_THREAD); }
Test(ring, carries_over_unix) { carry(LINK_UNIX, DRIVE_FD); }
Test(ring, is_none_by_blob) { carry(LINK_BLOB, DRIVE_POLLING); }

/* So many tensors of `bytes` each, and text in front of them. */
static void goes(pair_t *pair, size_t tensors, size_t bytes, size_t text,
                 bool by_it)
{
    uint64_t before = by_ring(pair->to_a);
    sample_t sample = sample_plain(tensors + bytes, bytes);
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;

    sample.tensors = tensors;
    map = sample_make(&sample);
    if (text > 0) {
        char words[20000] = "";

        memset(words, 'x', text);
        must(tmsg_map_set_string(map, "text", words));
    }
    sent = send_on(pair->to_a, 0, map, 0);
    message = pair_take(pair, &pair->a);
    if (text == 0) {
        sample_check(&sample, tmsg_message_map(message));
    }
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    cr_expect(eq(u64, by_ring(pair->to_a) - before, by_it),
              "%zu of %zu bytes, behind %zu", tensors, bytes, text);
}

/* One tensor, which the peer reads itself, takes the ring from a greater length
 * on. */
static void by_length(pair_t *pair, bool reads)
{
    if (reads) {
        pair_await(pair, endpoint_is_read, pair->to_a, "a peer that reads");
    }
    goes(pair, 1, 32 * KIB, 0, false);
    goes(pair, 1, 60 * KIB, 0, false);
    goes(pair, 2, 30 * KIB, 0, false);
    goes(pair, 1, 64 * KIB, 0, !reads);
    goes(pair, 1, 512 * KIB - 64, 0, !reads);
    goes(pair, 2, 32 * KIB, 0, true);
    goes(pair, 1, 512 * KIB, 0, true);
}

Test(ring, is_taken_from_some_length_on)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    by_length(&pair, true);
    pair_close(&pair);
}

Test(ring, is_taken_sooner_where_no_kernel_copies)
{
    const side_options_t posix = {.ucx_config = "TLS=posix,self"};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &posix, &posix);
    by_length(&pair, false);
    pair_close(&pair);
}

/* That the names head the payload is known after the way was chosen. */
Test(ring, is_made_for_one_tensor_behind_long_names)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair_await(&pair, endpoint_is_read, pair.to_a, "a peer that reads");
    goes(&pair, 1, 100 * KIB, 19000, true);
    goes(&pair, 1, 100 * KIB, 0, false);
    pair_close(&pair);
}

/* Through a relay, so neither side knows whose memory the other's is, and none
 * reads the other's. */
Test(ring, is_taken_from_there_on_when_a_session_is_back)
{
    const how_t how = {.link = LINK_SHM, .resume_ms = 10000};
    joined_t joined;

    joined_open(&joined, &how);
    by_length(&joined.pair, false);
    joined_break(&joined);
    joined_mend(&joined);
    by_length(&joined.pair, false);
    joined_close(&joined);
}

static bool has_begun(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->paths.bulk != NULL &&
           pair->to_a->paths.bulk->written > 0;
}

Test(ring, small_messages_pass)
{
    pair_t pair;
    tmsg_request_t *large;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    large = send_on(pair.to_a, 0, sample_bytes(1, HUGE), 0);
    pair_await(&pair, has_begun, &pair, "its beginning");
    large_is_passed(&pair, large, HUGE, 100);
    pair_close(&pair);
}

typedef struct {
    pair_t *pair;
    unsigned taken;
} stream_t;

/* What comes is destroyed at once; no more than 4 MiB are to come when memory
 * for the next is taken. */
static bool has_taken_all(void *arg)
{
    stream_t *stream = arg;
    tmsg_worker_t *worker = stream->pair->a.worker;
    tmsg_message_t *message;

    cr_assert(lt(u64, tmsg_budget_held(worker->budget), 4 * MIB + 2 * LARGE));
    while (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
        sample_check_bytes(stream->taken++, LARGE, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    return stream->taken == STREAM;
}

Test(ring, a_stream_takes_little_memory)
{
    pair_t pair;
    stream_t stream = {&pair, 0};

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (unsigned i = 0; i < STREAM; i++) {
        send_bytes(pair.to_a, 0, i, LARGE, 0);
    }
    pair_await(&pair, has_taken_all, &stream, "all messages");
    pair_close(&pair);
}

/* What does not wait for its turn takes no memory that one before it is to
 * have: a has it for the first and the third, but not for these and the
 * second. */
static void in_order_of_memory(bool session, tmsg_send_params_t third)
{
    const tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                                  .held_bytes = 16 * MIB};
    const side_options_t a = {.limits = limits};
    const size_t sizes[] = {8 * MIB, 15 * MIB, 6 * MIB};
    const how_t how = {.link = LINK_SHM, .a = a};
    joined_t joined;
    pair_t *pair = &joined.pair;
    tmsg_map_t *map = sample_bytes(2, sizes[2]);

    if (session) {
        joined_open(&joined, &how);
    } else {
        pair_open(pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
    }
    send_bytes(pair->to_a, 0, 0, sizes[0], 0);
    send_bytes(pair->to_a, 0, 1, sizes[1], 0);
    must(tmsg_endpoint_send(pair->to_a, map, &third, NULL));
    tmsg_map_destroy(map);
    for (uint64_t i = 0; i < 3; i++) {
        large_take(pair, &pair->a, i, sizes[i]);
    }
    if (session) {
        joined_close(&joined);
    } else {
        pair_close(pair);
    }
}

Test(ring, what_comes_by_ucx_takes_no_memory_before_its_turn)
{
    in_order_of_memory(false,
                       (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_WAY,
                                            .protocol = TMSG_PROTOCOL_RNDV});
}

Test(ring, what_keeps_its_turn_in_a_session_takes_no_memory_before_it)
{
    in_order_of_memory(true,
                       (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_FLAGS,
                                            .flags = TMSG_SEND_UNORDERED});
}

/* The one on channel 1 goes past most of that on channel 0. */
Test(ring, channels_take_turns)
{
    pair_t pair;
    tmsg_request_t *first;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    first = send_on(pair.to_a, 0, sample_bytes(1, HUGE), 0);
    large_is_passed(&pair, first, HUGE, LARGE);
    pair_close(&pair);
}

/* Bytes that are in the ring already are thrown away by the receiver. */
Test(ring, a_canceled_message_is_over_and_harms_no_other)
{
    tmsg_request_t *amid, *next;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_FD, NULL, NULL);
    amid = send_on(pair.to_a, 0, sample_bytes(1, HUGE), TMSG_SEND_ACKED);
    next = send_on(pair.to_a, 0, sample_bytes(2, LARGE), TMSG_SEND_ACKED);
    pair_await(&pair, has_begun, &pair, "its beginning");
    tmsg_request_cancel(amid);
    cr_expect(eq(int, pair_finish(&pair, amid), TMSG_ERR_CANCELED));
    large_take(&pair, &pair.a, 2, LARGE);
    must(pair_finish(&pair, next));
    pair_close(&pair);
}

static void end_amid(bool by_sender)
{
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_on(pair.to_a, 0, sample_bytes(1, GIANT), TMSG_SEND_ACKED);
    pair_await(&pair, has_begun, &pair, "its beginning");
    must(tmsg_endpoint_abort(by_sender ? pair.to_a : pair.to_b,
                             TMSG_ERR_CANCELED, "enough"));
    cr_expect(eq(int, pair_finish(&pair, sent), TMSG_ERR_CANCELED));
    pair_drop(&pair);
}

Test(ring, ends_with_the_sender) { end_amid(true); }
Test(ring, ends_with_the_receiver) { end_amid(false); }

/* Descriptors are open until the peer has its ring; memory is both sides'. */
static size_t open_files(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

Test(ring, keeps_no_descriptor)
{
    pair_t pair;
    size_t before;
    tmsg_request_t *sent;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    before = open_files();
    for (int i = 0; i < 3; i++) {
        sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
        large_take(&pair, &pair.a, 1, LARGE);
        must(pair_finish(&pair, sent));
    }
    cr_expect(eq(u64, by_ring(pair.to_a), 3));
    cr_expect(eq(sz, open_files(), before));
    pair_close(&pair);
}

/* Of this process, which is the peer. */
static void offer(const pair_t *pair, int fd, uint8_t *mark)
{
    const tmsg_segment_t shared = {.memory = mark, .fd = fd};

    must_true(tmsg_control_offer(pair->to_b, TMSG_RING_WORD_OFFER, &shared));
}

/* By the bootstrap socket; -1: without a descriptor. */
static void offer_by_frame(const pair_t *pair, int fd, const uint8_t *mark)
{
    uint8_t frame[1 + MARK] = {TMSG_RING_WORD_OFFER};

    memcpy(frame + 1, mark, MARK);
    if (fd < 0) {
        must(tmsg_link_ops.put(pair->to_b, TMSG_FRAME_RING, frame,
                               sizeof(frame)));
    } else {
        must(tmsg_link_ops.put_fd(pair->to_b, TMSG_FRAME_RING, frame,
                                  sizeof(frame), fd));
    }
    tmsg_control_ring(pair->to_b, TMSG_RING_WORD_LOOK);
}

static bool is_refused(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_b->paths.ringless;
}

static bool has_ring_of_peer(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.bulk != NULL &&
           endpoint->paths.bulk->maker == &tmsg_mover_ring &&
           tmsg_bulk_receives(endpoint);
}

static tmsg_bulk_t *bulk_of_ring(tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_ring_t *ring = calloc(1, sizeof(*ring));

    ring->bulk = (tmsg_bulk_t){.mover = &tmsg_mover_ring,
                               .maker = &tmsg_mover_ring,
                               .endpoint = endpoint,
                               .stands = true};
    must(tmsg_ring_create(&ring->out));
    return &ring->bulk;
}

static void refuse_by(link_t link, int fd, uint8_t *mark)
{
    pair_t pair;
    tmsg_request_t *sent;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    pair.to_b->paths.bulk =
        bulk_of_ring(pair.to_b); /* of which nothing was said */
    if (link == LINK_UNIX) {
        offer_by_frame(&pair, fd, mark);
    } else {
        offer(&pair, fd, mark);
    }
    pair_await(&pair, is_refused, &pair, "a refusal");
    sent = send_on(pair.to_b, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.b, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, by_ring(pair.to_b), 0));
    cr_expect(eq(int, strncmp(tmsg_bulk_words(pair.to_b), "none: ", 6), 0));
    pair_close(&pair);
}

/* What is no ring, or another's, is not taken, and all goes by UCX. */
static void refuse(int fd, uint8_t *mark)
{
    int before = count_descriptors();

    refuse_by(LINK_SHM, fd, mark);
    refuse_by(LINK_UNIX, fd, mark);
    must_be_closed(before);
}

/* Until the peer has it, pages of it may be missing, and to touch those may be
 * a signal. */
Test(ring, is_not_touched_before_the_peer_has_it)
{
    uint8_t bytes[64] = {0};
    struct iovec some = {bytes, sizeof(bytes)};
    tmsg_bulk_t *bulk;
    tmsg_ring_t *out;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(tmsg_mover_ring.make(pair.to_a));
    bulk = pair.to_a->paths.bulk;
    out = tmsg_bulk_ring_of(bulk)->out;
    must_eq(munmap(tmsg_ring_segment(out)->memory, 4096 + RING_BYTES), 0);
    must_eq(tmsg_mover_ring.write(bulk, &some, 1), -EAGAIN);
    tmsg_mover_ring.moved(bulk);
    must_true(tmsg_mover_ring.await(bulk));
    tmsg_mover_ring.look(bulk);
    must_true(tmsg_bulk_is_intact(pair.to_a));
    tmsg_ring_segment(out)->memory = NULL;
    pair_drop(&pair);
}

Test(ring, a_file_is_none)
{
    uint8_t mark[MARK] = {0};
    FILE *file = tmpfile();

    must_eq(ftruncate(fileno(file), 4096 + (1 << 20)), 0);
    refuse(fileno(file), mark);
    fclose(file);
}

Test(ring, a_descriptor_that_is_closed_is_none)
{
    uint8_t mark[MARK] = {0};

    refuse_by(LINK_SHM, 1000, mark);
    refuse_by(LINK_UNIX, -1, mark); /* the frame comes without one */
}

Test(ring, a_folder_is_none)
{
    uint8_t mark[MARK] = {0};
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    refuse(fd, mark);
    close(fd);
}

Test(ring, memory_that_is_read_only_is_none)
{
    tmsg_ring_t *ring;
    char path[64];
    int fd;

    must(tmsg_ring_create(&ring));
    snprintf(path, sizeof(path), "/proc/self/fd/%d",
             tmsg_ring_segment(ring)->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    refuse_by(LINK_UNIX, fd, tmsg_ring_segment(ring)->memory);
    close(fd);
    tmsg_ring_free(ring);
}

Test(ring, memory_that_may_shrink_is_none)
{
    uint8_t mark[MARK] = {0};
    int fd = memfd_create("no ring", MFD_ALLOW_SEALING | MFD_CLOEXEC);

    must_eq(ftruncate(fd, 4096 + (1 << 20)), 0);
    refuse(fd, mark);
    close(fd);
}

Test(ring, memory_of_another_length_is_none)
{
    uint8_t mark[MARK] = {0};
    int fd = memfd_create("no ring", MFD_ALLOW_SEALING | MFD_CLOEXEC);

    must_eq(ftruncate(fd, 4096), 0);
    must_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    refuse(fd, mark);
    close(fd);
}

/* Whoever opens such a file waits until the lease is given up. */
Test(ring, memory_under_a_lease_is_none)
{
    uint8_t mark[MARK] = {0};
    int made = memfd_create("no ring", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    char path[64];
    int fd;

    signal(SIGIO, SIG_IGN);
    must_eq(ftruncate(made, 4096 + (1 << 20)), 0);
    must_eq(fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", made);
    fd = open(path, O_RDWR | O_CLOEXEC);
    must_true(fd >= 0);
    close(made);
    must_eq(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    refuse_by(LINK_SHM, fd, mark);
    close(fd);
}

/* The peer's offer comes, and its descriptor does not. */
Test(ring, that_finds_no_descriptor_here_is_done_without)
{
    uint8_t mark[MARK] = {0};
    int fd = memfd_create("ring", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    struct rlimit most;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair.to_b->paths.bulk = bulk_of_ring(pair.to_b);
    offer_by_frame(&pair, fd, mark);
    must_eq(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = 3;
    must_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
    pair_await(&pair, is_refused, &pair, "a refusal");
    most.rlim_cur = most.rlim_max;
    must_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
    must(pair_finish(&pair, send_on(pair.to_b, 0, sample_bytes(1, 100), 0)));
    tmsg_message_destroy(pair_take(&pair, &pair.b));
    close(fd);
    pair_close(&pair);
}

Test(ring, another_ones_is_none)
{
    uint8_t mark[MARK] = {1};
    tmsg_ring_t *ring;

    must(tmsg_ring_create(&ring));
    refuse(tmsg_ring_segment(ring)->fd, mark);
    tmsg_ring_free(ring);
}

static bool were_offered(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->paths.ring_offered && pair->to_b->paths.ring_offered;
}

Test(ring, is_none_over_tcp)
{
    pair_t pair;
    tmsg_ring_t *ring;

    must(tmsg_ring_create(&ring));
    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must_eq(pair.to_a->transport, TMSG_TRANSPORT_TCP);
    must_eq(pair.to_b->transport, TMSG_TRANSPORT_TCP);
    offer(&pair, tmsg_ring_segment(ring)->fd, tmsg_ring_segment(ring)->memory);
    must_true(tmsg_control_offer(pair.to_a, TMSG_RING_WORD_OFFER,
                                 tmsg_ring_segment(ring)));
    pair_await(&pair, were_offered, &pair, "the offers");
    must_true(!has_ring_of_peer(pair.to_a));
    must_true(!has_ring_of_peer(pair.to_b));
    tmsg_ring_free(ring);
    pair_close(&pair);
}

/* Which would be a signal. */
Test(ring, is_none_where_files_are_to_be_shorter)
{
    const struct rlimit little = {64 << 10, RLIM_INFINITY};
    pair_t pair;
    tmsg_request_t *sent;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, by_ring(pair.to_a), 0));
    cr_expect(ne(ptr, strstr(tmsg_bulk_words(pair.to_a), "no memory"), NULL));
    pair_close(&pair);
}

Test(ring, a_second_one_ends_the_connection)
{
    pair_t pair;
    tmsg_ring_t *ring;

    must(tmsg_ring_create(&ring));
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(tmsg_mover_ring.make(pair.to_b));
    offer(&pair, tmsg_ring_segment(ring)->fd, tmsg_ring_segment(ring)->memory);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
    tmsg_ring_free(ring);
    pair_drop(&pair);
}

/* No descriptor is needed for the count, and none is left. */
Test(ring, a_second_one_by_the_socket_ends_the_connection)
{
    pair_t pair;
    tmsg_ring_t *ring;

    must(tmsg_ring_create(&ring));
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must_true(tmsg_mover_ring.make(pair.to_b));
    offer_by_frame(&pair, tmsg_ring_segment(ring)->fd,
                   tmsg_ring_segment(ring)->memory);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
    tmsg_ring_free(ring);
    pair_drop(&pair);
}

/* A frame that offers something else, or is of another length. */
Test(ring, a_frame_that_offers_nothing_ends_the_connection)
{
    static const struct {
        uint8_t word;
        size_t bytes;
    } rows[] = {{TMSG_RING_WORD_OFFER, 1 + MARK - 1},
                {TMSG_RING_WORD_OFFER, 1 + MARK + 1},
                {TMSG_RING_WORD_FASTBOX, 0},
                {TMSG_RING_WORD_TAKEN, 1 + MARK},
                {200, 1 + MARK}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t frame[1 + MARK + 1] = {rows[i].word};
        int before = count_descriptors();
        pair_t pair;

        pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
        must(tmsg_link_ops.put_fd(pair.to_b, TMSG_FRAME_RING, frame,
                                  rows[i].bytes, 0));
        cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
        must_say(tmsg_endpoint_error(pair.to_a),
                 "a malformed offer of shared memory");
        pair_drop(&pair);
        must_be_closed(before);
    }
}

/* Writes a frame past all rules, with so many descriptors. */
static void say_with_fds(const pair_t *pair, uint8_t type, unsigned count)
{
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(count * sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    uint8_t frame[5 + 1 + MARK] = {1 + MARK, 0, 0, 0, type, 1};
    struct iovec all = {frame, sizeof(frame)};
    const struct msghdr message = {.msg_iov = &all,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen =
                                       CMSG_SPACE(count * sizeof(int))};

    memset(CMSG_DATA(&control.head), 0, count * sizeof(int));
    must_eq(sendmsg(pair->to_b->link.fd, &message, MSG_NOSIGNAL),
            sizeof(frame));
}

Test(ring, what_a_peer_may_not_pass_ends_the_connection)
{
    static const struct {
        uint8_t type;
        unsigned count;
        const char *words;
    } rows[] = {
        {TMSG_FRAME_RING, 2, "several descriptors"},
        {TMSG_FRAME_RING, 3, "several descriptors"},
        {TMSG_FRAME_HEARTBEAT, 1, "of type 4, which takes none"},
        {TMSG_FRAME_BYE, 1, "of type 6, which takes none"},
        {63, 1, "of type 63, which takes none"},
        {200, 1, "of type 200, which takes none"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int before = count_descriptors();
        pair_t pair;

        pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
        say_with_fds(&pair, rows[i].type, rows[i].count);
        cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
        must_say(tmsg_endpoint_error(pair.to_a), rows[i].words);
        pair_drop(&pair);
        must_be_closed(before);
    }
}

static bool is_answered(void *arg)
{
    const pair_t *pair = arg;
    const tmsg_bulk_t *bulk = pair->to_a->paths.bulk;

    return tmsg_ring_segment(tmsg_bulk_ring_of(bulk)->out)->fd < 0;
}

/* Memory whose number no process has comes by the socket alone; to a peer that
 * takes none there, by its number. */
static void pass_where(bool opens, bool takes, bool keyed)
{
    tmsg_keyring_t *keys = keyed ? ring("peer", 1) : NULL;
    const side_options_t options = {.keyring = keys};
    uint32_t pid = (uint32_t)getpid();
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &options, &options);
    if (!takes) {
        pair.to_a->peer_hello.features &= ~TMSG_FEATURE_PASSES;
    }
    pair.to_b->peer_hello.pid = opens ? pid : 1 << 22; /* which is none */
    must_true(tmsg_mover_ring.make(pair.to_a));
    pair_await(&pair, is_answered, &pair, "an answer");
    pair.to_b->peer_hello.pid = pid;
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, by_ring(pair.to_a), opens || takes));
    pair_close(&pair);
    tmsg_keyring_destroy(keys);
}

Test(ring, that_is_passed_needs_no_proc)
{
    pass_where(false, true, false);
    pass_where(false, true, true);
    pass_where(false, false, false);
    pass_where(true, false, true);
}

/* A bell and answers that nobody asked for, and what a later version may
 * say. */
Test(ring, words_out_of_turn_are_passed_over)
{
    pair_t pair;
    tmsg_request_t *sent;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (unsigned word = 0; word < 256; word++) {
        if (word != TMSG_RING_WORD_OFFER && word != TMSG_RING_WORD_FASTBOX) {
            tmsg_control_ring(pair.to_b, (uint8_t)word);
        }
    }
    sent = send_on(pair.to_b, 0, sample_bytes(2, 100), 0); /* behind them */
    tmsg_message_destroy(pair_take(&pair, &pair.b));
    must(pair_finish(&pair, sent));
    sent = send_on(pair.to_a, 0, sample_bytes(1, LARGE), TMSG_SEND_ACKED);
    large_take(&pair, &pair.a, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, by_ring(pair.to_a), 1));
    pair_close(&pair);
}

Test(ring, an_offer_without_a_place_ends_the_connection)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_control_ring(pair.to_b, TMSG_RING_WORD_OFFER);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

/* The ring by itself: bytes of any lengths come as they went, as many as there
 * is room for; and what the other side writes there is bounded. */
Test(ring, bytes_come_as_they_went)
{
    tmsg_ring_t *from, *to;
    uint64_t seed = 7, sent = 0, got = 0;
    uint8_t *out = malloc(RING_BYTES), *in = malloc(RING_BYTES);

    must(tmsg_ring_create(&from));
    must(tmsg_ring_open(
        &(tmsg_segment_offer_t){.pid = getpid(),
                                .fd = tmsg_ring_segment(from)->fd,
                                .mark = tmsg_ring_segment(from)->memory},
        &to));
    while (got < 64 * RING_BYTES) {
        size_t one = sample_random(&seed) % 70000 + 1;
        size_t two = sample_random(&seed) % 100 + 1;
        struct iovec list[2] = {{out, one}, {out + one, two}};
        size_t moved;

        for (size_t i = 0; i < one + two; i++) {
            out[i] = (uint8_t)((sent + i) * 31 >> 3);
        }
        sent += tmsg_ring_write(from, list, 2);
        if (sample_random(&seed) % 3 == 0) {
            continue;
        }
        list[0] = (struct iovec){in, sample_random(&seed) % 90000 + 1};
        list[1] = (struct iovec){in + list[0].iov_len, 50};
        moved = tmsg_ring_read(to, list, 2);
        for (size_t i = 0; i < moved; i++) {
            must_eq(in[i], (uint8_t)((got + i) * 31 >> 3));
        }
        got += moved;
        got += tmsg_ring_skip(to, 5);
    }
    must_true(sent - got <= RING_BYTES);
    tmsg_ring_free(from);
    tmsg_ring_free(to);
    free(in);
    free(out);
}

/* A side asks for a word only where there is nothing to be done. */
Test(ring, asks_for_a_word_where_it_waits)
{
    tmsg_ring_t *from, *to;
    uint8_t *bytes = calloc(1, RING_BYTES);
    const struct iovec some = {bytes, 10}, all = {bytes, RING_BYTES};

    must(tmsg_ring_create(&from));
    must(tmsg_ring_open(
        &(tmsg_segment_offer_t){.pid = getpid(),
                                .fd = tmsg_ring_segment(from)->fd,
                                .mark = tmsg_ring_segment(from)->memory},
        &to));
    must_true(!tmsg_ring_is_awaited(from));
    must_true(tmsg_ring_await(to));
    must_eq(tmsg_ring_write(from, &some, 1), 10);
    must_true(tmsg_ring_is_awaited(from));
    must_true(!tmsg_ring_is_awaited(from)); /* once */
    must_true(!tmsg_ring_await(to));
    must_true(!tmsg_ring_await(from));
    must_eq(tmsg_ring_write(from, &all, 1), RING_BYTES - 10);
    must_true(tmsg_ring_await(from));
    must_eq(tmsg_ring_skip(to, 1), 1);
    must_true(tmsg_ring_is_awaited(to));
    tmsg_ring_free(from);
    tmsg_ring_free(to);
    free(bytes);
}

/* Both counters lie in the first page, 64 and 128 bytes from its beginning. */
Test(ring, what_the_other_side_writes_there_is_bounded)
{
    static const uint64_t wrong[] = {1, RING_BYTES + 11, UINT64_MAX / 2};
    uint8_t bytes[64];
    const struct iovec some = {bytes, sizeof(bytes)};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tmsg_ring_t *from, *to;
        uint64_t *page;

        must(tmsg_ring_create(&from));
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                    tmsg_ring_segment(from)->fd, 0);
        must_true(page != MAP_FAILED);
        must(tmsg_ring_open(
            &(tmsg_segment_offer_t){.pid = getpid(),
                                    .fd = tmsg_ring_segment(from)->fd,
                                    .mark = tmsg_ring_segment(from)->memory},
            &to));
        if (wrong[i] > RING_BYTES) {
            page[8] = wrong[i];
            must_eq(tmsg_ring_read(to, &some, 1), TMSG_RING_WRONG);
        }
        page[16] = wrong[i];
        must_eq(tmsg_ring_write(from, &some, 1), TMSG_RING_WRONG);
        munmap(page, 4096);
        tmsg_ring_free(from);
        tmsg_ring_free(to);
    }
}

/* And ends the connection. */
Test(ring, a_position_that_cannot_be_ends_the_connection)
{
    pair_t pair;
    uint64_t *page;
    int fd;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(tmsg_mover_ring.make(pair.to_a));
    fd = dup(
        tmsg_ring_segment(tmsg_bulk_ring_of(pair.to_a->paths.bulk)->out)->fd);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must_true(page != MAP_FAILED);
    tmsg_request_destroy(send_on(pair.to_a, 0, sample_bytes(1, HUGE), 0));
    pair_await(&pair, has_begun, &pair, "its beginning");
    page[8] += 2 * RING_BYTES;
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED));
    munmap(page, 4096);
    close(fd);
    pair_drop(&pair);
}
