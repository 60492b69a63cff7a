/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls as spans: who is whose child, and what is exported. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define TRACE "0123456789abcdef0123456789abcdef"
#define PARENT "00-" TRACE "-1234567890abcdef-"

enum { MOST = 16 };

typedef struct {
    tmsg_span_t span; /* without pointers but: */
    tmsg_side_t side;
    tmsg_status_t status;
    int32_t is_stream;
    char method[32], state[64];
} seen_t;

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    seen_t spans[MOST];    /* as they ended */
    unsigned count;
    tmsg_trace_context_t handled; /* what the last handler was in */
    tmsg_call_t *inner;
    tmsg_call_stream_t *kept;
} scene_t;

static void tell(void *arg, const tmsg_span_t *span)
{
    scene_t *scene = arg;
    seen_t *seen = &scene->spans[scene->count++];

    must_true(scene->count <= MOST);
    seen->span = *span;
    seen->side = span->call->side;
    seen->status = span->call->status;
    seen->is_stream = span->call->is_stream;
    strcpy(seen->method, span->call->method);
    strcpy(seen->state, span->trace_state);
}

static void look(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    const tmsg_trace_context_t *now = tmsg_trace_current();

    must(tmsg_task_trace(task, &scene->handled));
    must_true(now != NULL);
    must_eq(memcmp(now, &scene->handled, sizeof(now->trace_id)), 0);
    must_eq(memcmp(now->span_id, scene->handled.span_id, TMSG_SPAN_ID_BYTES),
            0);
    must(tmsg_task_reply(task, NULL, NULL));
}

/* Calls back, from within the handler. */
static void relay(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    must(tmsg_task_trace(task, &scene->handled));
    must(tmsg_endpoint_call(tmsg_task_endpoint(task), "nobody", NULL, NULL,
                            &scene->inner));
    must(tmsg_task_reply(task, NULL, NULL));
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    must(tmsg_call_stream_trace(stream, &scene->handled));
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void trace(scene_t *scene, tmsg_worker_t *worker, uint32_t millionths)
{
    const tmsg_tracer_params_t params = {
        .field_mask = TMSG_TRACER_PARAM_ON_SPAN | TMSG_TRACER_PARAM_SAMPLE,
        .on_span = tell,
        .on_span_arg = scene,
        .millionths = millionths};

    must(tmsg_worker_trace(worker, &params));
}

static void open_scene(scene_t *scene, uint32_t millionths)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "look", look, scene, NULL));
    must(tmsg_server_register(scene->server, "relay", relay, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene, NULL));
    trace(scene, scene->pair.a.worker, millionths);
    trace(scene, scene->pair.b.worker, millionths);
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void go(scene_t *scene, const char *method, const tmsg_map_t *map)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, NULL, &call));
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_OK);
    tmsg_call_destroy(call);
    must_true(tmsg_trace_current() == NULL);
}

static tmsg_map_t *map_of(const char *parent, const char *state)
{
    tmsg_map_t *map = sample_bytes(1, 10);

    must(tmsg_map_set_string(map, TMSG_META_TRACE_PARENT, parent));
    if (state != NULL) {
        must(tmsg_map_set_string(map, TMSG_META_TRACE_STATE, state));
    }
    return map;
}

static const seen_t *find(const scene_t *scene, tmsg_side_t side,
                          const char *method)
{
    for (unsigned i = 0; i < scene->count; i++) {
        if (scene->spans[i].side == side &&
            strcmp(scene->spans[i].method, method) == 0) {
            return &scene->spans[i];
        }
    }
    die("no span of '%s' on side %d", method, side);
}

static bool is_null(const uint8_t *bytes, size_t count)
{
    size_t i = 0;

    while (i < count && bytes[i] == 0) {
        i++;
    }
    return i == count;
}

static void expect_child(const seen_t *child, const seen_t *parent)
{
    must_eq(memcmp(child->span.trace_id, parent->span.trace_id,
                   TMSG_TRACE_ID_BYTES),
            0);
    must_eq(
        memcmp(child->span.parent_id, parent->span.span_id, TMSG_SPAN_ID_BYTES),
        0);
    must_true(memcmp(child->span.span_id, parent->span.span_id,
                     TMSG_SPAN_ID_BYTES) != 0);
}

