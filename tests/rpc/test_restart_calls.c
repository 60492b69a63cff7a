/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls, streams and fetches over a restart of the server: what it had not seen
 * goes to the new one, what it may have run ends and says so, or is repeated
 * where that was asked for. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/restarted.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

typedef struct {
    restarted_t restarted;
    tmsg_server_t *server, *own; /* of the client's own methods, or NULL */
    tmsg_offer_t *offer;
    tmsg_task_t *task; /* kept by the server that is there */
    unsigned seen, kept, servers, released;
    unsigned
        kept_most; /* calls of "once" that are kept before others are not */
} scene_t;

static void answer(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->seen++;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void refuse(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_UNAVAILABLE, 0, "later", NULL));
}

/* The first server keeps it, the others answer. */
static void once(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    if (scene->servers == 1 && scene->task == NULL) {
        scene->task = tmsg_task_keep(task);
    } else {
        answer(arg, task);
    }
}

static void serve(restarted_t *restarted)
{
    const tmsg_method_params_t safe = {.field_mask = TMSG_METHOD_PARAM_FLAGS,
                                       .flags = TMSG_METHOD_IDEMPOTENT};
    scene_t *scene = restarted->arg;

    scene->servers++;
    must(tmsg_server_create(restarted->server.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "answer", answer, scene, NULL));
    must(tmsg_server_register(scene->server, "refuse", refuse, scene, NULL));
    must(tmsg_server_register(scene->server, "once", once, scene, NULL));
    must(tmsg_server_register(scene->server, "safe", once, scene, &safe));
}

static void leave(restarted_t *restarted)
{
    scene_t *scene = restarted->arg;

    tmsg_task_destroy(scene->task);
    scene->task = NULL;
    tmsg_offer_destroy(scene->offer);
    scene->offer = NULL;
    tmsg_server_destroy(scene->server);
    scene->server = NULL;
}

static void open_scene(scene_t *scene, link_t link, int32_t resume_ms,
                       bool abrupt)
{
    const tmsg_worker_params_t server = scene->restarted.server_options.worker;

    memset(scene, 0, sizeof(*scene));
    scene->restarted = (restarted_t){.link = link,
                                     .resume_ms = resume_ms,
                                     .abrupt = abrupt,
                                     .server_options = {.worker = server},
                                     .serve = serve,
                                     .leave = leave,
                                     .arg = scene};
    restarted_open(&scene->restarted, DRIVE_POLLING);
}

static void on_release(void *arg) { ++*(unsigned *)arg; }

static tmsg_call_t *call(scene_t *scene, const char *method, unsigned attempts,
                         uint32_t flags)
{
    tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_RELEASE |
                                               TMSG_CALL_PARAM_FLAGS,
                                 .on_release = on_release,
                                 .on_release_arg = &scene->released,
                                 .flags = flags};
    tmsg_map_t *map = sample_bytes(7, 1000);
    tmsg_call_t *made;

    if (attempts > 1) {
        params.field_mask |= TMSG_CALL_PARAM_RETRY;
        params.retry.attempts = attempts;
        params.retry.first_backoff_ms = 1;
    }
    must(tmsg_endpoint_call(scene->restarted.endpoint, method, map, &params,
                            &made));
    tmsg_map_destroy(map);
    return made;
}

static void check_reply(scene_t *scene, tmsg_call_t *made, unsigned attempts)
{
    must_be(restarted_call_end(&scene->restarted, made), TMSG_OK);
    sample_check_bytes(7, 1000, tmsg_call_reply(made));
    must_eq(tmsg_call_attempts(made), attempts);
    tmsg_call_destroy(made);
}

static void check_lost(scene_t *scene, tmsg_call_t *made)
{
    must_be(restarted_call_end(&scene->restarted, made), TMSG_ERR_PEER_LOST);
    must_eq(tmsg_call_may_have_run(made), 1);
    must_say(tmsg_call_error(made), "may have been taken or not");
    tmsg_call_destroy(made);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->task != NULL; }

static void restart(scene_t *scene)
{
    restarted_stop(&scene->restarted);
    restarted_await_loss(&scene->restarted);
    restarted_start(&scene->restarted);
    restarted_await_new(&scene->restarted);
}

