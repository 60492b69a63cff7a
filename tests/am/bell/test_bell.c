/* SPDX-License-Identifier: BSD-3-Clause */
/* Bells, rung by threads that play kernels. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/played_kernels.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { SMALL = 100, MIDDLE = 70000, LARGE = 3 << 20 };

static uint8_t out[LARGE], in[LARGE];

/* b's bell sends, a's receives. */
typedef struct {
    pair_t pair;
    tmsg_map_t *from, *into;
    tmsg_bell_t *sends, *receives;
    played_t sender, receiver;
} scene_t;

static void open_scene(scene_t *scene, link_t link, size_t bytes)
{
    pair_open(&scene->pair, link, DRIVE_THREAD, NULL, NULL);
    scene->from = played_map(out, bytes);
    scene->into = played_map(in, bytes);
    must(tmsg_bell_create(scene->pair.to_a, scene->from, NULL, &scene->sends));
    must(tmsg_bell_receive(scene->pair.to_b, scene->into, &scene->receives));
}

static void close_scene(scene_t *scene)
{
    tmsg_bell_destroy(scene->sends);
    tmsg_bell_destroy(scene->receives);
    tmsg_map_destroy(scene->from);
    tmsg_map_destroy(scene->into);
    pair_drop(&scene->pair);
}

static void start_both(scene_t *scene, size_t bytes, uint64_t rounds)
{
    played_send(&scene->sender, scene->sends, out, bytes, rounds);
    played_receive(&scene->receiver, scene->receives, in, bytes, rounds);
}

static void flow(link_t link, size_t bytes, uint64_t rounds)
{
    scene_t scene;

    open_scene(&scene, link, bytes);
    start_both(&scene, bytes, rounds);
    must_eq(played_join(&scene.sender), 0);
    must_eq(played_join(&scene.receiver), 0);
    must(tmsg_bell_status(scene.sends));
    must(tmsg_bell_status(scene.receives));
    must_say(tmsg_bell_error(scene.sends), "");
    close_scene(&scene);
}

Test(bell, kernels_send_and_receive_over_tcp)
{
    flow(LINK_TCP, SMALL, 100);
    flow(LINK_TCP, LARGE, 3);
}

Test(bell, kernels_send_and_receive_over_shared_memory)
{
    flow(LINK_SHM, SMALL, 300);
    flow(LINK_SHM, MIDDLE, 40);
    flow(LINK_SHM, LARGE, 3);
}

Test(bell, kernels_send_and_receive_over_unix)
{
    flow(LINK_UNIX, SMALL, 300);
    flow(LINK_UNIX, LARGE, 3);
}

Test(bell, kernels_send_and_receive_by_a_blob) { flow(LINK_BLOB, MIDDLE, 20); }

Test(bell, kernels_send_and_receive_over_a_stream)
{
    flow(LINK_STREAM, SMALL, 50);
    flow(LINK_STREAM, LARGE, 3);
}

/* A worker that has nothing to do sleeps, and hears the bell all the same. */
Test(bell, a_worker_that_sleeps_hears_it)
{
    const side_options_t sleepy = {
        .drive = DRIVE_THREAD,
        .quiet = true,
        .worker = {.field_mask = TMSG_WORKER_PARAM_SPIN_US, .spin_us = 0}};
    const struct timespec while_it_falls_asleep = {.tv_nsec = 100000000};
    tmsg_message_t *message;
    tmsg_map_t *map;
    tmsg_bell_t *bell;
    played_t kernel;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_THREAD, &sleepy, &sleepy);
    map = played_map(out, SMALL);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    nanosleep(&while_it_falls_asleep, NULL);
    played_send(&kernel, bell, out, SMALL, 1);
    must_eq(played_join(&kernel), 0);
    message = pair_take(&pair, &pair.a);
    tmsg_message_destroy(message);
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

