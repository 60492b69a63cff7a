/* SPDX-License-Identifier: BSD-3-Clause */
/* A listener and a publisher tell who is there, whoever owns the endpoint. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { EVENTS = 8 };

typedef enum { CAME, ACCEPTED, MESSAGE, LOST, CLOSED } event_t;

typedef struct {
    side_t side;
    unsigned count;
    event_t events[EVENTS];
    tmsg_endpoint_t *endpoints[EVENTS];
    tmsg_endpoint_t *accepted;
    tmsg_status_t status; /* of the last one that was lost */
    char words[256];
    tmsg_publisher_t *publisher;
} scene_t;

static void note(scene_t *scene, event_t event, tmsg_endpoint_t *endpoint)
{
    if (scene->count == EVENTS) {
        die("there are more than %d events", EVENTS);
    }
    scene->events[scene->count] = event;
    scene->endpoints[scene->count++] = endpoint;
}

static void came(void *arg, tmsg_endpoint_t *endpoint)
{
    note(arg, CAME, endpoint);
}

static void lost(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                 const char *error)
{
    scene_t *scene = arg;

    note(scene, LOST, endpoint);
    scene->status = status;
    snprintf(scene->words, sizeof(scene->words), "%s|%s",
             tmsg_endpoint_peer(endpoint), error);
}

static void closed(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error)
{
    (void)status;
    (void)error;
    note(arg, CLOSED, endpoint);
    tmsg_endpoint_destroy(endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    scene_t *scene = arg;

    note(scene, ACCEPTED, endpoint);
    scene->accepted = endpoint;
    tmsg_endpoint_on_closed(endpoint, closed, scene);
}

static void handle(void *arg, tmsg_message_t *message)
{
    note(arg, MESSAGE, tmsg_message_endpoint(message));
    tmsg_message_destroy(message);
}

/* `mask`: what a listener gets beside on_peer and on_lost. */
static void open_scene(scene_t *scene, link_t link, uint64_t mask,
                       int32_t resume_ms)
{
    const side_options_t options = {
        .ucx_config = link_config(link),
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = handle,
                   .handler_arg = scene}};
    const tmsg_listener_params_t params = {
        .field_mask =
            TMSG_LISTENER_PARAM_ON_PEER | TMSG_LISTENER_PARAM_RESUME | mask,
        .on_peer = came,
        .on_lost = lost,
        .on_peer_arg = scene,
        .on_accept = accepted,
        .on_accept_arg = scene,
        .resume_ms = resume_ms};
    char url[256] = "tcp://127.0.0.1:0";

    memset(scene, 0, sizeof(*scene));
    side_open(&scene->side, &options);
    if (link == LINK_UNIX) {
        snprintf(url, sizeof(url), "unix://%s", scratch_path("presence"));
    } else if (link == LINK_BLOB) {
        snprintf(url, sizeof(url), "blob://");
    }
    must(tmsg_listener_create(scene->side.worker, url, &params,
                              &scene->side.listener));
}

typedef struct {
    const scene_t *scene;
    unsigned wanted;
} count_t;

static bool has_count(void *arg)
{
    const count_t *count = arg;

    return count->scene->count >= count->wanted;
}

/* Drives both until there were so many events. */
static void until(scene_t *scene, side_t *other, unsigned wanted,
                  const char *what)
{
    count_t count = {scene, wanted};
    side_t *sides[] = {&scene->side, other};

    await(sides, other == NULL ? 1 : 2, has_count, &count, what);
}

static bool is_open(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) != TMSG_IN_PROGRESS;
}

/* A listener hears of a connection before the dialling side does: who ends it
 * in between gives up connecting. */
static void until_open(scene_t *scene, side_t *other, tmsg_endpoint_t *endpoint)
{
    side_t *sides[] = {&scene->side, other};

    await(sides, 2, is_open, endpoint, "a connection");
    must(tmsg_endpoint_status(endpoint));
}

static void expect_events(const scene_t *scene, const event_t *events,
                          unsigned count)
{
    cr_assert(eq(uint, scene->count, count));
    for (unsigned i = 0; i < count; i++) {
        cr_expect(eq(int, scene->events[i], events[i]), "event %u", i);
        cr_expect(eq(ptr, scene->endpoints[i], scene->endpoints[0]));
    }
}

static void send_one(tmsg_endpoint_t *endpoint)
{
    tmsg_map_t *map = sample_bytes(1, 100);

    must(tmsg_endpoint_send(endpoint, map, NULL, NULL));
    tmsg_map_destroy(map);
}

