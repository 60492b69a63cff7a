/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever is called back does not keep others waiting. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>

#include "am/endpoint/endpoint.h"
#include "support/blocked_callback.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static void run_place(stuck_place_t place)
{
    stuck_run(place, DRIVE_POLLING);
    stuck_run(place, DRIVE_THREAD);
}

Test(progress, others_wait_on_while_the_handler_takes_its_time)
{
    run_place(STUCK_HANDLER);
}

Test(progress, others_wait_on_while_on_done_takes_its_time)
{
    run_place(STUCK_ON_DONE);
}

Test(progress, others_wait_on_while_on_closed_takes_its_time)
{
    run_place(STUCK_ON_CLOSED);
}

Test(progress, others_wait_on_while_on_accept_takes_its_time)
{
    run_place(STUCK_ON_ACCEPT);
}

Test(progress, others_wait_on_while_a_release_takes_its_time)
{
    run_place(STUCK_RELEASE);
}

Test(progress, others_wait_on_while_an_alloc_takes_its_time)
{
    run_place(STUCK_ALLOC);
}

enum { PATIENCE_MS = 100, BEYOND_MS = 1000 };

typedef struct {
    atomic_bool taken; /* the second message, by the peer */
} late_t;

static void note_second(void *arg, tmsg_message_t *message)
{
    late_t *late = arg;

    if (tmsg_map_meta_size(tmsg_message_map(message)) > 0) {
        atomic_store(&late->taken, true);
    }
    tmsg_message_destroy(message);
}

/* Lasts until the peer has the second message, and beyond the deadline. */
static void take_time(void *arg, tmsg_status_t status, const char *error)
{
    late_t *late = arg;

    (void)status;
    (void)error;
    while (!atomic_load(&late->taken)) {
        poll(NULL, 0, 1);
    }
    poll(NULL, 0, BEYOND_MS);
}

/* What came while a callback took the waiter's time is no time-out. */
Test(progress, a_wait_looks_once_more_after_its_deadline)
{
    late_t late = {false};
    const tmsg_send_params_t slow = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                     .on_done = take_time,
                                     .on_done_arg = &late};
    const side_options_t noting = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = note_second,
                   .handler_arg = &late}};
    tmsg_map_t *first = sample_bytes(1, 100), *second = sample_bytes(2, 100);
    tmsg_request_t *request;
    tmsg_endpoint_t *endpoint;
    side_t a, b;

    side_open(&a, &noting);
    side_listen_link(&a, LINK_UNIX);
    side_open(&b, NULL);
    endpoint = side_connect(&b, tmsg_listener_url(a.listener));
    must(tmsg_map_set_i64(second, TMSG_META_FRAME, 2));
    must(tmsg_endpoint_send(endpoint, first, &slow, NULL));
    request = send_map(endpoint, second, TMSG_SEND_ACKED);
    must(tmsg_request_wait(request, PATIENCE_MS));
    tmsg_request_destroy(request);
    tmsg_map_destroy(first);
    side_close(&b);
    side_close(&a);
}

/* UCX's descriptor may stay readable while nothing comes: that is no event. */
Test(progress, a_worker_with_nothing_to_do_says_so)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_request_t *sent;
        unsigned events = 0;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        sent = send_map(pair.to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent));
        for (int i = 0; i < 20000; i++) {
            unsigned count = tmsg_worker_progress(pair.a.worker);

            events += i >= 10000 && count > 0;
        }
        must_true(events < 10); /* a heartbeat or two */
        pair_close(&pair);
    }
}

/* It takes some hundred calls, not thousands, whatever was before. */
Test(progress, a_quiet_worker_hears_soon_that_a_peer_has_gone)
{
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 50000; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    tmsg_endpoint_destroy(pair.to_a);
    for (int i = 0; i < 600; i++) {
        tmsg_worker_progress(pair.b.worker);
    }
    for (int i = 0; i < 600; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    must_true(pair.to_b->state == TMSG_EP_ENDED);
    pair_drop(&pair);
}

static bool is_readable(void *arg) { return tmsg_endpoint_readable(arg); }

/* Of many endpoints who drives them asks which has something. */
Test(progress, an_endpoint_says_whether_there_is_something_to_receive)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_endpoint_t *to_b;
        tmsg_request_t *sent;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        to_b = pair.to_b;
        cr_assert_eq(tmsg_endpoint_readable(to_b), 0);
        for (uint64_t i = 0; i < 3; i++) {
            sent = send_map(pair.to_a, sample_bytes(i, 100), 0);
            must(pair_finish(&pair, sent));
        }
        for (unsigned left = 3; left > 0; left--) {
            pair_await(&pair, is_readable, to_b, "a message");
            cr_assert_eq(tmsg_endpoint_readable(pair.to_a), 0);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
        }
        cr_assert_eq(tmsg_endpoint_readable(to_b), 0);
        tmsg_endpoint_destroy(pair.to_a);
        pair_await(&pair, is_readable, to_b, "its end");
        pair_drop(&pair);
    }
}

