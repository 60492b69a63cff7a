/* SPDX-License-Identifier: BSD-3-Clause */
/* Fails every allocation of a call in turn, on both sides: it ends all the
 * same, leaves both workers serving, and leaves nothing behind. */
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
    tmsg_map_t *small, *large;
    unsigned ends, releases;
} scene_t;

#define SMALL 64
#define LARGE 3000000

/* What is done, and over what. */
typedef struct {
    bool (*run)(scene_t *scene);
    link_t link;
} work_t;

TestSuite(rpc_alloc, .init = watched_alloc_start);

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_fail(task, TMSG_ERR_APPLICATION, 1, "so", NULL);
}

static void on_done(void *arg, tmsg_call_t *call)
{
    (void)call;
    ((scene_t *)arg)->ends++;
}

static void on_release(void *arg) { ((scene_t *)arg)->releases++; }

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static bool is_told(void *arg)
{
    const scene_t *scene = arg;

    return scene->ends == 1 && scene->releases == 1;
}

/* Without an allocation. */
static void check(const tmsg_map_t *map, size_t bytes)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, 0, NULL, &tensor));
    must_eq(sample_compare(1, tensor.data, bytes), bytes);
}

/* Whether it was answered. */
static bool call(scene_t *scene, tmsg_endpoint_t *endpoint, const char *method,
                 const tmsg_map_t *map)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |
                      TMSG_CALL_PARAM_ON_RELEASE,
        .timeout_ms = PEERS_BOUND_MS * 2, /* longer than anybody waits */
        .on_done = on_done,
        .on_done_arg = scene,
        .on_release = on_release,
        .on_release_arg = scene};
    tmsg_call_t *made;
    tmsg_status_t status;

    scene->ends = 0;
    scene->releases = 0;
    status = tmsg_endpoint_call(endpoint, method, map, &params, &made);
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        must_eq(scene->ends + scene->releases, 0);
        return false;
    }
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    pair_await(&scene->pair, is_told, scene, "who is told of it");
    status = tmsg_call_status(made);
    if (status == TMSG_OK) {
        check(tmsg_call_reply(made), map == scene->large ? LARGE : SMALL);
    }
    tmsg_call_destroy(made);
    return status == TMSG_OK || status == TMSG_ERR_APPLICATION;
}

static bool call_small(scene_t *scene)
{
    return call(scene, scene->pair.to_a, "echo", scene->small);
}

static bool call_large(scene_t *scene)
{
    return call(scene, scene->pair.to_a, "echo", scene->large);
}

static bool call_failing(scene_t *scene)
{
    return call(scene, scene->pair.to_a, "fail", scene->small);
}

/* As one of both sides; the second connection comes while they are had. */
static bool serve(scene_t *scene)
{
    tmsg_server_t *server = NULL;
    const tmsg_server_params_t params = {.field_mask = TMSG_SERVER_PARAM_QUEUE,
                                         .queue = 1};
    tmsg_status_t status =
        tmsg_server_create(scene->pair.b.worker, &params, &server);

    if (status == TMSG_OK) {
        status = tmsg_server_register(server, "echo", echo, NULL, NULL);
    }
    must_true(status == TMSG_OK || status == TMSG_ERR_NO_MEMORY);
    tmsg_server_destroy(server);
    return status == TMSG_OK;
}

/* A method with all that may be said of one. */
static bool declare(scene_t *scene)
{
    const tmsg_method_params_t params = {
        .field_mask =
            TMSG_METHOD_PARAM_SIGNATURE | TMSG_METHOD_PARAM_DESCRIPTION,
        .signature = "(x: uint8[n], @k?: i64) -> (y: uint8[n])",
        .description = "says nothing"};
    tmsg_status_t status =
        tmsg_server_register(scene->server, "signed", echo, NULL, &params);

    must_true(status == TMSG_OK || status == TMSG_ERR_NO_MEMORY);
    return status == TMSG_OK;
}

