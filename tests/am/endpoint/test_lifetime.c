/* SPDX-License-Identifier: BSD-3-Clause */
/* How long objects live, when callbacks are called, and how connections end. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static tmsg_message_t *deliver(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_request_destroy(send_map(pair->to_a, sample_bytes(seed, bytes), 0));
    return pair_take(pair, &pair->a);
}

static const size_t small_and_large[] = {10, 8000, 300000, 5000000};

Test(lifetime, a_message_outlives_endpoint_worker_and_context)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_message_t *messages[4];
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        for (size_t i = 0; i < 4; i++) {
            messages[i] = deliver(&pair, i, small_and_large[i]);
        }
        tmsg_endpoint_destroy(pair.to_b);
        pair_drop(&pair);
        for (size_t i = 0; i < 4; i++) {
            tmsg_endpoint_t *endpoint = tmsg_message_endpoint(messages[i]);
            tmsg_map_t *map = sample_bytes(1, 5);
            tmsg_message_t *none;
            tmsg_request_t *request;
            char *json;

            sample_check_bytes(i, small_and_large[i],
                               tmsg_message_map(messages[i]));
            must_be(tmsg_endpoint_status(endpoint), TMSG_ERR_CLOSED);
            must_say(tmsg_endpoint_peer(endpoint), "pid");
            must_be(tmsg_endpoint_send(endpoint, map, NULL, NULL),
                    TMSG_ERR_CLOSED);
            must_be(tmsg_endpoint_recv(endpoint, 0, &none), TMSG_ERR_CLOSED);
            must_be(tmsg_endpoint_close(endpoint, NULL), TMSG_ERR_CLOSED);
            must_be(tmsg_endpoint_ready(endpoint, &request), TMSG_ERR_CLOSED);
            must_be(tmsg_endpoint_describe(endpoint, &json), TMSG_ERR_CLOSED);
            tmsg_map_destroy(map);
            tmsg_message_destroy(messages[i]);
        }
    }
}

static void *destroy_message(void *message)
{
    tmsg_message_destroy(message);
    return NULL;
}

Test(lifetime, a_message_may_be_released_from_another_thread)
{
    for (int after = 0; after < 2; after++) {
        tmsg_message_t *message;
        pthread_t thread;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        message = deliver(&pair, 1, 1000000);
        if (after) {
            pair_drop(&pair);
        }
        must_eq(pthread_create(&thread, NULL, destroy_message, message), 0);
        must_eq(pthread_join(thread, NULL), 0);
        if (!after) {
            pair_drop(&pair);
        }
    }
}

/* A map whose release counts. */
static atomic_uint releases;

static void count_release(void *arg)
{
    atomic_fetch_add(&releases, 1);
    free(arg);
}

static tmsg_map_t *counted_map(size_t tensors, size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < tensors; i++) {
        tmsg_tensor_t tensor = {malloc(bytes),
                                {TMSG_DEVICE_CPU, 0},
                                {TMSG_DTYPE_UINT, 8, 1},
                                1,
                                shape,
                                NULL};
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = count_release,
                                              .release_arg = tensor.data};
        char name[32];

        memset(tensor.data, (int)i, bytes);
        snprintf(name, sizeof(name), "%zu", i);
        must(tmsg_map_add(map, name, &tensor, &params));
    }
    return map;
}

static bool all_released(void *arg)
{
    return atomic_load(&releases) == *(unsigned *)arg;
}

/* Owned data is released once, and not before the send has ended. */
Test(lifetime, owned_tensors_are_released_once_after_the_send)
{
    static const size_t bytes[] = {10, 100000, 4000000};

    for (link_t link = 0; link < LINKS; link++) {
        for (size_t i = 0; i < 3; i++) {
            unsigned wanted = 3;
            tmsg_map_t *map = counted_map(3, bytes[i]);
            tmsg_request_t *sent;
            pair_t pair;

            atomic_store(&releases, 0);
            pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
            must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
            if (tmsg_request_test(sent) == TMSG_IN_PROGRESS) {
                cr_expect(eq(uint, atomic_load(&releases), 0));
            }
            tmsg_map_destroy(map);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
            must(pair_finish(&pair, sent));
            pair_await(&pair, all_released, &wanted, "the release of tensors");
            pair_close(&pair);
            cr_expect(eq(uint, atomic_load(&releases), 3));
        }
    }
}

