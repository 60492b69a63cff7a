/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that say what they take and give, and servers that say what they are.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/peers.h"

enum { ASK_MS = PEERS_BOUND_MS, BYTES_MOST = 5000000 };

/* A map of one uint8 tensor "data". */
static tmsg_map_t *bytes_map(size_t bytes)
{
    static uint8_t data[BYTES_MOST];
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *kept;
    atomic_uint ran;    /* handlers */
    atomic_int replied; /* what the reply answered; 1: not yet */
} scene_t;

static void open_with(scene_t *scene, drive_t drive,
                      const tmsg_server_params_t *params)
{
    memset(scene, 0, sizeof(*scene));
    scene->replied = 1;
    pair_open(&scene->pair, LINK_SHM, drive, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, params, &scene->server));
}

static void open_scene(scene_t *scene) { open_with(scene, DRIVE_THREAD, NULL); }

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static tmsg_status_t declare(scene_t *scene, const char *name,
                             tmsg_handler_fn handler, const char *signature,
                             const char *description)
{
    const tmsg_method_params_t params = {.field_mask =
                                             TMSG_METHOD_PARAM_SIGNATURE |
                                             TMSG_METHOD_PARAM_DESCRIPTION,
                                         .signature = signature,
                                         .description = description};

    return tmsg_server_register(scene->server, name, handler, scene, &params);
}

static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    scene->ran++;
    scene->replied = tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void say_nothing(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    scene->ran++;
    scene->replied = tmsg_task_reply(task, NULL, NULL);
    must_be(tmsg_task_status(task), TMSG_ERR_ALREADY_EXISTS);
}

static void fail(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->ran++;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 3, "so",
                        tmsg_task_map(task)));
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    scene->kept = tmsg_task_keep(task);
    scene->ran++;
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

/* The caller may hear of it before the handler does. */
static bool is_replied(void *arg) { return ((scene_t *)arg)->replied != 1; }

static void expect_replied(scene_t *scene, tmsg_status_t status)
{
    pair_await(&scene->pair, is_replied, scene, "the end of a handler");
    must_be((tmsg_status_t)scene->replied, status);
    scene->replied = 1;
}

static bool has_run(void *arg) { return ((scene_t *)arg)->ran > 0; }

/* Calls with one uint8 tensor "data" of so many bytes; the caller has the call
 * when it has ended. */
static tmsg_call_t *call(scene_t *scene, const char *method, size_t bytes)
{
    tmsg_map_t *map = bytes_map(bytes);
    tmsg_call_t *made;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, NULL, &made));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    return made;
}

static void expect(scene_t *scene, const char *method, size_t bytes,
                   tmsg_status_t status, const char *words)
{
    tmsg_call_t *made = call(scene, method, bytes);

    must_be(tmsg_call_status(made), status);
    must_say(tmsg_call_error(made), words);
    tmsg_call_destroy(made);
}

static void refuse_over(drive_t drive, const tmsg_server_params_t *params)
{
    static const size_t sizes[] = {0, 4, 5000, BYTES_MOST};
    scene_t scene;
    tmsg_call_t *made;
    char words[100];

    open_with(&scene, drive, params);
    must(declare(&scene, "four", echo, "(data: uint8[4])", NULL));
    must(
        declare(&scene, "other", echo, "(x: uint8[n], data?: uint8[n])", NULL));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned ran = scene.ran;

        made = call(&scene, "four", sizes[i]);
        if (sizes[i] == 4) {
            must_be(tmsg_call_status(made), TMSG_OK);
            must_eq(scene.ran, ran + 1);
        } else {
            must_be(tmsg_call_status(made), TMSG_ERR_INVALID_PARAM);
            snprintf(words, sizeof(words),
                     "method 'four': \"data\" is uint8[%zu]: the method takes "
                     "uint8[4] (no handler saw the call)",
                     sizes[i]);
            must_say(tmsg_call_error(made), words);
            must_eq(tmsg_call_may_have_run(made), 0);
            must_true(tmsg_call_reply(made) == NULL ||
                      tmsg_map_size(tmsg_call_reply(made)) == 0);
            must_eq(scene.ran, ran);
        }
        tmsg_call_destroy(made);
    }
    expect(&scene, "other", 4, TMSG_ERR_INVALID_PARAM,
           "\"x\" is missing: the method takes uint8[n]");
    must_eq(scene.ran, 1);
    close_scene(&scene);
}

