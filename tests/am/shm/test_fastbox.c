/* SPDX-License-Identifier: BSD-3-Clause */
/* Small messages over shared memory, by fast boxes: what goes by them, in what
 * order with all that goes by UCX, and what a peer may lie about. That they are
 * taken as UCX's are is test_template's, which runs by both, and
 * test_template_lies'. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/engine/dispatch.h"
#include "am/path/fastboxes.h"
#include "am/shm/fastbox.h"
#include "support/channels.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define SMALL 100
#define AGAIN 0x80000000u /* a header that is like the one before */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MEDIUM 2048 /* as much as a place has room for */
#define LARGE ((size_t)1 << 20)
#define OF_FASTBOXES 32 /* that a worker looks into */

static uint64_t by_fastbox(const tmsg_endpoint_t *endpoint)
{
    return endpoint->stats.sent_by_fastbox;
}

/* Without metadata, so that it may be like the last one; what is not SMALL has
 * another name, too, so that its extent is not one that varies of it. */
static sample_t sample_of(uint64_t seed, size_t bytes)
{
    sample_t sample = sample_plain(seed, bytes);

    sample.name_bytes = bytes == SMALL ? 0 : 20;
    return sample;
}

/* From b to a. */
static void give(tmsg_endpoint_t *endpoint, unsigned channel, uint64_t seed,
                 size_t bytes)
{
    const sample_t sample = sample_of(seed, bytes);

    tmsg_request_destroy(send_on(endpoint, channel, sample_make(&sample), 0));
}

static void check(const tmsg_message_t *message, uint64_t seed, size_t bytes)
{
    const sample_t sample = sample_of(seed, bytes);

    sample_check(&sample, tmsg_message_map(message));
}

static void get(pair_t *pair, unsigned channel, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    must_eq(tmsg_message_channel(message), channel);
    check(message, seed, bytes);
    tmsg_message_destroy(message);
    tmsg_worker_progress(pair->b.worker); /* it hears what it is answered */
}

static void pass(pair_t *pair, uint64_t seed, size_t bytes)
{
    give(pair->to_a, 0, seed, bytes);
    get(pair, 0, seed, bytes);
}

static void warm_up(pair_t *pair)
{
    for (uint64_t i = 0; by_fastbox(pair->to_a) == 0; i++) {
        must_true(i < 1000);
        pass(pair, i, SMALL);
    }
}

static void open_warm(pair_t *pair)
{
    pair_open(pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(pair);
}

/* The receiver takes so many ahead. */
static void open_deep(pair_t *pair, uint32_t depth)
{
    const side_options_t deep = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = depth}};

    pair_open(pair, LINK_SHM, DRIVE_POLLING, &deep, NULL);
    warm_up(pair);
}

static void carry_none(const char *thresholds)
{
    const sample_t empty = {.without_metadata = true};
    pair_t pair;

    setenv("TENSORMSG_THRESHOLDS", thresholds, 1);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (uint64_t i = 0; i < 50; i++) {
        pass(&pair, i, SMALL);
        tmsg_request_destroy(send_on(pair.to_a, 0, sample_make(&empty), 0));
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    cr_expect(eq(u64, by_fastbox(pair.to_a), 0));
    pair_close(&pair);
}

static void carry(link_t link, drive_t drive, size_t bytes, bool expected)
{
    enum { MESSAGES = 500 };
    const side_options_t quiet = {.quiet = true};
    pair_t pair;

    pair_open(&pair, link, drive, &quiet, &quiet);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        pass(&pair, i, bytes);
    }
    if (expected) { /* those, at least, of which the receiver did not sleep */
        cr_expect(
            ge(u64, by_fastbox(pair.to_a), drive == DRIVE_POLLING ? 400 : 1));
        cr_expect(eq(str, (char *)tmsg_fastboxes_words(pair.to_a), "stands"));
    } else {
        cr_expect(eq(u64, by_fastbox(pair.to_a), 0));
        cr_expect(eq(str, (char *)tmsg_fastboxes_words(pair.to_a), "none"));
    }
    cr_expect(
        eq(u64, pair.to_b->stats.received_by_fastbox, by_fastbox(pair.to_a)));
    pair_close(&pair);
}