Test(lifetime, owned_tensors_are_released_once_when_the_send_fails)
{
    for (int how = 0; how < 4; how++) {
        tmsg_map_t *map = counted_map(2, 50000000);
        tmsg_request_t *sent;
        pair_t pair;

        atomic_store(&releases, 0);
        pair_open(&pair, how % 2 ? LINK_TCP : LINK_SHM, DRIVE_POLLING, NULL,
                  NULL);
        must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
        tmsg_map_destroy(map);
        if (how < 2) {
            tmsg_endpoint_destroy(pair.to_a);
            must_be(pair_finish(&pair, sent), TMSG_ERR_CANCELED);
        } else {
            tmsg_endpoint_destroy(pair.to_b);
            must_be(pair_finish(&pair, sent), TMSG_ERR_PEER_LOST);
        }
        pair_drop(&pair);
        cr_expect(eq(uint, atomic_load(&releases), 2));
    }
}

Test(lifetime, a_map_under_way_may_be_read_but_not_changed)
{
    const int64_t shape[] = {1};
    uint8_t byte = 0;
    const tmsg_tensor_t tensor = {
        &byte, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map = sample_bytes(1, 30000000);
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    must_be(tmsg_map_add(map, "more", &tensor, NULL), TMSG_ERR_BUSY);
    must_be(tmsg_map_remove(map, "weights 0"), TMSG_ERR_BUSY);
    must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
    must_be(tmsg_map_set_i64(map, "a", 1), TMSG_ERR_BUSY);
    must_be(tmsg_map_remove_meta(map, "least"), TMSG_ERR_BUSY);
    sample_check_bytes(1, 30000000, map);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    must(tmsg_map_add(map, "more", &tensor, NULL));
    must(tmsg_map_clear(map));
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* What a callback was told. */
typedef struct {
    atomic_uint calls;
    tmsg_status_t status;
    char error[512];
    tmsg_endpoint_t *endpoint;
} told_t;

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    told_t *told = arg;

    told->status = status;
    snprintf(told->error, sizeof(told->error), "%s", error);
    atomic_fetch_add(&told->calls, 1);
}

static bool was_told(void *arg)
{
    return atomic_load(&((told_t *)arg)->calls) > 0;
}

static tmsg_send_params_t telling(told_t *told, unsigned flags)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_FLAGS,
        .flags = flags,
        .on_done = on_done,
        .on_done_arg = told,
    };

    memset(told, 0, sizeof(*told));
    return params;
}

Test(lifetime, on_done_is_called_once_although_the_request_is_gone)
{
    static const unsigned flags[] = {0, TMSG_SEND_ACKED};

    for (drive_t drive = 0; drive < DRIVES; drive++) {
        pair_t pair;

        pair_open(&pair, LINK_SHM, drive, NULL, NULL);
        for (size_t i = 0; i < 8; i++) {
            told_t told;
            tmsg_send_params_t params = telling(&told, flags[i % 2]);
            tmsg_map_t *map = sample_bytes(i, small_and_large[i / 2]);
            tmsg_request_t *sent;

            must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
            tmsg_map_destroy(map);
            tmsg_request_destroy(sent);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
            pair_await(&pair, was_told, &told, "on_done");
            must(told.status);
            cr_expect(eq(str, told.error, (char *)(uintptr_t) ""));
            cr_expect(eq(uint, atomic_load(&told.calls), 1));
        }
        pair_close(&pair);
    }
}

Test(lifetime, on_done_tells_why_a_send_failed)
{
    told_t told;
    tmsg_send_params_t params = telling(&told, TMSG_SEND_ACKED);
    tmsg_map_t *map = sample_bytes(1, 10);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
    tmsg_map_destroy(map);
    tmsg_endpoint_destroy(pair.to_b);
    pair_await(&pair, was_told, &told, "on_done");
    must_be(told.status, TMSG_ERR_PEER_LOST);
    must_say(told.error, tmsg_endpoint_peer(pair.to_a));
    pair_drop(&pair);
    cr_expect(eq(uint, atomic_load(&told.calls), 1));
}

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    told_t *told = arg;

    told->endpoint = endpoint;
    on_done(arg, status, error);
}

Test(lifetime, on_closed_tells_of_the_peers_orderly_end)
{
    for (link_t link = 0; link < LINKS; link++) {
        told_t at_a = {.calls = 0}, at_b = {.calls = 0};
        tmsg_request_t *closed;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        tmsg_endpoint_on_closed(pair.to_b, on_closed, &at_a);
        tmsg_endpoint_on_closed(pair.to_a, on_closed, &at_b);
        must(tmsg_endpoint_close(pair.to_a, &closed));
        must(pair_finish(&pair, closed));
        pair_await(&pair, was_told, &at_a, "on_closed");
        must_be(at_a.status, TMSG_ERR_CLOSED);
        must_true(at_a.endpoint == pair.to_b);
        /* The side that closed is told by its request alone. */
        pair_drop(&pair);
        cr_expect(eq(uint, atomic_load(&at_a.calls), 1));
        cr_expect(eq(uint, atomic_load(&at_b.calls), 0));
    }
}