/* Who serves many that come and go destroys those that have ended, when all
 * that they sent was taken. */
static bool all_three_wait(void *arg)
{
    return tmsg_endpoint_waiting(arg) == 3;
}

static bool has_ended(void *arg) { return tmsg_endpoint_status(arg) < 0; }

Test(progress, an_endpoint_says_how_many_messages_wait)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_endpoint_t *to_b;
        tmsg_request_t *sent;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        to_b = pair.to_b;
        cr_assert_eq(tmsg_endpoint_waiting(to_b), 0);
        for (uint64_t i = 0; i < 3; i++) {
            sent = send_map(pair.to_a, sample_bytes(i, 100), 0);
            must(pair_finish(&pair, sent));
        }
        pair_await(&pair, all_three_wait, to_b, "all messages");
        tmsg_endpoint_destroy(pair.to_a);
        pair_await(&pair, has_ended, to_b, "its end");
        for (size_t left = 3; left > 0; left--) {
            cr_assert_eq(tmsg_endpoint_waiting(to_b), left);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
        }
        cr_assert_eq(tmsg_endpoint_waiting(to_b), 0);
        pair_drop(&pair);
    }
}

/* Returns what has arrived when nothing has come for a while. What two new
 * peers tell each other first may come late. */
static uint64_t count_settled(pair_t *pair)
{
    uint64_t seen = tmsg_worker_arrivals(pair->a.worker);

    for (int quiet = 0; quiet < 20; quiet++) {
        tmsg_worker_wait(pair->a.worker, 1);
        tmsg_worker_progress(pair->b.worker);
        if (tmsg_worker_arrivals(pair->a.worker) != seen) {
            seen = tmsg_worker_arrivals(pair->a.worker);
            quiet = 0;
        }
    }
    return seen;
}

/* Only a counter tells of what a wait for something else has received. */
Test(progress, what_a_wait_received_for_others_is_counted)
{
    for (link_t link = 0; link < LINKS; link++) {
        uint64_t before;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        before = count_settled(&pair);
        for (uint64_t i = 0; i < 3; i++) {
            tmsg_request_t *sent =
                send_map(pair.to_a, sample_bytes(i, 100), TMSG_SEND_ACKED);

            while (tmsg_worker_arrivals(pair.a.worker) == before) {
                tmsg_worker_wait(pair.a.worker, 1);
                tmsg_worker_progress(pair.b.worker);
            }
            before = tmsg_worker_arrivals(pair.a.worker);
            tmsg_message_destroy(pair_take(&pair, &pair.a));
            must_true(tmsg_worker_arrivals(pair.a.worker) == before);
            must(pair_finish(&pair, sent));
        }
        tmsg_endpoint_destroy(pair.to_a);
        while (tmsg_worker_arrivals(pair.a.worker) == before) {
            tmsg_worker_wait(pair.a.worker, 1);
            tmsg_worker_progress(pair.b.worker);
        }
        pair_drop(&pair);
    }
}

/* Whoever looks for a message every other millisecond, of which none comes,
 * polls as if there had been none before. */
Test(progress, waits_that_time_out_are_not_polled_for_longer)
{
    tmsg_spin_t *spin;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    spin = &pair.a.worker->spin;
    tmsg_spin_slept(spin, 2 * spin->spin_ns);
    must_true(tmsg_spin_ns(spin) > spin->spin_ns);
    must_be(tmsg_endpoint_recv(pair.to_b, 2, &message), TMSG_ERR_TIMED_OUT);
    must_eq(tmsg_spin_ns(spin), spin->spin_ns);
    pair_close(&pair);
}

/* The peer alone is driven by its application. What it sends is read here, and
 * a large one has to be. */
Test(progress, a_thread_may_begin_to_drive_later)
{
    const side_options_t shared = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};

    for (link_t link = 0; link < LINKS; link++) {
        tmsg_request_t *sent;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, &shared, NULL);
        must_be(tmsg_worker_start_thread(pair.b.worker),
                TMSG_ERR_INVALID_PARAM);
        sent = send_map(pair.to_a, sample_bytes(1, 1 << 24), 0);
        must_be(tmsg_request_wait(sent, 20), TMSG_ERR_TIMED_OUT);
        must(tmsg_worker_start_thread(pair.a.worker));
        must(tmsg_worker_start_thread(pair.a.worker));
        must(tmsg_request_wait(sent, PEERS_CONNECT_MS));
        tmsg_request_destroy(sent);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        pair_close(&pair);
    }
}
