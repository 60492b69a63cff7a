/* SPDX-License-Identifier: BSD-3-Clause */
/* What interceptors see of calls and streams, and what they may do. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define KEY "app.key"

struct scene;

/* An interceptor of a name, which notes what it sees. */
typedef struct {
    struct scene *scene;
    char name;
    tmsg_status_t refuses; /* OK: it does not */
    const char *words;
    const char *gives;       /* the value of KEY that it adds; NULL: none */
    bool calls;              /* another method, from `end` */
    tmsg_intercepted_t last; /* of its end, without pointers but: */
    char error[256], method[64];
    unsigned begins, ends;
} seer_t;

typedef struct scene {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    seer_t seers[8];
    unsigned count;
    char log[1024];
    unsigned runs;  /* of handlers */
    char value[64]; /* of KEY as a handler saw it */
    tmsg_call_stream_t *kept;
    tmsg_call_t *inner;
    bool kills; /* a server's `begin` ends the endpoint */
} scene_t;

static void note(seer_t *seer, const char *what)
{
    char *log = seer->scene->log;
    size_t used = strlen(log);

    snprintf(log + used, sizeof(seer->scene->log) - used, "%c%s ", seer->name,
             what);
}

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    seer_t *seer = arg;
    tmsg_meta_t value;

    note(seer, call->is_stream ? "open" : "begin");
    seer->begins++;
    must_true(call->state == NULL);
    must_true(call->endpoint != NULL && call->map != NULL);
    must_eq(call->status, TMSG_IN_PROGRESS);
    must_eq(strlen(call->error), 0);
    call->state = seer;
    if (seer->gives != NULL) {
        must(tmsg_intercepted_set_string(call, KEY, seer->gives));
        must(tmsg_intercepted_get_meta(call, KEY, &value));
        must_say(value.data, seer->gives);
    }
    if (seer->scene->kills && call->side == TMSG_SIDE_SERVER) {
        must(tmsg_endpoint_abort(call->endpoint, TMSG_ERR_PEER_LOST, "so"));
    }
    return seer->refuses == TMSG_OK
               ? TMSG_OK
               : tmsg_intercepted_refuse(call, seer->refuses, seer->words);
}

static void message(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map)
{
    must_true(call->state == arg);
    must_eq(tmsg_map_size(map), 1);
    must_true(tmsg_intercepted_set_string((tmsg_intercepted_t *)(uintptr_t)call,
                                          KEY, "late") == TMSG_ERR_UNSUPPORTED);
    note(arg, sent ? "out" : "in");
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    seer_t *seer = arg;

    must_true(call->state == seer);
    must_true(call->side == TMSG_SIDE_SERVER || call->map == NULL);
    note(seer, "end");
    seer->ends++;
    seer->last = *call;
    snprintf(seer->error, sizeof(seer->error), "%s", call->error);
    snprintf(seer->method, sizeof(seer->method), "%s", call->method);
    if (seer->calls) {
        seer->calls = false; /* of which it sees the end, too */
        must(tmsg_endpoint_call(call->endpoint, "echo", NULL, NULL,
                                &seer->scene->inner));
    }
}

static seer_t *add(scene_t *scene, tmsg_side_t side, char name)
{
    seer_t *seer = &scene->seers[scene->count++];
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_MESSAGE |
                      TMSG_INTERCEPTOR_END,
        .begin = begin,
        .message = message,
        .end = end,
        .arg = seer};

    seer->scene = scene;
    seer->name = name;
    must(tmsg_worker_intercept(side == TMSG_SIDE_SERVER ? scene->pair.a.worker
                                                        : scene->pair.b.worker,
                               side, &interceptor));
    return seer;
}

static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    const char *value = "";

    scene->runs++;
    if (tmsg_map_get_string(tmsg_task_map(task), KEY, &value) != TMSG_OK) {
        value = "";
    }
    snprintf(scene->value, sizeof(scene->value), "%s", value);
    must_true(tmsg_task_reply(task, tmsg_task_map(task), NULL) == TMSG_OK ||
              scene->kills);
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 1, "no such cat", NULL));
}