/* Posts that nobody waited for are sent one after the other. */
Test(bell, each_post_is_one_message)
{
    tmsg_map_t *map = played_map(out, SMALL);
    tmsg_bell_t *bell;
    void *line;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    must(tmsg_bell_device(bell, &line));
    __atomic_store_n((uint64_t *)line, 3, __ATOMIC_RELEASE);
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
    tmsg_bell_destroy(bell);
    pair_drop(&pair);
    must(tmsg_map_clear(map));
    tmsg_map_destroy(map);
}

typedef struct {
    tmsg_bell_t *bell;
    tmsg_status_t status;
} warming_t;

static void *warm_up(void *arg)
{
    warming_t *warming = arg;

    warming->status = tmsg_bell_warm(warming->bell, PEERS_BOUND_MS);
    return NULL;
}

Test(bell, both_sides_warm_it)
{
    warming_t warming;
    pthread_t thread;
    scene_t scene;

    open_scene(&scene, LINK_UNIX, MIDDLE);
    warming.bell = scene.receives;
    must_be(tmsg_bell_warm(scene.receives, 1), TMSG_ERR_TIMED_OUT);
    must_eq(pthread_create(&thread, NULL, warm_up, &warming), 0);
    must(tmsg_bell_warm(scene.sends, PEERS_BOUND_MS));
    must_eq(pthread_join(thread, NULL), 0);
    must(warming.status);
    start_both(&scene, MIDDLE, 5);
    must_eq(played_join(&scene.receiver), 0);
    must_eq(played_join(&scene.sender), 0);
    must(tmsg_bell_warm(scene.sends, 0)); /* it is warm */
    close_scene(&scene);
}

/* What waits goes on, and so does whatever rings later. */
static void check_failed(played_t *kernel, tmsg_status_t status)
{
    must_eq(played_join(kernel), status);
    must_be(tmsg_bell_status(kernel->bell), status);
    played_send(kernel, kernel->bell, kernel->data, kernel->bytes, 5);
    must_eq(played_join(kernel), status);
    must_eq(kernel->done, 0);
}

Test(bell, a_peer_that_is_lost_releases_who_waits)
{
    scene_t scene;

    open_scene(&scene, LINK_TCP, MIDDLE);
    start_both(&scene, MIDDLE, UINT64_MAX - 1);
    while (__atomic_load_n(&scene.receiver.done, __ATOMIC_RELAXED) < 3) {
        sched_yield();
    }
    must(tmsg_endpoint_abort(scene.pair.to_b, TMSG_ERR_REFUSED, "no more"));
    check_failed(&scene.sender, TMSG_ERR_REFUSED);
    must_say(tmsg_bell_error(scene.sends), "no more");
    must_be(played_join(&scene.receiver), TMSG_ERR_CANCELED);
    close_scene(&scene);
}

Test(bell, destroying_it_releases_who_waits)
{
    scene_t scene;
    void *line;

    open_scene(&scene, LINK_SHM, SMALL);
    played_receive(&scene.receiver, scene.receives, in, SMALL, 1);
    tmsg_bell_destroy(scene.receives);
    scene.receives = NULL;
    must_eq(played_join(&scene.receiver), TMSG_ERR_CANCELED);
    must(tmsg_bell_device(scene.sends, &line));
    tmsg_bell_destroy(scene.sends);
    scene.sends = NULL;
    scene.sender = (played_t){.line = line};
    must_eq(__atomic_load_n((uint64_t *)line + 8, __ATOMIC_ACQUIRE),
            (long long)UINT64_MAX);
    close_scene(&scene);
}

