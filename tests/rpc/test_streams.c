/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams in each direction: what is sent comes, in order, whole, and then the
 * end. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/channel.h"
#include "am/endpoint/endpoint.h"
#include "am/send/send.h"
#include "rpc/stream.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/stream_flow.h"

enum { MANY = 200 };

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    flow_t here, there;    /* b opens, a serves */
    tmsg_call_stream_t *kept;
    unsigned handled;
} scene_t;

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->kept = tmsg_call_stream_keep(stream);
    scene->handled++;
}

static void forget(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)stream;
}

static void fail(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_map_t *map = tmsg_call_stream_map(stream);

    (void)arg;
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    must(tmsg_call_stream_end(stream, TMSG_ERR_APPLICATION, 42,
                              "the model is \xc3\xbcn", map));
}

static void unary(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void open_with(scene_t *scene, link_t link, drive_t drive,
                      const side_options_t *options)
{
    memset(scene, 0, sizeof(*scene));
    flow_init(&scene->here, 1000, 5000000, 0);
    flow_init(&scene->there, 5000000, 1000, 0);
    scene->there.serves = true;
    pair_open(&scene->pair, link, drive, options, options);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "flow", flow_handler,
                                     &scene->there, NULL));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "forget", forget, NULL,
                                     NULL));
    must(tmsg_server_register_stream(scene->server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(scene->server, "unary", unary, NULL, NULL));
}

static void open_scene(scene_t *scene)
{
    open_with(scene, LINK_SHM, DRIVE_POLLING, NULL);
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static tmsg_call_stream_t *open_stream(scene_t *scene, const char *method)
{
    tmsg_map_t *map = sample_bytes(3, 300);
    tmsg_call_stream_t *stream;

    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, map, NULL,
                                   &stream));
    tmsg_map_destroy(map);
    return stream;
}

/* So many maps from the opener, and from the server. */
static void run(link_t link, drive_t drive, unsigned up, unsigned down,
                size_t bytes)
{
    scene_t scene;
    tmsg_call_stream_stats_t stats;

    open_with(&scene, link, drive, NULL);
    scene.here.sends = up;
    scene.there.sends = down;
    scene.here.bytes = scene.there.bytes = bytes;
    flow_start(&scene.here, open_stream(&scene, "flow"));
    pair_await(&scene.pair, flow_is_over, &scene.here, "the end of a stream");
    must_be(scene.here.status, TMSG_OK);
    must_eq(scene.here.overs, 1);
    must_eq(scene.here.got, down);
    must_eq(scene.there.got, up);
    must_eq(tmsg_call_stream_code(scene.here.stream), 7);
    sample_check_bytes(scene.there.out, 100,
                       tmsg_call_stream_details(scene.here.stream));
    tmsg_call_stream_stats(scene.here.stream, &stats);
    must_eq(stats.sent, up);
    must_eq(stats.received, down);
    must_eq(stats.unread + stats.dropped, 0);
    flow_drop(&scene.here);
    flow_drop(&scene.there);
    must_eq(scene.there.overs, 0);
    close_scene(&scene);
}

Test(streams, of_the_server_alone)
{
    run(LINK_SHM, DRIVE_POLLING, 0, 3000, 100000);
}

Test(streams, of_the_opener_alone) { run(LINK_TCP, DRIVE_FD, 2000, 0, 100000); }

Test(streams, both_ways_over_shared_memory)
{
    run(LINK_SHM, DRIVE_THREAD, 3000, 3000, 300000);
}

Test(streams, both_ways_over_tcp)
{
    run(LINK_TCP, DRIVE_POLLING, 1500, 1500, 300000);
}

Test(streams, both_ways_over_a_unix_socket)
{
    run(LINK_UNIX, DRIVE_FD, 500, 2000, 1000);
}

Test(streams, of_nothing) { run(LINK_BLOB, DRIVE_THREAD, 0, 0, 0); }

