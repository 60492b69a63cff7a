/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever is called back does not keep others waiting. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>

#include "support/peers.h"
#include "support/sample.h"
#include "support/stuck.h"

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

enum { PATIENCE_MS = 100 };

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
    poll(NULL, 0, 2 * PATIENCE_MS);
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