Test(bell, the_end_of_its_worker_releases_who_waits)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM, SMALL);
    played_receive(&scene.receiver, scene.receives, in, SMALL, 1);
    tmsg_worker_destroy(scene.pair.a.worker);
    scene.pair.a.worker = NULL;
    must_eq(played_join(&scene.receiver), TMSG_ERR_CANCELED);
    must_say(tmsg_bell_error(scene.receives), "worker");
    must_be(tmsg_bell_warm(scene.receives, 0), TMSG_ERR_CANCELED);
    tmsg_bell_destroy(scene.receives);
    tmsg_bell_destroy(scene.sends);
    tmsg_map_destroy(scene.from);
    tmsg_map_destroy(scene.into);
    side_close(&scene.pair.a);
    side_close(&scene.pair.b);
}

static void *drive(void *arg)
{
    scene_t *scene = arg;

    while (tmsg_bell_status(scene->receives) == TMSG_OK &&
           __atomic_load_n(&scene->receiver.done, __ATOMIC_RELAXED) <
               scene->receiver.rounds) {
        tmsg_worker_progress(scene->pair.a.worker);
    }
    return NULL;
}

/* A thread drives while another one copies a map into place; messages wait
 * meanwhile. */
Test(bell, threads_that_drive_at_the_same_time_receive_each_map_once)
{
    const uint64_t rounds = 60;
    pthread_t driver;
    scene_t scene;

    open_scene(&scene, LINK_SHM, MIDDLE);
    for (uint64_t n = 1; n <= rounds; n++) {
        uint8_t *data = malloc(MIDDLE);
        const played_t as = {.data = data, .bytes = MIDDLE};
        tmsg_map_t *map = played_map(data, MIDDLE);

        played_fill(&as, n);
        must(pair_finish(&scene.pair, send_map(scene.pair.to_a, map, 0)));
        free(data);
    }
    played_receive(&scene.receiver, scene.receives, in, MIDDLE, rounds);
    must_eq(pthread_create(&driver, NULL, drive, &scene), 0);
    must_eq(played_join(&scene.receiver), 0);
    must_eq(pthread_join(driver, NULL), 0);
    close_scene(&scene);
}

typedef struct {
    tmsg_bell_t *bell;
    tmsg_worker_t *worker; /* NULL: it stays */
    _Atomic bool done;
} ending_t;

static void end_inside(void *arg, tmsg_message_t *message)
{
    ending_t *ending = arg;

    tmsg_message_destroy(message);
    tmsg_bell_destroy(ending->bell);
    if (ending->worker != NULL) {
        tmsg_worker_destroy(ending->worker);
    }
    ending->done = true;
}

static bool has_ended(void *arg) { return ((ending_t *)arg)->done; }

/* A handler ends a bell, and its worker, while the bell sends. */
static void end_in_a_callback(bool worker)
{
    ending_t ending = {.done = false};
    const side_options_t handles = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = end_inside,
                   .handler_arg = &ending}};
    tmsg_map_t *map = played_map(out, LARGE);
    played_t kernel;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_THREAD, &handles, NULL);
    must(tmsg_bell_create(pair.to_b, map, NULL, &ending.bell));
    ending.worker = worker ? pair.a.worker : NULL;
    played_send(&kernel, ending.bell, out, LARGE, 1000);
    tmsg_message_destroy(pair_take(&pair, &pair.b));
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, SMALL), 0));
    pair_await(&pair, has_ended, &ending, "the end of the bell");
    must_eq(played_join(&kernel), TMSG_ERR_CANCELED);
    if (worker) {
        pair.a.worker = NULL;
        side_close(&pair.a);
        side_close(&pair.b);
    } else {
        pair_drop(&pair);
    }
    tmsg_map_destroy(map);
}

Test(bell, a_callback_destroys_it)
{
    end_in_a_callback(false);
    end_in_a_callback(true);
}

Test(bell, the_child_of_a_fork_leaves_it_alone)
{
    scene_t scene;
    int status;
    pid_t pid;

    open_scene(&scene, LINK_TCP, SMALL);
    pid = fork();
    if (pid == 0) {
        tmsg_bell_destroy(scene.sends);
        tmsg_bell_destroy(scene.receives);
        _exit(0);
    }
    must_eq(waitpid(pid, &status, 0), pid);
    must_eq(status, 0);
    start_both(&scene, SMALL, 1);
    must_eq(played_join(&scene.sender), 0);
    must_eq(played_join(&scene.receiver), 0);
    close_scene(&scene);
}

