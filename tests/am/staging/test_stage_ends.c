/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Tensors of a device's memory whose transfer does not go well: nothing is read
 * or written that was given back, nothing stays behind, nobody hangs. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/staging/copy.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_device.h"
#include "support/simulated_devices.h"

static const device_tensor_t large[] = {{.device = 0, .bytes = 7000000},
                                        {.device = ON_HOST, .bytes = 30},
                                        {.device = 1, .bytes = 4000000}};

/* With checksums the memory is read once more, before it is sent and when it
 * is there. */
static uint32_t flags = TMSG_SEND_ACKED;

static tmsg_request_t *send_large(tmsg_endpoint_t *endpoint, uint64_t seed,
                                  int32_t timeout_ms)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags,
                                       .timeout_ms = timeout_ms};
    tmsg_map_t *map = device_map(seed, large, 3);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static uint8_t first_byte(const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(tmsg_message_map(message), 1, NULL, &tensor));
    return *(const uint8_t *)tensor.data;
}

/* One that was given up may have been faster, and is whole then. */
static void goes_on(pair_t *pair)
{
    tmsg_request_t *sent = send_large(pair->to_a, 77, -1);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    uint8_t wanted;

    sample_fill(78, &wanted, 1);
    if (first_byte(message) != wanted) {
        device_map_check(5, large, 3, tmsg_message_map(message));
        tmsg_message_destroy(message);
        message = pair_take(pair, &pair->a);
    }
    device_map_check(77, large, 3, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(pair, sent));
}

/* After so many turns of both sides. */
static void canceled(link_t link, unsigned turns)
{
    tmsg_request_t *sent;
    tmsg_status_t status;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent = send_large(pair.to_a, 5, -1);
    for (unsigned i = 0; i < turns; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    tmsg_request_cancel(sent);
    status = pair_finish(&pair, sent);
    must_true(status == TMSG_ERR_CANCELED || status == TMSG_CANCEL_PENDING);
    goes_on(&pair);
    pair_close(&pair);
}

static void cancel_all(link_t link)
{
    device_maps_begin();
    for (unsigned turns = 0; turns < 60; turns += turns < 12 ? 1 : 7) {
        canceled(link, turns);
    }
    device_maps_end();
}

Test(stage_ends, by_cancel_shm) { cancel_all(LINK_SHM); }
Test(stage_ends, by_cancel_tcp) { cancel_all(LINK_TCP); }
Test(stage_ends, by_cancel_with_checksums)
{
    flags = TMSG_SEND_VERIFY;
    cancel_all(LINK_SHM);
}

static void dropped(link_t link, unsigned turns, int how)
{
    tmsg_request_t *sent[2];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent[0] = send_large(pair.to_a, 5, -1);
    sent[1] = send_large(pair.to_b, 6, -1);
    for (unsigned i = 0; i < turns; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    if (how == 0) {
        tmsg_endpoint_abort(pair.to_a, TMSG_ERR_IO, "enough");
        (void)pair_finish(&pair, sent[0]);
        (void)pair_finish(&pair, sent[1]);
        pair_drop(&pair);
    } else {
        pair_drop(&pair);
        must_true(tmsg_request_test(sent[0]) < 0);
        tmsg_request_destroy(sent[0]);
        tmsg_request_destroy(sent[1]);
    }
}

static void drop_all(link_t link, int how)
{
    device_maps_begin();
    for (unsigned turns = 0; turns < 40; turns += turns < 10 ? 1 : 9) {
        dropped(link, turns, how);
    }
    device_maps_end();
}

Test(stage_ends, by_abort_shm) { drop_all(LINK_SHM, 0); }
Test(stage_ends, by_abort_tcp) { drop_all(LINK_TCP, 0); }
Test(stage_ends, by_the_workers_end_shm) { drop_all(LINK_SHM, 1); }
Test(stage_ends, by_the_workers_end_tcp) { drop_all(LINK_TCP, 1); }
Test(stage_ends, by_abort_with_checksums)
{
    flags = TMSG_SEND_VERIFY;
    drop_all(LINK_TCP, 0);
}
Test(stage_ends, by_the_workers_end_with_checksums)
{
    flags = TMSG_SEND_VERIFY;
    drop_all(LINK_SHM, 1);
}

/* The stream is never done: the message is given up, its memory is free at
 * once, and others go on. */
static void sender_blocked(const char *why)
{
    const tmsg_stream_t stream = device_stream(0);
    const device_tensor_t late[] = {
        {.device = 0, .bytes = 100000, .stream = stream}};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags & TMSG_SEND_VERIFY,
                                       .timeout_ms = 50};
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    map = device_map(1, late, 1);
    device_block(stream);
    must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
    tmsg_map_destroy(map);
    must_be(pair_wait(&pair, sent), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_request_error(sent), why);
    tmsg_request_destroy(sent);
    goes_on(&pair);
    pair_close(&pair);
    device_unblock(stream);
    device_maps_end();
}

Test(stage_ends, by_its_deadline_while_the_stream_is_not_done)
{
    sender_blocked("");
}
Test(stage_ends, by_its_deadline_before_its_checksums_are_known)
{
    flags = TMSG_SEND_VERIFY;
    sender_blocked("its checksums were not known in 50 ms");
}

/* The same at the other end, whose memory is not free. */
static tmsg_stream_t blocked;

static void choose(void *arg, tmsg_incoming_t *incoming)
{
    unsigned *calls = arg;

    if ((*calls)++ == 0) {
        must(tmsg_incoming_choose(incoming, 0, device_at(0), blocked));
    }
}

static void receiver_blocked(bool drop)
{
    unsigned calls = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = choose,
                   .on_header_arg = &calls}};
    tmsg_request_t *sent;
    pair_t pair;

    device_maps_begin();
    blocked = device_stream(0);
    device_block(blocked);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    sent = send_large(pair.to_a, 1, drop ? -1 : 300);
    if (drop) {
        for (int i = 0; i < 1000; i++) {
            tmsg_worker_progress(pair.a.worker);
            tmsg_worker_progress(pair.b.worker);
        }
        pair_drop(&pair);
        tmsg_request_destroy(sent);
    } else {
        must_be(pair_finish(&pair, sent), TMSG_ERR_TIMED_OUT);
        calls = 1; /* it may have been over before its header came */
        goes_on(&pair);
        pair_close(&pair);
    }
    device_unblock(blocked);
    devices_finish();
    device_maps_end();
}