static void check_calls(link_t link, int32_t resume_ms, bool abrupt)
{
    static scene_t scene;
    tmsg_call_t *lost, *waits, *again, *queued[3];

    open_scene(&scene, link, resume_ms, abrupt);
    check_reply(&scene, call(&scene, "answer", 1, 0), 1);
    /* Three that the server keeps, or has not looked at. */
    lost = call(&scene, "once", 1, 0);
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    restarted_stop(&scene.restarted);
    restarted_await_loss(&scene.restarted);
    for (int i = 0; i < 3; i++) { /* with retries, and without */
        queued[i] = call(&scene, "answer", (unsigned)i + 1, 0);
    }
    restarted_start(&scene.restarted);
    check_lost(&scene, lost);
    for (int i = 0; i < 3; i++) {
        check_reply(&scene, queued[i], 1);
    }
    must_eq(scene.seen, 4);
    must_say(scene.restarted.told.words[1],
             "; 0 sends and 1 calls ended with the old one, ");

    scene.servers = 0;
    restart(&scene);
    again = call(&scene, "once", 3, TMSG_CALL_IDEMPOTENT);
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    waits = call(&scene, "answer", 3, 0);
    check_reply(&scene, waits, 1);
    restart(&scene);
    check_reply(&scene, again, 2);

    scene.servers = 0;
    restart(&scene);
    lost = call(&scene, "once", 3, 0);
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    restart(&scene);
    check_lost(&scene, lost);
    must_eq(scene.released, 8);
    restarted_close(&scene.restarted);
}

Test(restart_calls, tcp) { check_calls(LINK_TCP, -1, true); }
Test(restart_calls, unix) { check_calls(LINK_UNIX, -1, false); }
Test(restart_calls, without_sessions) { check_calls(LINK_SHM, 0, false); }

static bool has_an_heir(void *endpoint)
{
    return strstr(tmsg_endpoint_error(endpoint), "the peer was restarted") !=
           NULL;
}

/* What a call has waited for when its time is up is said of the new session's
 * connection, and a request that waited here is never sent. */
Test(restart_calls, whose_time_is_up)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = 300};
    static scene_t scene;
    tmsg_call_t *late;

    open_scene(&scene, LINK_TCP, -1, true);
    restarted_stop(&scene.restarted);
    restarted_await_loss(&scene.restarted);
    must(tmsg_endpoint_call(scene.restarted.endpoint, "answer", NULL, &params,
                            &late));
    restarted_start(&scene.restarted);
    restarted_await(&scene.restarted, has_an_heir, scene.restarted.endpoint,
                    "the end of the old session");
    /* The new server stands still from here on. */
    must_be(tmsg_call_wait(late, PEERS_BOUND_MS), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_call_error(late), "no reply in 300 ms; the connection ");
    must_say(tmsg_call_error(late), "no handler saw the call");
    must_eq(tmsg_call_may_have_run(late), 0);
    tmsg_call_destroy(late);
    restarted_await_new(&scene.restarted);
    check_reply(&scene, call(&scene, "answer", 1, 0), 1);
    must_eq(scene.seen, 1);
    restarted_close(&scene.restarted);
}

/* A call between two attempts goes on: it is none of those that ended. */
Test(restart_calls, between_two_attempts)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_RETRY | TMSG_CALL_PARAM_TIMEOUT |
                      TMSG_CALL_PARAM_FLAGS,
        .timeout_ms = 8 * PEERS_BOUND_MS,
        .flags = TMSG_CALL_IDEMPOTENT,
        .retry = {.attempts = 2,
                  .first_backoff_ms = 2 * PEERS_BOUND_MS,
                  .most_backoff_ms = 2 * PEERS_BOUND_MS}};
    static scene_t scene;
    tmsg_call_t *made;

    open_scene(&scene, LINK_TCP, -1, true);
    must(tmsg_endpoint_call(scene.restarted.endpoint, "refuse", NULL, &params,
                            &made));
    check_reply(&scene, call(&scene, "answer", 1, 0), 1);
    restart(&scene);
    must_be(tmsg_call_status(made), TMSG_IN_PROGRESS);
    must_say(scene.restarted.told.words[1], "; 0 sends and 0 calls ended ");
    tmsg_call_destroy(made);
    restarted_close(&scene.restarted);
}

