/* SPDX-License-Identifier: BSD-3-Clause */
/* Each message of a stream is what its method takes, or gives. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/peers.h"

#define SIGNATURE "(x: int8[n], y?: int8[n]) -> (z: float32[n])"

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_call_stream_t *kept, *opened;
} scene_t;

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    ((scene_t *)arg)->kept = tmsg_call_stream_keep(stream);
}

static void open_scene(scene_t *scene, const char *signature)
{
    const tmsg_method_params_t params = {
        .field_mask = TMSG_METHOD_PARAM_SIGNATURE, .signature = signature};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "flow", keep, scene,
                                     &params));
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->kept != NULL; }

/* With any map; the opener may know the signature. */
static void open_stream(scene_t *scene, const tmsg_signature_t *signature)
{
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_SIGNATURE, .signature = signature};

    scene->kept = NULL;
    must(tmsg_endpoint_open_stream(scene->pair.to_a, "flow", NULL, &params,
                                   &scene->opened));
    pair_await(&scene->pair, is_kept, scene, "a stream");
}

static void drop_stream(scene_t *scene)
{
    tmsg_call_stream_destroy(scene->opened);
    tmsg_call_stream_destroy(scene->kept);
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

/* One tensor of int8, or float32, of so many elements; or two. */
static tmsg_map_t *map_of(const char *name, bool is_float, int64_t count,
                          const char *other, int64_t other_count)
{
    static float memory[16];
    const tmsg_tensor_t tensor = {
        .data = memory,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {is_float ? TMSG_DTYPE_FLOAT : TMSG_DTYPE_INT,
                  is_float ? 32 : 8, 1},
        .ndim = 1,
        .shape = &count};
    tmsg_tensor_t second = tensor;
    tmsg_map_t *map;

    second.shape = &other_count;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, name, &tensor, NULL));
    if (other != NULL) {
        must(tmsg_map_add(map, other, &second, NULL));
    }
    return map;
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static bool can_read(void *arg)
{
    tmsg_call_stream_stats_t stats;

    tmsg_call_stream_stats(arg, &stats);
    return stats.unread > 0;
}

static void send(tmsg_call_stream_t *stream, tmsg_map_t *map)
{
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void expect_refused(tmsg_call_stream_t *stream, tmsg_map_t *map,
                           const char *words)
{
    must_be(tmsg_call_stream_send(stream, map, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), words);
    tmsg_map_destroy(map);
}

/* One that fits arrives. */
static void expect_message(scene_t *scene, tmsg_call_stream_t *from,
                           tmsg_call_stream_t *to, tmsg_map_t *map)
{
    tmsg_message_t *message;

    send(from, map);
    pair_await(&scene->pair, can_read, to, "a message");
    must(tmsg_call_stream_try_recv(to, &message));
    tmsg_message_destroy(message);
}

Test(stream_signature, what_the_opener_sends_is_checked_where_it_comes)
{
    scene_t scene;
    tmsg_message_t *message;

    open_scene(&scene, SIGNATURE);
    open_stream(&scene, NULL);
    expect_message(&scene, scene.opened, scene.kept,
                   map_of("x", false, 3, NULL, 0));
    expect_message(&scene, scene.opened, scene.kept,
                   map_of("x", false, 4, "y", 4)); /* n is each one's own */
    send(scene.opened, map_of("x", true, 3, NULL, 0));
    pair_await(&scene.pair, is_over, scene.kept, "the end of a stream");
    must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_call_stream_error(scene.kept), "\"x\" is float32[3]");
    must_be(tmsg_call_stream_try_recv(scene.kept, &message),
            TMSG_ERR_INVALID_PARAM);
    pair_await(&scene.pair, is_over, scene.opened, "its end at the opener");
    must_be(tmsg_call_stream_status(scene.opened), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_call_stream_error(scene.opened),
             "\"x\" is float32[3]: the method takes int8[n]");
    must_eq(tmsg_call_stream_may_have_run(scene.opened), 1);
    drop_stream(&scene);
    close_scene(&scene);
}

