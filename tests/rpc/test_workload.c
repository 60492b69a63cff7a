/* SPDX-License-Identifier: BSD-3-Clause */
/* A search for what never ends: random settings, small ones mostly, and under
 * them messages of all kinds and calls in both directions at once, with slow
 * readers, cancels and deadlines. Within PEERS_BOUND_MS each run must come to
 * its end, with every request and call over and every message accounted for.
 * By public headers alone. TMSG_WORKLOAD_SEED=n runs that seed alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

enum { MESSAGES = 120, CALLS = 40, AT_ONCE = 10, CHANNELS = 3 };

typedef struct {
    size_t bytes;
    uint32_t flags;
    bool told; /* to end: canceled, or by its deadline */
    bool came;
    tmsg_status_t status; /* IN_PROGRESS: not over */
    tmsg_request_t *request;
} sent_t;

typedef struct {
    tmsg_call_t *call; /* NULL: over */
    bool told;
} called_t;

typedef struct {
    tmsg_endpoint_t *from, *to;
    tmsg_server_t *server; /* at `from`, for the calls of the other way */
    unsigned n;
    unsigned laziness; /* of the reader at `to` */
    unsigned sent, over, called, calls_over;
    sent_t messages[MESSAGES];
    called_t calls[CALLS];
} way_t;

typedef struct {
    pair_t pair;
    uint64_t seed, random;
    way_t ways[2];
} run_t;

static unsigned pick(run_t *run, unsigned below)
{
    return (unsigned)(sample_random(&run->random) % below);
}

static size_t pick_bytes(run_t *run)
{
    static const unsigned bounds[] = {1, 300, 3000, 30000, 300000};

    return 1 + pick(run, bounds[pick(run, 5)]);
}

static uint64_t seed_of(const run_t *run, const way_t *way, unsigned i)
{
    return run->seed * 1000000 + way->n * 1000 + i;
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

/* A queue that blocks is left by its deadline alone: nobody else drives the
 * peer. */
static void send_one(run_t *run, way_t *way)
{
    static const uint32_t flags[] = {0, TMSG_SEND_ACKED, TMSG_SEND_UNORDERED,
                                     TMSG_SEND_VERIFY,
                                     TMSG_SEND_ACKED | TMSG_SEND_UNORDERED};
    unsigned i = way->sent++;
    sent_t *message = &way->messages[i];
    tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_TIMEOUT | TMSG_SEND_PARAM_WAY,
        .flags = flags[pick(run, 5)],
        .channel = (uint16_t)pick(run, CHANNELS),
        .timeout_ms = pick(run, 4) == 0 ? 1 + (int)pick(run, 5) : -1,
        .way = (int32_t)pick(run, 4),
        .protocol = (int32_t)pick(run, 3)};
    tmsg_map_t *map;

    message->bytes = pick_bytes(run);
    message->flags = params.flags;
    message->told = params.timeout_ms > 0;
    map = sample_bytes(seed_of(run, way, i), message->bytes);
    must(tmsg_map_set_i64(map, "i", i));
    message->status =
        tmsg_endpoint_send(way->from, map, &params, &message->request);
    tmsg_map_destroy(map);
    if (message->status == TMSG_OK) {
        message->status = TMSG_IN_PROGRESS;
    } else {
        message->request = NULL;
        must_true(message->status == TMSG_ERR_BUSY ||
                  (message->told && message->status == TMSG_ERR_TIMED_OUT));
    }
}

static void call_one(run_t *run, way_t *way)
{
    called_t *called = &way->calls[way->called++];
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_TIMEOUT,
        .timeout_ms = pick(run, 4) == 0 ? 1 + (int)pick(run, 5) : -1};
    tmsg_map_t *map = sample_bytes(way->called, pick_bytes(run));
    tmsg_status_t status =
        tmsg_endpoint_call(way->from, "echo", map, &params, &called->call);

    called->told = params.timeout_ms > 0;
    tmsg_map_destroy(map);
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_BUSY);
        called->call = NULL;
        way->calls_over++;
    }
}

static void look_at_messages(run_t *run, way_t *way)
{
    for (unsigned i = 0; i < way->sent; i++) {
        sent_t *message = &way->messages[i];

        if (message->request == NULL) {
            continue;
        }
        if (pick(run, 60) == 0) {
            message->told = true;
            tmsg_request_cancel(message->request);
        }
        message->status = tmsg_request_test(message->request);
        if (message->status <= 0) {
            tmsg_request_destroy(message->request);
            message->request = NULL;
        }
    }
    while (way->over < way->sent && way->messages[way->over].request == NULL) {
        way->over++;
    }
}

static void look_at_calls(run_t *run, way_t *way)
{
    for (unsigned i = 0; i < way->called; i++) {
        called_t *called = &way->calls[i];
        tmsg_status_t status;

        if (called->call == NULL) {
            continue;
        }
        if (pick(run, 200) == 0) {
            called->told = true;
            tmsg_call_cancel(called->call);
        }
        status = tmsg_call_status(called->call);
        if (status != TMSG_IN_PROGRESS) {
            must_true(status == TMSG_OK || status == TMSG_ERR_BUSY ||
                      (called->told && (status == TMSG_ERR_CANCELED ||
                                        status == TMSG_ERR_TIMED_OUT)));
            tmsg_call_destroy(called->call);
            called->call = NULL;
            way->calls_over++;
        }
    }
}

