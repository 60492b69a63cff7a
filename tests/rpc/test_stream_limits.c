/* SPDX-License-Identifier: BSD-3-Clause */
/* What a server sends in a stream, or answers a call with, and is beyond a
 * limit of the other side: that one hears LIMIT_EXCEEDED, with the limit, what
 * came and what it allows, and nothing else of the connection suffers. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

/* Of both sides; each of the maps below is beyond one of them. */
static const tmsg_limits_t limits = {
    .field_mask = TMSG_LIMIT_ALL,
    .tensors = 4,
    .ndim = 3,
    .name_bytes = 250,
    .metadata_bytes = 1000,
    .header_bytes = 1200,
    .message_bytes = 1 << 20,
    .held_bytes = 1 << 19,
    .metadata_keys = 8,
    .lent_bytes = INT64_MAX,
};

static void add(tmsg_map_t *map, const char *name, int32_t ndim)
{
    static uint8_t byte;
    static const int64_t ones[] = {1, 1, 1, 1};
    const tmsg_tensor_t tensor = {.data = &byte,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = ndim,
                                  .shape = ones};

    must(tmsg_map_add(map, name, &tensor, NULL));
}

static void add_named(tmsg_map_t *map, char letter, size_t bytes)
{
    char name[300] = "";

    memset(name, letter, bytes);
    add(map, name, 1);
}

static void set_text(tmsg_map_t *map, const char *key, size_t bytes)
{
    char text[1100] = "";

    memset(text, 'y', bytes);
    must(tmsg_map_set_string(map, key, text));
}

static void make_tensors(tmsg_map_t *map)
{
    for (char letter = 'a'; letter < 'f'; letter++) {
        add_named(map, letter, 1);
    }
}

static void make_ndim(tmsg_map_t *map) { add(map, "deep", 4); }
static void make_name(tmsg_map_t *map) { add_named(map, 'n', 251); }
static void make_metadata(tmsg_map_t *map) { set_text(map, "s", 1000); }

static void make_keys(tmsg_map_t *map)
{
    for (char letter = 'a'; letter < 'j'; letter++) {
        const char key[] = {letter, '\0'};

        must(tmsg_map_set_i64(map, key, 1));
    }
}

static void make_header(tmsg_map_t *map)
{
    for (char letter = 'a'; letter < 'd'; letter++) {
        add_named(map, letter, 200);
    }
    set_text(map, "s", 900);
}

static void make_key(tmsg_map_t *map)
{
    char key[300] = "";

    memset(key, 'k', 251);
    must(tmsg_map_set_i64(map, key, 1));
}

static const struct {
    const char *words;
    void (*make)(tmsg_map_t *map);
    size_t bytes; /* of one tensor, where there is no `make` */
    bool held;    /* its receiver alone can tell */
} cases[] = {
    {"5 tensors, the receiver allows 4 (its limit tensors)", make_tensors, 0,
     false},
    {"tensor 'deep': ndim 4, the receiver allows 3 (its limit ndim)", make_ndim,
     0, false},
    {": a name of 251 bytes, the receiver allows 250 (its limit name_bytes)",
     make_name, 0, false},
    {": a key of 251 bytes, the receiver allows 250 (its limit name_bytes)",
     make_key, 0, false},
    {"1001 bytes of metadata, the receiver allows 1000 (its limit "
     "metadata_bytes)",
     make_metadata, 0, false},
    {"9 metadata keys, the receiver allows 8 (its limit metadata_keys)",
     make_keys, 0, false},
    {" bytes, the receiver allows 1200 (its limit header_bytes)", make_header,
     0, false},
    {"payload of 1048577 bytes, the receiver allows 1048576 (its limit "
     "message_bytes)",
     NULL, (1 << 20) + 1, false},
    {"payload of 524289 bytes exceeds held_bytes 524288", NULL, (1 << 19) + 1,
     true},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_map_t *small, *large;
    tmsg_status_t sent; /* what the handler was told */
    tmsg_call_stream_t *kept;
} scene_t;

static tmsg_map_t *make(unsigned i)
{
    tmsg_map_t *map;

    if (cases[i].make == NULL) {
        return sample_bytes(i, cases[i].bytes);
    }
    must(tmsg_map_create(&map));
    cases[i].make(map);
    return map;
}

/* Lets go of it without an end. */
static void forget(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    must(tmsg_call_stream_send(stream, scene->small, NULL, NULL));
    scene->sent = tmsg_call_stream_send(stream, scene->large, NULL, NULL);
}

/* Sends another in its place. */
static void go_on(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->sent = tmsg_call_stream_send(stream, scene->large, NULL, NULL);
    must(tmsg_call_stream_send(stream, scene->small, NULL, NULL));
}

