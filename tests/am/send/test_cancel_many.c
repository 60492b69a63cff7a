/* SPDX-License-Identifier: BSD-3-Clause */
/* Random cancels among many sends, of all sizes and in every state. Every other
 * send arrives once and in order. Memory that was given back is never read
 * again, not even by a peer that was stopped in the middle of fetching it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { SENDS = 300, STOPPED = 8, STOPPED_BYTES = 6 << 20 };

static const size_t sizes[] = {8, 200, 5000, 60000, 400000, 2000000};

/* A message is a number and as many bytes of that seed. */
typedef struct {
    uint8_t *data; /* pages of their own */
    size_t bytes;
    size_t pages;
    tmsg_request_t *request; /* NULL: it was judged */
    bool cancel;             /* it is, or it has a deadline */
    bool cut;                /* nobody may touch its pages any more */
    unsigned delivered;
} sent_t;

typedef struct {
    pair_t pair;
    sent_t sent[SENDS];
    unsigned begun, judged;
    uint64_t random, newest; /* 1 + the number delivered last */
    unsigned pending, canceled, timed_out;
} scene_t;

static tmsg_map_t *map_of(void *buffer, size_t bytes, int64_t number)
{
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_map_set_i64(map, "number", number));
    return map;
}

/* From now on UCX would read zeros there, or fault. */
static void on_release(void *arg)
{
    sent_t *sent = arg;

    must_true(!sent->cut);
    sent->cut = true;
    memset(sent->data, 0, sent->bytes);
    must_eq(mprotect(sent->data, sent->pages, PROT_NONE), 0);
}

static void begin_one(scene_t *scene)
{
    sent_t *sent = &scene->sent[scene->begun];
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                               TMSG_SEND_PARAM_ON_RELEASE |
                                               TMSG_SEND_PARAM_TIMEOUT,
                                 .flags = TMSG_SEND_ACKED,
                                 .on_release = on_release,
                                 .on_release_arg = sent,
                                 .timeout_ms = -1};
    tmsg_map_t *map;

    sent->bytes = sizes[sample_random(&scene->random) % 6];
    sent->pages = (sent->bytes + 4095) / 4096 * 4096;
    sent->data = mmap(NULL, sent->pages, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must_true(sent->data != MAP_FAILED);
    sample_fill(scene->begun, sent->data, sent->bytes);
    if (sample_random(&scene->random) % 5 == 0) {
        params.timeout_ms = 1 + (int32_t)(sample_random(&scene->random) % 20);
        sent->cancel = true;
    }
    map = map_of(sent->data, sent->bytes, scene->begun);
    must(tmsg_endpoint_send(scene->pair.to_a, map, &params, &sent->request));
    tmsg_map_destroy(map);
    scene->begun++;
}

static void cancel_one(scene_t *scene)
{
    uint64_t back = sample_random(&scene->random) % 40;
    sent_t *sent;

    if (back >= scene->begun) {
        return;
    }
    sent = &scene->sent[scene->begun - 1 - back];
    if (sent->request != NULL &&
        tmsg_request_test(sent->request) == TMSG_IN_PROGRESS) {
        sent->cancel = true;
        scene->pending +=
            tmsg_request_cancel(sent->request) == TMSG_CANCEL_PENDING;
    }
}

static void take_one(scene_t *scene)
{
    tmsg_message_t *message;
    tmsg_tensor_t tensor;
    int64_t number;

    if (tmsg_worker_recv(scene->pair.a.worker, 0, &message) != TMSG_OK) {
        return;
    }
    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    must(tmsg_map_get_i64(tmsg_message_map(message), "number", &number));
    must_true(number >= (int64_t)scene->newest); /* in order */
    scene->newest = (uint64_t)number + 1;
    scene->sent[number].delivered++;
    must_eq(tensor.shape[0], scene->sent[number].bytes);
    must_eq(
        sample_compare((uint64_t)number, tensor.data, (size_t)tensor.shape[0]),
        tensor.shape[0]);
    tmsg_message_destroy(message);
}

static void judge(scene_t *scene)
{
    for (unsigned i = 0; i < scene->begun; i++) {
        sent_t *sent = &scene->sent[i];
        tmsg_status_t status = sent->request == NULL
                                   ? TMSG_IN_PROGRESS
                                   : tmsg_request_test(sent->request);

        if (status == TMSG_IN_PROGRESS || status == TMSG_CANCEL_PENDING) {
            continue;
        }
        must_true(status == TMSG_OK ||
                  (sent->cancel && (status == TMSG_ERR_CANCELED ||
                                    status == TMSG_ERR_TIMED_OUT)));
        scene->canceled += status == TMSG_ERR_CANCELED;
        scene->timed_out += status == TMSG_ERR_TIMED_OUT;
        if (status == TMSG_OK) {
            must_eq(sent->delivered, 1);
        }
        tmsg_request_destroy(sent->request);
        sent->request = NULL;
        scene->judged++;
    }
}