Test(lifetime, on_closed_tells_of_a_peer_that_ended_at_once)
{
    for (link_t link = 0; link < LINKS; link++) {
        told_t told = {.calls = 0}, late = {.calls = 0};
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        tmsg_endpoint_on_closed(pair.to_b, on_closed, &told);
        tmsg_endpoint_destroy(pair.to_a);
        pair_await(&pair, was_told, &told, "on_closed");
        must_be(told.status, TMSG_ERR_PEER_LOST);
        must_say(told.error, tmsg_endpoint_peer(pair.to_b));
        must_be(tmsg_endpoint_status(pair.to_b), TMSG_ERR_PEER_LOST);
        must_say(tmsg_endpoint_error(pair.to_b), told.error);
        /* Asked for late it still comes, if it did not yet. */
        tmsg_endpoint_on_closed(pair.to_b, on_closed, &late);
        pair_drop(&pair);
        cr_expect(eq(uint, atomic_load(&told.calls), 1));
        cr_expect(eq(uint, atomic_load(&late.calls), 0));
    }
}

Test(lifetime, on_closed_comes_late_where_the_end_came_first)
{
    told_t told = {.calls = 0};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_endpoint_destroy(pair.to_a);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
    tmsg_endpoint_on_closed(pair.to_b, on_closed, &told);
    pair_await(&pair, was_told, &told, "on_closed");
    must_be(told.status, TMSG_ERR_PEER_LOST);
    pair_drop(&pair);
}

/* Both sides have sent when one closes: everything still arrives, and both
 * end in order. */
static void close_in_order(link_t link, drive_t drive, bool both)
{
    enum { EACH = 16 };
    tmsg_request_t *closed[2] = {NULL, NULL};
    pair_t pair;

    pair_open(&pair, link, drive, NULL, NULL);
    for (uint64_t i = 0; i < EACH; i++) {
        size_t bytes = small_and_large[i % 4];

        tmsg_request_destroy(send_map(pair.to_a, sample_bytes(i, bytes), 0));
        tmsg_request_destroy(send_map(pair.to_b, sample_bytes(~i, bytes), 0));
    }
    must(tmsg_endpoint_close(pair.to_a, &closed[0]));
    if (both) {
        must(tmsg_endpoint_close(pair.to_b, &closed[1]));
    }
    for (uint64_t i = 0; i < EACH; i++) {
        tmsg_message_t *at_a = pair_take(&pair, &pair.a);
        tmsg_message_t *at_b = pair_take(&pair, &pair.b);

        sample_check_bytes(i, small_and_large[i % 4], tmsg_message_map(at_a));
        sample_check_bytes(~i, small_and_large[i % 4], tmsg_message_map(at_b));
        tmsg_message_destroy(at_a);
        tmsg_message_destroy(at_b);
    }
    must(pair_finish(&pair, closed[0]));
    if (both) {
        must(pair_finish(&pair, closed[1]));
    }
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED);
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_CLOSED);
    pair_drop(&pair);
}

Test(lifetime, a_close_delivers_everything_both_ways)
{
    for (link_t link = 0; link < LINKS; link++) {
        for (drive_t drive = 0; drive < DRIVES; drive++) {
            close_in_order(link, drive, false);
        }
    }
}

/* The end in order, of which UCX tells in the same round: by blob it does. */
Test(lifetime, an_end_that_ucx_tells_of_too_is_one_in_order)
{
    pair_t pair;

    pair_open(&pair, LINK_BLOB, DRIVE_POLLING, NULL, NULL);
    pair.to_b->fin_sent = true;
    pair.to_b->conn.fin_received = true;
    tmsg_endpoint_break(pair.to_b, TMSG_ERR_PEER_LOST, "UCX lost it");
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED);
    pair_drop(&pair);
}

Test(lifetime, both_sides_may_close_at_once)
{
    for (link_t link = 0; link < LINKS; link++) {
        for (drive_t drive = 0; drive < DRIVES; drive++) {
            close_in_order(link, drive, true);
        }
    }
}