/* Behind more than the opener takes unread. */
static void wait_behind(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    for (int i = 0; i < 3; i++) {
        must(tmsg_call_stream_send(stream, scene->small, NULL, NULL));
    }
    scene->sent = tmsg_call_stream_send(stream, scene->large, NULL, NULL);
}

/* The handler believes that all is well. */
static void end_in_order_behind(void *arg, tmsg_call_stream_t *stream)
{
    wait_behind(arg, stream);
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void end_behind(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    for (int i = 0; i < 3; i++) {
        must(tmsg_call_stream_send(stream, scene->small, NULL, NULL));
    }
    scene->sent = tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, scene->large);
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    ((scene_t *)arg)->kept = tmsg_call_stream_keep(stream);
}

static void end_with(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->sent = tmsg_call_stream_end(stream, TMSG_ERR_APPLICATION, 7, "ours",
                                       scene->large);
}

static void answer(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    scene->sent = tmsg_task_reply(task, scene->large, NULL);
}

static void open_scene(scene_t *scene, link_t link)
{
    const side_options_t both = {
        .limits = limits,
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 2}};

    pair_open(&scene->pair, link, DRIVE_POLLING, &both, &both);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "forget", forget, scene,
                                     NULL));
    must(tmsg_server_register_stream(scene->server, "go on", go_on, scene,
                                     NULL));
    must(tmsg_server_register_stream(scene->server, "end with", end_with, scene,
                                     NULL));
    must(tmsg_server_register_stream(scene->server, "wait behind", wait_behind,
                                     scene, NULL));
    must(tmsg_server_register_stream(scene->server, "end behind", end_behind,
                                     scene, NULL));
    must(tmsg_server_register_stream(scene->server, "end in order behind",
                                     end_in_order_behind, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene, NULL));
    must(tmsg_server_register(scene->server, "answer", answer, scene, NULL));
    scene->small = sample_bytes(3, 300);
}

static void close_scene(scene_t *scene)
{
    tmsg_map_destroy(scene->small);
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_call_stream_t *run(scene_t *scene, const char *method)
{
    tmsg_call_stream_t *stream;

    scene->sent = TMSG_OK;
    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, NULL, NULL,
                                   &stream));
    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    return stream;
}

static void expect_small(tmsg_call_stream_t *stream)
{
    tmsg_message_t *message;

    must(tmsg_call_stream_try_recv(stream, &message));
    sample_check_bytes(3, 300, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The words name who said it, and nobody else. */
static void expect_words(const scene_t *scene, const char *error,
                         const char *words)
{
    const char *server = tmsg_endpoint_peer(scene->pair.to_a);
    size_t bytes = strlen(server);

    must_true(strncmp(error, server, bytes) == 0);
    must_say(error + bytes, ": method '");
    must_say(error + bytes, words);
    must_true(strstr(error + bytes, "://") == NULL);
}

static void check_forgotten(scene_t *scene, unsigned i)
{
    tmsg_call_stream_t *stream = run(scene, "forget");
    tmsg_message_t *message;

    must_be(scene->sent, cases[i].held ? TMSG_OK : TMSG_ERR_LIMIT_EXCEEDED);
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_LIMIT_EXCEEDED);
    must_true(tmsg_call_stream_may_have_run(stream));
    expect_words(scene, tmsg_call_stream_error(stream), cases[i].words);
    if (!cases[i].held) { /* in order, behind what was sent before */
        expect_small(stream);
    }
    must_be(tmsg_call_stream_try_recv(stream, &message),
            TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_call_stream_destroy(stream);
}

/* A handler that has sent another message since has nothing to answer for. */
static void check_going_on(scene_t *scene)
{
    tmsg_call_stream_t *stream = run(scene, "go on");

    must_be(scene->sent, TMSG_ERR_LIMIT_EXCEEDED);
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_INTERNAL);
    must_say(tmsg_call_stream_error(stream), "without an answer");
    expect_small(stream);
    tmsg_call_stream_destroy(stream);
}

static void check_ended(scene_t *scene, unsigned i)
{
    tmsg_call_stream_t *stream = run(scene, "end with");

    must_be(tmsg_call_stream_status(stream), TMSG_ERR_LIMIT_EXCEEDED);
    expect_words(scene, tmsg_call_stream_error(stream), cases[i].words);
    tmsg_call_stream_destroy(stream);
}

static bool call_is_over(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void check_answered(scene_t *scene, unsigned i)
{
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, "answer", NULL, NULL, &call));
    pair_await(&scene->pair, call_is_over, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_ERR_LIMIT_EXCEEDED);
    expect_words(scene, tmsg_call_error(call), cases[i].words);
    tmsg_call_destroy(call);
}

