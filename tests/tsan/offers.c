/* SPDX-License-Identifier: BSD-3-Clause */
/* An owner withdraws what eight threads fetch, overwrites it as soon as it is
 * told that the memory is free, and offers it again; others make offers, cancel
 * fetches and look at counts meanwhile. Nobody gets a map of two versions. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { FETCHERS = 8, MAPS = 40, BYTES_MOST = 600000 };

typedef struct {
    side_t a, b; /* a offers; each has a thread of its own */
    tmsg_endpoint_t *to_a;
    size_t bytes;
    uint8_t *buffer; /* what is offered */
    bool lends;
    atomic_uint released;
    atomic_uint whole, missed, lent; /* fetches */
    atomic_bool stop;
} scene_t;

typedef struct {
    scene_t *scene;
    uint64_t random;
    pthread_t thread;
} job_t;

static uint8_t value_of(uint64_t version)
{
    return (uint8_t)(1 + version % 250);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((scene_t *)arg)->released, 1);
}

/* Offers the buffer as a version of "w". */
static tmsg_offer_t *offer(scene_t *scene, uint64_t version)
{
    const int64_t shape[] = {(int64_t)scene->bytes};
    const tmsg_tensor_t tensor = {
        scene->buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                      TMSG_OFFER_PARAM_ON_RELEASE | TMSG_OFFER_PARAM_FLAGS,
        .name = "w",
        .version = version,
        .on_release = on_release,
        .on_release_arg = scene,
        .flags = scene->lends ? TMSG_OFFER_LEND : 0};
    tmsg_offer_t *made;
    tmsg_map_t *map;

    memset(scene->buffer, value_of(version), scene->bytes);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "w", &tensor, NULL));
    must(tmsg_offer_create(scene->a.worker, map, &params, &made));
    tmsg_map_destroy(map);
    return made;
}

static void *own(void *arg)
{
    scene_t *scene = arg;

    for (uint64_t version = 1; !atomic_load(&scene->stop); version++) {
        unsigned before = atomic_load(&scene->released);
        tmsg_offer_t *made = offer(scene, version);
        tmsg_status_t status;

        (void)tmsg_worker_wait(scene->a.worker, 1);
        status = tmsg_offer_withdraw(made, (int)(version % 3));
        must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
        while (atomic_load(&scene->released) == before) {
            (void)tmsg_worker_wait(scene->a.worker, 1);
        }
        must_eq(atomic_load(&scene->released), before + 1);
        tmsg_offer_destroy(made);
    }
    return NULL;
}

static void check(const scene_t *scene, const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;
    int64_t version;

    must(tmsg_map_get_i64(map, TMSG_META_OFFER_VERSION, &version));
    must(tmsg_map_find(map, "w", &tensor));
    bytes = tensor.data;
    must_eq(tensor.shape[0], scene->bytes);
    must_eq(bytes[0], value_of((uint64_t)version));
    must_true(memcmp(bytes, bytes + 1, scene->bytes - 1) == 0);
}

static void *fetch_all(void *arg)
{
    job_t *job = arg;
    scene_t *scene = job->scene;
    const tmsg_fetch_params_t params = {
        .field_mask = TMSG_FETCH_PARAM_WAIT | TMSG_FETCH_PARAM_FLAGS,
        .wait_ms = 20,
        .flags = scene->lends ? TMSG_FETCH_BORROW : 0};

    while (!atomic_load(&scene->stop)) {
        tmsg_status_t status;
        tmsg_call_t *call;

        must(tmsg_endpoint_fetch_name(scene->to_a, "w", 0, &params, &call));
        if (sample_random(&job->random) % 16 == 0) {
            tmsg_call_cancel(call);
        }
        status = tmsg_call_wait(call, PEERS_BOUND_MS);
        if (status == TMSG_OK) {
            check(scene, tmsg_call_reply(call));
            atomic_fetch_add(&scene->whole, 1);
            atomic_fetch_add(&scene->lent,
                             (unsigned)tmsg_call_reply_is_lent(call));
        } else {
            must_true(status == TMSG_ERR_CANCELED ||
                      status == TMSG_ERR_NOT_FOUND);
            atomic_fetch_add(&scene->missed, 1);
        }
        tmsg_call_destroy(call);
    }
    return NULL;
}