Test(reflect, a_map_that_does_not_fit_reaches_no_handler)
{
    refuse_over(DRIVE_POLLING, NULL);
}

Test(reflect, nor_a_handler_on_a_thread_of_the_server)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 2};

    refuse_over(DRIVE_THREAD, &params);
}

static void note_release(void *arg) { ++*(unsigned *)arg; }

/* Its reply is no longer than its request, and no shorter. */
static void shrink(void *arg, tmsg_task_t *task)
{
    unsigned releases = 0;
    const tmsg_reply_params_t params = {.field_mask =
                                            TMSG_REPLY_PARAM_ON_RELEASE,
                                        .on_release = note_release,
                                        .on_release_arg = &releases};
    tmsg_map_t *map = bytes_map(3);

    ((scene_t *)arg)->replied = tmsg_task_reply(task, map, &params);
    must_say(tmsg_error_message(), "the method gives uint8[n]");
    must_be(tmsg_task_reply(task, map, NULL), TMSG_ERR_ALREADY_EXISTS);
    must_eq(releases, 0);
    tmsg_map_destroy(map);
}

Test(reflect, a_reply_that_does_not_fit_is_the_servers_failure)
{
    scene_t scene;
    tmsg_call_t *made;

    open_scene(&scene);
    must(declare(&scene, "echo", echo,
                 "(data: uint8[n], ...) -> (data: uint8[n])", NULL));
    must(declare(&scene, "shrink", shrink,
                 "(data: uint8[n]) -> (data: uint8[n])", NULL));
    must(declare(&scene, "mute", say_nothing, "(...) -> (y: float32[])", NULL));
    must(declare(&scene, "fail", fail, "(...) -> (y: float32[])", NULL));
    made = call(&scene, "echo", 100);
    must_be(tmsg_call_status(made), TMSG_OK);
    must_eq(tmsg_map_size(tmsg_call_reply(made)), 1);
    expect_replied(&scene, TMSG_OK);
    tmsg_call_destroy(made);
    made = call(&scene, "shrink", 100);
    must_be(tmsg_call_status(made), TMSG_ERR_INTERNAL);
    must_say(tmsg_call_error(made),
             "method 'shrink': \"data\" is uint8[3]: the method gives uint8[n],"
             " and n is 100 in \"data\"");
    must_eq(tmsg_call_may_have_run(made), 1);
    tmsg_call_destroy(made);
    expect_replied(&scene, TMSG_ERR_INTERNAL);
    expect(&scene, "mute", 1, TMSG_ERR_INTERNAL,
           "\"y\" is missing: the method gives float32[]");
    expect_replied(&scene, TMSG_ERR_INTERNAL);
    expect(&scene, "fail", 1, TMSG_ERR_APPLICATION, "so"); /* it did not give */
    close_scene(&scene);
}