Test(stage_ends, by_its_deadline_while_the_receivers_stream_is_not_done)
{
    receiver_blocked(false);
}

Test(stage_ends, with_the_worker_while_the_receivers_stream_is_not_done)
{
    receiver_blocked(true);
}

/* Every call of the driver's fails in turn. */
static unsigned calls, fails_at;

static bool fails(void) { return ++calls == fails_at; }

#define FAIL tmsg_domain_fail(TMSG_ERR_IO, "the accelerator has no mind to")

static tmsg_status_t in(void *arg, tmsg_device_t device, void *to,
                        const void *host, uint64_t bytes, tmsg_stream_t stream)
{
    return fails() ? FAIL
                   : accelerator.copy_in(arg, device, to, host, bytes, stream);
}

static tmsg_status_t out(void *arg, tmsg_device_t device, void *host,
                         const void *from, uint64_t bytes, tmsg_stream_t stream)
{
    return fails()
               ? FAIL
               : accelerator.copy_out(arg, device, host, from, bytes, stream);
}

static tmsg_status_t alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p)
{
    return fails() ? FAIL
                   : accelerator.alloc(arg, device, bytes, alignment, stream,
                                       data_p);
}

static tmsg_status_t own_stream(void *arg, tmsg_device_t device,
                                tmsg_stream_t *stream_p)
{
    return fails() ? FAIL : accelerator.stream(arg, device, stream_p);
}

static tmsg_status_t record(void *arg, tmsg_device_t device,
                            tmsg_stream_t stream, void **event_p)
{
    return fails() ? FAIL
                   : accelerator.event_record(arg, device, stream, event_p);
}