Test(fastbox, carries_what_is_small)
{
    carry(LINK_SHM, DRIVE_POLLING, 1, true);
    carry(LINK_SHM, DRIVE_POLLING, SMALL, true);
    carry(LINK_SHM, DRIVE_POLLING, MEDIUM, true);
}

Test(fastbox, carries_by_descriptor) { carry(LINK_SHM, DRIVE_FD, SMALL, true); }
Test(fastbox, carries_by_thread) { carry(LINK_SHM, DRIVE_THREAD, SMALL, true); }
Test(fastbox, carries_over_unix)
{
    carry(LINK_UNIX, DRIVE_POLLING, SMALL, true);
}
Test(fastbox, is_none_over_tcp)
{
    carry(LINK_TCP, DRIVE_POLLING, SMALL, false);
}
Test(fastbox, is_none_by_blob)
{
    carry(LINK_BLOB, DRIVE_POLLING, SMALL, false);
}

Test(fastbox, is_none_for_what_is_longer)
{
    carry(LINK_SHM, DRIVE_POLLING, MEDIUM + 1, false);
}

Test(fastbox, is_none_where_it_is_not_wanted)
{
    carry_none("shm.fastbox_bytes=0");
    carry_none("shm.fastbox_bytes=never");
    setenv("TENSORMSG_THRESHOLDS", "shm.fastbox_bytes=99", 1);
    carry(LINK_SHM, DRIVE_POLLING, SMALL, false);
    setenv("TENSORMSG_THRESHOLDS", "shm.fastbox_bytes=100", 1);
    carry(LINK_SHM, DRIVE_POLLING, SMALL, true);
}

/* A peer of an older version has the bit not. */
Test(fastbox, is_none_to_who_knows_of_none)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_FASTBOXES;
    for (uint64_t i = 0; i < 100; i++) {
        pass(&pair, i, SMALL);
    }
    cr_expect(eq(u64, by_fastbox(pair.to_a), 0));
    pair_close(&pair);
}

/* Each message goes its own way, and all come in the order sent: small ones
 * that are like the last one and that are not, what is gathered, what UCX
 * copies in fragments of its own, rendezvous and rings; and the receiver stops
 * now and then, so that the fast box is full. */
Test(fastbox, keeps_the_order_whatever_goes_beside)
{
    enum { ROUNDS = 60, MOST = 150 };
    static const size_t others[] = {SMALL + 1, MEDIUM, 5000,
                                    40000,     300000, LARGE};
    size_t sizes[MOST];
    uint64_t seed = 11, number = 0;
    pair_t pair;

    open_deep(&pair, 2 * MOST);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t first = number;
        size_t count = sample_random(&seed) % MOST + 1;
        uint64_t other = sample_random(&seed) % 40 + 2;

        for (size_t i = 0; i < count; i++) {
            bool is_other = sample_random(&seed) % other == 0;

            sizes[i] = is_other ? others[sample_random(&seed) % 6] : SMALL;
            give(pair.to_a, 0, number++, sizes[i]);
        }
        for (size_t i = 0; i < count; i++) {
            get(&pair, 0, first + i, sizes[i]);
        }
    }
    cr_expect(ge(u64, by_fastbox(pair.to_a), number / 10));
    cr_expect(lt(u64, by_fastbox(pair.to_a), number));
    pair_close(&pair);
}

static bool count_alike(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->fastboxes.sent == pair->to_b->fastboxes.came &&
           pair->to_b->fastboxes.sent == pair->to_a->fastboxes.came;
}

/* Those of the handshake among them, and anew with each connection: else what
 * is in a fast box would wait for ever, or pass what UCX has. */
Test(fastbox, both_sides_count_all_active_messages_of_a_connection)
{
    joined_t joined;
    pair_t *pair = &joined.pair;
    uint32_t before;

    joined_open(&joined, &(how_t){.link = LINK_SHM});
    warm_up(pair);
    pair_await(pair, count_alike, pair, "like counts");
    before = pair->to_a->fastboxes.sent;
    joined_break(&joined);
    joined_mend(&joined);
    pair_await(pair, joined_is_open, &joined, "the connection");
    must_true(pair->to_a->fastboxes.sent < before);
    for (uint64_t i = 0; i < 100; i++) {
        pass(pair, i, SMALL);
    }
    must_true(pair->to_a->fastboxes.out != NULL);
    pair_await(pair, count_alike, pair, "like counts");
    joined_close(&joined);
}