Test(reflect, wrong_declarations_are_refused)
{
    static char long_text[TMSG_METHOD_DESCRIPTION_MAX + 2];
    tmsg_server_t *server = NULL;
    const tmsg_server_params_t flags = {.field_mask = TMSG_SERVER_PARAM_FLAGS,
                                        .flags = 1 << 7};
    scene_t scene;

    memset(long_text, 'x', sizeof(long_text) - 1);
    open_scene(&scene);
    must_be(declare(&scene, "m", echo, "(x: float33[])", NULL),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(),
             "method 'm': signature, line 1, column 5: 'float33' is not a "
             "dtype: write float32 or uint8, for example");
    must_be(declare(&scene, "m", echo, NULL, "two\nlines"),
            TMSG_ERR_INVALID_PARAM);
    must_be(declare(&scene, "m", echo, NULL, "\xff"), TMSG_ERR_INVALID_PARAM);
    must_be(declare(&scene, "m", echo, NULL, long_text),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_be(declare(&scene, "tensormsg.methods", echo, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must(declare(&scene, "m", echo, NULL, long_text + 1));
    must_be(declare(&scene, "m", echo, "()", "again"), TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_server_create(scene.pair.b.worker, &flags, &server),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown flags 0x80");
    close_scene(&scene);
}

static tmsg_method_info_t info_at(const tmsg_methods_t *methods, size_t i)
{
    tmsg_method_info_t info;

    must(tmsg_methods_at(methods, i, &info));
    return info;
}

static void end_stream(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)stream;
}

Test(reflect, streams_are_told_from_other_methods)
{
    tmsg_methods_t *methods;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_server_register_stream(scene.server, "flow", end_stream, NULL,
                                     NULL));
    must(declare(&scene, "echo", echo, NULL, NULL));
    must(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods));
    must_eq(info_at(methods, 0).is_stream, 1);
    must_eq(info_at(methods, 1).is_stream, 0);
    tmsg_methods_destroy(methods);
    close_scene(&scene);
}

Test(reflect, what_a_method_is_and_needs_is_told)
{
    const tmsg_method_params_t some = {
        .field_mask = TMSG_METHOD_PARAM_FLAGS | TMSG_METHOD_PARAM_PRINCIPALS,
        .flags = TMSG_METHOD_IDEMPOTENT,
        .principals = "alice"};
    tmsg_methods_t *methods;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_server_register(scene.server, "some", echo, NULL, &some));
    must(tmsg_server_register(scene.server, "echo", echo, NULL, NULL));
    must(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods));
    must_eq(info_at(methods, 0).is_idempotent, 1);
    must_eq(info_at(methods, 0).needs_principal, 1);
    must_eq(info_at(methods, 1).is_idempotent, 0);
    must_eq(info_at(methods, 1).needs_principal, 0);
    tmsg_methods_destroy(methods);
    close_scene(&scene);
}

Test(reflect, methods_are_listed)
{
    const tmsg_method_params_t params = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 3,
        .queue = 0};
    tmsg_methods_t *methods;
    tmsg_method_info_t info;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods));
    must_eq(tmsg_methods_size(methods), 0);
    tmsg_methods_destroy(methods);
    must(declare(&scene, "infer", echo,
                 "( \"image\":uint8[b,h,w,3],\"a b\"?:*[...])->(y:float32[b])",
                 "Says \"what\" it is \xe2\x80\x93 or not"));
    must(tmsg_server_register(scene.server, "n\xc3\xa4me", echo, &scene,
                              &params));
    must(
        tmsg_server_set_health(scene.server, "infer", TMSG_HEALTH_NOT_SERVING));
    must(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods));
    must_eq(tmsg_methods_size(methods), 2);
    info = info_at(methods, 0);
    cr_assert(eq(str, (char *)info.name, "infer"));
    cr_assert(eq(str, (char *)info.description,
                 "Says \"what\" it is \xe2\x80\x93 or not"));
    cr_assert(eq(str, (char *)info.signature,
                 "(image: uint8[b,h,w,3], \"a b\"?: *[...]) -> "
                 "(y: float32[b])"));
    must_eq(info.concurrency, 1024);
    must_eq(info.queue, 1024);
    must_eq(info.health, TMSG_HEALTH_NOT_SERVING);
    info = info_at(methods, 1);
    cr_assert(eq(str, (char *)info.name, "n\xc3\xa4me"));
    cr_assert(eq(str, (char *)info.description, ""));
    must_true(info.signature == NULL);
    must_eq(info.concurrency, 3);
    must_eq(info.queue, 0);
    must_eq(info.health, TMSG_HEALTH_SERVING);
    must_be(tmsg_methods_at(methods, 2, &info), TMSG_ERR_NOT_FOUND);
    must_be(tmsg_methods_at(NULL, 0, &info), TMSG_ERR_INVALID_PARAM);
    must_eq(tmsg_methods_size(NULL), 0);
    tmsg_methods_destroy(methods);
    tmsg_methods_destroy(NULL);
    close_scene(&scene);
}