Test(stream_signature, a_message_that_is_wrong_ends_its_stream_alone)
{
    scene_t scene;
    tmsg_call_stream_t *opened, *kept;

    open_scene(&scene, SIGNATURE);
    open_stream(&scene, NULL);
    opened = scene.opened;
    kept = scene.kept;
    open_stream(&scene, NULL);
    send(scene.opened, map_of("x", false, 3, "y", 4));
    pair_await(&scene.pair, is_over, scene.opened, "the end of a stream");
    must_say(tmsg_call_stream_error(scene.opened), "n is 3 in \"x\"");
    expect_message(&scene, opened, kept, map_of("x", false, 3, NULL, 0));
    drop_stream(&scene);
    must_eq(tmsg_call_stream_status(opened), TMSG_IN_PROGRESS);
    tmsg_call_stream_destroy(opened);
    tmsg_call_stream_destroy(kept);
    close_scene(&scene);
}

Test(stream_signature, what_the_server_sends_is_checked_before_it_leaves)
{
    scene_t scene;

    open_scene(&scene, SIGNATURE);
    open_stream(&scene, NULL);
    expect_refused(scene.kept, map_of("z", false, 3, NULL, 0),
                   "\"z\" is int8[3]: the method gives float32[n]");
    expect_refused(scene.kept, map_of("x", false, 3, NULL, 0),
                   "\"z\" is missing");
    expect_message(&scene, scene.kept, scene.opened,
                   map_of("z", true, 3, NULL, 0)); /* it goes on */
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    pair_await(&scene.pair, is_over, scene.opened, "the end of a stream");
    must_be(tmsg_call_stream_status(scene.opened), TMSG_OK);
    drop_stream(&scene);
    close_scene(&scene);
}

Test(stream_signature, an_opener_that_knows_it_checks_both_ways)
{
    tmsg_signature_t *signature;
    scene_t scene;

    must(tmsg_signature_parse(SIGNATURE, &signature));
    open_scene(&scene, NULL); /* the server does not look */
    open_stream(&scene, signature);
    expect_refused(scene.opened, map_of("x", true, 3, NULL, 0),
                   "\"x\" is float32[3]: the method takes int8[n]");
    expect_message(&scene, scene.opened, scene.kept,
                   map_of("x", false, 3, NULL, 0));
    expect_message(&scene, scene.kept, scene.opened,
                   map_of("z", true, 3, NULL, 0));
    send(scene.kept, map_of("z", false, 3, NULL, 0));
    pair_await(&scene.pair, is_over, scene.opened, "the end of a stream");
    must_be(tmsg_call_stream_status(scene.opened), TMSG_ERR_INTERNAL);
    must_say(tmsg_call_stream_error(scene.opened),
             "\"z\" is int8[3]: the method gives float32[n]");
    pair_await(&scene.pair, is_over, scene.kept, "its end at the server");
    must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_CANCELED);
    drop_stream(&scene);
    close_scene(&scene);
    tmsg_signature_destroy(signature);
}

Test(stream_signature, is_the_streams_as_long_as_that_needs_it)
{
    tmsg_signature_t *signature;
    scene_t scene;

    must(tmsg_signature_parse(SIGNATURE, &signature));
    open_scene(&scene, NULL);
    open_stream(&scene, signature);
    must_be(tmsg_signature_add_tensor(signature, TMSG_SIGNATURE_INPUTS, "w",
                                      "int8[]", 0),
            TMSG_ERR_BUSY);
    must_be(tmsg_signature_allow_further(signature, TMSG_SIGNATURE_INPUTS),
            TMSG_ERR_BUSY);
    drop_stream(&scene);
    close_scene(&scene); /* with all that held the stream */
    must(tmsg_signature_allow_further(signature, TMSG_SIGNATURE_INPUTS));
    open_scene(&scene, NULL);
    open_stream(&scene, signature);
    tmsg_signature_destroy(signature);
    expect_refused(scene.opened, map_of("x", true, 3, NULL, 0),
                   "\"x\" is float32[3]: the method takes int8[n]");
    expect_message(&scene, scene.kept, scene.opened,
                   map_of("z", true, 3, NULL, 0));
    drop_stream(&scene);
    close_scene(&scene);
}