/* The server declares its method idempotent, which its replies say. */
Test(restart_calls, of_a_method_that_is_declared_idempotent)
{
    static scene_t scene;
    tmsg_call_t *made;

    open_scene(&scene, LINK_UNIX, -1, false);
    made = call(&scene, "safe", 3, 0); /* nothing is known yet */
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    restart(&scene);
    check_lost(&scene, made);
    check_reply(&scene, call(&scene, "safe", 3, 0), 1);
    for (int i = 0; i < 2; i++) { /* is known over restarts, too */
        scene.servers = 0;
        restart(&scene);
        made = call(&scene, "safe", 3, 0);
        restarted_await(&scene.restarted, is_kept, &scene, "a call");
        restart(&scene);
        check_reply(&scene, made, 2);
    }
    restarted_close(&scene.restarted);
}

static void on_stream(void *arg, tmsg_call_stream_t *stream)
{
    tmsg_map_t *map = sample_bytes(3, 1000);

    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    tmsg_map_destroy(map);
    /* Never ended. */
    tmsg_call_stream_destroy(*(tmsg_call_stream_t **)arg);
    *(tmsg_call_stream_t **)arg = tmsg_call_stream_keep(stream);
}

static bool has_come(void *arg)
{
    tmsg_call_stream_stats_t stats;

    tmsg_call_stream_stats(arg, &stats);
    return stats.received > 0;
}

static bool stream_is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_call_stream_t *open_stream(scene_t *scene)
{
    tmsg_call_stream_t *stream;

    must(tmsg_endpoint_open_stream(scene->restarted.endpoint, "stream", NULL,
                                   NULL, &stream));
    must_true(tmsg_call_stream_endpoint(stream) == scene->restarted.endpoint);
    return stream;
}

static void check_stream_lost(scene_t *scene, tmsg_call_stream_t *stream,
                              int may_have_run)
{
    restarted_await(&scene->restarted, stream_is_over, stream, "its end");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_PEER_LOST);
    must_eq(tmsg_call_stream_may_have_run(stream), may_have_run);
    must_true(tmsg_call_stream_endpoint(stream) == scene->restarted.endpoint);
    tmsg_call_stream_destroy(stream);
}

static void check_streams(bool abrupt)
{
    static scene_t scene;
    tmsg_call_stream_t *streams[2], *served = NULL;

    open_scene(&scene, LINK_SHM, -1, abrupt);
    must(tmsg_server_register_stream(scene.server, "stream", on_stream, &served,
                                     NULL));
    streams[0] = open_stream(&scene);
    restarted_await(&scene.restarted, has_come, streams[0], "a message");
    restarted_stop(&scene.restarted);
    restarted_await_loss(&scene.restarted);
    streams[1] = open_stream(&scene);
    restarted_start(&scene.restarted);
    must(tmsg_server_register_stream(scene.server, "stream", on_stream, &served,
                                     NULL));
    check_stream_lost(&scene, streams[0], 1);
    if (abrupt) { /* of the session before */
        check_stream_lost(&scene, streams[1], 0);
        streams[1] = open_stream(&scene);
    }
    restarted_await(&scene.restarted, has_come, streams[1], "a message");
    tmsg_call_stream_destroy(streams[1]);
    tmsg_call_stream_destroy(served);
    restarted_close(&scene.restarted);
}

Test(restart_calls, streams_end) { check_streams(true); }
Test(restart_calls, streams_end_with_the_peers_word) { check_streams(false); }

static tmsg_call_t *fetch(scene_t *scene, const char *name)
{
    const tmsg_fetch_params_t params = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                        .wait_ms = PEERS_BOUND_MS};
    tmsg_call_t *made;

    must(tmsg_endpoint_fetch_name(scene->restarted.endpoint, name, 0, &params,
                                  &made));
    return made;
}

static void offer(scene_t *scene, const char *name)
{
    const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                        .name = name};
    tmsg_map_t *map = sample_bytes(7, 1000);

    must(tmsg_offer_create(scene->restarted.server.worker, map, &params,
                           &scene->offer));
    tmsg_map_destroy(map);
}

static void check_fetched(scene_t *scene, tmsg_call_t *made)
{
    must_be(restarted_call_end(&scene->restarted, made), TMSG_OK);
    must_eq(tmsg_map_size(tmsg_call_reply(made)), 1);
    tmsg_call_destroy(made);
}

/* A fetch that waited at the old owner ends, one that had not left goes over.
 */