static void expect_health(scene_t *scene, const char *method,
                          tmsg_health_t wanted)
{
    tmsg_health_t health = TMSG_HEALTH_UNKNOWN;

    must(tmsg_endpoint_health(scene->pair.to_a, method, ASK_MS, &health));
    must_eq(health, wanted);
}

Test(reflect, health_is_told_of_the_server_and_of_a_method)
{
    scene_t scene;

    open_scene(&scene);
    must(declare(&scene, "echo", echo, NULL, NULL));
    expect_health(&scene, NULL, TMSG_HEALTH_SERVING);
    expect_health(&scene, "echo", TMSG_HEALTH_SERVING);
    expect_health(&scene, "other", TMSG_HEALTH_NOT_FOUND);
    must(tmsg_server_set_health(scene.server, "echo", TMSG_HEALTH_DRAINING));
    expect_health(&scene, "echo", TMSG_HEALTH_DRAINING);
    expect_health(&scene, NULL, TMSG_HEALTH_SERVING);
    must(tmsg_server_set_health(scene.server, "echo", TMSG_HEALTH_SERVING));
    must(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_NOT_SERVING));
    expect_health(&scene, "echo", TMSG_HEALTH_NOT_SERVING);
    expect_health(&scene, NULL, TMSG_HEALTH_NOT_SERVING);
    expect_health(&scene, "other", TMSG_HEALTH_NOT_FOUND);
    tmsg_call_destroy(call(&scene, "echo", 1));
    must_eq(scene.ran, 1); /* nobody is refused */
    must_be(tmsg_server_set_health(scene.server, "other", TMSG_HEALTH_SERVING),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_server_set_health(scene.server, TMSG_METHOD_HEALTH,
                                   TMSG_HEALTH_SERVING),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_NOT_FOUND),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_UNKNOWN),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_set_health(NULL, NULL, TMSG_HEALTH_SERVING),
            TMSG_ERR_INVALID_PARAM);
    cr_assert(
        eq(str, (char *)tmsg_health_name(TMSG_HEALTH_DRAINING), "DRAINING"));
    cr_assert(eq(str, (char *)tmsg_health_name((tmsg_health_t)99), "UNKNOWN"));
    close_scene(&scene);
}

Test(reflect, a_server_that_is_full_or_drains_answers_all_the_same)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE |
                      TMSG_SERVER_PARAM_THREADS,
        .concurrency = 1,
        .queue = 0,
        .threads = 1};
    tmsg_methods_t *methods;
    tmsg_call_t *first;
    scene_t scene;

    open_with(&scene, DRIVE_THREAD, &params);
    must(declare(&scene, "keep", keep, NULL, NULL));
    must(tmsg_endpoint_call(scene.pair.to_a, "keep", NULL, NULL, &first));
    pair_await(&scene.pair, has_run, &scene, "a handler");
    expect(&scene, "keep", 1, TMSG_ERR_RESOURCE_EXHAUSTED, "as many calls");
    expect_health(&scene, NULL, TMSG_HEALTH_SERVING);
    must_be(tmsg_server_drain(scene.server, 0), TMSG_ERR_TIMED_OUT);
    expect_health(&scene, NULL, TMSG_HEALTH_DRAINING);
    expect_health(&scene, "keep", TMSG_HEALTH_DRAINING);
    expect_health(&scene, "other", TMSG_HEALTH_NOT_FOUND);
    must(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods));
    must_eq(info_at(methods, 0).health, TMSG_HEALTH_DRAINING);
    tmsg_methods_destroy(methods);
    expect(&scene, "keep", 1, TMSG_ERR_UNAVAILABLE, "being shut down");
    tmsg_task_destroy(scene.kept);
    tmsg_call_destroy(first);
    close_scene(&scene);
}