/* The messages are there to be pulled after the end. */
Test(lifetime, what_arrived_before_the_end_can_be_pulled_after_it)
{
    for (link_t link = 0; link < LINKS; link++) {
        for (int in_order = 0; in_order < 2; in_order++) {
            tmsg_message_t *message;
            tmsg_request_t *request;
            pair_t pair;

            pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
            for (uint64_t i = 0; i < 5; i++) {
                tmsg_request_destroy(
                    send_map(pair.to_a, sample_bytes(i, 100), 0));
            }
            must(tmsg_endpoint_close(pair.to_a, &request));
            must(pair_finish(&pair, request));
            must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED);
            for (uint64_t i = 0; i < 5; i++) {
                must(tmsg_endpoint_recv(pair.to_b, 0, &message));
                sample_check_bytes(i, 100, tmsg_message_map(message));
                tmsg_message_destroy(message);
            }
            must_be(tmsg_endpoint_recv(pair.to_b, 0, &message),
                    TMSG_ERR_CLOSED);
            pair_drop(&pair);
        }
    }
}

/* More wait than the receiver's queue has room for, and one asks for an
 * answer. Large ones need memory, which the others hold. */
static void discard_untaken(link_t link, drive_t drive, size_t bytes)
{
    enum { DEPTH = 4, SENDS = 3 * DEPTH };
    const side_options_t shallow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    tmsg_request_t *sent[SENDS], *closed;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, link, drive, NULL, &shallow);
    for (uint64_t i = 0; i < SENDS; i++) {
        sent[i] = send_map(pair.to_b, sample_bytes(i, bytes),
                           i % 2 == 0 ? TMSG_SEND_ACKED : 0);
    }
    message = pair_take(&pair, &pair.b);
    sample_check_bytes(0, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(tmsg_endpoint_discard(pair.to_a));
    cr_expect(eq(sz, tmsg_endpoint_waiting(pair.to_a), 0));
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(7, 100), 0));
    must(tmsg_endpoint_close(pair.to_a, &closed));
    must(pair_finish(&pair, closed));
    for (uint64_t i = 0; i < SENDS; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i % 2 == 0 && i > 0 ? TMSG_ERR_REFUSED : TMSG_OK);
    }
    must_be(tmsg_endpoint_recv(pair.to_a, 0, &message), TMSG_ERR_CLOSED);
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(7, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_drop(&pair);
}

Test(lifetime, who_discards_closes_promptly)
{
    for (link_t link = 0; link < LINKS; link++) {
        discard_untaken(link, DRIVE_POLLING, 100);
        discard_untaken(link, DRIVE_POLLING, 100000);
    }
    discard_untaken(LINK_SHM, DRIVE_FD, 100);
    discard_untaken(LINK_SHM, DRIVE_THREAD, 100);
}

Test(lifetime, a_send_after_close_says_closed)
{
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_request_t *request;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_close(pair.to_a, &request));
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL), TMSG_ERR_CLOSED);
    must(pair_finish(&pair, request));
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL), TMSG_ERR_CLOSED);
    must_be(tmsg_endpoint_send(pair.to_b, map, NULL, NULL), TMSG_ERR_CLOSED);
    must(tmsg_endpoint_close(pair.to_a, &request));
    must(pair_finish(&pair, request));
    tmsg_map_destroy(map);
    pair_drop(&pair);
}

Test(lifetime, a_close_before_the_connection_stands_waits_for_it)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        tmsg_request_t *closed;
        tmsg_message_t *message;
        pair_t pair = {.to_a = NULL};

        pair.sides[0] = &pair.a;
        pair.sides[1] = &pair.b;
        side_open(&pair.a, &options);
        side_open(&pair.b, &options);
        side_listen_link(&pair.a, link);
        pair.to_a = side_dial(&pair.b, &pair.a);
        tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, 2000), 0));
        must(tmsg_endpoint_close(pair.to_a, &closed));
        must(pair_finish(&pair, closed));
        message = pair_take(&pair, &pair.a);
        sample_check_bytes(1, 2000, tmsg_message_map(message));
        tmsg_message_destroy(message);
        pair_drop(&pair);
    }
}

Test(lifetime, destroying_at_once_cancels_here_and_loses_there)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t one = {
            .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                       .queue_depth = 1}};
        tmsg_request_t *sent[3];
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, &one, NULL);
        for (size_t i = 0; i < 3; i++) {
            sent[i] =
                send_map(pair.to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);
        }
        tmsg_endpoint_destroy(pair.to_a);
        for (size_t i = 0; i < 3; i++) {
            must_be(pair_finish(&pair, sent[i]), TMSG_ERR_CANCELED);
        }
        must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST);
        pair_drop(&pair);
    }
}