static void check_limits(link_t link)
{
    scene_t scene;

    open_scene(&scene, link);
    for (unsigned i = 0; i < CASES; i++) {
        scene.large = make(i);
        check_forgotten(&scene, i);
        check_ended(&scene, i);
        check_answered(&scene, i);
        if (!cases[i].held) {
            check_going_on(&scene);
        }
        tmsg_map_destroy(scene.large);
    }
    close_scene(&scene);
}

typedef struct {
    tmsg_call_stream_t *stream;
    unsigned count;
} reader_t;

/* It is read until it is over, and what came before that. */
static bool has_read(void *arg)
{
    reader_t *reader = arg;
    bool over = is_over(reader->stream);
    tmsg_message_t *message;

    while (tmsg_call_stream_try_recv(reader->stream, &message) == TMSG_OK &&
           message != NULL) {
        sample_check_bytes(3, 300, tmsg_message_map(message));
        tmsg_message_destroy(message);
        reader->count++;
    }
    return over;
}

static void check_waiting(scene_t *scene, const char *method, unsigned i,
                          tmsg_status_t sent)
{
    reader_t reader = {NULL, 0};

    scene->sent = TMSG_IN_PROGRESS;
    scene->large = make(i);
    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, NULL, NULL,
                                   &reader.stream));
    while (scene->sent == TMSG_IN_PROGRESS) { /* nothing is read until then */
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
    }
    must_be(scene->sent, sent);
    pair_await(&scene->pair, has_read, &reader, "the end of a stream");
    must_be(tmsg_call_stream_status(reader.stream), TMSG_ERR_LIMIT_EXCEEDED);
    expect_words(scene, tmsg_call_stream_error(reader.stream), cases[i].words);
    if (sent != TMSG_OK) { /* in order, behind what was sent before */
        must_eq(reader.count, 3);
    }
    tmsg_call_stream_destroy(reader.stream);
    tmsg_map_destroy(scene->large);
}

/* A sender hears at once of what has to wait, but for a header, which is made
 * when its turn comes. */
Test(stream_limits, are_told_of_what_has_to_wait)
{
    scene_t scene;

    open_scene(&scene, LINK_UNIX);
    for (unsigned i = 0; i < CASES; i++) {
        bool late = cases[i].held || cases[i].make == make_header;
        tmsg_status_t sent = late ? TMSG_OK : TMSG_ERR_LIMIT_EXCEEDED;

        check_waiting(&scene, "wait behind", i, sent);
        check_waiting(&scene, "end behind", i, sent);
        if (late) { /* else it has heard, and does not mind */
            check_waiting(&scene, "end in order behind", i, sent);
        }
    }
    close_scene(&scene);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->kept != NULL; }

static bool kept_is_over(void *arg)
{
    reader_t *reader = arg;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = tmsg_call_stream_try_recv(reader->stream, &message);

    must_true(status != TMSG_OK || message != NULL); /* it has not finished */
    if (message != NULL) {
        sample_check_bytes(3, 300, tmsg_message_map(message));
        tmsg_message_destroy(message);
        reader->count++;
    }
    return status < 0;
}

/* What follows one that is lost is not taken for all there is. */
Test(stream_limits, let_nothing_pass_behind_what_is_lost)
{
    reader_t reader = {NULL, 0};
    tmsg_call_stream_t *stream;
    scene_t scene;

    open_scene(&scene, LINK_UNIX);
    scene.kept = NULL;
    scene.large = make(6);
    must_true(cases[6].make == make_header);
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "keep", NULL, NULL,
                                   &stream));
    pair_await(&scene.pair, is_kept, &scene, "a handler");
    for (int i = 0; i < 3; i++) {
        must(tmsg_call_stream_send(stream, scene.small, NULL, NULL));
    }
    must(tmsg_call_stream_send(stream, scene.large, NULL, NULL));
    must(tmsg_call_stream_send(stream, scene.small, NULL, NULL));
    must(tmsg_call_stream_finish(stream));
    reader.stream = scene.kept;
    pair_await(&scene.pair, kept_is_over, &reader, "the end of a stream");
    must_true(reader.count <= 3);
    must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_CANCELED);
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_call_stream_error(stream), cases[6].words);
    tmsg_call_stream_destroy(scene.kept);
    tmsg_call_stream_destroy(stream);
    tmsg_map_destroy(scene.large);
    close_scene(&scene);
}

Test(stream_limits, are_told_over_tcp) { check_limits(LINK_TCP); }
Test(stream_limits, are_told_over_shared_memory) { check_limits(LINK_UNIX); }