Test(spans, of_a_server_are_children_of_their_caller)
{
    const seen_t *here, *there;
    scene_t scene;
    uint64_t now = (uint64_t)time(NULL) * 1000000000;

    open_scene(&scene, 1000000);
    go(&scene, "look", NULL);
    must_eq(scene.count, 2);
    here = find(&scene, TMSG_SIDE_CALLER, "look");
    there = find(&scene, TMSG_SIDE_SERVER, "look");
    must_true(is_null(here->span.parent_id, TMSG_SPAN_ID_BYTES));
    must_true(!is_null(here->span.trace_id, TMSG_TRACE_ID_BYTES));
    expect_child(there, here);
    must_eq(
        memcmp(scene.handled.span_id, there->span.span_id, TMSG_SPAN_ID_BYTES),
        0);
    must_be(here->status, TMSG_OK);
    must_true(here->span.begun_ns > now - 1000000000u * 60ull);
    must_true(here->span.ended_ns >= here->span.begun_ns);
    must_true(here->span.begun_monotonic_ns > 0);
    go(&scene, "look", NULL); /* another trace */
    must_true(memcmp(scene.spans[0].span.trace_id, scene.spans[2].span.trace_id,
                     TMSG_TRACE_ID_BYTES) != 0);
    close_scene(&scene);
}

static bool has_inner(void *arg)
{
    return ((scene_t *)arg)->inner != NULL &&
           has_ended(((scene_t *)arg)->inner);
}

Test(spans, of_calls_from_a_handler_are_its_children)
{
    scene_t scene;

    open_scene(&scene, 1000000);
    go(&scene, "relay", NULL);
    pair_await(&scene.pair, has_inner, &scene, "the call from a handler");
    must_be(tmsg_call_status(scene.inner), TMSG_ERR_UNAVAILABLE);
    expect_child(find(&scene, TMSG_SIDE_CALLER, "nobody"),
                 find(&scene, TMSG_SIDE_SERVER, "relay"));
    must_be(find(&scene, TMSG_SIDE_CALLER, "nobody")->status,
            TMSG_ERR_UNAVAILABLE);
    tmsg_call_destroy(scene.inner);
    close_scene(&scene);
}

