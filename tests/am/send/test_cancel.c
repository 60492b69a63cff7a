/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends that are given up, by the application or at a deadline: the wait ends
 * at once, lent memory comes back when nothing can read it any more, the peer
 * is told, and no other send is harmed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"
#include "support/failing_alloc.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

#define LARGE 3000000
#define HELD 5000000 /* one large message fits */

/* What happened, in letters: 'l' a buffer was released, 'd' on_done, 'm' the
 * map's own release function. */
typedef struct {
    pair_t pair;
    char story[32];
    tmsg_status_t status;
    unsigned refused; /* of a's on_refused */
    tmsg_status_t refusal;
    char why[256];
} scene_t;

static void write_down(scene_t *scene, char what)
{
    scene->story[strlen(scene->story)] = what;
}

static void on_release(void *arg) { write_down(arg, 'l'); }
static void on_map_release(void *arg) { write_down(arg, 'm'); }

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    scene_t *scene = arg;

    (void)error;
    scene->status = status;
    write_down(scene, 'd');
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;

    (void)channel;
    (void)endpoint;
    (void)sequence;
    scene->refused++;
    scene->refusal = status;
    snprintf(scene->why, sizeof(scene->why), "%s", error);
}

/* `depth` messages may wait at a. */
static void open_scene(scene_t *scene, link_t link, uint32_t depth)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD},
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH |
                                 TMSG_WORKER_PARAM_ON_REFUSED,
                   .queue_depth = depth,
                   .on_refused = on_refused,
                   .on_refused_arg = scene}};

    if (link != LINK_TCP) { /* what UCX holds is what is looked at */
        by_ucx_alone();
    }
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, link, DRIVE_POLLING, &a, NULL);
}

/* A map that borrows the buffer. */
static tmsg_map_t *map_of(void *buffer, size_t bytes, tmsg_release_fn release,
                          void *arg)
{
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = release,
                                          .release_arg = arg};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, release == NULL ? NULL : &params));
    return map;
}