static bool one_step(void *arg)
{
    scene_t *scene = arg;
    uint64_t what = sample_random(&scene->random) % 8;

    if (what < 2 && scene->begun < SENDS) {
        begin_one(scene);
    } else if (what == 2) {
        cancel_one(scene);
    } else if (what == 3) {
        take_one(scene);
    }
    judge(scene);
    return scene->judged == SENDS;
}

static void run(uint64_t seed, link_t link, drive_t drive)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 4000000},
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 8}};
    static scene_t scene;

    memset(&scene, 0, sizeof(scene));
    scene.random = seed;
    pair_open(&scene.pair, link, drive, &a, NULL);
    pair_await(&scene.pair, one_step, &scene, "the end of all sends");
    printf("%s, %s, seed %llu: %u canceled (%u pending), %u timed out\n",
           link_names[link], drive_names[drive], (unsigned long long)seed,
           scene.canceled, scene.pending, scene.timed_out);
    must_true(scene.canceled > 0 && scene.timed_out > 0);
    pair_close(&scene.pair);
    for (unsigned i = 0; i < SENDS; i++) {
        must_true(scene.sent[i].cut);
        must_true(scene.sent[i].delivered <= 1);
        munmap(scene.sent[i].data, scene.sent[i].pages);
    }
}

Test(cancel_many, harms_no_other_send_shm)
{
    run(1, LINK_SHM, DRIVE_POLLING);
    run(2, LINK_UNIX, DRIVE_POLLING);
    run(3, LINK_BLOB, DRIVE_POLLING);
}
Test(cancel_many, harms_no_other_send_tcp)
{
    run(4, LINK_TCP, DRIVE_POLLING);
    setenv("UCX_TLS", "tcp,self", 1);
    run(5, LINK_SHM, DRIVE_POLLING);
}
Test(cancel_many, harms_no_other_send_thread)
{
    run(6, LINK_SHM, DRIVE_THREAD);
}

/* Every byte of a message must be 1, as it was when it was sent. */
static void receive_all(pipes_t *pipes, void *arg)
{
    tmsg_message_t *message;
    tmsg_tensor_t tensor;
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, *(link_t *)arg);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    side_accept(&side);
    while (tmsg_endpoint_recv(side.accepted, PEERS_BOUND_MS, &message) ==
           TMSG_OK) {
        must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
        for (int64_t i = 0; i < tensor.shape[0]; i++) {
            must_eq(((const uint8_t *)tensor.data)[i], 1);
        }
        tmsg_message_destroy(message);
    }
    must_be(tmsg_endpoint_status(side.accepted), TMSG_ERR_PEER_LOST);
    side_close(&side);
}

static void send_ones(side_t *side, tmsg_endpoint_t *endpoint, uint8_t *ones,
                      size_t bytes)
{
    must(side_finish(
        side, send_map(endpoint, map_of(ones, bytes, 0), TMSG_SEND_ACKED)));
}

typedef struct {
    child_t child;
    side_t side;
    tmsg_endpoint_t *endpoint;
    uint8_t *buffer;
    tmsg_request_t *sent[STOPPED];
    unsigned pending;
    bool has_bulk;
} stopped_t;

static bool bulk_expected; /* large messages go by a bulk stream */
static bool rings_expected;

static void stop(stopped_t *scene)
{
    must_eq(kill(scene->child.pid, SIGSTOP), 0);
    side_await(&scene->side, child_is_stopped, &scene->child, "the standstill");
}

/* Stops a receiver, sends it much, and cancels that. With `fetching` the
 * receiver has begun to fetch some of it. */
static void cancel_on_stopped(stopped_t *scene, link_t link, bool fetching)
{
    char url[256];

    memset(scene, 0, sizeof(*scene));
    scene->buffer = malloc(STOPPED_BYTES);
    memset(scene->buffer, 1, STOPPED_BYTES);
    child_start(&scene->child, receive_all, &link);
    line_get(scene->child.in, url, sizeof(url));
    side_open(&scene->side, NULL);
    scene->endpoint = side_connect(&scene->side, url);
    send_ones(&scene->side, scene->endpoint, scene->buffer, STOPPED_BYTES);
    if (bulk_expected) {
        side_await(&scene->side, endpoint_has_bulk, scene->endpoint,
                   "a bulk stream");
    }
    scene->has_bulk = bulk_expected || rings_expected;
    if (!fetching) {
        stop(scene);
    }
    for (size_t i = 0; i < STOPPED; i++) {
        scene->sent[i] = send_map(scene->endpoint,
                                  map_of(scene->buffer, STOPPED_BYTES, 0), 0);
    }
    if (fetching) {
        stop(scene);
    }
    for (size_t i = 0; i < STOPPED; i++) {
        tmsg_status_t status = tmsg_request_cancel(scene->sent[i]);

        must_true(status == TMSG_CANCEL_PENDING || status == TMSG_OK ||
                  status == TMSG_ERR_CANCELED);
    }
    must_true(tmsg_worker_wait(scene->side.worker, 100) != TMSG_ERR_CLOSED);
    for (size_t i = 0; i < STOPPED; i++) {
        scene->pending +=
            tmsg_request_test(scene->sent[i]) == TMSG_CANCEL_PENDING;
    }
    /* Fragments that the peer has not asked for are given back at once. */
    must_true(fetching || (scene->pending > 0) != scene->has_bulk);
}