Test(reflect, may_be_switched_off)
{
    const tmsg_server_params_t params = {.field_mask = TMSG_SERVER_PARAM_FLAGS,
                                         .flags = TMSG_SERVER_NO_METHODS |
                                                  TMSG_SERVER_NO_HEALTH};
    tmsg_methods_t *methods = NULL;
    tmsg_health_t health;
    scene_t scene;

    open_with(&scene, DRIVE_THREAD, &params);
    must_be(tmsg_endpoint_methods(scene.pair.to_a, ASK_MS, &methods),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "no such method here");
    must_be(tmsg_endpoint_health(scene.pair.to_a, NULL, ASK_MS, &health),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_endpoint_methods(scene.pair.to_b, ASK_MS, &methods),
            TMSG_ERR_UNSUPPORTED); /* b has no server at all */
    must_be(tmsg_endpoint_methods(scene.pair.to_a, 0, &methods),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_health(scene.pair.to_a, "\xff", ASK_MS, &health),
            TMSG_ERR_INVALID_PARAM);
    must_true(methods == NULL);
    close_scene(&scene);
}

static void check_call(scene_t *scene, tmsg_status_t status)
{
    tmsg_call_t *made;

    must(tmsg_endpoint_call(scene->pair.to_a, "none of these", NULL, NULL,
                            &made));
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), status);
    tmsg_call_destroy(made);
}

/* Nor has it a method to begin with. */
Test(reflect, a_server_without_methods_is_not_ready)
{
    scene_t scene;

    open_with(&scene, DRIVE_THREAD, NULL);
    check_call(&scene, TMSG_ERR_UNAVAILABLE);
    must(tmsg_server_register(scene.server, "one", fail, NULL, NULL));
    check_call(&scene, TMSG_ERR_NOT_FOUND);
    close_scene(&scene);
}

/* A method that it does not have may still come. */
Test(reflect, a_server_may_begin_before_it_is_ready)
{
    const tmsg_server_params_t params = {.field_mask = TMSG_SERVER_PARAM_FLAGS,
                                         .flags = TMSG_SERVER_NOT_READY};
    tmsg_health_t health;
    scene_t scene;

    open_with(&scene, DRIVE_THREAD, &params);
    must(tmsg_endpoint_health(scene.pair.to_a, NULL, ASK_MS, &health));
    must_eq(health, TMSG_HEALTH_NOT_SERVING);
    check_call(&scene, TMSG_ERR_UNAVAILABLE);
    must(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_SERVING));
    must(tmsg_endpoint_health(scene.pair.to_a, NULL, ASK_MS, &health));
    must_eq(health, TMSG_HEALTH_SERVING);
    check_call(&scene, TMSG_ERR_NOT_FOUND);
    must(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_NOT_SERVING));
    check_call(&scene, TMSG_ERR_NOT_FOUND);
    close_scene(&scene);
}

Test(reflect, a_question_that_makes_no_sense_is_refused)
{
    scene_t scene;
    tmsg_call_t *made;
    tmsg_map_t *map;

    open_scene(&scene);
    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "method", 7));
    must(tmsg_endpoint_call(scene.pair.to_a, TMSG_METHOD_HEALTH, map, NULL,
                            &made));
    pair_await(&scene.pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), TMSG_ERR_INVALID_PARAM);
    tmsg_call_destroy(made);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