Test(restart_calls, fetches)
{
    static scene_t scene;
    tmsg_call_t *waits, *queued;

    open_scene(&scene, LINK_TCP, -1, true);
    offer(&scene, "there");
    check_fetched(&scene, fetch(&scene, "there"));
    waits = fetch(&scene, "later");
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(scene.restarted.client.worker);
        tmsg_worker_progress(scene.restarted.server.worker);
    }
    restarted_stop(&scene.restarted);
    restarted_await_loss(&scene.restarted);
    queued = fetch(&scene, "later");
    restarted_start(&scene.restarted);
    check_lost(&scene, waits);
    offer(&scene, "later");
    check_fetched(&scene, queued);
    restarted_close(&scene.restarted);
}

/* One that had not left and asks for a loan gets it from the new owner. */
Test(restart_calls, a_fetch_of_a_loan)
{
    const tmsg_offer_params_t lends = {.field_mask = TMSG_OFFER_PARAM_NAME |
                                                     TMSG_OFFER_PARAM_FLAGS,
                                       .name = "large",
                                       .flags = TMSG_OFFER_LEND};
    const tmsg_fetch_params_t borrows = {.field_mask = TMSG_FETCH_PARAM_FLAGS |
                                                       TMSG_FETCH_PARAM_WAIT,
                                         .flags = TMSG_FETCH_BORROW,
                                         .wait_ms = PEERS_BOUND_MS};
    tmsg_map_t *map = sample_bytes(7, 4 << 20);
    static scene_t scene;
    tmsg_call_t *made, *before[3];

    memset(&scene, 0, sizeof(scene));
    scene.restarted.server_options.worker.field_mask =
        TMSG_WORKER_PARAM_QUEUE_DEPTH;
    scene.restarted.server_options.worker.queue_depth = 2;
    open_scene(&scene, LINK_UNIX, -1, false);
    for (int i = 0; i < 3; i++) { /* of which two go */
        before[i] = call(&scene, "answer", 1, 0);
    }
    must(tmsg_endpoint_fetch_name(scene.restarted.endpoint, "large", 0,
                                  &borrows, &made));
    restarted_stop(&scene.restarted);
    restarted_await_loss(&scene.restarted);
    restarted_start(&scene.restarted);
    must(tmsg_offer_create(scene.restarted.server.worker, map, &lends,
                           &scene.offer));
    must_be(restarted_call_end(&scene.restarted, made), TMSG_OK);
    must_eq(tmsg_call_reply_is_lent(made), 1);
    tmsg_call_destroy(made);
    check_lost(&scene, before[0]);
    check_lost(&scene, before[1]);
    check_reply(&scene, before[2], 1);
    tmsg_map_destroy(map);
    restarted_close(&scene.restarted);
}

static tmsg_call_t *call_back(scene_t *scene)
{
    tmsg_call_t *made;

    must(tmsg_endpoint_call(scene->restarted.server.accepted, "once", NULL,
                            NULL, &made));
    return made;
}

static bool is_canceled(void *arg)
{
    return tmsg_task_status(((scene_t *)arg)->task) == TMSG_ERR_PEER_LOST;
}

/* Calls of the server's: those of the old one are told, and cannot be
 * answered; the new one's come by the same handle. */
Test(restart_calls, of_the_peer)
{
    static scene_t scene;
    tmsg_task_t *task;
    tmsg_call_t *made;

    open_scene(&scene, LINK_UNIX, -1, false);
    must(tmsg_server_create(scene.restarted.client.worker, NULL, &scene.own));
    must(tmsg_server_register(scene.own, "once", once, &scene, NULL));
    made = call_back(&scene);
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    task = scene.task;
    must_true(tmsg_task_endpoint(task) == scene.restarted.endpoint);
    tmsg_call_destroy(made);
    scene.task = NULL;
    restart(&scene);
    scene.task = task;
    restarted_await(&scene.restarted, is_canceled, &scene, "its end");
    must_true(tmsg_task_endpoint(task) == scene.restarted.endpoint);
    must_true(tmsg_task_reply(task, NULL, NULL) != TMSG_OK);
    tmsg_task_destroy(task);
    scene.task = NULL;
    scene.servers = 1; /* keeps this one */
    made = call_back(&scene);
    restarted_await(&scene.restarted, is_kept, &scene, "a call");
    must_true(tmsg_task_endpoint(scene.task) == scene.restarted.endpoint);
    must(tmsg_task_reply(scene.task, NULL, NULL));
    must(restarted_call_end(&scene.restarted, made));
    tmsg_call_destroy(made);
    tmsg_server_destroy(scene.own);
    restarted_close(&scene.restarted);
}