static void check_bytes(uint64_t seed, size_t bytes, const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, 0, NULL, &tensor));
    must_eq(tensor.shape[0], bytes);
    must_eq(sample_compare(seed, tensor.data, bytes), bytes);
}

static void take_some(run_t *run, way_t *way)
{
    tmsg_message_t *message;

    while (pick(run, way->laziness) == 0 &&
           tmsg_endpoint_recv(way->to, 0, &message) == TMSG_OK) {
        int64_t i;

        must(tmsg_map_get_i64(tmsg_message_map(message), "i", &i));
        must_true(i >= 0 && i < way->sent && !way->messages[i].came);
        way->messages[i].came = true;
        check_bytes(seed_of(run, way, (unsigned)i), way->messages[i].bytes,
                    tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static bool is_over(void *arg)
{
    run_t *run = arg;
    bool over = true;

    for (int n = 0; n < 2; n++) {
        way_t *way = &run->ways[n];

        while (way->sent < MESSAGES && way->sent < way->over + AT_ONCE) {
            send_one(run, way);
        }
        while (way->called < CALLS && way->called < way->calls_over + 4) {
            call_one(run, way);
        }
        take_some(run, way);
        look_at_messages(run, way);
        look_at_calls(run, way);
        over = over && way->over == MESSAGES && way->calls_over == CALLS;
    }
    return over;
}

/* What nobody gave up, and nobody was told to have been dropped, has come. */
static void check(const way_t *way)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        const sent_t *message = &way->messages[i];

        switch (message->status) {
        case TMSG_OK:
            must_true(message->came ||
                      !(message->flags & (TMSG_SEND_ACKED | TMSG_SEND_VERIFY)));
            break;
        case TMSG_ERR_CANCELED:
        case TMSG_ERR_TIMED_OUT:
            must_true(message->told);
            break;
        default:
            must_true((message->status == TMSG_ERR_BUSY ||
                       message->status == TMSG_ERR_DROPPED) &&
                      !message->came);
        }
    }
}

static void choose_thresholds(run_t *run)
{
    unsigned part = 20000 + pick(run, 60000);
    unsigned chunk = 65536u << pick(run, 3);
    char text[200];

    snprintf(text, sizeof(text),
             "shm.fragment_bytes=%u,shm.chunk_bytes=%u,tcp.fragment_bytes=%u,"
             "tcp.chunk_bytes=%u",
             part, chunk, part, chunk);
    if (pick(run, 2) == 0) {
        setenv("TENSORMSG_THRESHOLDS", text, 1);
    } else {
        unsetenv("TENSORMSG_THRESHOLDS");
    }
}

static void choose_side(run_t *run, side_options_t *options)
{
    *options =
        (side_options_t){.limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                                    .held_bytes = 700000u << pick(run, 4)},
                         .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                                    .queue_depth = 1 + pick(run, 8)}};
}

static void open_way(run_t *run, unsigned n)
{
    static const int32_t policies[] = {
        TMSG_QUEUE_REJECT, TMSG_QUEUE_DROP_OLDEST, TMSG_QUEUE_DROP_NEWEST};
    const tmsg_queue_params_t queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                     TMSG_QUEUE_PARAM_POLICY,
                                       .messages = 1 + pick(run, 6),
                                       .policy = policies[pick(run, 3)]};
    way_t *way = &run->ways[n];

    way->n = n;
    way->laziness = 2 + pick(run, 30);
    way->from = n == 0 ? run->pair.to_a : run->pair.to_b;
    way->to = n == 0 ? run->pair.to_b : run->pair.to_a;
    must(tmsg_server_create(n == 0 ? run->pair.b.worker : run->pair.a.worker,
                            NULL, &way->server));
    must(tmsg_server_register(way->server, "echo", echo, NULL, NULL));
    must(tmsg_endpoint_set_queue(way->from, &queue));
}

static void play(link_t link, uint64_t seed)
{
    run_t *run = calloc(1, sizeof(*run));
    side_options_t a, b;

    must_true(run != NULL);
    printf("%s, seed %llu\n", link_names[link], (unsigned long long)seed);
    fflush(stdout);
    run->seed = run->random = seed;
    choose_thresholds(run);
    choose_side(run, &a);
    choose_side(run, &b);
    a.ucx_config = b.ucx_config = link_config(link);
    pair_open(&run->pair, link, DRIVE_POLLING, &a, &b);
    open_way(run, 0);
    open_way(run, 1);
    pair_await(&run->pair, is_over, run, "the end of all that was begun");
    check(&run->ways[0]);
    check(&run->ways[1]);
    tmsg_server_destroy(run->ways[0].server);
    tmsg_server_destroy(run->ways[1].server);
    pair_close(&run->pair); /* in order, which nothing may be missing for */
    free(run);
}

static void play_all(link_t link)
{
    const char *wanted = getenv("TMSG_WORKLOAD_SEED");
    uint64_t count = whole_run() ? 400 : 12;

    if (wanted != NULL) {
        play(link, strtoull(wanted, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= count; seed++) {
        play(link, seed);
    }
}

Test(workload, comes_to_its_end_by_tcp) { play_all(LINK_TCP); }
Test(workload, comes_to_its_end_by_shared_memory) { play_all(LINK_SHM); }