static tmsg_status_t read_one(const char *key, const void *value, size_t bytes,
                              int32_t type)
{
    const tmsg_meta_t meta = {
        .type = type, .data = value, .bytes = bytes, .i64 = 1};
    tmsg_methods_t *methods = NULL;
    tmsg_status_t status;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_set_meta(map, key, &meta));
    status = tmsg_methods_read(map, &methods);
    must_true((status == TMSG_OK) == (methods != NULL));
    tmsg_methods_destroy(methods);
    tmsg_map_destroy(map);
    return status;
}

Test(reflect, what_a_peer_lists_is_not_believed)
{
    static const struct {
        const char *key, *json, *message; /* NULL: it is taken */
    } rows[] = {
        {"method/x", "{}", NULL},
        {"method/x", "{\"new\": [1, {}]}", NULL},
        {"other", "{", NULL},
        {"method/x",
         "{\"signature\":\"()\",\"description\":\"d\",\"health\":\"SERVING\","
         "\"queue\":4294967295,\"concurrency\":1}",
         NULL},
        {"method/x", "{\"health\":\"of another age\"}", NULL},
        {"method/x", "{\"stream\":true}", NULL},
        {"method/x", "{\"stream\":1}", "a value is of another type"},
        {"method/x", "{\"idempotent\":true,\"principal\":false}", NULL},
        {"method/x", "{\"idempotent\":\"yes\"}", "a value is of another type"},
        {"method/x", "{\"principal\":1}", "a value is of another type"},
        {"method/", "{}", "no name of a method"},
        {"method/x", "", "'x': not JSON"},
        {"method/x", "{", "'x': not JSON"},
        {"method/x", "{} {}", "'x': not JSON"},
        {"method/x", "[]", "no object"},
        {"method/x", "7", "no object"},
        {"method/x", "{\"a\":1,\"a\":1}", "a key that occurs twice"},
        {"method/x", "{\"a\\u0000\":1}", "'x': a string holds \\u0000"},
        {"method/x", "{\"signature\":\"()\\u0000\"}", "a string holds \\u0000"},
        {"method/x", "{\"description\":\"\\\\u0000\"}", NULL},
        {"method/x", "{\"signature\":7}", "a value is of another type"},
        {"method/x", "{\"signature\":null}", "a value is of another type"},
        {"method/x", "{\"description\":[]}", "a value is of another type"},
        {"method/x", "{\"health\":1}", "a value is of another type"},
        {"method/x", "{\"queue\":-1}", "a value is of another type"},
        {"method/x", "{\"queue\":4294967296}", "a value is of another type"},
        {"method/x", "{\"concurrency\":1.5}", "a value is of another type"},
        {"method/x", "{\"signature\":\"(x: what[])\"}",
         "'x': signature, line 1, column 5: 'what' is not a dtype: write "
         "float32 or uint8, for example"},
    };
    char nested[6000];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        must_be(read_one(rows[i].key, rows[i].json, strlen(rows[i].json),
                         TMSG_META_TYPE_STRING),
                rows[i].message == NULL ? TMSG_OK : TMSG_ERR_MALFORMED);
        if (rows[i].message != NULL) {
            must_say(tmsg_error_message(), rows[i].message);
        }
    }
    memset(nested, '[', sizeof(nested));
    must_be(read_one("method/x", nested, sizeof(nested), TMSG_META_TYPE_STRING),
            TMSG_ERR_MALFORMED);
    must_be(read_one("method/x", "{}\0", 3, TMSG_META_TYPE_STRING),
            TMSG_ERR_MALFORMED);
    must_be(read_one("method/x", "{}", 2, TMSG_META_TYPE_BYTES),
            TMSG_ERR_MALFORMED);
    must_be(read_one("method/x", NULL, 0, TMSG_META_TYPE_I64),
            TMSG_ERR_MALFORMED);
    must_be(tmsg_methods_read(NULL, NULL), TMSG_ERR_INVALID_PARAM);
}