/* A peer that comes, says something and leaves in order. */
static void check_orderly(link_t link, uint64_t mask, const event_t *events,
                          unsigned count)
{
    const side_options_t options = {.ucx_config = link_config(link)};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    scene_t scene;
    side_t other;

    open_scene(&scene, link, mask, 0);
    side_open(&other, &options);
    endpoint = side_dial(&other, &scene.side);
    send_one(endpoint);
    until(&scene, &other, count - (mask == 0 ? 1 : 2), "a message");
    must(tmsg_endpoint_close(endpoint, &request));
    tmsg_request_destroy(request);
    until(&scene, &other, count, "the end");
    expect_events(&scene, events, count);
    must_be(scene.status, TMSG_ERR_CLOSED);
    must_say(scene.words, "pid ");
    must_say(scene.words, "|");
    side_close(&other);
    side_close(&scene.side);
    cr_expect(eq(uint, scene.count, count)); /* and no more */
}

Test(presence, tells_of_peers_that_the_listener_keeps)
{
    static const event_t events[] = {CAME, MESSAGE, LOST};

    check_orderly(LINK_TCP, 0, events, 3);
    check_orderly(LINK_BLOB, 0, events, 3);
}

Test(presence, tells_of_peers_that_the_application_owns)
{
    static const event_t events[] = {CAME, ACCEPTED, MESSAGE, LOST, CLOSED};

    check_orderly(LINK_TCP, TMSG_LISTENER_PARAM_ON_ACCEPT, events, 5);
    check_orderly(LINK_UNIX, TMSG_LISTENER_PARAM_ON_ACCEPT, events, 5);
}

/* The peer, in a process of its own that is killed. */
static void talk(pipes_t *pipes, void *arg)
{
    char url[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    send_one(side_connect(&side, url));
    for (;;) {
        tmsg_worker_wait(side.worker, 1000);
    }
}

Test(presence, a_receiver_learns_that_a_peer_was_killed)
{
    static const event_t events[] = {CAME, MESSAGE, LOST};
    scene_t scene;
    child_t child;

    child_start(&child, talk, NULL);
    open_scene(&scene, LINK_SHM, 0, 0);
    line_put(child.out, tmsg_listener_url(scene.side.listener));
    until(&scene, NULL, 2, "a message");
    child_kill(&child);
    until(&scene, NULL, 3, "the loss");
    expect_events(&scene, events, 3);
    must_be(scene.status, TMSG_ERR_PEER_LOST);
    side_close(&scene.side);
}

Test(presence, an_end_by_this_side_is_told_though_the_handle_is_gone)
{
    static const event_t events[] = {CAME, ACCEPTED, LOST};
    scene_t scene;
    side_t other;

    open_scene(&scene, LINK_TCP, TMSG_LISTENER_PARAM_ON_ACCEPT, 0);
    side_open(&other, NULL);
    side_dial(&other, &scene.side);
    until(&scene, &other, 2, "a connection");
    tmsg_endpoint_destroy(scene.accepted);
    until(&scene, &other, 3, "the end");
    expect_events(&scene, events, 3);
    must_be(scene.status, TMSG_ERR_CANCELED);
    side_close(&other);
    side_close(&scene.side);
}

static bool has_ended(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) < 0;
}

Test(presence, a_listener_that_is_gone_tells_nothing)
{
    static const event_t events[] = {CAME, ACCEPTED, CLOSED};
    scene_t scene;
    side_t other;
    tmsg_endpoint_t *endpoint;

    open_scene(&scene, LINK_TCP, TMSG_LISTENER_PARAM_ON_ACCEPT, 0);
    side_open(&other, NULL);
    endpoint = side_dial(&other, &scene.side);
    until(&scene, &other, 2, "a connection");
    tmsg_listener_destroy(scene.side.listener);
    tmsg_endpoint_destroy(endpoint);
    until(&scene, &other, 3, "on_closed");
    expect_events(&scene, events, 3);
    side_close(&other);
    side_close(&scene.side);
}

Test(presence, a_worker_that_is_gone_tells_nothing)
{
    scene_t scene;
    side_t other;
    tmsg_endpoint_t *endpoint;
    side_t *sides[] = {&other};

    open_scene(&scene, LINK_TCP, 0, 0);
    side_open(&other, NULL);
    endpoint = side_dial(&other, &scene.side);
    until(&scene, &other, 1, "a connection");
    side_close(&scene.side);
    await(sides, 1, has_ended, endpoint, "the end");
    cr_expect(eq(uint, scene.count, 1));
    side_close(&other);
}