Test(spans, go_on_with_what_the_map_says)
{
    tmsg_map_t *map = map_of(PARENT "01", "foo=1");
    tmsg_trace_context_t context;
    const seen_t *here;
    scene_t scene;
    char text[TMSG_TRACE_PARENT_TEXT + 1];

    open_scene(&scene, 0);
    go(&scene, "look", map);
    here = find(&scene, TMSG_SIDE_CALLER, "look");
    tmsg_trace_context_format(&scene.handled, text);
    must_say(text, TRACE);
    must_eq(here->span.parent_id[0], 0x12);
    cr_expect_str_eq(here->state, "foo=1");
    cr_expect_str_eq(scene.handled.state, "foo=1");
    expect_child(find(&scene, TMSG_SIDE_SERVER, "look"), here);
    must(tmsg_map_get_trace(map, &context)); /* it stays as it was */
    must_eq(context.span_id[0], 0x12);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(spans, begin_a_trace_where_what_came_is_malformed)
{
    tmsg_map_t *map = map_of("00-0-0-01", "foo=1");
    scene_t scene;
    char text[TMSG_TRACE_PARENT_TEXT + 1];

    open_scene(&scene, 1000000);
    go(&scene, "look", map);
    tmsg_trace_context_format(&scene.handled, text);
    cr_expect_null(strstr(text, TRACE));
    cr_expect_str_eq(scene.handled.state, "");
    expect_child(find(&scene, TMSG_SIDE_SERVER, "look"),
                 find(&scene, TMSG_SIDE_CALLER, "look"));
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(spans, that_are_not_sampled_are_passed_on_and_not_exported)
{
    tmsg_map_t *map = map_of(PARENT "00", NULL);
    scene_t scene;

    open_scene(&scene, 1000000);
    go(&scene, "look", map);
    must_eq(scene.count, 0);
    must_eq(scene.handled.flags, 0);
    must_eq(scene.handled.trace_id[1], 0x23);
    tmsg_map_destroy(map);
    close_scene(&scene);
    open_scene(&scene, 0);
    go(&scene, "look", NULL);
    must_eq(scene.count, 0);
    must_eq(scene.handled.flags, 0);
    close_scene(&scene);
}

Test(spans, of_a_thread_are_children_of_its_current_context)
{
    tmsg_trace_context_t mine;
    scene_t scene;

    open_scene(&scene, 0);
    must(tmsg_trace_context_parse(PARENT "01", "a=b", &mine));
    must_true(tmsg_trace_set_current(&mine) == NULL);
    must_true(tmsg_trace_current() == &mine);
    {
        tmsg_call_t *call;

        must(tmsg_endpoint_call(scene.pair.to_a, "look", NULL, NULL, &call));
        pair_await(&scene.pair, has_ended, call, "the end of a call");
        tmsg_call_destroy(call);
    }
    must_true(tmsg_trace_set_current(NULL) == &mine);
    must_eq(find(&scene, TMSG_SIDE_CALLER, "look")->span.parent_id[0], 0x12);
    cr_expect_str_eq(scene.handled.state, "a=b");
    close_scene(&scene);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

Test(spans, are_of_streams_too)
{
    tmsg_trace_context_t here;
    tmsg_call_stream_t *stream;
    scene_t scene;

    open_scene(&scene, 1000000);
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "keep", NULL, NULL,
                                   &stream));
    must(tmsg_call_stream_trace(stream, &here));
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_eq(scene.count, 2);
    must_eq(scene.spans[0].is_stream, 1);
    expect_child(find(&scene, TMSG_SIDE_SERVER, "keep"),
                 find(&scene, TMSG_SIDE_CALLER, "keep"));
    must_eq(memcmp(here.trace_id, scene.handled.trace_id, TMSG_TRACE_ID_BYTES),
            0);
    tmsg_call_stream_destroy(stream);
    close_scene(&scene);
}

static void look_in_vain(void *arg, tmsg_task_t *task)
{
    tmsg_trace_context_t context;

    (void)arg;
    must_be(tmsg_task_trace(task, &context), TMSG_ERR_NOT_FOUND);
    must_true(tmsg_trace_current() == NULL);
    must(tmsg_task_reply(task, NULL, NULL));
}

Test(spans, are_none_where_nobody_traces)
{
    const tmsg_tracer_params_t unknown = {.field_mask = 1 << 5};
    const tmsg_tracer_params_t many = {.field_mask = TMSG_TRACER_PARAM_SAMPLE,
                                       .millionths = 1000001};
    const tmsg_interceptor_t none = {.arg = NULL};
    scene_t scene;

    memset(&scene, 0, sizeof(scene));
    pair_open(&scene.pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "look", look_in_vain, NULL, NULL));
    go(&scene, "look", NULL);
    must_be(tmsg_worker_trace(scene.pair.a.worker, &unknown),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_trace(scene.pair.a.worker, &many),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_trace(NULL, NULL), TMSG_ERR_INVALID_PARAM);
    for (int i = 0; i < TMSG_INTERCEPTORS_MOST; i++) {
        must(tmsg_worker_intercept(scene.pair.a.worker, TMSG_SIDE_SERVER,
                                   &none));
    }
    must_be(tmsg_worker_trace(scene.pair.a.worker, NULL),
            TMSG_ERR_LIMIT_EXCEEDED);
    must(tmsg_worker_trace(scene.pair.b.worker, NULL));
    must_be(tmsg_worker_trace(scene.pair.b.worker, NULL),
            TMSG_ERR_ALREADY_EXISTS);
    go(&scene, "look", NULL); /* passed on to a peer that does not trace */
    close_scene(&scene);
}

typedef struct {
    scene_t *scene;
    const tmsg_trace_context_t *seen;
    unsigned told;
} hearer_t;

/* Calls on, in whatever span it is. */
static void hear(void *arg, tmsg_call_t *call)
{
    hearer_t *hearer = arg;

    (void)call;
    hearer->seen = tmsg_trace_current();
    hearer->told++;
    must(tmsg_endpoint_call(hearer->scene->pair.to_a, "look", NULL, NULL,
                            &hearer->scene->inner));
}