Test(streams, of_large_maps)
{
    run(LINK_SHM, DRIVE_POLLING, 150, 150, 3000000);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static bool is_handled(void *arg) { return ((scene_t *)arg)->kept != NULL; }

static tmsg_call_stream_t *open_kept(scene_t *scene)
{
    tmsg_call_stream_t *stream = open_stream(scene, "keep");

    pair_await(&scene->pair, is_handled, scene, "a handler");
    return stream;
}

static bool can_be_read(void *arg)
{
    tmsg_call_stream_stats_t stats;

    tmsg_call_stream_stats(arg, &stats);
    return stats.unread > 0;
}

static tmsg_message_t *read_one(scene_t *scene, tmsg_call_stream_t *stream)
{
    tmsg_message_t *message = NULL;

    pair_await(&scene->pair, can_be_read, stream, "a message");
    must(tmsg_call_stream_try_recv(stream, &message));
    must_true(message != NULL);
    return message;
}

typedef struct {
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;
    tmsg_status_t status;
} read_t;

static bool has_read(void *arg)
{
    read_t *read = arg;

    read->status = tmsg_call_stream_try_recv(read->stream, &read->message);
    return read->status != TMSG_IN_PROGRESS;
}

/* Until the other side has finished. */
static void read_end(scene_t *scene, tmsg_call_stream_t *stream)
{
    read_t read = {stream, NULL, TMSG_OK};

    pair_await(&scene->pair, has_read, &read, "what the other side writes");
    must(read.status);
    must_true(read.message == NULL);
}

static void send_one(tmsg_call_stream_t *stream, uint64_t seed)
{
    tmsg_map_t *map = sample_bytes(seed, 1000);

    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void expect_one(scene_t *scene, tmsg_call_stream_t *stream,
                       uint64_t seed)
{
    tmsg_message_t *message = read_one(scene, stream);

    sample_check_bytes(seed, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

Test(streams, each_side_finishes_by_itself)
{
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;

    open_scene(&scene);
    stream = open_kept(&scene);
    sample_check_bytes(3, 300, tmsg_call_stream_map(scene.kept));
    cr_assert(eq(str, (char *)tmsg_call_stream_method(scene.kept), "keep"));
    must_eq(tmsg_call_stream_remaining_ms(scene.kept), -1);
    must_be(tmsg_call_stream_try_recv(stream, &message), TMSG_IN_PROGRESS);
    send_one(scene.kept, 1);
    must(tmsg_call_stream_finish(scene.kept)); /* the server first */
    must_be(tmsg_call_stream_finish(scene.kept), TMSG_ERR_CLOSED);
    must_be(tmsg_call_stream_send(scene.kept, tmsg_call_stream_map(scene.kept),
                                  NULL, NULL),
            TMSG_ERR_CLOSED);
    must_say(tmsg_error_message(), "this side has finished");
    expect_one(&scene, stream, 1);
    read_end(&scene, stream);
    must_be(tmsg_call_stream_status(stream), TMSG_IN_PROGRESS);
    send_one(stream, 2); /* the other way goes on */
    expect_one(&scene, scene.kept, 2);
    must(tmsg_call_stream_finish(stream));
    read_end(&scene, scene.kept);
    must_be(tmsg_call_stream_status(scene.kept), TMSG_IN_PROGRESS);
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    must(tmsg_call_stream_status(scene.kept));
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must(tmsg_call_stream_status(stream));
    must(tmsg_call_stream_try_recv(stream, &message));
    must_true(message == NULL);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

Test(streams, what_came_before_an_end_is_read_before_it)
{
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;

    open_scene(&scene);
    stream = open_stream(&scene, "fail");
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_APPLICATION);
    must_be(tmsg_call_stream_send(stream, tmsg_call_stream_details(stream),
                                  NULL, NULL),
            TMSG_ERR_APPLICATION);
    for (int i = 0; i < 2; i++) {
        must(tmsg_call_stream_try_recv(stream, &message));
        sample_check_bytes(3, 300, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must_be(tmsg_call_stream_try_recv(stream, &message), TMSG_ERR_APPLICATION);
    must_say(tmsg_error_message(), "the model is \xc3\xbcn");
    must_say(tmsg_call_stream_error(stream), "method 'fail'");
    must_eq(tmsg_call_stream_code(stream), 42);
    sample_check_bytes(3, 300, tmsg_call_stream_details(stream));
    must_true(tmsg_call_stream_may_have_run(stream));
    tmsg_call_stream_destroy(stream);
    close_scene(&scene);
}

Test(streams, a_handler_that_lets_go_of_one_ends_it)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_stream(&scene, "forget");
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_INTERNAL);
    tmsg_call_stream_destroy(stream);
    close_scene(&scene);
}

Test(streams, one_that_was_ended_is_not_ended_again)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene);
    must_be(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL),
            TMSG_ERR_INVALID_PARAM); /* not by its opener */
    must_be(tmsg_call_stream_end(scene.kept, 1, 0, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_call_stream_end(scene.kept, TMSG_ERR_REFUSED, 1, "no", NULL));
    must_be(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_call_stream_send(scene.kept, tmsg_call_stream_map(scene.kept),
                                  NULL, NULL),
            TMSG_ERR_REFUSED);
    must_be(tmsg_call_stream_finish(scene.kept), TMSG_ERR_REFUSED);
    tmsg_call_stream_cancel(scene.kept);
    must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_REFUSED);
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_REFUSED);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

static tmsg_status_t outcome(scene_t *scene, const char *method)
{
    tmsg_call_stream_t *stream = open_stream(scene, method);
    tmsg_status_t status;

    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    status = tmsg_call_stream_status(stream);
    must_true(!tmsg_call_stream_may_have_run(stream));
    tmsg_call_stream_destroy(stream);
    return status;
}

static bool call_is_over(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

Test(streams, methods_that_are_none)
{
    scene_t scene;
    tmsg_call_t *call;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    must_be(outcome(&scene, "nothing"), TMSG_ERR_NOT_FOUND);
    must_be(outcome(&scene, "unary"), TMSG_ERR_NOT_FOUND);
    must(tmsg_endpoint_call(scene.pair.to_a, "keep", NULL, NULL, &call));
    pair_await(&scene.pair, call_is_over, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_call_error(call), "the method is a stream");
    tmsg_call_destroy(call);
    must_be(tmsg_server_register(scene.server, "keep", unary, NULL, NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_server_register_stream(scene.server, "x", NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_open_stream(scene.pair.to_a, "", NULL, NULL, &stream),
            TMSG_ERR_INVALID_PARAM);
    tmsg_server_destroy(scene.server);
    scene.server = NULL;
    must_be(outcome(&scene, "keep"), TMSG_ERR_UNAVAILABLE); /* nobody serves */
    close_scene(&scene);
}

Test(streams, params_that_cannot_be)
{
    static const tmsg_call_stream_params_t wrong[] = {
        {.field_mask = 1u << 30},
        {.field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = 0},
        {.field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = -2},
        {.field_mask = TMSG_CALL_STREAM_PARAM_QUEUE, .queue = 0}};
    const tmsg_send_params_t channel = {.field_mask = TMSG_SEND_PARAM_CHANNEL};
    const tmsg_send_params_t unordered = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                          .flags = TMSG_SEND_UNORDERED};
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        must_be(tmsg_endpoint_open_stream(scene.pair.to_a, "keep", NULL,
                                          &wrong[i], &stream),
                TMSG_ERR_INVALID_PARAM);
    }
    stream = open_kept(&scene);
    must_be(tmsg_call_stream_send(stream, NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_call_stream_send(stream, tmsg_call_stream_map(scene.kept),
                                  &channel, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_call_stream_send(stream, tmsg_call_stream_map(scene.kept),
                                  &unordered, NULL),
            TMSG_ERR_INVALID_PARAM);
    send_one(stream, 9); /* which is none the worse */
    expect_one(&scene, scene.kept, 9);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

static void send_many(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_map_t *map = tmsg_call_stream_map(stream);

    (void)arg;
    for (int i = 0; i < MANY; i++) {
        must(tmsg_call_stream_send(stream, map, NULL, NULL));
    }
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void read_many(tmsg_call_stream_t *stream)
{
    tmsg_message_t *message;

    for (int i = 0; i < MANY; i++) {
        must(tmsg_call_stream_try_recv(stream, &message));
        must_true(message != NULL);
        tmsg_message_destroy(message);
    }
    must(tmsg_call_stream_try_recv(stream, &message));
    cr_expect(zero(ptr, message));
}

static unsigned places_of(const scene_t *scene)
{
    const tmsg_rpc_peer_t *peer = scene->pair.to_a->calls_peer;
    unsigned used = 0;

    for (uint32_t i = 0; i < peer->stream_count; i++) {
        used += peer->streams[i] != NULL;
    }
    return used;
}

typedef struct {
    tmsg_request_t *waits;
    uint64_t at_ns; /* when it was canceled */
} room_t;

static void make_room(void *arg, tmsg_call_t *call)
{
    room_t *room = arg;

    (void)call;
    room->at_ns = tmsg_now_ns();
    tmsg_request_cancel(room->waits);
}

/* Until there is no room: the request of the last one that waits. */
static tmsg_request_t *fill(scene_t *scene, tmsg_call_stream_t *stream,
                            const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_request_t *last = NULL, *request;

    while (tmsg_call_stream_send(stream, map, &params, &request) == TMSG_OK) {
        tmsg_request_destroy(last);
        last = request;
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
    }
    return last;
}

/* A call that nobody answers meanwhile makes the room, at its deadline. */
Test(streams, a_send_that_has_waited_for_room_has_the_rest_of_its_time)
{
    enum { ROOM_MS = 500, TIMEOUT_MS = 100000 };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                       .timeout_ms = TIMEOUT_MS};
    room_t room = {0};
    const tmsg_call_params_t calling = {.field_mask = TMSG_CALL_PARAM_TIMEOUT |
                                                      TMSG_CALL_PARAM_ON_DONE,
                                        .timeout_ms = ROOM_MS,
                                        .on_done = make_room,
                                        .on_done_arg = &room};
    tmsg_map_t *map = sample_bytes(1, 1000);
    scene_t scene;
    tmsg_call_stream_t *stream;
    const tmsg_channel_t *channel;
    const tmsg_send_t *send;

    open_scene(&scene);
    stream = open_stream(&scene, "keep");
    room.waits = fill(&scene, stream, map);
    must(tmsg_endpoint_call(scene.pair.to_a, "unary", NULL, &calling, NULL));
    must(tmsg_call_stream_send(stream, map, &params, NULL));
    must_be(tmsg_request_test(room.waits), TMSG_ERR_CANCELED);
    channel = tmsg_channel_find(scene.pair.to_a, stream->channel);
    send = TMSG_CONTAINER_OF(channel->queued.tail, tmsg_send_t, node);
    must_true(send->deadline_ns != 0 &&
              send->deadline_ns < room.at_ns + TIMEOUT_MS * UINT64_C(1000000));
    tmsg_request_destroy(room.waits);
    tmsg_map_destroy(map);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

/* What is unread of the first has its channel's credits. */
Test(streams, one_that_is_over_and_unread_holds_up_no_other)
{
    tmsg_call_stream_t *streams[3];
    scene_t scene;

    open_scene(&scene);
    must(tmsg_server_register_stream(scene.server, "many", send_many, NULL,
                                     NULL));
    for (int i = 0; i < 3; i++) {
        streams[i] = open_stream(&scene, "many");
        pair_await(&scene.pair, is_over, streams[i], "the end of a stream");
        must_be(tmsg_call_stream_status(streams[i]), TMSG_OK);
    }
    read_many(streams[2]);
    read_many(streams[0]);
    tmsg_call_stream_destroy(streams[0]); /* read */
    tmsg_call_stream_destroy(streams[1]); /* not read */
    tmsg_call_stream_destroy(streams[2]);
    must_eq(places_of(&scene), 0);
    close_scene(&scene);
}