/* All lent memory is back; whoever still reads it finds other bytes. */
static void take_back(stopped_t *scene)
{
    for (size_t i = 0; i < STOPPED; i++) {
        tmsg_status_t status =
            tmsg_request_wait_released(scene->sent[i], PEERS_BOUND_MS);

        must_true(status == TMSG_OK || status == TMSG_ERR_CANCELED);
        tmsg_request_destroy(scene->sent[i]);
    }
    memset(scene->buffer, 2, STOPPED_BYTES);
}

static void end_stopped(stopped_t *scene)
{
    child_join(&scene->child);
    side_close(&scene->side);
    free(scene->buffer);
}

static void tcp_by_ucx(void)
{
    setenv("UCX_TLS", "tcp,self", 1);
    by_ucx_alone();
}

static void by_rings(void) { rings_expected = true; }

static void tcp_by_bulk(void)
{
    setenv("UCX_TLS", "tcp,self", 1);
    bulk_expected = true;
}

static void give_up(link_t link, bool fetching)
{
    stopped_t scene;

    cancel_on_stopped(&scene, link, fetching);
    tmsg_endpoint_destroy(scene.endpoint);
    take_back(&scene);
    must_eq(kill(scene.child.pid, SIGCONT), 0);
    end_stopped(&scene);
}

static void kill_it(link_t link)
{
    stopped_t scene;

    cancel_on_stopped(&scene, link, false);
    child_kill(&scene.child);
    must_be(side_end_of(&scene.side, scene.endpoint), TMSG_ERR_PEER_LOST);
    take_back(&scene);
    side_close(&scene.side);
    free(scene.buffer);
}

static void wake_up(link_t link, bool fetching)
{
    uint8_t ones[100];
    stopped_t scene;

    memset(ones, 1, sizeof(ones));
    cancel_on_stopped(&scene, link, fetching);
    must_eq(kill(scene.child.pid, SIGCONT), 0);
    take_back(&scene);
    send_ones(&scene.side, scene.endpoint, ones, sizeof(ones));
    tmsg_endpoint_destroy(scene.endpoint);
    end_stopped(&scene);
}

Test(cancel_many, on_a_stopped_peer_that_is_given_up_delivers_nothing_changed)
{
    by_ucx_alone();
    give_up(LINK_SHM, false);
    give_up(LINK_UNIX, true);
}
Test(cancel_many, on_a_stopped_peer_that_is_given_up_nothing_changed_rings)
{
    by_rings();
    give_up(LINK_SHM, false);
    give_up(LINK_UNIX, true);
}
Test(cancel_many, on_a_stopped_peer_that_is_given_up_nothing_changed_tcp)
{
    tcp_by_ucx();
    give_up(LINK_SHM, false);
    give_up(LINK_SHM, true);
}
Test(cancel_many, on_a_stopped_peer_that_is_given_up_nothing_changed_bulk)
{
    tcp_by_bulk();
    give_up(LINK_SHM, false);
    give_up(LINK_SHM, true);
}
Test(cancel_many, on_a_peer_that_is_killed_gives_all_back)
{
    by_ucx_alone();
    kill_it(LINK_SHM);
    kill_it(LINK_UNIX);
}
Test(cancel_many, on_a_peer_that_is_killed_gives_all_back_rings)
{
    by_rings();
    kill_it(LINK_SHM);
    kill_it(LINK_UNIX);
}
Test(cancel_many, on_a_peer_that_is_killed_gives_all_back_tcp)
{
    tcp_by_ucx();
    kill_it(LINK_SHM);
}
Test(cancel_many, on_a_peer_that_is_killed_gives_all_back_bulk)
{
    tcp_by_bulk();
    kill_it(LINK_SHM);
}
Test(cancel_many, on_a_stopped_peer_that_wakes_up_delivers_nothing_changed)
{
    by_ucx_alone();
    wake_up(LINK_SHM, false);
    wake_up(LINK_UNIX, true);
}
Test(cancel_many, on_a_stopped_peer_that_wakes_up_nothing_changed_rings)
{
    by_rings();
    wake_up(LINK_SHM, false);
    wake_up(LINK_UNIX, true);
}
Test(cancel_many, on_a_stopped_peer_that_wakes_up_nothing_changed_tcp)
{
    tcp_by_ucx();
    wake_up(LINK_SHM, false);
    wake_up(LINK_SHM, true);
}
Test(cancel_many, on_a_stopped_peer_that_wakes_up_nothing_changed_bulk)
{
    tcp_by_bulk();
    wake_up(LINK_SHM, false);
    wake_up(LINK_SHM, true);
}