/* Who waits lends them its thread, not its span. */
Test(spans, callbacks_do_not_have_that_of_who_waits)
{
    tmsg_trace_context_t mine;
    hearer_t hearer = {.scene = NULL};
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = hear,
                                       .on_done_arg = &hearer};
    scene_t scene;

    open_scene(&scene, 1000000);
    hearer.scene = &scene;
    must(tmsg_endpoint_call(scene.pair.to_a, "nobody", NULL, &params, NULL));
    must(tmsg_trace_context_parse(PARENT "01", NULL, &mine));
    must_true(tmsg_trace_set_current(&mine) == NULL);
    while (hearer.told == 0) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must_true(hearer.seen == NULL);
    must_true(tmsg_trace_current() == &mine);
    must_true(tmsg_trace_set_current(NULL) == &mine);
    pair_await(&scene.pair, has_inner, &scene, "the call from a callback");
    must_true(is_null(find(&scene, TMSG_SIDE_CALLER, "look")->span.parent_id,
                      TMSG_SPAN_ID_BYTES));
    tmsg_call_destroy(scene.inner);
    close_scene(&scene);
}

/* Leaves a context behind that is gone when it has returned. */
static void leave_one(unsigned *told)
{
    tmsg_trace_context_t mine;

    must_true(tmsg_trace_current() == NULL);
    must(tmsg_trace_context_parse(PARENT "01", NULL, &mine));
    (void)tmsg_trace_set_current(&mine);
    ++*told;
}

static void leave_behind(void *arg, tmsg_call_t *call)
{
    must_be(tmsg_call_status(call), TMSG_ERR_CANCELED);
    leave_one(arg);
}

static bool both_are_told(void *arg) { return *(unsigned *)arg == 2; }

/* Both are due at once. */
Test(spans, callbacks_do_not_have_what_another_has_left)
{
    unsigned told = 0;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = leave_behind,
                                       .on_done_arg = &told};
    tmsg_call_t *calls[2];
    scene_t scene;

    open_scene(&scene, 1000000);
    for (int i = 0; i < 2; i++) {
        must(tmsg_endpoint_call(scene.pair.to_a, "look", NULL, &params,
                                &calls[i]));
    }
    for (int i = 0; i < 2; i++) {
        tmsg_call_cancel(calls[i]);
    }
    pair_await(&scene.pair, both_are_told, &told, "the end of two calls");
    must_true(tmsg_trace_current() == NULL);
    tmsg_call_destroy(calls[0]);
    tmsg_call_destroy(calls[1]);
    close_scene(&scene);
}

typedef struct {
    tmsg_task_t *kept;
    unsigned told;
} turns_t;

/* The first waits, and the others with it. */
static void take_turn(void *arg, tmsg_task_t *task)
{
    turns_t *turns = arg;

    if (turns->kept == NULL) {
        turns->kept = tmsg_task_keep(task);
        return;
    }
    leave_one(&turns->told);
    must(tmsg_task_reply(task, NULL, NULL));
}

static bool has_kept(void *arg) { return ((turns_t *)arg)->kept != NULL; }

static bool have_had_turns(void *arg) { return ((turns_t *)arg)->told == 2; }

Test(spans, handlers_do_not_have_what_another_has_left)
{
    const tmsg_method_params_t one_by_one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY, .concurrency = 1};
    turns_t turns = {.kept = NULL};
    tmsg_call_t *calls[3];
    scene_t scene;

    memset(&scene, 0, sizeof(scene));
    pair_open(&scene.pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "turn", take_turn, &turns,
                              &one_by_one));
    for (int i = 0; i < 3; i++) {
        must(
            tmsg_endpoint_call(scene.pair.to_a, "turn", NULL, NULL, &calls[i]));
    }
    pair_await(&scene.pair, has_kept, &turns, "the first call");
    go(&scene, "tensormsg.methods", NULL); /* which comes behind the others */
    must(tmsg_task_reply(turns.kept, NULL, NULL));
    tmsg_task_destroy(turns.kept);
    pair_await(&scene.pair, have_had_turns, &turns, "the other calls");
    for (int i = 0; i < 3; i++) {
        pair_await(&scene.pair, has_ended, calls[i], "the end of a call");
        must_be(tmsg_call_status(calls[i]), TMSG_OK);
        tmsg_call_destroy(calls[i]);
    }
    close_scene(&scene);
}

typedef struct {
    tmsg_trace_context_t own;
    tmsg_call_stream_t *stream;
    unsigned told;
} served_t;

