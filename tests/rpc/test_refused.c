/* SPDX-License-Identifier: BSD-3-Clause */
/* What interceptors of a server see of calls that no `begin` of theirs sees. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/endpoint.h"
#include "am/worker/worker.h"
#include "rpc/hub.h"
#include "support/failing_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum {
    HELD_BYTES = 1 << 20,
    TIMEOUT_MS = 60000,
    BURST = 1300,
    MOST = 1024,
    MOST_OF_ONE = 512
};

/* What the hooks of one saw; the strings are those of the last. */
typedef struct {
    const char *mark; /* which it adds to `order` */
    char *order;
    unsigned begins, ends, refusals;
    tmsg_intercepted_t last;
    char method[256], error[256], principal[64];
} seer_t;

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;
    char order[64];
    seer_t outer, inner;
} scene_t;

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    (void)call;
    ((seer_t *)arg)->begins++;
    return TMSG_OK;
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    (void)call;
    ((seer_t *)arg)->ends++;
}

static void refused(void *arg, const tmsg_intercepted_t *call)
{
    seer_t *seer = arg;
    tmsg_intercepted_t *mine = (tmsg_intercepted_t *)(uintptr_t)call;

    must_eq(call->side, TMSG_SIDE_SERVER);
    must_true(call->map == NULL && call->state == NULL);
    must_true(call->endpoint != NULL);
    must_be(tmsg_intercepted_get_meta(call, "any", NULL), TMSG_ERR_NOT_FOUND);
    must_be(tmsg_intercepted_set_string(mine, "any", "late"),
            TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_intercepted_refuse(mine, TMSG_ERR_REFUSED, "late"),
            TMSG_ERR_REFUSED);
    seer->refusals++;
    seer->last = *call;
    snprintf(seer->method, sizeof(seer->method), "%s", call->method);
    snprintf(seer->error, sizeof(seer->error), "%s", call->error);
    snprintf(seer->principal, sizeof(seer->principal), "%s",
             call->principal == NULL ? "" : call->principal);
    if (strlen(seer->order) < 8) {
        strcat(seer->order, seer->mark);
    }
}

static void add(scene_t *scene, seer_t *seer, const char *mark)
{
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_END |
                      TMSG_INTERCEPTOR_REFUSED,
        .begin = begin,
        .end = end,
        .refused = refused,
        .arg = seer};

    seer->mark = mark;
    seer->order = scene->order;
    must(tmsg_worker_intercept(scene->pair.a.worker, TMSG_SIDE_SERVER,
                               &interceptor));
}

static void keep(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->task = tmsg_task_keep(task);
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void leave(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)stream;
}

/* b is "alice" to a. */
static void open_scene(scene_t *scene)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1};
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 0};
    const tmsg_method_params_t others = {
        .field_mask = TMSG_METHOD_PARAM_PRINCIPALS, .principals = "bob"};
    side_options_t options = {.limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                                         .held_bytes = HELD_BYTES}};

    memset(scene, 0, sizeof(*scene));
    must(tmsg_keyring_create(&options.keyring));
    must(tmsg_keyring_add(options.keyring, "alice", key));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    tmsg_keyring_destroy(options.keyring);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    must(tmsg_server_register(scene->server, "keep", keep, scene, &one));
    must(tmsg_server_register(scene->server, "others'", echo, NULL, &others));
    must(tmsg_server_register_stream(scene->server, "stream", leave, NULL,
                                     NULL));
    add(scene, &scene->outer, "o");
    add(scene, &scene->inner, "i");
}

static void close_scene(scene_t *scene)
{
    tmsg_task_destroy(scene->task);
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
    must_eq(scene->outer.begins, scene->outer.ends);
}

static tmsg_call_t *make(scene_t *scene, const char *method, size_t bytes)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = TIMEOUT_MS};
    tmsg_map_t *map = sample_bytes(1, bytes);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &call));
    tmsg_map_destroy(map);
    return call;
}

typedef struct {
    const seer_t *seer;
    unsigned refusals;
} count_t;

static bool are_told(void *arg)
{
    const count_t *count = arg;

    return count->seer->refusals >= count->refusals;
}

