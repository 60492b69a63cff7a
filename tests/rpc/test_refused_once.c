/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that comes while its session's connection breaks comes again, and is
 * refused then: interceptors and counts know of one. */
#include <criterion/criterion.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "support/session_pair.h"

typedef struct {
    joined_t joined;
    tmsg_server_t *server;
    unsigned refusals, ends;
    tmsg_status_t status;
} scene_t;

static void refused(void *arg, const tmsg_intercepted_t *call)
{
    (void)call;
    ((scene_t *)arg)->refusals++;
}

static void ended(void *arg, tmsg_call_t *call)
{
    scene_t *scene = arg;

    scene->ends++;
    scene->status = tmsg_call_status(call);
}

static bool is_over(void *arg)
{
    const scene_t *scene = arg;

    return scene->ends > 0 &&
           described(scene->joined.pair.to_a, "reconnected") == 1;
}

static void run(link_t link)
{
    const how_t how = {.link = link};
    scene_t scene = {.ends = 0};
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = ended,
                                       .on_done_arg = &scene};
    const tmsg_interceptor_t watch = {.field_mask = TMSG_INTERCEPTOR_REFUSED,
                                      .refused = refused,
                                      .arg = &scene};
    pair_t *pair = &scene.joined.pair;

    joined_open(&scene.joined, &how);
    must(tmsg_server_create(pair->a.worker, NULL, &scene.server));
    must(tmsg_worker_intercept(pair->a.worker, TMSG_SIDE_SERVER, &watch));
    must(tmsg_endpoint_call(pair->to_a, "nobody", NULL, &params, NULL));
    /* The first message of a connection that is to end behind it. */
    tmsg_endpoint_break(pair->to_b, TMSG_ERR_PEER_LOST, "for a test");
    pair_await(pair, is_over, &scene, "the call's end");
    must_be(scene.status, TMSG_ERR_UNAVAILABLE);
    must_eq(scene.ends, 1);
    must_eq(scene.refusals, 1);
    tmsg_server_destroy(scene.server);
    joined_close(&scene.joined);
}

Test(refused_once, shm) { run(LINK_SHM); }
Test(refused_once, tcp) { run(LINK_TCP); }
