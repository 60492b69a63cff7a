/* SPDX-License-Identifier: BSD-3-Clause */
/* Fails every allocation of a stream in turn, on both sides: it is over all the
 * same, on both, leaves both workers serving, and leaves nothing behind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "rpc/server.h"
#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_map_t *map;
    unsigned got;
} scene_t;

/* What goes by the stream, and over what. */
typedef struct {
    link_t link;
    unsigned maps;
    uint64_t bytes; /* of each */
} work_t;

TestSuite(stream_alloc, .init = watched_alloc_start);

/* Answers each map with it, and ends behind the last. */
static void read_all(void *arg, tmsg_call_stream_t *stream)
{
    tmsg_status_t status = TMSG_OK;
    tmsg_message_t *message;

    (void)arg;
    while (status == TMSG_OK) {
        status = tmsg_call_stream_try_recv(stream, &message);
        if (status == TMSG_OK && message == NULL) {
            (void)tmsg_call_stream_end(stream, TMSG_OK, 1, NULL, NULL);
            break;
        }
        if (status == TMSG_OK) {
            status = tmsg_call_stream_send(stream, tmsg_message_map(message),
                                           NULL, NULL);
            tmsg_message_destroy(message);
        }
    }
    if (status != TMSG_IN_PROGRESS) {
        tmsg_call_stream_destroy(stream);
    }
}

static void serve(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {
        .field_mask = TMSG_CALL_STREAM_EVENT_READABLE, .on_readable = read_all};

    (void)arg;
    must(tmsg_call_stream_set_events(tmsg_call_stream_keep(stream), &events));
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static bool run_on(scene_t *scene, tmsg_endpoint_t *endpoint, unsigned maps)
{
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;
    tmsg_status_t status;

    scene->got = 0;
    status =
        tmsg_endpoint_open_stream(endpoint, "serve", scene->map, NULL, &stream);
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        return false;
    }
    for (unsigned i = 0; i < maps; i++) {
        (void)tmsg_call_stream_send(stream, scene->map, NULL, NULL);
    }
    if (tmsg_call_stream_finish(stream) != TMSG_OK &&
        tmsg_call_stream_finish(stream) != TMSG_OK) {
        must_be(tmsg_call_stream_status(stream) < 0, true);
    }
    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    status = tmsg_call_stream_status(stream);
    while (tmsg_call_stream_try_recv(stream, &message) == TMSG_OK &&
           message != NULL) {
        scene->got++;
        tmsg_message_destroy(message);
    }
    tmsg_call_stream_destroy(stream);
    return status == TMSG_OK && scene->got == maps;
}

static bool is_empty(void *arg)
{
    const scene_t *scene = arg;

    return scene->server->load.inside == 0 && scene->server->all.count == 0;
}

/* Runs one with its n-th allocation failing. False: it has not as many. */
static bool fail_nth(const void *arg, unsigned long n, bool *ok_p)
{
    const work_t *work = arg;
    size_t live = watched_alloc_live();
    scene_t scene = {0};
    bool failed;

    pair_open(&scene.pair, work->link, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register_stream(scene.server, "serve", serve, NULL, NULL));
    scene.map = sample_bytes(1, work->bytes);
    watched_alloc_arm(n);
    *ok_p = run_on(&scene, scene.pair.to_a, work->maps);
    failed = watched_alloc_disarm() != 0;
    must_true(run_on(&scene, side_dial(&scene.pair.b, &scene.pair.a), 2));
    pair_await(&scene.pair, is_empty, &scene, "the end of all streams");
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    tmsg_map_destroy(scene.map);
    watched_alloc_expect(live, n);
    return failed;
}

static void fail_each(link_t link, unsigned maps, uint64_t bytes)
{
    const work_t work = {link, maps, bytes};

    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    watched_alloc_fail_each(fail_nth, &work);
}

Test(stream_alloc, of_a_stream) { fail_each(LINK_SHM, 3, 64); }

Test(stream_alloc, of_a_stream_of_large_maps)
{
    fail_each(LINK_TCP, 1, 1000000);
}