/* One that was destroyed makes room. */
Test(bell, one_bell_receives_from_an_endpoint)
{
    tmsg_map_t *other = played_map(out, SMALL);
    tmsg_bell_t *bell;
    scene_t scene;

    open_scene(&scene, LINK_TCP, SMALL);
    must_be(tmsg_bell_receive(scene.pair.to_b, other, &bell), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "another bell");
    tmsg_bell_destroy(scene.receives);
    must(tmsg_bell_receive(scene.pair.to_b, other, &scene.receives));
    close_scene(&scene);
    tmsg_map_destroy(other);
}

/* The message of another shape stays, for who receives it otherwise. */
Test(bell, a_map_of_another_shape_fails_it)
{
    tmsg_message_t *message;
    tmsg_map_t *other;
    scene_t scene;

    open_scene(&scene, LINK_SHM, SMALL);
    played_receive(&scene.receiver, scene.receives, in, SMALL, 1);
    other = played_map(out, SMALL + 1);
    tmsg_request_destroy(send_map(scene.pair.to_a, other, 0));
    must_eq(played_join(&scene.receiver), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_bell_error(scene.receives), "data");
    message = pair_take(&scene.pair, &scene.pair.a);
    must_eq(tmsg_map_size(tmsg_message_map(message)), 1);
    tmsg_message_destroy(message);
    close_scene(&scene);
}

/* A peer's limit is met when the bell rings; it fails once and for ever. */
Test(bell, a_send_that_fails_fails_it)
{
    const side_options_t small = {
        .drive = DRIVE_THREAD,
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 1000}};
    tmsg_map_t *map = played_map(out, MIDDLE);
    tmsg_bell_t *bell;
    played_t kernel;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_THREAD, &small, NULL);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    must_be(tmsg_bell_warm(bell, PEERS_BOUND_MS), TMSG_ERR_LIMIT_EXCEEDED);
    played_send(&kernel, bell, out, MIDDLE, 1);
    check_failed(&kernel, TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

/* A ring waits for room, whatever the queue's policy. */
Test(bell, it_waits_for_room_in_the_queue)
{
    static const tmsg_queue_params_t narrow = {
        .field_mask = TMSG_QUEUE_PARAM_MESSAGES | TMSG_QUEUE_PARAM_POLICY,
        .messages = 1,
        .policy = TMSG_QUEUE_BLOCK};
    const side_options_t small = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    tmsg_map_t *map = played_map(out, SMALL);
    tmsg_bell_t *bell;
    played_t kernel;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_THREAD, &small, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &narrow));
    for (int i = 0; i < 2; i++) { /* one is taken, one waits */
        tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, SMALL), 0));
    }
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    played_send(&kernel, bell, out, SMALL, 3);
    for (int i = 0; i < 5; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    must_eq(played_join(&kernel), 0);
    tmsg_bell_destroy(bell);
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

static tmsg_status_t try_params(pair_t *pair, const tmsg_map_t *map,
                                const tmsg_send_params_t *params)
{
    tmsg_bell_t *bell;
    tmsg_status_t status = tmsg_bell_create(pair->to_a, map, params, &bell);

    if (status == TMSG_OK) {
        tmsg_bell_destroy(bell);
    }
    return status;
}

static void on_message(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

Test(bell, what_no_bell_can_do_is_refused_when_it_is_made)
{
    const side_options_t handled = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = on_message}};
    tmsg_map_t *map = played_map(out, SMALL), *twice = played_map(in, SMALL);
    int64_t shape[] = {SMALL};
    tmsg_tensor_t tensor = {.data = in + 10,
                            .ndim = 1,
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .device = {TMSG_DEVICE_CPU, 0},
                            .shape = shape};
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                 .flags = TMSG_SEND_TRY};
    tmsg_endpoint_t *dialled;
    tmsg_bell_t *bell;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, &handled, NULL);
    must_be(tmsg_bell_create(pair.to_a, NULL, NULL, &bell),
            TMSG_ERR_INVALID_PARAM);
    must_be(try_params(&pair, map, &params), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "TMSG_SEND_TRY");
    params.flags = TMSG_SEND_LEND;
    must_be(try_params(&pair, map, &params), TMSG_ERR_INVALID_PARAM);
    params.flags = TMSG_SEND_ACKED;
    must(try_params(&pair, map, &params));
    params.field_mask = TMSG_SEND_PARAM_ON_DONE;
    must_be(try_params(&pair, map, &params), TMSG_ERR_INVALID_PARAM);
    params = (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_TIMEOUT};
    must_be(try_params(&pair, map, &params), TMSG_ERR_INVALID_PARAM);
    params = (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                  .channel = 1000};
    must_be(try_params(&pair, map, &params), TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_bell_receive(pair.to_b, map, &bell), TMSG_ERR_INVALID_PARAM);
    must(tmsg_map_add(twice, "again", &tensor, NULL));
    must_be(tmsg_bell_receive(pair.to_a, twice, &bell), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "again");
    dialled = side_dial(&pair.b, &pair.a);
    must_be(tmsg_bell_create(dialled, map, NULL, &bell), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "not connected");
    tmsg_endpoint_destroy(dialled);
    must(tmsg_endpoint_close(pair.to_a, NULL));
    must_be(tmsg_bell_create(pair.to_a, map, NULL, &bell), TMSG_ERR_CLOSED);
    pair_drop(&pair);
    tmsg_map_destroy(map);
    tmsg_map_destroy(twice);
}