/* With the scene's callbacks. */
static tmsg_request_t *send_told(scene_t *scene, tmsg_map_t *map,
                                 uint32_t flags)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_DONE |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = flags,
                                       .on_done = on_done,
                                       .on_done_arg = scene,
                                       .on_release = on_release,
                                       .on_release_arg = scene};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(scene->pair.to_a, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static void take_seed(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void expect_said(const tmsg_endpoint_t *endpoint, const char *words)
{
    char *json;

    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, words);
    tmsg_string_free(json);
}

static bool has_story(void *arg)
{
    scene_t *scene = arg;

    return strchr(scene->story, 'd') != NULL;
}

static bool was_refused(void *arg) { return ((scene_t *)arg)->refused > 0; }

static bool has_arrived(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->ready.count > 0;
}

static bool is_released(void *arg)
{
    tmsg_status_t status = tmsg_request_test(arg);

    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

Test(cancel, what_waits_ends_at_once_and_is_never_sent)
{
    tmsg_request_t *sent[3];
    scene_t scene;

    open_scene(&scene, LINK_SHM, 1);
    sent[0] = send_map(scene.pair.to_a, sample_bytes(0, 100), 0);
    sent[1] = send_told(&scene, sample_bytes(1, 100), TMSG_SEND_ACKED);
    sent[2] = send_map(scene.pair.to_a, sample_bytes(2, 100), 0);
    must_be(tmsg_request_cancel(sent[1]), TMSG_ERR_CANCELED);
    must_be(tmsg_request_wait(sent[1], 0), TMSG_ERR_CANCELED);
    must_say(tmsg_error_message(), tmsg_endpoint_peer(scene.pair.to_a));
    must_say(tmsg_error_message(), "canceled by its sender");
    expect_said(scene.pair.to_a, "\"waiting_messages\":\t1,");
    expect_said(scene.pair.to_a, "\"canceled_messages\":\t1,");
    pair_await(&scene.pair, has_story, &scene, "on_done");
    cr_expect_str_eq(scene.story, "ld");
    take_seed(&scene.pair, 0, 100);
    take_seed(&scene.pair, 2, 100);
    must(pair_finish(&scene.pair, sent[0]));
    must(pair_finish(&scene.pair, sent[2]));
    must_be(tmsg_request_cancel(sent[1]), TMSG_ERR_CANCELED); /* again */
    tmsg_request_destroy(sent[1]);
    pair_close(&scene.pair);
    cr_expect(zero(uint, scene.refused)); /* it had no number */
}

Test(cancel, what_waits_for_the_connection_ends_at_once)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[64];
    side_t side;

    raw_listen(url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    sent = send_map(endpoint, sample_bytes(0, LARGE), 0);
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    tmsg_request_destroy(sent);
    side_close(&side);
}

Test(cancel, what_has_ended_stays_as_it_was)
{
    tmsg_request_t *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = send_map(scene.pair.to_a, sample_bytes(0, 100), TMSG_SEND_ACKED);
    take_seed(&scene.pair, 0, 100);
    must(pair_wait(&scene.pair, sent));
    must(tmsg_request_cancel(sent));
    must(tmsg_request_test(sent));
    pair_close(&scene.pair);
    must(tmsg_request_cancel(sent)); /* its worker is gone */
    tmsg_request_destroy(sent);
}

/* The message has come, and the application has not taken it. */
Test(cancel, the_peer_drops_what_its_application_has_not_taken)
{
    tmsg_message_t *message;
    tmsg_request_t *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = send_told(&scene, sample_bytes(0, 100), TMSG_SEND_ACKED);
    pair_await(&scene.pair, has_arrived, scene.pair.to_b, "the message");
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    pair_await(&scene.pair, was_refused, &scene, "on_refused");
    must_be(scene.refusal, TMSG_ERR_CANCELED);
    cr_expect_str_eq(scene.why, "given up by its sender: canceled by its "
                                "sender");
    must_be(tmsg_worker_recv(scene.pair.a.worker, 0, &message),
            TMSG_ERR_TIMED_OUT);
    expect_said(scene.pair.to_b, "\"aborted_messages\":\t1,");
    expect_said(scene.pair.to_b, "\"refused_messages\":\t0,");
    expect_said(scene.pair.to_b, "\"received_messages\":\t0,");
    tmsg_request_destroy(sent);
    for (uint64_t i = 0; i < 20; i++) { /* no credit was lost */
        sent = send_map(scene.pair.to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
        take_seed(&scene.pair, i, 100);
        must(pair_finish(&scene.pair, sent));
    }
    pair_close(&scene.pair);
}

/* The acknowledgement is on its way when the sender gives up. */
Test(cancel, what_the_peer_took_just_before_is_canceled_here)
{
    tmsg_message_t *message = NULL;
    tmsg_request_t *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = send_map(scene.pair.to_a, sample_bytes(0, 100), TMSG_SEND_ACKED);
    pair_await(&scene.pair, has_arrived, scene.pair.to_b, "the message");
    must(tmsg_worker_recv(scene.pair.a.worker, 0, &message));
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    tmsg_request_destroy(sent);
    tmsg_message_destroy(message);
    sent = send_map(scene.pair.to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
    take_seed(&scene.pair, 1, 100);
    must(pair_finish(&scene.pair, sent));
    must_eq(scene.pair.to_a->posted.count, 0);
    pair_close(&scene.pair);
    cr_expect(zero(uint, scene.refused));
}

static bool is_whole_behind(void *arg)
{
    const tmsg_message_t *first = ((tmsg_endpoint_t *)arg)->channels.zero.rx;

    return first != NULL && first->next_in_order != NULL &&
           first->next_in_order->state == TMSG_RX_WHOLE;
}

/* A message that came behind one that waits for memory. */
Test(cancel, what_came_too_soon_is_skipped_in_its_turn)
{
    tmsg_request_t *sent[3];
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent[0] = send_map(scene.pair.to_a, sample_bytes(0, LARGE), 0);
    pair_await(&scene.pair, has_arrived, scene.pair.to_b, "the first");
    sent[1] = send_map(scene.pair.to_a, sample_bytes(1, LARGE), 0);
    sent[2] = send_map(scene.pair.to_a, sample_bytes(2, 100), TMSG_SEND_ACKED);
    pair_await(&scene.pair, is_whole_behind, scene.pair.to_b, "the third");
    must_be(tmsg_request_cancel(sent[2]), TMSG_ERR_CANCELED);
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(scene.pair.b.worker);
        tmsg_worker_progress(scene.pair.a.worker);
    }
    must_eq(scene.refused, 0); /* its turn has not come */
    take_seed(&scene.pair, 0, LARGE);
    take_seed(&scene.pair, 1, LARGE);
    pair_await(&scene.pair, was_refused, &scene, "on_refused");
    for (int i = 0; i < 3; i++) {
        must_be(pair_finish(&scene.pair, sent[i]),
                i == 2 ? TMSG_ERR_CANCELED : TMSG_OK);
    }
    pair_close(&scene.pair);
}

/* A rendezvous for which the receiver has no memory while it holds another. */
static tmsg_request_t *begin_rendezvous(scene_t *scene, tmsg_map_t *map,
                                        tmsg_request_t **before_p)
{
    tmsg_request_t *sent;

    *before_p = send_map(scene->pair.to_a, sample_bytes(1, LARGE), 0);
    pair_await(&scene->pair, has_arrived, scene->pair.to_b, "the first");
    sent = send_told(scene, map, 0);
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
    }
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    return sent;
}

static void lent(link_t link)
{
    uint8_t *buffer = malloc(LARGE);
    tmsg_request_t *before, *sent;
    scene_t scene;

    open_scene(&scene, link, 4);
    memset(buffer, 1, LARGE);
    sent = begin_rendezvous(&scene, map_of(buffer, LARGE, NULL, NULL), &before);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    must_be(tmsg_request_wait(sent, -1), TMSG_CANCEL_PENDING); /* at once */
    must_say(tmsg_request_error(sent), "canceled by its sender");
    must_be(tmsg_request_wait_released(sent, 20), TMSG_ERR_TIMED_OUT);
    must_be(tmsg_request_test(sent), TMSG_CANCEL_PENDING);
    cr_expect_str_eq(scene.story, "");
    pair_await(&scene.pair, has_story, &scene, "on_done");
    cr_expect_str_eq(scene.story, "ld");
    must_be(scene.status, TMSG_ERR_CANCELED);
    must_be(tmsg_request_wait_released(sent, 0), TMSG_ERR_CANCELED);
    must_say(tmsg_error_message(), "canceled by its sender");
    memset(buffer, 2, LARGE);
    free(buffer);
    tmsg_request_destroy(sent);
    sent = send_map(scene.pair.to_a, sample_bytes(3, 100), 0);
    take_seed(&scene.pair, 1, LARGE);
    take_seed(&scene.pair, 3, 100);
    must(pair_finish(&scene.pair, before));
    must(pair_finish(&scene.pair, sent));
    pair_await(&scene.pair, was_refused, &scene, "on_refused");
    pair_close(&scene.pair);
    must_eq(scene.refused, 1);
    must_be(scene.refusal, TMSG_ERR_CANCELED);
}

Test(cancel, what_was_lent_comes_back_when_ucx_has_let_go_shm)
{
    lent(LINK_SHM);
    lent(LINK_UNIX);
}
Test(cancel, what_was_lent_comes_back_when_ucx_has_let_go_tcp)
{
    setenv("UCX_TLS", "tcp,self", 1);
    by_ucx_alone();
    lent(LINK_SHM);
}
Test(cancel, what_was_lent_comes_back_when_ucx_has_let_go_blob)
{
    lent(LINK_BLOB);
}

/* The map has a release function, so nobody has to wait for its data. */
Test(cancel, what_the_library_holds_keeps_nobody_waiting)
{
    uint8_t *buffer = calloc(1, LARGE);
    tmsg_request_t *before, *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = begin_rendezvous(
        &scene, map_of(buffer, LARGE, on_map_release, &scene), &before);
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    must_be(tmsg_request_wait_released(sent, 0), TMSG_ERR_CANCELED);
    tmsg_request_destroy(sent);
    for (int i = 0; i < 20; i++) {
        tmsg_worker_progress(scene.pair.b.worker);
    }
    cr_expect_str_eq(scene.story, "ld"); /* the data is not back yet */
    take_seed(&scene.pair, 1, LARGE);
    must(pair_finish(&scene.pair, before));
    pair_close(&scene.pair);
    cr_expect_str_eq(scene.story, "ldm");
    free(buffer);
}

static void take_buffer(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);
    tmsg_tensor_t tensor;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    must_eq(sample_compare(seed, tensor.data, bytes), bytes);
    tmsg_message_destroy(message);
}

Test(cancel, a_peer_that_knows_no_abort_delivers_it)
{
    uint8_t *buffer = malloc(LARGE);
    tmsg_request_t *before, *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    scene.pair.to_a->peer_hello.aborts = 0;
    sample_fill(2, buffer, LARGE);
    sent = begin_rendezvous(&scene, map_of(buffer, LARGE, NULL, NULL), &before);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    take_seed(&scene.pair, 1, LARGE);
    take_buffer(&scene.pair, 2, LARGE);
    pair_await(&scene.pair, is_released, sent, "the end of the send");
    must_be(pair_finish(&scene.pair, sent), TMSG_ERR_CANCELED);
    must(pair_finish(&scene.pair, before));
    pair_close(&scene.pair);
    free(buffer);
    cr_expect(zero(uint, scene.refused));
}

/* The connection ends while a cancel is pending. */
Test(cancel, what_is_pending_ends_with_the_connection_as_what_it_was)
{
    uint8_t *buffer = calloc(1, LARGE);
    tmsg_request_t *before, *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = begin_rendezvous(&scene, map_of(buffer, LARGE, NULL, NULL), &before);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    tmsg_endpoint_destroy(scene.pair.to_a);
    pair_await(&scene.pair, is_released, sent, "the end of the send");
    must_be(pair_finish(&scene.pair, sent), TMSG_ERR_CANCELED);
    cr_expect_str_eq(scene.story, "ld");
    tmsg_request_destroy(before);
    pair_drop(&scene.pair);
    free(buffer);
}

Test(cancel, of_a_connect_or_a_close_ends_the_wait_alone)
{
    tmsg_request_t *ready[3], *closed[2];
    tmsg_endpoint_t *endpoint;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    endpoint = side_dial(&scene.pair.b, &scene.pair.a);
    for (int i = 0; i < 3; i++) {
        must(tmsg_endpoint_ready(endpoint, &ready[i]));
    }
    must_be(tmsg_request_cancel(ready[1]), TMSG_ERR_CANCELED);
    must_say(tmsg_request_error(ready[1]), tmsg_endpoint_peer(endpoint));
    must(pair_finish(&scene.pair, ready[0]));
    must(pair_finish(&scene.pair, ready[2]));
    tmsg_request_destroy(ready[1]);
    must(tmsg_endpoint_close(endpoint, &closed[0]));
    must(tmsg_endpoint_close(endpoint, &closed[1]));
    must_be(tmsg_request_cancel(closed[0]), TMSG_ERR_CANCELED);
    must(pair_finish(&scene.pair, closed[1]));
    tmsg_request_destroy(closed[0]);
    tmsg_endpoint_destroy(endpoint);
    pair_close(&scene.pair);
}

Test(cancel, what_is_pending_ends_with_the_worker)
{
    uint8_t *buffer = calloc(1, LARGE);
    tmsg_request_t *before, *sent;
    scene_t scene;

    open_scene(&scene, LINK_SHM, 4);
    sent = begin_rendezvous(&scene, map_of(buffer, LARGE, NULL, NULL), &before);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    side_close(&scene.pair.b);
    must_be(tmsg_request_test(sent), TMSG_ERR_CANCELED);
    must_be(tmsg_request_cancel(sent), TMSG_ERR_CANCELED);
    must_be(tmsg_request_wait_released(sent, -1), TMSG_ERR_CANCELED);
    cr_expect_str_eq(scene.story, "ld");
    tmsg_request_destroy(before);
    tmsg_request_destroy(sent);
    side_close(&scene.pair.a);
    free(buffer);
}

typedef struct {
    tmsg_request_t *other;
    tmsg_status_t status, waited;
    bool called;
} inner_t;

static void cancel_other(void *arg, tmsg_status_t status, const char *error)
{
    inner_t *inner = arg;

    (void)status;
    (void)error;
    inner->status = tmsg_request_cancel(inner->other);
    inner->waited = tmsg_request_wait_released(inner->other, -1);
    tmsg_request_destroy(inner->other);
    inner->called = true;
}

static bool was_called(void *arg) { return ((inner_t *)arg)->called; }

/* Cancels a send that waits, and one that UCX has. */
Test(cancel, may_be_done_in_a_callback)
{
    static uint8_t buffer[LARGE];

    for (size_t bytes = 100; bytes <= LARGE; bytes += LARGE - 100) {
        inner_t inner = {0};
        const tmsg_send_params_t params = {.field_mask =
                                               TMSG_SEND_PARAM_ON_DONE,
                                           .on_done = cancel_other,
                                           .on_done_arg = &inner};
        tmsg_request_t *first;
        tmsg_map_t *map;
        scene_t scene;

        open_scene(&scene, LINK_SHM, bytes == 100 ? 1 : 4);
        map = sample_bytes(1, LARGE);
        must(tmsg_endpoint_send(scene.pair.to_a, map, &params, &first));
        tmsg_map_destroy(map);
        inner.other =
            send_map(scene.pair.to_a, map_of(buffer, bytes, NULL, NULL), 0);
        pair_await(&scene.pair, was_called, &inner, "on_done");
        if (bytes == 100) {
            must_be(inner.status, TMSG_ERR_CANCELED);
            must_be(inner.waited, TMSG_ERR_CANCELED);
        } else {
            must_be(inner.status, TMSG_CANCEL_PENDING);
            must_be(inner.waited, TMSG_ERR_WOULD_BLOCK);
        }
        take_seed(&scene.pair, 1, LARGE);
        must(pair_finish(&scene.pair, first));
        pair_close(&scene.pair);
    }
}

/* Every allocation of a cancel fails in turn; the cancel has its effect all the
 * same. */
Test(cancel, needs_no_memory)
{
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        uint8_t *buffer = calloc(1, LARGE);
        tmsg_request_t *before, *sent;
        scene_t scene;

        open_scene(&scene, LINK_SHM, 4);
        sent = begin_rendezvous(&scene, map_of(buffer, LARGE, NULL, NULL),
                                &before);
        failing_alloc_arm(n);
        must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
        failed = failing_alloc_disarm();
        take_seed(&scene.pair, 1, LARGE);
        pair_await(&scene.pair, is_released, sent, "the end of the send");
        must_be(pair_finish(&scene.pair, sent), TMSG_ERR_CANCELED);
        must(pair_finish(&scene.pair, before));
        pair_drop(&scene.pair);
        free(buffer);
    }
}