Test(lifetime, a_destroyed_worker_cancels_what_is_pending)
{
    for (drive_t drive = 0; drive < DRIVES; drive++) {
        tmsg_request_t *sent, *closed, *ready;
        tmsg_endpoint_t *connecting;
        pair_t pair;
        told_t told;
        tmsg_send_params_t params = telling(&told, TMSG_SEND_ACKED);
        tmsg_map_t *map = sample_bytes(1, 100);

        pair_open(&pair, LINK_SHM, drive, NULL, NULL);
        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
        must(tmsg_endpoint_close(pair.to_a, &closed));
        connecting = side_dial(&pair.b, &pair.a);
        must(tmsg_endpoint_ready(connecting, &ready));
        tmsg_map_destroy(map);
        side_close(&pair.b);
        must_be(tmsg_request_test(sent), TMSG_ERR_CANCELED);
        must_be(tmsg_request_wait(sent, 0), TMSG_ERR_CANCELED);
        must_say(tmsg_request_error(sent), "closed by this side");
        must_be(tmsg_request_test(closed), TMSG_ERR_CANCELED);
        must_be(told.status, TMSG_ERR_CANCELED);
        cr_expect(eq(uint, atomic_load(&told.calls), 1));
        tmsg_request_destroy(sent);
        tmsg_request_destroy(closed);
        tmsg_request_destroy(ready);
        side_close(&pair.a);
    }
}

Test(lifetime, contexts_may_go_first)
{
    pair_t pair;
    tmsg_message_t *message;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_context_destroy(pair.a.context);
    tmsg_context_destroy(pair.b.context);
    pair.a.context = pair.b.context = NULL;
    message = deliver(&pair, 1, 100000);
    tmsg_message_destroy(message);
    pair_close(&pair);
}

Test(lifetime, a_listener_may_go_before_its_endpoints)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_listener_destroy(pair.a.listener);
    tmsg_message_destroy(deliver(&pair, 1, 100000));
    pair_close(&pair);
}

Test(lifetime, a_listener_without_on_accept_keeps_and_ends_its_endpoints)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        pair_t pair = {.to_a = NULL};
        const char *url = link == LINK_BLOB ? "blob://" : "tcp://:0";

        pair.sides[0] = &pair.a;
        pair.sides[1] = &pair.b;
        side_open(&pair.a, &options);
        side_open(&pair.b, &options);
        must(tmsg_listener_create(pair.a.worker, url, NULL, &pair.a.listener));
        pair.to_a = side_dial(&pair.b, &pair.a);
        tmsg_message_destroy(deliver(&pair, 1, 1000));
        tmsg_listener_destroy(pair.a.listener);
        must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST);
        pair_drop(&pair);
    }
}

/* What a callback destroys, and which callback. */
typedef enum {
    DESTROY_ENDPOINT,
    DESTROY_LISTENER,
    DESTROY_MESSAGE_THEN_ENDPOINT,
    DESTROY_WORKER,
    DESTROYS
} destroys_t;

typedef struct {
    side_t *side;
    destroys_t what;
    atomic_uint calls;
    atomic_bool freed; /* set when destroy has returned */
    atomic_uint late;  /* calls after the worker was destroyed */
} inside_t;

static void destroy_inside(inside_t *inside, tmsg_endpoint_t *endpoint)
{
    if (atomic_load(&inside->freed)) {
        atomic_fetch_add(&inside->late, 1);
        return;
    }
    switch (inside->what) {
    case DESTROY_ENDPOINT:
    case DESTROY_MESSAGE_THEN_ENDPOINT:
        tmsg_endpoint_destroy(endpoint);
        break;
    case DESTROY_LISTENER:
        tmsg_listener_destroy(inside->side->listener);
        break;
    case DESTROY_WORKER:
        tmsg_worker_destroy(inside->side->worker);
        break;
    default:
        break;
    }
    atomic_store(&inside->freed, true);
    atomic_fetch_add(&inside->calls, 1);
}