static void expect_own(const served_t *served)
{
    const tmsg_trace_context_t *now = tmsg_trace_current();

    must_true(now != NULL);
    must_eq(memcmp(now->span_id, served->own.span_id, TMSG_SPAN_ID_BYTES), 0);
}

static void is_readable(void *arg, tmsg_call_stream_t *stream)
{
    served_t *served = arg;

    (void)stream;
    expect_own(served);
    served->told++;
}

static void stream_is_over(void *arg, tmsg_call_stream_t *stream,
                           tmsg_status_t status)
{
    must_be(status, TMSG_ERR_CANCELED);
    is_readable(arg, stream);
}

static void task_is_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    must_be(status, TMSG_ERR_CANCELED);
    expect_own(arg);
    ((served_t *)arg)->told++;
    tmsg_task_destroy(task);
}

static void serve(void *arg, tmsg_call_stream_t *stream)
{
    served_t *served = arg;
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = is_readable,
        .on_over = stream_is_over,
        .arg = served};

    must(tmsg_call_stream_trace(stream, &served->own));
    served->stream = tmsg_call_stream_keep(stream);
    must(tmsg_call_stream_set_events(stream, &events));
}

static void hold(void *arg, tmsg_task_t *task)
{
    served_t *served = arg;

    must(tmsg_task_trace(task, &served->own));
    tmsg_task_on_over(tmsg_task_keep(task), task_is_over, served);
    served->told = 1;
}

static bool is_told_once(void *arg) { return ((served_t *)arg)->told == 1; }

static bool is_told_more(void *arg) { return ((served_t *)arg)->told > 1; }

Test(spans, of_what_is_served_are_those_of_its_events)
{
    served_t served = {.told = 0};
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_call_stream_t *stream;
    tmsg_call_t *call;
    scene_t scene;

    open_scene(&scene, 0);
    must(tmsg_server_register_stream(scene.server, "serve", serve, &served,
                                     NULL));
    must(tmsg_server_register(scene.server, "hold", hold, &served, NULL));
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "serve", NULL, NULL,
                                   &stream));
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    pair_await(&scene.pair, is_told_once, &served, "a message");
    tmsg_call_stream_destroy(stream);
    pair_await(&scene.pair, is_told_more, &served, "the end of a stream");
    tmsg_call_stream_destroy(served.stream);
    served.told = 0;
    must(tmsg_endpoint_call(scene.pair.to_a, "hold", map, NULL, &call));
    pair_await(&scene.pair, is_told_once, &served, "a call");
    tmsg_call_destroy(call);
    pair_await(&scene.pair, is_told_more, &served, "the end of a call");
    tmsg_map_destroy(map);
    close_scene(&scene);
}

static tmsg_map_t *map_of_keys(unsigned count, const char *parent)
{
    tmsg_map_t *map;
    char key[16];

    must(tmsg_map_create(&map));
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "key%u", i);
        must(tmsg_map_set_i64(map, key, i));
    }
    if (parent != NULL) {
        must(tmsg_map_set_string(map, TMSG_META_TRACE_PARENT, parent));
    }
    return map;
}

/* A key in place of the map's is not one more. */
Test(spans, are_left_out_where_the_peer_takes_no_more_metadata)
{
    enum { KEYS = 4 };
    const side_options_t bounded = {
        .limits = {.field_mask = TMSG_LIMIT_METADATA_KEYS,
                   .metadata_keys = KEYS}};
    tmsg_map_t *full = map_of_keys(KEYS, NULL);
    tmsg_map_t *with = map_of_keys(KEYS - 1, PARENT "01");
    scene_t scene;

    memset(&scene, 0, sizeof(scene));
    pair_open(&scene.pair, LINK_SHM, DRIVE_POLLING, &bounded, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "look", look, &scene, NULL));
    trace(&scene, scene.pair.a.worker, 1000000);
    trace(&scene, scene.pair.b.worker, 1000000);
    go(&scene, "look", full);
    must_true(is_null(find(&scene, TMSG_SIDE_SERVER, "look")->span.parent_id,
                      TMSG_SPAN_ID_BYTES));
    scene.count = 0;
    go(&scene, "look", with);
    expect_child(find(&scene, TMSG_SIDE_SERVER, "look"),
                 find(&scene, TMSG_SIDE_CALLER, "look"));
    tmsg_map_destroy(full);
    tmsg_map_destroy(with);
    close_scene(&scene);
}