/* So many refusals were told to the outer one, the last like this. */
static void expect(scene_t *scene, unsigned refusals, const char *method,
                   bool is_stream, tmsg_status_t status, const char *words)
{
    const seer_t *seer = &scene->outer;
    count_t count = {seer, refusals};

    pair_await(&scene->pair, are_told, &count, "a refusal to be told");
    must_eq(seer->refusals, refusals);
    must_eq(scene->inner.refusals, refusals);
    cr_expect_str_eq(seer->method, method, "%s", seer->method);
    must_be(seer->last.status, status);
    must_say(seer->error, words);
    must_eq(seer->last.is_stream, is_stream);
    cr_expect_str_eq(seer->principal, "alice");
    must_true(is_stream ? seer->last.remaining_ms == -1
                        : seer->last.remaining_ms > 0 &&
                              seer->last.remaining_ms <= TIMEOUT_MS);
    must_eq(seer->begins, 0);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void finish(scene_t *scene, tmsg_call_t *call, tmsg_status_t status)
{
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), status);
    tmsg_call_destroy(call);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static void open_stream(scene_t *scene, const char *method, size_t bytes,
                        tmsg_status_t status)
{
    tmsg_map_t *map = sample_bytes(1, bytes);
    tmsg_call_stream_t *stream;

    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, map, NULL,
                                   &stream));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), status);
    tmsg_call_stream_destroy(stream);
}

Test(refused, calls_are_told_with_what_was_asked_for_and_why)
{
    scene_t scene;

    open_scene(&scene);
    finish(&scene, make(&scene, "strange", 10), TMSG_ERR_NOT_FOUND);
    expect(&scene, 1, "strange", false, TMSG_ERR_NOT_FOUND, "no such method");
    cr_expect_str_eq(scene.order, "io");
    finish(&scene, make(&scene, "others'", 10), TMSG_ERR_REFUSED);
    expect(&scene, 2, "others'", false, TMSG_ERR_REFUSED, "not for 'alice'");
    finish(&scene, make(&scene, "stream", 10), TMSG_ERR_NOT_FOUND);
    expect(&scene, 3, "stream", false, TMSG_ERR_NOT_FOUND, "is a stream");
    scene.pair.to_b->queue.answers = TMSG_CALLS_ANSWERS_MOST; /* as if */
    finish(&scene, make(&scene, "echo", 10), TMSG_ERR_RESOURCE_EXHAUSTED);
    scene.pair.to_b->queue.answers = 0;
    expect(&scene, 4, "echo", false, TMSG_ERR_RESOURCE_EXHAUSTED,
           "4096 answers wait");
    finish(&scene, make(&scene, "echo", HELD_BYTES + 1),
           TMSG_ERR_LIMIT_EXCEEDED); /* its task has begun */
    expect(&scene, 5, "echo", false, TMSG_ERR_LIMIT_EXCEEDED, "held_bytes");
    must(tmsg_server_drain(scene.server, 0));
    finish(&scene, make(&scene, "echo", 10), TMSG_ERR_UNAVAILABLE);
    expect(&scene, 6, "echo", false, TMSG_ERR_UNAVAILABLE, "shut down");
    close_scene(&scene);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->task != NULL; }

Test(refused, is_what_is_beyond_the_bounds)
{
    scene_t scene;
    tmsg_call_t *first;

    open_scene(&scene);
    first = make(&scene, "keep", 10);
    pair_await(&scene.pair, is_kept, &scene, "a task");
    must_eq(scene.outer.begins, 1);
    scene.outer.begins = 0;
    finish(&scene, make(&scene, "keep", 10), TMSG_ERR_RESOURCE_EXHAUSTED);
    expect(&scene, 1, "keep", false, TMSG_ERR_RESOURCE_EXHAUSTED,
           "the method has as many calls");
    scene.outer.begins = 1;
    must(tmsg_task_reply(scene.task, NULL, NULL));
    finish(&scene, first, TMSG_OK);
    must_eq(scene.outer.refusals, 1);
    close_scene(&scene);
}