static void handle_and_destroy(void *arg, tmsg_message_t *message)
{
    inside_t *inside = arg;
    tmsg_endpoint_t *endpoint = tmsg_message_endpoint(message);

    if (inside->what == DESTROY_MESSAGE_THEN_ENDPOINT) {
        tmsg_message_destroy(message);
        destroy_inside(inside, endpoint);
        return;
    }
    destroy_inside(inside, endpoint);
    sample_check_bytes(0, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static bool was_called(void *arg)
{
    return atomic_load(&((inside_t *)arg)->calls) > 0;
}

/* A worker's own thread that was in a handler frees the worker after it. The
 * process must not end meanwhile: UCX would be in use while it is unloaded. */
static void await_threads(int most)
{
    for (int i = 0; i < 5000 && count_threads() > most; i++) {
        usleep(1000);
    }
    must_true(count_threads() <= most);
}

/* Drives b alone once a's worker may be gone. */
static void handler_destroys(destroys_t what, drive_t drive)
{
    inside_t inside = {.what = what};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = handle_and_destroy,
                   .handler_arg = &inside}};
    int threads = count_threads();
    pair_t pair;
    side_t *a = &pair.a;

    pair_open(&pair, LINK_SHM, drive, &options, NULL);
    inside.side = &pair.a;
    for (int i = 0; i < 10; i++) {
        tmsg_map_t *map = sample_bytes(0, 100);
        tmsg_status_t status = tmsg_endpoint_send(pair.to_a, map, NULL, NULL);

        tmsg_map_destroy(map);
        if (status != TMSG_OK) { /* the handler was quicker */
            must_be(status, TMSG_ERR_PEER_LOST);
        }
    }
    while (!was_called(&inside)) {
        if (drive == DRIVE_THREAD) {
            tmsg_worker_wait(pair.b.worker, 1);
        } else {
            tmsg_worker_progress(pair.b.worker);
            tmsg_worker_progress(a->worker);
        }
    }
    if (what == DESTROY_WORKER) {
        a->worker = NULL;
        must_be(side_end_of(&pair.b, pair.to_a), TMSG_ERR_PEER_LOST);
        cr_expect(eq(uint, atomic_load(&inside.late), 0),
                  "a handler ran after its worker was destroyed");
    }
    side_close(&pair.b);
    side_close(&pair.a);
    await_threads(threads);
}

Test(lifetime, a_handler_may_destroy_its_endpoint)
{
    handler_destroys(DESTROY_ENDPOINT, DRIVE_POLLING);
    handler_destroys(DESTROY_ENDPOINT, DRIVE_THREAD);
    handler_destroys(DESTROY_MESSAGE_THEN_ENDPOINT, DRIVE_POLLING);
    handler_destroys(DESTROY_MESSAGE_THEN_ENDPOINT, DRIVE_THREAD);
}

Test(lifetime, a_handler_may_destroy_the_listener)
{
    handler_destroys(DESTROY_LISTENER, DRIVE_POLLING);
    handler_destroys(DESTROY_LISTENER, DRIVE_THREAD);
}

Test(lifetime, a_handler_may_destroy_its_worker)
{
    handler_destroys(DESTROY_WORKER, DRIVE_POLLING);
}

Test(lifetime, a_handler_may_destroy_its_worker_on_the_workers_own_thread)
{
    handler_destroys(DESTROY_WORKER, DRIVE_THREAD);
}

static void accept_and_destroy(void *arg, tmsg_endpoint_t *endpoint)
{
    destroy_inside(arg, endpoint);
}

/* on_accept that destroys: the dialling side loses its peer. */
Test(lifetime, on_accept_may_destroy)
{
    for (destroys_t what = 0; what < DESTROYS; what++) {
        pair_t pair = {.to_a = NULL};
        inside_t inside = {.what = what, .side = &pair.a};
        const tmsg_listener_params_t params = {
            .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
            .on_accept = accept_and_destroy,
            .on_accept_arg = &inside,
        };

        side_open(&pair.a, NULL);
        side_open(&pair.b, NULL);
        must(tmsg_listener_create(pair.a.worker, "tcp://:0", &params,
                                  &pair.a.listener));
        pair.to_a = side_dial(&pair.b, &pair.a);
        while (!was_called(&inside)) {
            tmsg_worker_progress(pair.b.worker);
            tmsg_worker_progress(pair.a.worker);
        }
        if (what == DESTROY_WORKER) {
            pair.a.worker = NULL;
        }
        if (what != DESTROY_LISTENER) {
            must_be(side_end_of(&pair.b, pair.to_a), TMSG_ERR_PEER_LOST);
        }
        side_close(&pair.b);
        side_close(&pair.a);
    }
}

static void closed_and_destroy(void *arg, tmsg_endpoint_t *endpoint,
                               tmsg_status_t status, const char *error)
{
    (void)status;
    (void)error;
    destroy_inside(arg, endpoint);
}