/* What goes by UCX is not passed by what is small, on another channel: nothing
 * of a fast box is taken before it. */
Test(fastbox, nothing_passes_what_ucx_has)
{
    pair_t pair;
    uint64_t before;
    tmsg_fastbox_message_t fastboxed;

    open_warm(&pair);
    pump(&pair);
    before = by_fastbox(pair.to_a);
    give(pair.to_a, 1, 1, 5000);
    give(pair.to_a, 0, 2, SMALL);
    must_eq(by_fastbox(pair.to_a), before + 1);
    must_eq(tmsg_fastbox_look(pair.to_b->fastboxes.in, &fastboxed),
            TMSG_FASTBOX_FULL);
    must_eq(fastboxed.after, pair.to_b->fastboxes.came + 1);
    pair.a.worker->inside = true;
    must_eq(tmsg_kinds_poll(pair.a.worker), 0);
    pair.a.worker->inside = false;
    for (int i = 0; i < 2; i++) { /* channels have no order between them */
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        bool second = tmsg_message_channel(message) == 0;

        check(message, second ? 2 : 1, second ? SMALL : 5000);
        tmsg_message_destroy(message);
    }
    pair_close(&pair);
}

/* More than it holds go by UCX, in order. */
Test(fastbox, full_is_no_end)
{
    enum { MESSAGES = 300 };
    pair_t pair;
    uint64_t before;

    open_deep(&pair, 2 * MESSAGES);
    for (int round = 0; round < 10; round++) {
        before = by_fastbox(pair.to_a);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            give(pair.to_a, 0, i, SMALL);
        }
        must_true(by_fastbox(pair.to_a) > before);
        must_true(by_fastbox(pair.to_a) - before <= TMSG_FASTBOX_PLACES);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            get(&pair, 0, i, SMALL);
        }
    }
    pair_close(&pair);
}

/* Puts as many into its fast box as there is room for, and is killed. */
static void be_killed(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    uint64_t before;
    char url[256];
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    line_get(pipes->in, url, sizeof(url));
    endpoint = side_connect(&side, url);
    while (by_fastbox(endpoint) ==
           0) { /* one at a time: nothing is left of it */
        const sample_t sample = sample_of(0, SMALL);

        must(side_finish(&side, send_on(endpoint, 0, sample_make(&sample),
                                        TMSG_SEND_ACKED)));
    }
    line_put(pipes->out, "warm");
    line_get(pipes->in, url, sizeof(url)); /* all has arrived */
    before = by_fastbox(endpoint);
    for (uint64_t i = 0; i < 40; i++) {
        give(endpoint, 0, i, SMALL);
    }
    must_true(by_fastbox(endpoint) > before + 20); /* more than a turn takes */
    line_put(pipes->out, "put");
    pause();
}

static void take(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

/* What a sender that was killed has put there comes before its end. */
Test(fastbox, is_emptied_when_its_sender_is_gone)
{
    const side_options_t taking = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = take}};
    char line[256];
    child_t child;
    side_t side;
    uint64_t before;

    child_start(&child, be_killed, NULL);
    side_open(&side, &taking);
    side_listen_link(&side, LINK_SHM);
    line_put(child.out, tmsg_listener_url(side.listener));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(side.worker);
    }
    before = side.accepted->stats.received_messages;
    line_put(child.out, "go on");
    line_get(child.in, line, sizeof(line));
    child_kill(&child);
    side.worker->pace.look =
        true; /* the first turn finds the socket at its end */
    must_be(side_end_of(&side, side.accepted), TMSG_ERR_PEER_LOST);
    must_eq(side.accepted->stats.received_messages, before + 40);
    side_close(&side);
}