static void forget(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)task;
}

static void stream(void *arg, tmsg_call_stream_t *opened)
{
    scene_t *scene = arg;

    scene->runs++;
    scene->kept = tmsg_call_stream_keep(opened);
}

static void open_scene(scene_t *scene)
{
    const tmsg_method_params_t params = {.field_mask =
                                             TMSG_METHOD_PARAM_SIGNATURE,
                                         .signature = "(x: int8[n]) -> ()"};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register(scene->server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(scene->server, "forget", forget, NULL, NULL));
    must(tmsg_server_register(scene->server, "typed", echo, scene, &params));
    must(tmsg_server_register_stream(scene->server, "stream", stream, scene,
                                     NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
    for (unsigned i = 0; i < scene->count; i++) {
        must_true(scene->seers[i].ends <= scene->seers[i].begins);
    }
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

/* Its outcome; the words, or the reply, are in *call_p. */
static tmsg_status_t go(scene_t *scene, const char *method,
                        const tmsg_map_t *map, tmsg_call_t **call_p)
{
    must(tmsg_endpoint_call(scene->pair.to_a, method, map, NULL, call_p));
    pair_await(&scene->pair, has_ended, *call_p, "the end of a call");
    return tmsg_call_status(*call_p);
}

static bool all_ended(void *arg)
{
    scene_t *scene = arg;
    unsigned missing = 0;

    for (unsigned i = 0; i < scene->count; i++) {
        missing += scene->seers[i].begins - scene->seers[i].ends;
    }
    return missing == 0;
}

static void await_ends(scene_t *scene)
{
    pair_await(&scene->pair, all_ended, scene, "the end hooks");
}

static void expect_log(const scene_t *scene, const char *wanted)
{
    cr_expect_str_eq(scene->log, wanted, "got \"%s\", wanted \"%s\"",
                     scene->log, wanted);
}

Test(interceptors, surround_a_call_in_their_order)
{
    scene_t scene;
    seer_t *outer, *server;
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_call_t *call;

    open_scene(&scene);
    outer = add(&scene, TMSG_SIDE_CALLER, 'a');
    add(&scene, TMSG_SIDE_CALLER, 'b');
    server = add(&scene, TMSG_SIDE_SERVER, 'c');
    add(&scene, TMSG_SIDE_SERVER, 'd');
    must_be(go(&scene, "echo", map, &call), TMSG_OK);
    expect_log(&scene, "abegin bbegin cbegin dbegin dend cend bend aend ");
    must_eq(outer->last.status, TMSG_OK);
    must_eq(outer->last.side, TMSG_SIDE_CALLER);
    must_eq(outer->last.is_stream, 0);
    must_eq(outer->last.sent_bytes, 100);
    must_eq(outer->last.received_bytes, 100);
    must_eq(outer->last.attempts, 1);
    must_eq(outer->last.remaining_ms, -1);
    must_true(outer->last.elapsed_ns > 0);
    must_eq(server->last.sent_bytes, 100);
    must_eq(server->last.received_bytes, 100);
    must_eq(server->last.side, TMSG_SIDE_SERVER);
    cr_expect_str_eq(server->method, "echo");
    tmsg_call_destroy(call);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(interceptors, hear_how_a_call_failed)
{
    scene_t scene;
    seer_t *here, *there;
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_call_t *call;

    open_scene(&scene);
    here = add(&scene, TMSG_SIDE_CALLER, 'a');
    there = add(&scene, TMSG_SIDE_SERVER, 'b');
    must_be(go(&scene, "fail", NULL, &call), TMSG_ERR_APPLICATION);
    must_eq(here->last.status, TMSG_ERR_APPLICATION);
    must_say(here->error, "no such cat");
    must_eq(there->last.status, TMSG_ERR_APPLICATION);
    must_say(there->error, "no such cat");
    tmsg_call_destroy(call);
    must_be(go(&scene, "forget", NULL, &call), TMSG_ERR_INTERNAL);
    must_eq(there->last.status, TMSG_ERR_INTERNAL);
    tmsg_call_destroy(call);
    /* Before the signature, of which strangers need not hear. */
    must_be(go(&scene, "typed", map, &call), TMSG_ERR_INVALID_PARAM);
    must_eq(there->last.status, TMSG_ERR_INVALID_PARAM);
    must_say(there->error, "\"x\" is missing");
    tmsg_call_destroy(call);
    must_be(go(&scene, "nothing", NULL, &call), TMSG_ERR_NOT_FOUND);
    must_eq(here->last.status, TMSG_ERR_NOT_FOUND);
    must_eq(here->ends, 4);
    must_eq(there->ends, 3); /* of methods that there are */
    tmsg_call_destroy(call);
    must_be(go(&scene, "tensormsg.health", NULL, &call), TMSG_OK);
    must_eq(there->ends, 4);
    tmsg_call_destroy(call);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(interceptors, of_a_caller_may_refuse_a_call_before_it_leaves)
{
    scene_t scene;
    seer_t *second;
    tmsg_call_stream_t *opened;
    tmsg_call_t *call;

    open_scene(&scene);
    add(&scene, TMSG_SIDE_CALLER, 'a');
    second = add(&scene, TMSG_SIDE_CALLER, 'b');
    add(&scene, TMSG_SIDE_CALLER, 'c');
    add(&scene, TMSG_SIDE_SERVER, 'd');
    second->refuses = TMSG_ERR_REFUSED;
    second->words = "no token";
    must_be(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call),
            TMSG_ERR_REFUSED);
    must_say(tmsg_error_message(), "method 'echo': no token");
    must_be(tmsg_endpoint_open_stream(scene.pair.to_a, "stream", NULL, NULL,
                                      &opened),
            TMSG_ERR_REFUSED);
    must_say(tmsg_error_message(), "method 'stream': no token");
    expect_log(&scene, "abegin bbegin aend aopen bopen aend ");
    must_eq(scene.seers[0].last.status, TMSG_ERR_REFUSED);
    must_say(scene.seers[0].error, "no token");
    must_eq(scene.seers[0].last.sent_bytes, 0);
    second->words = NULL;
    must_be(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call),
            TMSG_ERR_REFUSED);
    must_say(tmsg_error_message(), tmsg_status_name(TMSG_ERR_REFUSED));
    second->refuses = TMSG_IN_PROGRESS; /* which is no failure */
    must_be(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call),
            TMSG_ERR_INTERNAL);
    second->refuses = TMSG_OK;
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    must_eq(scene.runs, 1);
    tmsg_call_destroy(call);
    second->ends = second->begins; /* it heard of one end alone */
    close_scene(&scene);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

Test(interceptors, of_a_server_may_refuse_before_the_handler)
{
    scene_t scene;
    seer_t *outer, *guard;
    tmsg_call_stream_t *opened;
    tmsg_call_t *call;

    open_scene(&scene);
    outer = add(&scene, TMSG_SIDE_SERVER, 'a');
    guard = add(&scene, TMSG_SIDE_SERVER, 'b');
    guard->refuses = TMSG_ERR_REFUSED;
    guard->words = "you may not";
    must_be(go(&scene, "echo", NULL, &call), TMSG_ERR_REFUSED);
    must_say(tmsg_call_error(call), "you may not (no handler saw the call)");
    must_eq(tmsg_call_may_have_run(call), 0);
    tmsg_call_destroy(call);
    must_be(go(&scene, "typed", NULL, &call), TMSG_ERR_REFUSED);
    tmsg_call_destroy(call);
    must_be(go(&scene, "tensormsg.methods", NULL, &call), TMSG_ERR_REFUSED);
    tmsg_call_destroy(call);
    guard->refuses = TMSG_ERR_UNAVAILABLE;
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "stream", NULL, NULL,
                                   &opened));
    pair_await(&scene.pair, is_over, opened, "the end of a stream");
    must_be(tmsg_call_stream_status(opened), TMSG_ERR_UNAVAILABLE);
    must_say(tmsg_call_stream_error(opened), "you may not");
    must_eq(tmsg_call_stream_may_have_run(opened), 0);
    tmsg_call_stream_destroy(opened);
    must_eq(scene.runs, 0);
    guard->ends = guard->begins; /* it is told of none */
    await_ends(&scene);
    must_eq(outer->ends, 4);
    must_eq(outer->last.status, TMSG_ERR_UNAVAILABLE);
    must_say(outer->error, "you may not");
    guard->refuses = TMSG_OK;
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(interceptors, add_metadata_and_leave_the_map_as_it_is)
{
    scene_t scene;
    seer_t *first, *second;
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_call_t *call;
    const char *text;
    size_t keys;

    open_scene(&scene);
    first = add(&scene, TMSG_SIDE_CALLER, 'a');
    second = add(&scene, TMSG_SIDE_CALLER, 'b');
    must(tmsg_map_set_string(map, "other", "stays"));
    keys = tmsg_map_meta_size(map);
    first->gives = "first";
    must_be(go(&scene, "echo", map, &call), TMSG_OK);
    cr_expect_str_eq(scene.value, "first");
    must(tmsg_map_get_string(tmsg_call_reply(call), "other", &text));
    must_say(text, "stays");
    must_eq(tmsg_map_meta_size(tmsg_call_reply(call)), keys + 1);
    tmsg_call_destroy(call);
    must(tmsg_map_set_string(map, KEY, "the map's own"));
    second->gives = "second";
    must_be(go(&scene, "echo", map, &call), TMSG_OK);
    cr_expect_str_eq(scene.value, "second");
    must_eq(tmsg_map_meta_size(tmsg_call_reply(call)), keys + 1);
    tmsg_call_destroy(call);
    must(tmsg_map_get_string(map, KEY, &text));
    must_say(text, "the map's own");
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    cr_expect_str_eq(scene.value, "second");
    tmsg_call_destroy(call);
    first->gives = second->gives = NULL;
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    cr_expect_str_eq(scene.value, "");
    tmsg_call_destroy(call);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

static bool can_read(void *arg)
{
    tmsg_call_stream_stats_t stats;

    tmsg_call_stream_stats(arg, &stats);
    return stats.unread > 0;
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->kept != NULL; }

Test(interceptors, see_each_message_of_a_stream)
{
    scene_t scene;
    seer_t *here, *there;
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_call_stream_t *opened;
    tmsg_message_t *got;

    open_scene(&scene);
    here = add(&scene, TMSG_SIDE_CALLER, 'a');
    add(&scene, TMSG_SIDE_CALLER, 'b');
    there = add(&scene, TMSG_SIDE_SERVER, 'c');
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "stream", map, NULL,
                                   &opened));
    must(tmsg_call_stream_send(opened, map, NULL, NULL));
    pair_await(&scene.pair, is_kept, &scene, "a stream");
    pair_await(&scene.pair, can_read, scene.kept, "a message");
    must(tmsg_call_stream_send(scene.kept, map, NULL, NULL));
    pair_await(&scene.pair, can_read, opened, "a message back");
    must(tmsg_call_stream_end(scene.kept, TMSG_ERR_APPLICATION, 0, "enough",
                              NULL));
    pair_await(&scene.pair, is_over, opened, "the end of a stream");
    await_ends(&scene);
    expect_log(&scene, "aopen bopen aout bout copen cin cout bin ain cend "
                       "bend aend ");
    must_eq(here->last.is_stream, 1);
    must_eq(here->last.sent, 1);
    must_eq(here->last.received, 1);
    must_eq(here->last.sent_bytes, 200);
    must_eq(here->last.received_bytes, 100);
    must_eq(here->last.status, TMSG_ERR_APPLICATION);
    must_say(here->error, "enough");
    must_eq(there->last.sent, 1);
    must_eq(there->last.received, 1);
    must_eq(there->last.received_bytes, 200);
    must_eq(there->last.status, TMSG_ERR_APPLICATION);
    must_say(there->error, "enough");
    must(tmsg_call_stream_try_recv(opened, &got)); /* after the end */
    tmsg_message_destroy(got);
    tmsg_call_stream_destroy(scene.kept);
    tmsg_call_stream_destroy(opened);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

static bool has_inner(void *arg)
{
    const scene_t *scene = arg;

    return scene->inner != NULL &&
           tmsg_call_status(scene->inner) != TMSG_IN_PROGRESS;
}

Test(interceptors, may_call_and_hear_of_what_was_canceled)
{
    scene_t scene;
    seer_t *here, *there;
    tmsg_call_stream_t *opened;
    tmsg_call_t *call;

    open_scene(&scene);
    here = add(&scene, TMSG_SIDE_CALLER, 'a');
    there = add(&scene, TMSG_SIDE_SERVER, 'b');
    here->calls = true;
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    pair_await(&scene.pair, has_inner, &scene, "the call from a hook");
    must_eq(here->ends, 2);
    tmsg_call_destroy(scene.inner);
    tmsg_call_destroy(call);
    /* The end comes for what nobody waits for any more. */
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "stream", NULL, NULL,
                                   &opened));
    pair_await(&scene.pair, is_kept, &scene, "a stream");
    tmsg_call_stream_destroy(opened);
    await_ends(&scene);
    must_eq(here->last.status, TMSG_ERR_CANCELED);
    must_eq(there->last.status, TMSG_ERR_CANCELED);
    tmsg_call_stream_destroy(scene.kept);
    must(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call));
    tmsg_call_destroy(call);
    await_ends(&scene);
    must_eq(here->last.status, TMSG_ERR_CANCELED);
    close_scene(&scene);
}