Test(lifetime, on_closed_may_destroy)
{
    for (destroys_t what = 0; what < DESTROYS; what++) {
        inside_t inside = {.what = what};
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        inside.side = &pair.a;
        tmsg_endpoint_on_closed(pair.to_b, closed_and_destroy, &inside);
        tmsg_endpoint_destroy(pair.to_a);
        while (!was_called(&inside)) {
            tmsg_worker_progress(pair.a.worker);
        }
        if (what == DESTROY_WORKER) {
            pair.a.worker = NULL;
        }
        pair_drop(&pair);
    }
}

/* Two endpoints end at once, so that both callbacks are due. */
Test(lifetime, no_callback_follows_the_one_that_destroyed_the_worker)
{
    inside_t inside = {.what = DESTROY_WORKER};
    tmsg_endpoint_t *other;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    other = side_dial(&pair.b, &pair.a);
    tmsg_request_destroy(send_map(other, sample_bytes(1, 10), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    inside.side = &pair.a;
    tmsg_endpoint_on_closed(pair.to_b, closed_and_destroy, &inside);
    tmsg_endpoint_on_closed(pair.a.accepted, closed_and_destroy, &inside);
    must_true(pair.to_b != pair.a.accepted);
    side_close(&pair.b);
    while (!was_called(&inside)) {
        tmsg_worker_progress(pair.a.worker);
    }
    pair.a.worker = NULL;
    cr_expect(eq(uint, atomic_load(&inside.late), 0));
    side_close(&pair.a);
}

static void done_and_destroy(void *arg, tmsg_status_t status, const char *error)
{
    inside_t *inside = arg;

    (void)status;
    (void)error;
    destroy_inside(inside, inside->side->accepted);
}

Test(lifetime, on_done_may_destroy)
{
    for (destroys_t what = 0; what < DESTROYS; what++) {
        inside_t inside = {.what = what};
        tmsg_map_t *map = sample_bytes(1, 10);
        pair_t pair;
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_ON_DONE,
            .on_done = done_and_destroy,
            .on_done_arg = &inside,
        };

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        inside.side = &pair.a;
        must(tmsg_endpoint_send(pair.to_b, map, &params, NULL));
        tmsg_map_destroy(map);
        while (!was_called(&inside)) {
            tmsg_worker_progress(pair.a.worker);
        }
        if (what == DESTROY_WORKER) {
            pair.a.worker = NULL;
        }
        pair_drop(&pair);
    }
}

/* Every call that waits, made in a callback, where it may not wait. */
typedef struct {
    side_t *side;
    tmsg_request_t *pending;
    tmsg_status_t wait, recv, request;
    atomic_uint calls;
} blocking_t;

static void try_to_block(void *arg, tmsg_status_t status, const char *error)
{
    blocking_t *blocking = arg;
    tmsg_message_t *none;

    (void)status;
    (void)error;
    blocking->wait = tmsg_worker_wait(blocking->side->worker, 1000);
    blocking->recv = tmsg_worker_recv(blocking->side->worker, 1000, &none);
    blocking->request = tmsg_request_wait(blocking->pending, 1000);
    atomic_fetch_add(&blocking->calls, 1);
}

static bool has_tried(void *arg)
{
    return atomic_load(&((blocking_t *)arg)->calls) > 0;
}

Test(lifetime, waiting_in_a_callback_would_block)
{
    for (drive_t drive = 0; drive < DRIVES; drive++) {
        blocking_t blocking = {.calls = 0};
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_ON_DONE,
            .on_done = try_to_block,
            .on_done_arg = &blocking,
        };
        tmsg_map_t *map = sample_bytes(1, 10);
        pair_t pair;

        pair_open(&pair, LINK_SHM, drive, NULL, NULL);
        blocking.side = &pair.b;
        blocking.pending =
            send_map(pair.to_a, sample_bytes(1, 10), TMSG_SEND_ACKED);
        must(tmsg_endpoint_send(pair.to_a, map, &params, NULL));
        tmsg_map_destroy(map);
        pair_await(&pair, has_tried, &blocking, "a callback");
        must_be(blocking.wait, TMSG_ERR_WOULD_BLOCK);
        must_be(blocking.recv, TMSG_ERR_WOULD_BLOCK);
        must_be(blocking.request, TMSG_ERR_WOULD_BLOCK);
        tmsg_request_destroy(blocking.pending);
        pair_drop(&pair);
    }
}

static void echoed(void *arg, tmsg_status_t status, const char *error)
{
    must_say(error, "");
    must(status);
    tmsg_message_destroy(arg);
}