/* Makes offers of its own, which end in several ways, and fetches them. */
static void *make_others(void *arg)
{
    job_t *job = arg;
    scene_t *scene = job->scene;

    for (int i = 0; !atomic_load(&scene->stop); i++) {
        const tmsg_offer_params_t params = {
            .field_mask = TMSG_OFFER_PARAM_TTL | TMSG_OFFER_PARAM_FETCHES,
            .ttl_ms = i % 3 == 0 ? 1 : 10000,
            .fetches = 1};
        tmsg_map_t *map = sample_bytes((uint64_t)i, 500);
        tmsg_offer_stats_t stats;
        tmsg_offer_key_t key;
        tmsg_offer_t *made;
        tmsg_call_t *call;
        char *json;

        must(tmsg_offer_create(scene->a.worker, map, &params, &made));
        tmsg_map_destroy(map);
        tmsg_offer_key(made, &key);
        must(tmsg_endpoint_fetch(scene->to_a, &key, NULL, &call));
        if (i % 2 == 0) {
            tmsg_status_t status = tmsg_call_wait(call, PEERS_BOUND_MS);

            must_true(status == TMSG_OK || status == TMSG_ERR_NOT_FOUND);
            must_true(status == TMSG_OK || i % 3 == 0);
        }
        tmsg_offer_stats(made, &stats);
        must(tmsg_worker_describe(scene->a.worker, &json));
        tmsg_string_free(json);
        tmsg_call_destroy(call);
        tmsg_offer_destroy(made);
    }
    return NULL;
}

static bool have_enough(scene_t *scene)
{
    return atomic_load(&scene->whole) >= FETCHERS * MAPS / 4;
}

static void play(link_t link, size_t bytes, uint8_t *buffer, bool lends)
{
    side_options_t options = {.drive = DRIVE_THREAD};
    scene_t scene = {.bytes = bytes, .buffer = buffer, .lends = lends};
    job_t jobs[FETCHERS + 1];
    pthread_t owner;

    options.ucx_config = link_config(link);
    side_open(&scene.a, &options);
    side_open(&scene.b, &options);
    side_listen_link(&scene.a, link);
    scene.to_a = side_connect(&scene.b, tmsg_listener_url(scene.a.listener));
    must_eq(pthread_create(&owner, NULL, own, &scene), 0);
    for (int i = 0; i <= FETCHERS; i++) {
        jobs[i] = (job_t){.scene = &scene, .random = (uint64_t)i + 1};
        must_eq(pthread_create(&jobs[i].thread, NULL,
                               i < FETCHERS ? fetch_all : make_others,
                               &jobs[i]),
                0);
    }
    while (!have_enough(&scene)) {
        (void)tmsg_worker_wait(scene.b.worker, 10);
    }
    atomic_store(&scene.stop, true);
    for (int i = 0; i <= FETCHERS; i++) {
        must_eq(pthread_join(jobs[i].thread, NULL), 0);
    }
    must_eq(pthread_join(owner, NULL), 0);
    must_eq(scene.lent, lends ? scene.whole : 0);
    side_close(&scene.b);
    side_close(&scene.a);
}

int main(void)
{
    uint8_t *buffer = malloc(BYTES_MOST);
    void *block;

    play(LINK_SHM, 200, buffer, false);
    play(LINK_SHM, BYTES_MOST, buffer, false);
    play(LINK_TCP, BYTES_MOST, buffer, false);
    play(LINK_UNIX, BYTES_MOST, buffer, true);
    must(tmsg_shareable_alloc(BYTES_MOST, NULL, &block));
    play(LINK_UNIX, BYTES_MOST, block, true);
    must(tmsg_shareable_free(block));
    free(buffer);
}