/* What is sent by the general way goes by the fast box, too. */
static void send_unlike(pair_t *pair, const sample_t *sample, uint32_t flags)
{
    uint64_t before = by_fastbox(pair->to_a);
    tmsg_request_t *sent = send_on(pair->to_a, 0, sample_make(sample), flags);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check(sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
    must_eq(by_fastbox(pair->to_a), before + 1);
}

Test(fastbox, carries_what_is_like_no_other)
{
    const sample_t plain = sample_of(1, SMALL), empty = {.seed = 2};
    const sample_t many = {.seed = 3, .tensors = 20, .without_metadata = true};
    sample_t told = plain;
    pair_t pair;

    told.without_metadata = false;
    open_warm(&pair);
    pump(&pair);
    send_unlike(&pair, &told, 0);
    send_unlike(&pair, &plain, TMSG_SEND_ACKED);
    send_unlike(&pair, &plain, TMSG_SEND_VERIFY);
    send_unlike(&pair, &empty, 0);
    send_unlike(&pair, &many, TMSG_SEND_UNORDERED);
    pair_close(&pair);
}

/* What is in the fast box when its sender closes is delivered. */
Test(fastbox, is_emptied_before_the_end)
{
    pair_t pair;

    open_warm(&pair);
    for (uint64_t i = 0; i < 20; i++) {
        give(pair.to_a, 0, i, SMALL);
    }
    must(tmsg_endpoint_close(pair.to_a, NULL));
    for (uint64_t i = 0; i < 20; i++) {
        get(&pair, 0, i, SMALL);
    }
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED));
    pair_drop(&pair);
}

/* For as long as a receiver looks for something, and longer. */
static void wait_a_while(uint64_t *seed)
{
    uint64_t turns = sample_random(seed) % 4 * (sample_random(seed) % 20000);

    while (turns-- > 0) {
        atomic_signal_fence(memory_order_seq_cst);
    }
}

/* The receiver is touched by nothing but its own thread, and sleeps now and
 * then: no wake-up is lost. */
static void arrive(pair_t *pair, uint64_t seed)
{
    tmsg_message_t *message;

    must(tmsg_worker_recv(pair->a.worker, 2000, &message));
    check(message, seed, SMALL);
    tmsg_message_destroy(message);
}

Test(fastbox, wakes_threads)
{
    const side_options_t quiet = {.quiet = true};
    pair_t pair;
    uint64_t seed = 3;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, &quiet, &quiet);
    for (uint64_t i = 0; i < 5000; i++) {
        wait_a_while(&seed);
        give(pair.to_a, 0, i, SMALL);
        arrive(&pair, i);
    }
    cr_expect(ge(u64, by_fastbox(pair.to_a), 100));
    pair_close(&pair);
}

Test(fastbox, wakes_who_sleeps)
{
    const side_options_t quiet = {.quiet = true};
    pair_t pair;
    uint64_t seed = 3;

    pair_open(&pair, LINK_SHM, DRIVE_FD, &quiet, &quiet);
    for (uint64_t i = 0; i < 3000; i++) {
        wait_a_while(&seed);
        pass(&pair, i, SMALL);
    }
    pair_close(&pair);
}

static void warm_thread(pair_t *pair)
{
    pair_open(pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    for (uint64_t i = 0; by_fastbox(pair->to_a) == 0; i++) {
        must_true(i < 10000);
        give(pair->to_a, 0, i, SMALL);
        arrive(pair, i);
    }
}

/* Another thread's turn leaves the sleeper's wish to be woken alone. */
Test(fastbox, a_turn_of_another_thread_wakes_nobody)
{
    pair_t pair;
    bool asleep = false;

    warm_thread(&pair);
    for (uint64_t i = 0; i < 50; i++) {
        while (!asleep) {
            tmsg_worker_lock(pair.a.worker);
            asleep = pair.a.worker->asleep;
            tmsg_worker_unlock(pair.a.worker);
            sched_yield();
        }
        (void)tmsg_worker_progress(pair.a.worker);
        give(pair.to_a, 0, i, SMALL);
        arrive(&pair, i);
        asleep = false;
    }
    pair_close(&pair);
}

static void *arm(void *arg)
{
    side_t *side = arg;

    while (tmsg_worker_arm(side->worker) == TMSG_ERR_BUSY) {
        tmsg_worker_progress(side->worker);
    }
    return NULL;
}

Test(fastbox, a_turn_of_another_thread_leaves_the_descriptor_armed)
{
    const side_options_t shared = {
        .quiet = true,
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};
    struct pollfd ready = {.events = POLLIN};
    pthread_t thread;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &shared, &shared);
    warm_up(&pair);
    pump(&pair);
    ready.fd = tmsg_worker_fd(pair.a.worker);
    must_eq(pthread_create(&thread, NULL, arm, &pair.a), 0);
    must_eq(pthread_join(thread, NULL), 0);
    must_eq(tmsg_worker_progress(pair.a.worker), 0);
    give(pair.to_a, 0, 1, SMALL);
    must_eq(poll(&ready, 1, 2000), 1);
    get(&pair, 0, 1, SMALL);
    pair_close(&pair);
}

