/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams on a session whose connection breaks: what was sent comes once, in
 * order, and so does the end. And a peer that is killed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include <unistd.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/stream_flow.h"

enum { MAPS = 200, CUTS_MOST = 3 }; /* each way, and in each stream */

typedef struct {
    joined_t joined;
    flow_t here, there;
    tmsg_server_t *server;
    unsigned done; /* cuts of the stream that runs */
    unsigned cuts; /* in all */
} scene_t;

static bool is_back(void *arg)
{
    const scene_t *scene = arg;

    return described(scene->joined.pair.to_a, "reconnected") >=
           (long)scene->cuts;
}

/* Breaks the connection a few times along the way, once it is back from the
 * time before. */
static bool is_over(void *arg)
{
    scene_t *scene = arg;
    unsigned got = scene->here.got + scene->there.got;

    if (scene->done < CUTS_MOST &&
        got > (scene->done + 1) * 2 * MAPS / (CUTS_MOST + 1) &&
        is_back(scene)) {
        scene->done++;
        scene->cuts++;
        if (scene->cuts % 4 == 3) {
            relay_lose(scene->joined.relay);
        } else {
            relay_cut(scene->joined.relay);
        }
    }
    return flow_is_over(&scene->here);
}

static void run_stream(scene_t *scene)
{
    pair_t *pair = &scene->joined.pair;
    tmsg_call_stream_t *stream;

    flow_init(&scene->here, 1000, 500000, MAPS);
    flow_init(&scene->there, 500000, 1000, MAPS);
    scene->there.serves = true;
    scene->here.bytes = scene->there.bytes = 300000;
    scene->done = 0;
    must(tmsg_endpoint_open_stream(pair->to_a, "flow", NULL, NULL, &stream));
    flow_start(&scene->here, stream);
    pair_await(pair, is_over, scene, "the end of a stream");
    must_be(scene->here.status, TMSG_OK);
    must_eq(scene->here.got, MAPS);
    must_eq(scene->there.got, MAPS);
    must_true(scene->done > 0);
    flow_drop(&scene->here);
    flow_drop(&scene->there);
    pair_await(pair, is_back, scene, "the connection");
}

static void run(link_t link, unsigned streams)
{
    const how_t how = {.link = link};
    static scene_t scene;

    memset(&scene, 0, sizeof(scene));
    joined_open(&scene.joined, &how);
    must(tmsg_server_create(scene.joined.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register_stream(scene.server, "flow", flow_handler,
                                     &scene.there, NULL));
    for (unsigned i = 0; i < streams; i++) {
        run_stream(&scene);
    }
    tmsg_server_destroy(scene.server);
    joined_close(&scene.joined);
}

Test(stream_session, a_broken_connection_loses_nothing) { run(LINK_TCP, 6); }

Test(stream_session, nor_does_one_with_shared_memory) { run(LINK_SHM, 2); }

static bool is_canceled(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    *(tmsg_call_stream_t **)arg = tmsg_call_stream_keep(stream);
}

static bool is_kept(void *arg) { return *(tmsg_call_stream_t **)arg != NULL; }

/* A cancel while there is no connection reaches the server with the next. */
Test(stream_session, a_cancel_while_it_is_away)
{
    const how_t how = {.link = LINK_TCP};
    static joined_t joined;
    tmsg_call_stream_t *stream, *kept = NULL;
    tmsg_server_t *server;

    joined_open(&joined, &how);
    must(tmsg_server_create(joined.pair.a.worker, NULL, &server));
    must(tmsg_server_register_stream(server, "keep", keep, &kept, NULL));
    must(tmsg_endpoint_open_stream(joined.pair.to_a, "keep", NULL, NULL,
                                   &stream));
    pair_await(&joined.pair, is_kept, &kept, "a handler");
    joined_break(&joined);
    tmsg_call_stream_cancel(stream);
    tmsg_call_stream_destroy(stream);
    joined_mend(&joined);
    pair_await(&joined.pair, is_canceled, kept, "the cancel");
    must_be(tmsg_call_stream_status(kept), TMSG_ERR_CANCELED);
    tmsg_call_stream_destroy(kept);
    tmsg_server_destroy(server);
    joined_close(&joined);
}

/* Serves for ever, and sends for ever. */
static void child(pipes_t *pipes, void *arg)
{
    side_t side;
    static flow_t flow;
    tmsg_server_t *server;

    (void)arg;
    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    flow_init(&flow, 500000, 1000, 1u << 30);
    flow.serves = true;
    must(tmsg_server_create(side.worker, NULL, &server));
    must(
        tmsg_server_register_stream(server, "flow", flow_handler, &flow, NULL));
    line_put(pipes->out, tmsg_listener_url(side.listener));
    for (;;) {
        tmsg_worker_wait(side.worker, -1);
    }
}

static bool has_some(void *arg) { return ((flow_t *)arg)->got > 1000; }

Test(stream_session, a_server_that_is_killed)
{
    static flow_t flow;
    child_t process;
    side_t side;
    char url[256];
    tmsg_call_stream_t *stream;
    tmsg_endpoint_t *endpoint;

    child_start(&process, child, NULL);
    line_get(process.in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    flow_init(&flow, 1000, 500000, 1u << 30);
    must(tmsg_endpoint_open_stream(endpoint, "flow", NULL, NULL, &stream));
    flow_start(&flow, stream);
    side_await(&side, has_some, &flow, "a thousand maps");
    child_kill(&process);
    side_await(&side, flow_is_over, &flow, "the end of a stream");
    must_be(flow.status, TMSG_ERR_PEER_LOST);
    must_eq(flow.overs, 1);
    flow_drop(&flow);
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
}