Test(refused, streams_are_told_too)
{
    scene_t scene;

    open_scene(&scene);
    open_stream(&scene, "strange", 10, TMSG_ERR_NOT_FOUND);
    expect(&scene, 1, "strange", true, TMSG_ERR_NOT_FOUND, "no such method");
    open_stream(&scene, "echo", 10, TMSG_ERR_NOT_FOUND);
    expect(&scene, 2, "echo", true, TMSG_ERR_NOT_FOUND, "is not a stream");
    open_stream(&scene, "stream", HELD_BYTES + 1, TMSG_ERR_LIMIT_EXCEEDED);
    expect(&scene, 3, "stream", true, TMSG_ERR_LIMIT_EXCEEDED, "held_bytes");
    close_scene(&scene);
}

/* Returns what the hub knows of an endpoint, which the pair holds. */
static tmsg_rpc_peer_t *peer_of(tmsg_endpoint_t *endpoint)
{
    tmsg_rpc_peer_t *peer;
    void *made;

    must(tmsg_calls_peer(endpoint, &tmsg_hub_ops, &made));
    peer = made;
    tmsg_calls_drop(peer->endpoint);
    return peer;
}

/* A call that began to come, and whose time is up, or that is given up, is told
 * of once. */
Test(refused, is_what_its_caller_gives_up_before_it_is_here)
{
    scene_t scene;
    tmsg_hub_t *hub;
    tmsg_rpc_peer_t *peer;
    tmsg_call_in_t *in = NULL;
    void *made;
    const tmsg_call_head_t head = {.type = TMSG_CALL_REQUEST,
                                   .id = 1000,
                                   .text = "echo",
                                   .text_bytes = 4,
                                   .left_us = TIMEOUT_MS * UINT64_C(1000)};

    open_scene(&scene);
    must(tmsg_calls_start(scene.pair.a.worker, &tmsg_hub_ops, &made));
    hub = made;
    peer = peer_of(scene.pair.to_b);
    must(tmsg_hub_ops.begins(peer, &head, &in, NULL));
    tmsg_hub_ops.canceled(peer, head.id);
    expect(&scene, 1, "echo", false, TMSG_ERR_CANCELED, "canceled");
    in->failed(in, TMSG_ERR_CANCELED, "given up"); /* nobody hears it again */
    must(tmsg_hub_ops.begins(peer, &head, &in, NULL));
    in->dropped(in);
    expect(&scene, 2, "echo", false, TMSG_ERR_PEER_LOST, "peer lost");
    must_eq(hub->refusals, 0);
    close_scene(&scene);
}

static const tmsg_call_head_t strange = {
    .type = TMSG_CALL_REQUEST, .text = "strange", .text_bytes = 7};

/* So many come of a peer while nobody drives the worker that tells them, which
 * a shared one makes possible. */
static void refuse(tmsg_endpoint_t *endpoint, int calls)
{
    tmsg_call_in_t *in;
    void *peer;

    peer = peer_of(endpoint);
    for (int i = 0; i < calls; i++) {
        must_be(tmsg_hub_ops.begins(peer, &strange, &in, NULL),
                TMSG_ERR_NOT_FOUND);
    }
}

Test(refused, are_told_up_to_a_bound_and_all_counted)
{
    tmsg_call_metrics_t counts;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_metrics_start(scene.pair.a.worker));
    refuse(scene.pair.to_b, BURST);
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "", &counts));
    must_eq(counts.rejected, BURST);
    finish(&scene, make(&scene, "echo", 1), TMSG_OK);
    must_eq(scene.outer.refusals, MOST_OF_ONE);
    finish(&scene, make(&scene, "strange", 1), TMSG_ERR_NOT_FOUND);
    must_eq(scene.outer.refusals, MOST_OF_ONE + 1);
    close_scene(&scene);
}

static bool is_here(void *arg)
{
    return atomic_load(&((side_t *)arg)->accepts) > 1;
}