/* Who asks to be woken has a message by UCX, which does that. */
Test(fastbox, is_not_used_for_who_sleeps)
{
    pair_t pair;
    uint64_t before;

    open_warm(&pair);
    pump(&pair);
    while (tmsg_worker_arm(pair.a.worker) == TMSG_ERR_BUSY) {
        tmsg_worker_progress(pair.a.worker);
    }
    before = by_fastbox(pair.to_a);
    give(pair.to_a, 0, 1, SMALL);
    cr_expect(eq(u64, by_fastbox(pair.to_a), before));
    get(&pair, 0, 1, SMALL);
    give(pair.to_a, 0, 2, SMALL);
    cr_expect(eq(u64, by_fastbox(pair.to_a), before + 1));
    cr_expect(eq(int, tmsg_worker_arm(pair.a.worker), TMSG_ERR_BUSY));
    get(&pair, 0, 2, SMALL);
    pair_close(&pair);
}

static bool has_message(void *arg)
{
    const side_t *side = arg;

    return side->worker->ready.count > 0;
}

/* A worker has fast boxes of so many peers. What the others send goes by
 * UCX. */
Test(fastbox, of_more_peers_than_are_looked_into)
{
    enum { PEERS = OF_FASTBOXES + 2, EACH = 100 };
    side_t server, client, *sides[] = {&server, &client};
    const side_options_t small = {0};
    tmsg_endpoint_t *peers[PEERS];
    size_t with = 0;

    side_open(&server, &small);
    side_open(&client, &small);
    side_listen_link(&server, LINK_SHM);
    for (size_t i = 0; i < PEERS; i++) {
        peers[i] = side_dial(&client, &server);
    }
    for (uint64_t n = 0; n < EACH; n++) {
        for (size_t i = 0; i < PEERS; i++) {
            give(peers[i], 0, n, SMALL);
        }
        for (size_t i = 0; i < PEERS; i++) {
            tmsg_message_t *message;

            await(sides, 2, has_message, &server, "a message");
            must(tmsg_worker_recv(server.worker, 0, &message));
            check(message, n, SMALL);
            tmsg_message_destroy(message);
        }
    }
    for (size_t i = 0; i < PEERS; i++) {
        with += by_fastbox(peers[i]) > 0;
        must_true(by_fastbox(peers[i]) > 0 ||
                  strncmp(tmsg_fastboxes_words(peers[i]), "none: ", 6) == 0);
        tmsg_endpoint_destroy(peers[i]);
    }
    cr_expect(eq(sz, with, OF_FASTBOXES));
    cr_expect(eq(sz, server.worker->fastboxes.count, OF_FASTBOXES));
    side_close(&client);
    side_close(&server);
}

/* Of the receiver, a failure to open: all goes by UCX. */
Test(fastbox, that_cannot_be_opened_is_done_without)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_b->peer_hello.pid = 1 << 22; /* which is none */
    for (uint64_t i = 0; i < 100; i++) {
        pass(&pair, i, SMALL);
    }
    cr_expect(eq(u64, by_fastbox(pair.to_a), 0));
    cr_expect(
        eq(int, strncmp(tmsg_fastboxes_words(pair.to_a), "none: ", 6), 0));
    pair_close(&pair);
}

/* By the bootstrap socket. */
Test(fastbox, that_is_passed_needs_no_proc)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair.to_b->peer_hello.pid = 1 << 22;
    for (uint64_t i = 0; i < 100; i++) {
        pass(&pair, i, SMALL);
    }
    cr_expect(ge(u64, by_fastbox(pair.to_a), 50));
    cr_expect(eq(str, (char *)tmsg_fastboxes_words(pair.to_a), "stands"));
    pair_close(&pair);
}