/* Asks what there is, and reads it. */
static bool reflect(scene_t *scene)
{
    tmsg_methods_t *methods = NULL;
    tmsg_call_t *made;
    tmsg_status_t status;

    if (!declare(scene) ||
        tmsg_endpoint_call(scene->pair.to_a, TMSG_METHOD_METHODS, NULL, NULL,
                           &made) != TMSG_OK) {
        return false;
    }
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    status = tmsg_call_status(made);
    if (status == TMSG_OK) {
        status = tmsg_methods_read(tmsg_call_reply(made), &methods);
        must_true(status != TMSG_OK || tmsg_methods_size(methods) == 3);
    }
    tmsg_methods_destroy(methods);
    tmsg_call_destroy(made);
    return status == TMSG_OK;
}

static bool offer_is_free(void *arg) { return ((scene_t *)arg)->releases == 1; }

/* Whether a fetch, if it was begun, brought so many bytes. */
static bool finish_fetch(scene_t *scene, tmsg_status_t status,
                         tmsg_call_t *made, size_t bytes)
{
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        return false;
    }
    pair_await(&scene->pair, has_ended, made, "the end of a fetch");
    status = tmsg_call_status(made);
    if (status == TMSG_OK) {
        check(tmsg_call_reply(made), bytes);
    } else {
        must_be(status, TMSG_ERR_NO_MEMORY);
    }
    tmsg_call_destroy(made);
    return status == TMSG_OK;
}

/* Whether it brought all that is offered. */
static bool fetch_large(scene_t *scene)
{
    const tmsg_offer_params_t params = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                        .name = "w"};
    tmsg_call_t *made = NULL;
    tmsg_offer_t *offer;
    tmsg_status_t status =
        tmsg_offer_create(scene->pair.a.worker, scene->large, &params, &offer);
    bool ok;

    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        return false;
    }
    status = tmsg_endpoint_fetch_name(scene->pair.to_a, "w", 0, NULL, &made);
    ok = finish_fetch(scene, status, made, LARGE);
    tmsg_offer_destroy(offer);
    return ok;
}

/* A fetch that waits for an offer, one of a box, and the list of offers. */
static bool fetch(scene_t *scene)
{
    static const int64_t start[] = {0}, count[] = {SMALL};
    tmsg_slice_t box = {NULL, "x", 1, start, count, NULL};
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_PRINCIPALS |
                      TMSG_OFFER_PARAM_ON_RELEASE,
        .name = "w",
        .on_release = on_release,
        .on_release_arg = scene};
    const tmsg_fetch_params_t waits = {.field_mask = TMSG_FETCH_PARAM_WAIT,
                                       .wait_ms = -1};
    const tmsg_fetch_params_t boxes = {.field_mask = TMSG_FETCH_PARAM_SLICES,
                                       .slices = &box,
                                       .slice_count = 1};
    tmsg_call_t *first = NULL, *second = NULL, *list = NULL;
    tmsg_offer_t *offer = NULL;
    tmsg_offer_key_t key;
    bool all = true;
    tmsg_status_t status =
        tmsg_endpoint_fetch_name(scene->pair.to_a, "w", 0, &waits, &first);
    tmsg_status_t offered;

    must(tmsg_map_at(scene->small, 0, &box.name, NULL));
    scene->releases = 0;
    for (int i = 0; i < 20; i++) {
        tmsg_worker_progress(scene->pair.b.worker);
        tmsg_worker_progress(scene->pair.a.worker);
    }
    offered =
        tmsg_offer_create(scene->pair.a.worker, scene->small, &params, &offer);
    if (offered != TMSG_OK) {
        must_be(offered, TMSG_ERR_NO_MEMORY);
        tmsg_call_destroy(first);
        return false;
    }
    all = finish_fetch(scene, status, first, SMALL) && all;
    tmsg_offer_key(offer, &key);
    status = tmsg_endpoint_fetch(scene->pair.to_a, &key, &boxes, &second);
    all = finish_fetch(scene, status, second, SMALL) && all;
    status = tmsg_endpoint_call(scene->pair.to_a, "tensormsg.offers", NULL,
                                NULL, &list);
    if (status == TMSG_OK) {
        pair_await(&scene->pair, has_ended, list, "the end of a list");
        status = tmsg_call_status(list);
        tmsg_call_destroy(list);
    }
    must_true(status == TMSG_OK || status == TMSG_ERR_NO_MEMORY);
    tmsg_offer_destroy(offer);
    pair_await(&scene->pair, offer_is_free, scene, "the memory to be free");
    return all && status == TMSG_OK;
}