/* Sends a message's map back from inside the handler; the message, whose
 * memory that is, lives until the send has ended. */
static void echo(void *arg, tmsg_message_t *message)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE,
        .on_done = echoed,
        .on_done_arg = message,
    };

    (void)arg;
    must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                            (tmsg_map_t *)(uintptr_t)tmsg_message_map(message),
                            &params, NULL));
}

Test(lifetime, a_handler_may_send_what_it_was_given)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = echo}};

    for (drive_t drive = 0; drive < DRIVES; drive++) {
        pair_t pair;

        pair_open(&pair, LINK_SHM, drive, &options, NULL);
        for (uint64_t i = 0; i < 40; i++) {
            size_t bytes = small_and_large[i % 4];
            tmsg_message_t *message;

            tmsg_request_destroy(
                send_map(pair.to_a, sample_bytes(i, bytes), 0));
            message = pair_take(&pair, &pair.b);
            sample_check_bytes(i, bytes, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        pair_close(&pair);
    }
}

Test(lifetime, a_worker_with_a_handler_has_nothing_to_pull)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = echo}};
    tmsg_message_t *none;
    side_t side;

    side_open(&side, &options);
    must_be(tmsg_worker_recv(side.worker, 0, &none), TMSG_ERR_INVALID_PARAM);
    side_close(&side);
}

Test(lifetime, payloads_lie_in_the_applications_memory_until_released)
{
    own_memory_t memory = {.on_alloc = NULL};
    const tmsg_allocator_t allocator = own_memory_allocator(&memory);
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ALLOCATOR,
                   .allocator = &allocator}};
    tmsg_message_t *messages[4];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (size_t i = 0; i < 4; i++) {
        messages[i] = deliver(&pair, i, small_and_large[i]);
    }
    cr_expect(eq(int, atomic_load(&memory.blocks), 4));
    pair_drop(&pair);
    for (size_t i = 0; i < 4; i++) {
        sample_check_bytes(i, small_and_large[i],
                           tmsg_message_map(messages[i]));
        tmsg_message_destroy(messages[i]);
    }
    cr_expect(eq(int, atomic_load(&memory.blocks), 0));
    cr_expect(eq(uint, atomic_load(&memory.allocs), 4));
}

/* The application may read the name for as long as the endpoint lives, even if
 * the connection learns a better one meanwhile. */
Test(lifetime, a_peers_name_stays_as_it_was_given)
{
    for (link_t link = 0; link < LINKS; link++) {
        char copy[400];
        const char *first;
        tmsg_endpoint_t *endpoint;
        tmsg_request_t *ready;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        endpoint = side_dial(&pair.b, &pair.a);
        first = tmsg_endpoint_peer(endpoint);
        snprintf(copy, sizeof(copy), "%s", first);
        must(tmsg_endpoint_ready(endpoint, &ready));
        must(pair_finish(&pair, ready));
        cr_expect(eq(str, (char *)(uintptr_t)first, copy));
        must_say(tmsg_endpoint_peer(endpoint), "pid");
        pair_close(&pair);
    }
}

Test(lifetime, an_endpoint_carries_a_word_of_the_application)
{
    pair_t pair;
    int word;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(ptr, tmsg_endpoint_user(pair.to_a), NULL));
    tmsg_endpoint_set_user(pair.to_a, &word);
    cr_expect(eq(ptr, tmsg_endpoint_user(pair.to_a), &word));
    pair_close(&pair);
}

Test(lifetime, nothing_is_destroyed_by_destroying_null)
{
    tmsg_context_destroy(NULL);
    tmsg_worker_destroy(NULL);
    tmsg_listener_destroy(NULL);
    tmsg_endpoint_destroy(NULL);
    tmsg_message_destroy(NULL);
    tmsg_request_destroy(NULL);
    tmsg_map_destroy(NULL);
    tmsg_string_free(NULL);
}

Test(lifetime, descriptors_all_come_back)
{
    int before = -1;

    for (int i = 0; i < 4; i++) {
        for (link_t link = 0; link < LINKS; link++) {
            pair_t pair;

            pair_open(&pair, link, i % 2 ? DRIVE_THREAD : DRIVE_FD, NULL, NULL);
            tmsg_message_destroy(deliver(&pair, 1, 3000000));
            if (i % 2) {
                pair_close(&pair);
            } else {
                pair_drop(&pair);
            }
        }
        if (before < 0) {
            before = count_descriptors();
        }
        cr_expect(eq(int, count_descriptors(), before));
    }
}