Test(interceptors, may_end_the_connection_of_what_they_see)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    add(&scene, TMSG_SIDE_CALLER, 'a');
    add(&scene, TMSG_SIDE_SERVER, 'b');
    scene.kills = true;
    must_true(go(&scene, "echo", NULL, &call) != TMSG_OK);
    await_ends(&scene);
    tmsg_call_destroy(call);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
}

Test(interceptors, end_with_the_worker)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    add(&scene, TMSG_SIDE_CALLER, 'a');
    must(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call));
    close_scene(&scene);
    must_eq(scene.seers[0].ends, 1);
    must_true(scene.seers[0].last.status < 0);
    tmsg_call_destroy(call);
}

Test(interceptors, that_cannot_be_are_refused)
{
    const tmsg_interceptor_t none = {.arg = NULL};
    const tmsg_interceptor_t unknown = {.field_mask = 1 << 4};
    tmsg_worker_t *worker;
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    worker = scene.pair.b.worker;
    must_be(tmsg_worker_intercept(NULL, TMSG_SIDE_CALLER, &none),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_intercept(worker, (tmsg_side_t)3, &none),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &unknown),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "field_mask bits 0x10");
    for (int i = 0; i < TMSG_INTERCEPTORS_MOST; i++) {
        must(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &none));
    }
    must_be(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &none),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK); /* without hooks */
    tmsg_call_destroy(call);
    close_scene(&scene);
}

static tmsg_status_t refuse(void *arg, tmsg_intercepted_t *call)
{
    (void)arg;
    return tmsg_intercepted_refuse(call, TMSG_ERR_REFUSED, "not to be called");
}

static void count_end(void *arg, const tmsg_intercepted_t *call)
{
    must_true(call->state == NULL);
    ++*(unsigned *)arg;
}

/* What an older application's struct has there is nothing. */
Test(interceptors, have_only_the_hooks_that_field_mask_names)
{
    unsigned ends = 0;
    const tmsg_interceptor_t hears = {.field_mask = TMSG_INTERCEPTOR_END,
                                      .begin = refuse,
                                      .end = count_end,
                                      .arg = &ends};
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    must(tmsg_worker_intercept(scene.pair.b.worker, TMSG_SIDE_CALLER, &hears));
    must_be(go(&scene, "echo", NULL, &call), TMSG_OK);
    must_eq(ends, 1);
    tmsg_call_destroy(call);
    close_scene(&scene);
}