/* The work that it stood for failed, but it is over. */
static tmsg_status_t query(void *arg, void *event)
{
    tmsg_status_t status = accelerator.event_query(arg, event);

    return status == TMSG_OK && fails() ? FAIL : status;
}

static bool is_over(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

static tmsg_message_t *pull(pair_t *pair)
{
    tmsg_message_t *message = NULL;

    return tmsg_worker_recv(pair->a.worker, 0, &message) == TMSG_OK ? message
                                                                    : NULL;
}

/* True: no call failed. */
static bool failing(pair_t *pair, unsigned n)
{
    const tmsg_stream_t stream = device_stream(1);
    const device_tensor_t tensors[] = {
        {.device = 1, .bytes = 2500000, .stream = stream},
        {.device = ON_HOST, .bytes = 100},
        {.device = 0, .bytes = 64}};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_POLICY |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_map_t *map;
    tmsg_request_t *sent = NULL;
    tmsg_message_t *message = NULL;
    tmsg_status_t status;

    fails_at = 0;
    map = device_map(n, tensors, 3);
    calls = 0;
    fails_at = n;
    status = tmsg_endpoint_send(pair->to_a, map, &params, &sent);
    tmsg_map_destroy(map);
    while (status == TMSG_OK && !is_over(sent)) {
        tmsg_worker_progress(pair->b.worker);
        message = message == NULL ? pull(pair) : message;
    }
    fails_at = 0;
    if (status == TMSG_OK) {
        status = tmsg_request_test(sent);
        if (status != TMSG_OK) {
            must_say(tmsg_request_error(sent), "has no mind to");
        }
        tmsg_request_destroy(sent);
    } else {
        must_say(tmsg_error_message(), "has no mind to");
    }
    if (status == TMSG_OK) {
        must_true(message != NULL);
        device_map_check(n, tensors, 3, tmsg_message_map(message));
    }
    tmsg_message_destroy(message);
    return calls < n;
}

static void driver_fails(link_t link)
{
    tmsg_domain_t table = accelerator;
    unsigned n = 1;
    pair_t pair;

    table.copy_in = in;
    table.copy_out = out;
    table.alloc = alloc;
    table.stream = own_stream;
    table.event_record = record;
    table.event_query = query;
    must(tmsg_domain_register(&table));
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    while (!failing(&pair, n)) {
        n++;
    }
    must_true(n > 10);
    goes_on(&pair);
    pair_close(&pair);
    device_maps_end();
}

Test(stage_ends, by_a_driver_that_fails_shm) { driver_fails(LINK_SHM); }
Test(stage_ends, by_a_driver_that_fails_tcp) { driver_fails(LINK_TCP); }
Test(stage_ends, by_a_driver_that_fails_with_checksums)
{
    flags = TMSG_SEND_VERIFY;
    driver_fails(LINK_SHM);
}

/* A kernel has faulted: every call of the driver's fails from now on. */
static bool faulted;

#define FAULT tmsg_domain_fail(TMSG_ERR_IO, "illegal memory access (700)")

static tmsg_status_t faulted_record(void *arg, tmsg_device_t device,
                                    tmsg_stream_t stream, void **event_p)
{
    return faulted ? FAULT
                   : accelerator.event_record(arg, device, stream, event_p);
}

static tmsg_status_t faulted_query(void *arg, void *event)
{
    return faulted ? FAULT : accelerator.event_query(arg, event);
}

/* UCX reads and writes such memory itself, as far as the library knows: nobody
 * drives it that far. */
static bool reaches;

bool __real_tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                             tmsg_device_t device, int *memory_type_p);
bool __wrap_tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                             tmsg_device_t device, int *memory_type_p);
bool __wrap_tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                             tmsg_device_t device, int *memory_type_p)
{
    return reaches ||
           __real_tmsg_ucx_reaches(ucx, domain, device, memory_type_p);
}

static void open_direct(pair_t *pair, link_t link)
{
    tmsg_domain_t table = accelerator;

    reaches = true;
    table.event_record = faulted_record;
    table.event_query = faulted_query;
    must(tmsg_domain_register(&table));
    by_ucx_alone();
    without_reading();
    pair_open(pair, link, DRIVE_FD, NULL, NULL);
    pair->to_a->peer_memory = UINT64_MAX; /* its UCX knows it, too */
}