/* One peer's leave room for others', up to the bound of all. */
Test(refused, of_one_peer_hide_no_other_s)
{
    tmsg_endpoint_t *one, *other, *dialled;
    scene_t scene;

    open_scene(&scene);
    one = scene.pair.to_b;
    dialled = side_dial(&scene.pair.b, &scene.pair.a);
    pair_await(&scene.pair, is_here, &scene.pair.a, "a second connection");
    other = scene.pair.a.accepted;
    must_true(other != one);
    refuse(one, BURST);
    refuse(other, 1);
    finish(&scene, make(&scene, "echo", 1), TMSG_OK);
    must_eq(scene.outer.refusals, MOST_OF_ONE + 1);
    refuse(one, BURST);
    refuse(other, BURST);
    finish(&scene, make(&scene, "echo", 1), TMSG_OK);
    must_eq(scene.outer.refusals, MOST_OF_ONE + 1 + MOST);
    tmsg_endpoint_destroy(dialled);
    close_scene(&scene);
}

/* Has another refused for each that it hears of, as a thread does that takes in
 * what a peer sends while this one tells of it. */
typedef struct {
    void *peer;
    unsigned more, told, told_before; /* what else was due */
    tmsg_due_t due;
} flood_t;

static void refuse_another(void *arg, const tmsg_intercepted_t *call)
{
    flood_t *flood = arg;
    tmsg_call_in_t *in;

    (void)call;
    flood->told++;
    if (flood->more > 0) {
        flood->more--;
        must_be(tmsg_hub_ops.begins(flood->peer, &strange, &in, NULL),
                TMSG_ERR_NOT_FOUND);
    }
}

static void have_turn(tmsg_due_t *due)
{
    flood_t *flood = TMSG_CONTAINER_OF(due, flood_t, due);

    flood->told_before = flood->told;
}

static bool is_told(void *arg)
{
    const flood_t *flood = arg;

    return flood->told > BURST;
}

Test(refused, hold_up_nothing_that_is_due)
{
    flood_t flood = {.more = BURST, .due = {.run = have_turn}};
    const tmsg_interceptor_t interceptor = {.field_mask =
                                                TMSG_INTERCEPTOR_REFUSED,
                                            .refused = refuse_another,
                                            .arg = &flood};
    tmsg_call_in_t *in;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_worker_intercept(scene.pair.a.worker, TMSG_SIDE_SERVER,
                               &interceptor));
    flood.peer = peer_of(scene.pair.to_b);
    must_be(tmsg_hub_ops.begins(flood.peer, &strange, &in, NULL),
            TMSG_ERR_NOT_FOUND);
    tmsg_worker_due(scene.pair.a.worker, &flood.due);
    pair_await(&scene.pair, is_told, &flood, "all to be told of");
    must_eq(flood.told, BURST + 1);
    must_eq(flood.told_before, 1);
    close_scene(&scene);
}

/* Those that wait to be told of are, when the worker goes. */
Test(refused, are_told_when_the_worker_goes)
{
    tmsg_call_in_t *in;
    scene_t scene;
    void *peer;

    open_scene(&scene);
    peer = peer_of(scene.pair.to_b);
    must_be(tmsg_hub_ops.begins(peer, &strange, &in, NULL), TMSG_ERR_NOT_FOUND);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    must_eq(scene.outer.refusals, 1);
}

Test(refused, without_memory_is_counted_and_answered_all_the_same)
{
    tmsg_call_metrics_t counts;
    tmsg_status_t status;
    tmsg_call_in_t *in;
    scene_t scene;
    void *peer;

    open_scene(&scene);
    must(tmsg_metrics_start(scene.pair.a.worker));
    finish(&scene, make(&scene, "strange", 1), TMSG_ERR_NOT_FOUND);
    peer = peer_of(scene.pair.to_b);
    failing_alloc_arm(1);
    status = tmsg_hub_ops.begins(peer, &strange, &in, NULL);
    must_true(failing_alloc_disarm());
    must_be(status, TMSG_ERR_NOT_FOUND);
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "", &counts));
    must_eq(counts.rejected, 2);
    finish(&scene, make(&scene, "strange", 1), TMSG_ERR_NOT_FOUND);
    must_eq(scene.outer.refusals, 2);
    close_scene(&scene);
}