Test(reflect, what_a_peer_lists_is_bounded)
{
    static char huge[400000], name[TMSG_METHOD_BYTES_MAX + 20];
    tmsg_methods_t *methods = NULL;
    tmsg_map_t *map;

    memset(huge, ' ', sizeof(huge));
    memcpy(huge + sizeof(huge) - 2, "{}", 2);
    must_be(read_one("method/x", huge, sizeof(huge), TMSG_META_TYPE_STRING),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "too long");
    memset(huge, 'x', sizeof(huge));
    memcpy(huge, "{\"description\":\"", 16);
    memcpy(huge + 1100, "\"}", 2);
    must_be(read_one("method/x", huge, 1102, TMSG_META_TYPE_STRING),
            TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "the description is too long");
    memset(name, 'x', sizeof(name) - 1);
    memcpy(name, "method/", 7);
    must_be(read_one(name, "{}", 2, TMSG_META_TYPE_STRING), TMSG_ERR_MALFORMED);
    must(tmsg_map_create(&map));
    for (int i = 0; i < 65537; i++) {
        snprintf(name, sizeof(name), "method/%d", i);
        must(tmsg_map_set_string(map, name, "{}"));
    }
    must_be(tmsg_methods_read(map, &methods), TMSG_ERR_LIMIT_EXCEEDED);
    must(tmsg_map_remove_meta(map, "method/0"));
    must(tmsg_methods_read(map, &methods));
    must_eq(tmsg_methods_size(methods), 65536);
    tmsg_methods_destroy(methods);
    tmsg_map_destroy(map);
}

Test(reflect, what_a_peer_says_of_its_health_is_not_believed)
{
    tmsg_health_t health = TMSG_HEALTH_SERVING;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must_be(tmsg_health_read(map, &health), TMSG_ERR_MALFORMED);
    must(tmsg_map_set_i64(map, "health", 1));
    must_be(tmsg_health_read(map, &health), TMSG_ERR_MALFORMED);
    must_be(tmsg_health_read(NULL, &health), TMSG_ERR_INVALID_PARAM);
    must_eq(health, TMSG_HEALTH_SERVING);
    must(tmsg_map_set_string(map, "health", "NOT_SERVING"));
    must(tmsg_health_read(map, &health));
    must_eq(health, TMSG_HEALTH_NOT_SERVING);
    must(tmsg_map_set_string(map, "health", "tired"));
    must(tmsg_health_read(map, &health));
    must_eq(health, TMSG_HEALTH_UNKNOWN);
    tmsg_map_destroy(map);
}

Test(reflect, nor_is_what_it_says_of_its_load)
{
    static const char *const odd[] = {
        "",
        "[1]",
        "{\"running\":-1,\"waiting\":\"2\",\"held\":1.5,\"stalls\":null}",
        "{\"running\":1",
        "{\"why\":7}",
        "{\"why\":\"a\\u0000b\"}",
    };
    tmsg_health_report_t report;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must_be(tmsg_health_report_read(map, &report), TMSG_ERR_MALFORMED);
    must(tmsg_map_set_string(map, "health", "STALLED"));
    must_be(tmsg_health_report_read(map, NULL), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_health_report_read(NULL, &report), TMSG_ERR_INVALID_PARAM);
    must(tmsg_health_report_read(map, &report)); /* of an older peer */
    must_eq(report.health, TMSG_HEALTH_STALLED);
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        must(tmsg_map_set_string(map, "load", odd[i]));
        must(tmsg_health_report_read(map, &report));
        must_eq(report.running + report.waiting + report.held + report.stalls,
                0);
        must_eq(report.why[0], 0);
    }
    must(tmsg_map_set_string(map, "load",
                             "{\"running\":3,\"waiting\":2,\"held\":1,"
                             "\"stalls\":4,\"why\":\"so\",\"more\":[]}"));
    must(tmsg_health_report_read(map, &report));
    must_eq(report.running, 3);
    must_eq(report.waiting, 2);
    must_eq(report.held, 1);
    must_eq(report.stalls, 4);
    must_say(report.why, "so");
    tmsg_map_destroy(map);
}