/* Memory that stays the caller's: whether it is free counts. UCX has it. */
static tmsg_request_t *send_lent(pair_t *pair, void *data)
{
    const int64_t shape = 2500000;
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = device_at(1),
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = &shape};
    tmsg_map_t *map;
    tmsg_request_t *sent;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    sent = send_map(pair->to_a, map, TMSG_SEND_ACKED);
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(pair->b.worker);
    }
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    return sent;
}

Test(stage_ends, by_a_driver_that_fails_what_ucx_reads)
{
    tmsg_request_t *sent;
    pair_t pair;
    void *data;

    open_direct(&pair, LINK_SHM);
    data = device_alloc(1, 2500000, 1);
    sent = send_lent(&pair, data);
    faulted = true;
    must_be(side_wait(&pair.b, sent), TMSG_ERR_IO);
    must_say(tmsg_request_error(sent),
             "device 1 of 'accelerator' has failed: illegal memory access");
    tmsg_request_destroy(sent);
    must_be(side_end_of(&pair.b, pair.to_a), TMSG_ERR_IO);
    pair_drop(&pair);
    device_free(data);
    device_maps_end();
}

/* A send that was given up before hears that its memory is free. */
Test(stage_ends, by_a_driver_that_fails_what_was_canceled)
{
    tmsg_request_t *sent;
    pair_t pair;
    void *data;

    open_direct(&pair, LINK_SHM);
    data = device_alloc(1, 2500000, 1);
    sent = send_lent(&pair, data);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    faulted = true;
    must_be(tmsg_request_wait_released(sent, PEERS_BOUND_MS),
            TMSG_ERR_CANCELED);
    tmsg_request_destroy(sent);
    must_be(side_end_of(&pair.b, pair.to_a), TMSG_ERR_IO);
    pair_drop(&pair);
    device_free(data);
    device_maps_end();
}

/* The sender stands still: what is asked of it never comes. */
Test(stage_ends, by_a_driver_that_fails_what_ucx_writes)
{
    const device_tensor_t to[] = {{.device = 1, .bytes = 2500000}};
    const device_tensor_t from[] = {{.device = ON_HOST, .bytes = 2500000}};
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    open_direct(&pair, LINK_TCP);
    map = device_map_empty(to, 1);
    sent = send_map(pair.to_a, device_map(1, from, 1), TMSG_SEND_ACKED);
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 100, &message),
            TMSG_CANCEL_PENDING); /* UCX has it */
    faulted = true;
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, PEERS_BOUND_MS, &message),
            TMSG_ERR_IO);
    must_say(tmsg_error_message(),
             "device 1 of 'accelerator' has failed: illegal memory access");
    tmsg_map_destroy(map);
    tmsg_request_destroy(sent);
    pair_drop(&pair);
    device_maps_end();
}

/* A peer that is killed while its memory is fetched. */
static void send_and_wait(pipes_t *pipes, void *arg)
{
    char url[300];
    tmsg_request_t *sent[4];
    side_t side;

    (void)arg;
    device_maps_begin();
    side_open(&side, NULL);
    line_get(pipes->in, url, sizeof(url));
    for (uint64_t i = 0; i < 4; i++) {
        sent[i] = send_large(side_connect(&side, url), i + 1, -1);
    }
    line_put(pipes->out, "sending");
    for (;;) {
        tmsg_worker_progress(side.worker);
        (void)sent;
    }
}

Test(stage_ends, with_a_sender_that_is_killed)
{
    char line[40];
    child_t child;
    side_t side;

    child_start(&child, send_and_wait, NULL);
    device_maps_begin();
    side_open(&side, NULL);
    side_listen_link(&side, LINK_TCP);
    line_put(child.out, tmsg_listener_url(side.listener));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    tmsg_message_destroy(side_take(&side));
    child_kill(&child);
    (void)side_end_of(&side, side_accept(&side));
    side_close(&side);
    device_maps_end();
}