/* A loan of a copy, and the next one of that copy. Without memory for a loan
 * the map is copied as before. */
static bool borrow(scene_t *scene)
{
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_FLAGS |
                      TMSG_OFFER_PARAM_ON_RELEASE,
        .name = "w",
        .on_release = on_release,
        .on_release_arg = scene,
        .flags = TMSG_OFFER_LEND};
    const tmsg_fetch_params_t borrows = {.field_mask = TMSG_FETCH_PARAM_FLAGS,
                                         .flags = TMSG_FETCH_BORROW};
    tmsg_offer_t *offer;
    bool all = true;
    tmsg_status_t status =
        tmsg_offer_create(scene->pair.a.worker, scene->large, &params, &offer);

    scene->releases = 0;
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        tmsg_call_t *made = NULL;

        status =
            tmsg_endpoint_fetch_name(scene->pair.to_a, "w", 0, &borrows, &made);
        if (status == TMSG_OK) {
            pair_await(&scene->pair, has_ended, made, "the end of a fetch");
            status = tmsg_call_status(made);
            all = all && tmsg_call_reply_is_lent(made);
        }
        if (status == TMSG_OK) {
            check(tmsg_call_reply(made), LARGE);
        } else {
            must_be(status, TMSG_ERR_NO_MEMORY);
            all = false;
        }
        tmsg_call_destroy(made);
    }
    tmsg_offer_destroy(offer);
    pair_await(&scene->pair, offer_is_free, scene, "the memory to be free");
    return all;
}

static bool is_empty(void *arg)
{
    const scene_t *scene = arg;

    return scene->server->load.inside == 0 && scene->server->all.count == 0;
}

/* Runs it with its n-th allocation failing. False: it has not as many. */
static bool fail_nth(const void *arg, unsigned long n, bool *ok_p)
{
    size_t live = watched_alloc_live();
    const work_t *work = arg;
    scene_t scene = {0};
    bool failed;

    pair_open(&scene.pair, work->link, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "echo", echo, NULL, NULL));
    must(tmsg_server_register(scene.server, "fail", fail, NULL, NULL));
    scene.small = sample_bytes(1, SMALL);
    scene.large = sample_bytes(1, LARGE);
    watched_alloc_arm(n);
    *ok_p = work->run(&scene);
    failed = watched_alloc_disarm() != 0;
    must_true(call(&scene, side_dial(&scene.pair.b, &scene.pair.a), "echo",
                   scene.small));
    pair_await(&scene.pair, is_empty, &scene, "the end of all tasks");
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    tmsg_map_destroy(scene.small);
    tmsg_map_destroy(scene.large);
    watched_alloc_expect(live, n);
    return failed;
}

static void fail_each(bool (*run)(scene_t *scene), link_t link)
{
    const work_t work = {run, link};

    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    watched_alloc_fail_each(fail_nth, &work);
}

Test(rpc_alloc, of_a_small_call) { fail_each(call_small, LINK_SHM); }

Test(rpc_alloc, of_a_large_call) { fail_each(call_large, LINK_SHM); }

Test(rpc_alloc, of_a_large_call_by_a_stream)
{
    fail_each(call_large, LINK_STREAM);
}

Test(rpc_alloc, of_a_call_that_fails) { fail_each(call_failing, LINK_SHM); }

Test(rpc_alloc, of_a_server) { fail_each(serve, LINK_SHM); }

Test(rpc_alloc, of_a_signature) { fail_each(declare, LINK_SHM); }

Test(rpc_alloc, of_what_a_server_tells_of_itself)
{
    fail_each(reflect, LINK_SHM);
}

Test(rpc_alloc, of_an_offer_and_its_fetches) { fail_each(fetch, LINK_SHM); }

Test(rpc_alloc, of_a_large_fetch_by_a_stream)
{
    fail_each(fetch_large, LINK_STREAM);
}

Test(rpc_alloc, of_an_offer_and_its_loans) { fail_each(borrow, LINK_UNIX); }