Test(fastbox, a_second_one_ends_the_connection)
{
    pair_t pair;

    open_warm(&pair);
    must_true(
        tmsg_control_offer(pair.to_a, TMSG_RING_WORD_FASTBOX,
                           tmsg_fastbox_segment(pair.to_a->fastboxes.out)));
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

Test(fastbox, an_offer_without_a_place_ends_the_connection)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_control_ring(pair.to_b, TMSG_RING_WORD_FASTBOX);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

/* Where the length of the header is that was put last: docs/wire/connection.md.
 */
static uint32_t *header_bytes_of_last(tmsg_fastbox_t *fastbox)
{
    uint8_t *places = tmsg_fastbox_segment(fastbox)->memory + 4096;
    uint32_t *last = (uint32_t *)(void *)places;

    for (size_t i = 1; i < TMSG_FASTBOX_PLACES; i++) {
        uint32_t *place = (uint32_t *)(void *)(places + i * 2560);

        last = *place > *last ? place : last;
    }
    return &last[3];
}

static void open_fastbox(tmsg_fastbox_t **from_p, tmsg_fastbox_t **to_p)
{
    must(tmsg_fastbox_create(from_p));
    must(tmsg_fastbox_open(
        &(tmsg_segment_offer_t){.pid = getpid(),
                                .fd = tmsg_fastbox_segment(*from_p)->fd,
                                .mark = tmsg_fastbox_segment(*from_p)->memory},
        to_p));
}

/* A message without payload. */
static bool put_header(tmsg_fastbox_t *fastbox, const uint8_t *header,
                       size_t bytes, uint32_t after)
{
    (void)tmsg_fastbox_begin(fastbox, bytes, 0);
    if (bytes > 0) {
        tmsg_fastbox_write_header(fastbox, header);
    }
    return tmsg_fastbox_put(fastbox, 0, after);
}

/* That of message n: three by three alike, but for what a fast box may send
 * alone. Gives its length. */
static size_t make_header(uint32_t n, uint8_t *header)
{
    size_t bytes = n / 3 % (TMSG_FASTBOX_HEADER_BYTES + 1);

    memset(header, (int)(n / 3 & 127), TMSG_FASTBOX_HEADER_BYTES);
    memset(header + 8, (int)(n & 127), 16);
    if (bytes >= 56) {
        memset(header + 40, (int)(n * 5 & 127), 16);
    }
    return bytes;
}

/* A message with a header and lengths of one's own. */
static void lie(const pair_t *pair, const void *header, size_t header_bytes,
                size_t written, size_t payload_bytes)
{
    tmsg_fastbox_t *fastbox = pair->to_a->fastboxes.out;

    must_true(tmsg_fastbox_has_room(fastbox));
    (void)tmsg_fastbox_begin(fastbox, written, 0);
    tmsg_fastbox_write_header(fastbox, header);
    (void)tmsg_fastbox_put(fastbox, payload_bytes, pair->to_a->fastboxes.sent);
    *header_bytes_of_last(fastbox) = (uint32_t)header_bytes;
}

static void end_by(const void *header, size_t header_bytes, size_t written,
                   size_t payload_bytes)
{
    pair_t pair;

    open_warm(&pair);
    lie(&pair, header, header_bytes, written, payload_bytes);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

Test(fastbox, lengths_that_cannot_be_end_the_connection)
{
    static const uint8_t zeros[TMSG_FASTBOX_HEADER_BYTES];

    end_by(zeros, TMSG_FASTBOX_HEADER_BYTES + 1, 38, SMALL);
    end_by(zeros, UINT32_MAX, 38, SMALL);
    end_by(zeros, AGAIN, 38, SMALL);
    end_by(zeros, AGAIN + 15, 38, SMALL);
    end_by(zeros, AGAIN + 17, 38, SMALL);
    end_by(zeros, AGAIN + 64, 38, SMALL);
    end_by(zeros, 38, 38, TMSG_FASTBOX_PAYLOAD_BYTES + 1);
    end_by(zeros, 38, 38, UINT32_MAX);
}

/* Of a header that is not there, or has no such pieces. */
Test(fastbox, pieces_of_nothing_cannot_be)
{
    static const uint8_t zeros[TMSG_FASTBOX_HEADER_BYTES];
    static const struct {
        size_t whole; /* SIZE_MAX: none */
        uint32_t word;
    } rows[] = {{SIZE_MAX, AGAIN + 16}, {SIZE_MAX, AGAIN},  {23, AGAIN},
                {23, AGAIN + 16},       {24, AGAIN + 32},   {55, AGAIN + 32},
                {56, AGAIN + 16},       {56, AGAIN + 0x30}, {56, UINT32_MAX}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_fastbox_message_t fastboxed;
        tmsg_fastbox_t *from, *to;

        open_fastbox(&from, &to);
        if (rows[i].whole != SIZE_MAX) {
            put_header(from, zeros, rows[i].whole, 0);
            must_eq(tmsg_fastbox_look(to, &fastboxed), TMSG_FASTBOX_FULL);
            tmsg_fastbox_take(to);
        }
        put_header(from, zeros, 56, 0);
        *header_bytes_of_last(from) = rows[i].word;
        cr_expect(
            eq(int, tmsg_fastbox_look(to, &fastboxed), TMSG_FASTBOX_WRONG),
            "row %zu", i);
        tmsg_fastbox_free(from);
        tmsg_fastbox_free(to);
    }
}

Test(fastbox, what_is_for_nobody_ends_the_connection)
{
    static const uint8_t zeros[TMSG_FASTBOX_HEADER_BYTES];

    end_by(zeros, 0, 0, 0);
    end_by(zeros, 38, 38, SMALL);
}

Test(fastbox, what_is_no_map_ends_the_connection)
{
    pair_t pair;
    uint8_t header[TMSG_PREAMBLE_BYTES];
    tmsg_preamble_t head = {.kind = TMSG_KIND_PONG};

    open_warm(&pair);
    head.endpoint_id = pair.to_a->peer_id;
    tmsg_preamble_encode(&head, header);
    lie(&pair, header, sizeof(header), sizeof(header), 0);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

/* A count of taken messages that cannot be is a full fast box. */
Test(fastbox, a_count_that_cannot_be_is_no_room)
{
    pair_t pair;
    tmsg_segment_t *shared;
    uint64_t before;

    open_deep(&pair, 1000);
    shared = tmsg_fastbox_segment(pair.to_b->fastboxes.in);
    before = by_fastbox(pair.to_a);
    for (uint64_t i = 0; i < 200; i++) {
        memset(shared->memory + 64, 0x5a, 4);
        give(pair.to_a, 0, i, SMALL);
    }
    must_true(by_fastbox(pair.to_a) - before <= TMSG_FASTBOX_PLACES);
    for (uint64_t i = 0; i < 200; i++) {
        get(&pair, 0, i, SMALL);
    }
    pair_close(&pair);
}

/* The fast box by itself: what was put comes, once, in order, also where of a
 * header only what is new was put. */
Test(fastbox, messages_come_as_they_were_put)
{
    enum { MESSAGES = 200000 };
    tmsg_fastbox_t *from, *to;
    tmsg_fastbox_message_t fastboxed;
    uint64_t seed = 5;
    uint32_t put = 0, got = 0;
    uint8_t bytes[TMSG_FASTBOX_PAYLOAD_BYTES];

    open_fastbox(&from, &to);
    must_eq(tmsg_fastbox_look(to, &fastboxed), TMSG_FASTBOX_EMPTY);
    while (got < MESSAGES) {
        size_t payload = (size_t)put * 37 % (TMSG_FASTBOX_PAYLOAD_BYTES + 1);

        if (sample_random(&seed) % 2 == 0 && tmsg_fastbox_has_room(from)) {
            size_t header = make_header(put, bytes);
            uint64_t like = put / 3 % 4 == 0 ? 0 : 1 + put / 3;

            memset(tmsg_fastbox_begin(from, header, like), (int)(put % 101),
                   payload);
            tmsg_fastbox_write_header(from, bytes);
            must_true(!tmsg_fastbox_put(from, payload, put * 3));
            must_eq((*header_bytes_of_last(from) & AGAIN) != 0,
                    like != 0 && header >= 24 && put % 3 > 0);
            put++;
        } else if (tmsg_fastbox_look(to, &fastboxed) == TMSG_FASTBOX_FULL) {
            must_eq(fastboxed.after, got * 3);
            must_eq(fastboxed.header_bytes, make_header(got, bytes));
            must_eq(fastboxed.payload_bytes,
                    (size_t)got * 37 % (TMSG_FASTBOX_PAYLOAD_BYTES + 1));
            must_eq(memcmp(fastboxed.header, bytes, fastboxed.header_bytes), 0);
            memset(bytes, (int)(got % 101), fastboxed.payload_bytes);
            must_eq(memcmp(fastboxed.payload, bytes, fastboxed.payload_bytes),
                    0);
            must_eq((uintptr_t)fastboxed.payload % 64, 0);
            tmsg_fastbox_take(to);
            got++;
        } else {
            must_eq(got, put);
        }
        must_true(put - got <= TMSG_FASTBOX_PLACES);
    }
    tmsg_fastbox_free(from);
    tmsg_fastbox_free(to);
}

Test(fastbox, tells_who_sleeps)
{
    tmsg_fastbox_t *from, *to;

    open_fastbox(&from, &to);
    must_true(!put_header(from, NULL, 0, 0));
    tmsg_fastbox_sleep(to);
    must_true(!tmsg_fastbox_has_room(from));
    must_true(put_header(from, NULL, 0, 0));
    tmsg_fastbox_wake(to);
    must_true(tmsg_fastbox_has_room(from));
    must_true(!put_header(from, NULL, 0, 0));
    tmsg_fastbox_free(from);
    tmsg_fastbox_free(to);
}

/* Two threads, of which one sleeps where there is nothing: each message comes,
 * and comes while its sender waits for it. */
typedef struct {
    tmsg_fastbox_t *to;
    int bell, taken;
} sleeper_t;

enum { ROUNDS = 50000 };

static void ring(int bell)
{
    const uint64_t one = 1;

    must_eq(write(bell, &one, sizeof(one)), sizeof(one));
}

/* How often it was rung; once, at least. */
static uint64_t hear(int bell)
{
    struct pollfd ready = {.fd = bell, .events = POLLIN};
    uint64_t rung;

    must_eq(poll(&ready, 1, 5000), 1);
    must_eq(read(bell, &rung, sizeof(rung)), sizeof(rung));
    return rung;
}

static void *take_all(void *arg)
{
    sleeper_t *sleeper = arg;
    tmsg_fastbox_message_t fastboxed;

    for (uint32_t i = 0; i < ROUNDS;) {
        if (tmsg_fastbox_look(sleeper->to, &fastboxed) == TMSG_FASTBOX_FULL) {
            must_eq(fastboxed.after, i);
            tmsg_fastbox_take(sleeper->to);
            ring(sleeper->taken);
            i++;
            continue;
        }
        tmsg_fastbox_sleep(sleeper->to);
        if (tmsg_fastbox_look(sleeper->to, &fastboxed) != TMSG_FASTBOX_FULL) {
            (void)hear(sleeper->bell);
        }
        tmsg_fastbox_wake(sleeper->to);
    }
    return NULL;
}

Test(fastbox, loses_no_wake_up)
{
    sleeper_t sleeper = {.bell = eventfd(0, EFD_CLOEXEC),
                         .taken = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    tmsg_fastbox_t *from;
    uint64_t seed = 9, got = 0;

    must(tmsg_fastbox_create(&from));
    must(tmsg_fastbox_open(
        &(tmsg_segment_offer_t){.pid = getpid(),
                                .fd = tmsg_fastbox_segment(from)->fd,
                                .mark = tmsg_fastbox_segment(from)->memory},
        &sleeper.to));
    must_eq(pthread_create(&thread, NULL, take_all, &sleeper), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        bool waits = sample_random(&seed) % 2 == 0;

        if (put_header(from, NULL, 0, i)) {
            ring(sleeper.bell);
        }
        while (waits ? got <= i : got + TMSG_FASTBOX_PLACES / 2 <= i) {
            got += hear(sleeper.taken);
        }
    }
    must_eq(pthread_join(thread, NULL), 0);
    close(sleeper.bell);
    close(sleeper.taken);
    tmsg_fastbox_free(from);
    tmsg_fastbox_free(sleeper.to);
}