/* No stream rings what a kernel rings, nor what no device reaches. */
Test(bell, it_has_one_kind_of_poster)
{
    tmsg_map_t *map = played_map(out, SMALL);
    tmsg_stream_t stream = {TMSG_STREAM_CUDA, 2};
    tmsg_bell_t *bell;
    pair_t pair;
    void *line;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    must(tmsg_bell_device(bell, &line));
    must_be(tmsg_bell_ring(bell, stream), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "kernel");
    tmsg_bell_destroy(bell);
    must(tmsg_bell_create(pair.to_a, map, NULL, &bell));
    must_be(tmsg_bell_await(bell, stream), TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_bell_device(bell, &line), TMSG_ERR_INVALID_PARAM);
    tmsg_bell_destroy(bell);
    pair_drop(&pair);
    tmsg_map_destroy(map);
}

/* What is rung while the connection is away goes when it is back, by the same
 * session. */
Test(bell, it_outlives_a_break)
{
    const how_t how = {.drive = DRIVE_THREAD};
    tmsg_map_t *from = played_map(out, SMALL), *into = played_map(in, SMALL);
    tmsg_bell_t *sends, *receives;
    played_t sender, receiver;
    joined_t joined;

    joined_open(&joined, &how);
    must(tmsg_bell_create(joined.pair.to_a, from, NULL, &sends));
    must(tmsg_bell_receive(joined.pair.to_b, into, &receives));
    joined_break(&joined);
    must_be(tmsg_bell_create(joined.pair.to_a, from, NULL, &sends),
            TMSG_ERR_BUSY);
    played_receive(&receiver, receives, in, SMALL, 5);
    played_send(&sender, sends, out, SMALL, 5);
    joined_mend(&joined);
    must_eq(played_join(&sender), 0);
    must_eq(played_join(&receiver), 0);
    tmsg_bell_destroy(sends);
    tmsg_bell_destroy(receives);
    joined_drop(&joined);
    tmsg_map_destroy(from);
    tmsg_map_destroy(into);
}