/* A session outlives its connection: the peer is lost when it is given up. */
Test(presence, a_peer_that_comes_back_was_not_lost)
{
    static const event_t events[] = {CAME,    ACCEPTED, MESSAGE,
                                     MESSAGE, LOST,     CLOSED};
    const tmsg_reconnect_t again = {1, 20, -1};
    joined_t joined = {.relay = NULL};
    scene_t scene;
    side_t other;

    open_scene(&scene, LINK_TCP, TMSG_LISTENER_PARAM_ON_ACCEPT, -1);
    side_open(&other, NULL);
    joined.relay = relay_open(tmsg_listener_url(scene.side.listener));
    joined.pair.sides[0] = &scene.side;
    joined.pair.sides[1] = &other;
    joined.pair.to_a = joined_dial(&other, relay_url(joined.relay), again);
    send_one(joined.pair.to_a);
    until(&scene, &other, 3, "a message");
    joined.pair.to_b = scene.accepted;
    joined_break(&joined);
    cr_expect(eq(uint, scene.count, 3));
    joined_mend(&joined);
    send_one(joined.pair.to_a);
    until(&scene, &other, 4, "another message");
    tmsg_endpoint_destroy(joined.pair.to_a);
    until(&scene, &other, 6, "the end");
    expect_events(&scene, events, 6);
    must_be(scene.status, TMSG_ERR_PEER_LOST);
    side_close(&other);
    side_close(&scene.side);
    relay_close(joined.relay);
}

static void subscribe(void *arg, tmsg_endpoint_t *endpoint)
{
    scene_t *scene = arg;

    must(tmsg_publisher_add(scene->publisher, endpoint, NULL));
    scene->accepted = endpoint;
}

/* A publisher tells of those who are added to it, also while they connect. */
Test(presence, tells_of_subscribers)
{
    const tmsg_listener_params_t door = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT, .on_accept = subscribe};
    scene_t scene = {.count = 0};
    const tmsg_publisher_params_t params = {.field_mask =
                                                TMSG_PUBLISHER_PARAM_ON_PEER,
                                            .on_peer = came,
                                            .on_lost = lost,
                                            .on_peer_arg = &scene};
    tmsg_listener_params_t its = door;
    tmsg_endpoint_t *dialled, *leaving;
    tmsg_listener_t *listener;
    side_t other;

    side_open(&scene.side, NULL);
    side_open(&other, NULL);
    must(tmsg_publisher_create(scene.side.worker, &params, &scene.publisher));
    its.on_accept_arg = &scene;
    must(tmsg_listener_create(scene.side.worker, "tcp://127.0.0.1:0", &its,
                              &scene.side.listener));
    leaving = side_dial(&other, &scene.side);
    until(&scene, &other, 1, "a subscriber");
    until_open(&scene, &other, leaving);
    tmsg_endpoint_destroy(leaving);
    until(&scene, &other, 2, "its end");
    cr_expect(eq(int, scene.events[0], CAME));
    cr_expect(eq(int, scene.events[1], LOST));
    cr_expect(eq(ptr, scene.endpoints[1], scene.accepted));
    must_be(scene.status, TMSG_ERR_PEER_LOST);

    /* One that is dialled is told of when it is connected, and may leave while
     * its connection goes on. */
    must(tmsg_listener_create(other.worker, "tcp://127.0.0.1:0", NULL,
                              &listener));
    must(tmsg_endpoint_connect(scene.side.worker, tmsg_listener_url(listener),
                               NULL, &dialled));
    must(tmsg_publisher_add(scene.publisher, dialled, NULL));
    cr_expect(eq(uint, scene.count, 2));
    until(&scene, &other, 3, "a connection");
    cr_expect(eq(int, scene.events[2], CAME));
    must(tmsg_publisher_remove(scene.publisher, dialled));
    until(&scene, &other, 4, "a subscriber that was taken out");
    cr_expect(eq(int, scene.events[3], LOST));
    cr_expect(eq(ptr, scene.endpoints[3], dialled));
    must_be(scene.status, TMSG_OK);

    must(tmsg_publisher_add(scene.publisher, dialled, NULL));
    until(&scene, &other, 5, "a subscriber");
    tmsg_publisher_destroy(scene.publisher);
    tmsg_worker_progress(scene.side.worker);
    cr_expect(eq(uint, scene.count, 5));
    side_close(&other);
    side_close(&scene.side);
}
