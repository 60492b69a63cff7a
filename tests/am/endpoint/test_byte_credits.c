/* SPDX-License-Identifier: BSD-3-Clause */
/* How many bytes a peer may send before the receiver has found memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/endpoint/credit.h"
#include "am/endpoint/endpoint.h"
#include "support/channels.h"
#include "support/seeded_maps.h"

#define KIB 1024u

/* Sends on channel 0, eagerly if the window allows it. */
static void send_eager(tmsg_endpoint_t *endpoint, uint64_t seed, size_t bytes)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .protocol = TMSG_PROTOCOL_EAGER};
    tmsg_map_t *map = sample_bytes(seed, bytes);

    must(tmsg_endpoint_send(endpoint, map, &params, NULL));
    tmsg_map_destroy(map);
}

static const side_options_t small_budget = {
    .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 2 * MIB}};

/* One of 64 peers gets this much of a quarter of 2 MiB. */
#define WINDOW (2 * MIB / 4 / 64)

/* A payload that does not fit into the window goes by rendezvous at once, and
 * the order stays. */
static void exhaust(link_t link)
{
    enum { MESSAGES = 30, BYTES = 3000 };
    uint64_t deferred;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &small_budget, NULL);
    pump(&pair);
    must_eq(pair.to_a->credit.tx_edge, WINDOW);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        send_eager(pair.to_a, i, BYTES);
    }
    deferred = pair.to_a->credit.tx_deferred;
    must_eq(deferred, MESSAGES - WINDOW / (BYTES + 64));
    must_eq(pair.to_a->channels.queued, 0);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        expect(&pair, 0, i, BYTES);
    }
    pump(&pair);
    for (uint64_t i = 0; i < 100; i++) { /* it comes back */
        send_eager(pair.to_a, i, BYTES);
        expect(&pair, 0, i, BYTES);
        pump(&pair);
    }
    must_eq(pair.to_a->credit.tx_deferred, deferred);
    must_eq(pair.to_b->credit.rx_charged, pair.to_b->credit.rx_freed);
    must_eq(pair.to_b->credit.rx_charged, pair.to_a->credit.tx_charged);
    pair_close(&pair);
}

Test(byte_credits, beyond_the_window_a_payload_waits_at_its_sender)
{
    for (link_t link = 0; link < LINKS; link++) {
        exhaust(link);
    }
}

/* Whatever way UCX takes, nothing of the window is lost. */
static void every_size(link_t link)
{
    static const size_t sizes[] = {0,    1,     511,    512,    513,
                                   2000, 20000, 200000, 2000000};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    pump(&pair);
    for (uint64_t i = 0; i < 20 * SIZES; i++) {
        if (i % 3 == 0) {
            send_eager(pair.to_a, i, sizes[i % SIZES]);
        } else {
            send_bytes(pair.to_a, 0, i, sizes[i % SIZES], 0);
        }
    }
    for (uint64_t i = 0; i < 20 * SIZES; i++) {
        expect(&pair, 0, i, sizes[i % SIZES]);
    }
    pump(&pair);
    must_eq(pair.to_b->credit.rx_charged, pair.to_a->credit.tx_charged);
    must_eq(pair.to_b->credit.rx_freed, pair.to_a->credit.tx_charged);
    must_true(pair.to_a->credit.tx_charged > 0);
    pair_close(&pair);
}

Test(byte_credits, every_size_gives_back_what_it_took)
{
    for (link_t link = 0; link < LINKS; link++) {
        every_size(link);
    }
}

/* If memory is missing, payloads that have come wait in memory of our own. */
Test(byte_credits, what_waits_for_memory_keeps_no_segment_of_ucx)
{
    for (link_t link = 0; link < LINKS; link++) {
        full_t full;

        fill(&full, link, 256);
        for (uint64_t i = 0; i < 40; i++) {
            send_eager(full.pair.to_a, i, 1000);
        }
        pump(&full.pair);
        release(&full);
        for (unsigned i = 0; i < 41; i++) {
            tmsg_message_t *message = pair_take(&full.pair, &full.pair.a);

            if (tmsg_message_channel(message) == 1) {
                sample_check_bytes(2, MIB, tmsg_message_map(message));
            }
            tmsg_message_destroy(message);
        }
        pair_close(&full.pair);
    }
}

static void end_with_waiting(bool abandon)
{
    full_t full;

    fill(&full, LINK_TCP, 256);
    for (uint64_t i = 0; i < 40; i++) {
        send_eager(full.pair.to_a, i, 1000);
    }
    pump(&full.pair);
    if (abandon) {
        tmsg_endpoint_destroy(full.pair.to_a);
        pump(&full.pair);
        must_eq(full.pair.a.worker->windows.bytes, 0);
    }
    tmsg_message_destroy(full.held);
    pair_drop(&full.pair);
}

Test(byte_credits, what_waits_ends_with_its_connection)
{
    end_with_waiting(false);
    end_with_waiting(true);
}

/* Peers that do not count, and those that lie. */
static tmsg_status_t lie(bool charged, size_t bytes, uint64_t peer_window)
{
    pair_t pair;
    tmsg_status_t status = TMSG_OK;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &small_budget, NULL);
    if (charged) {
        pair.to_a->credit.tx_edge = UINT64_MAX - 1; /* it believes */
    } else {
        pair.to_a->peer_hello.eager_bytes = TMSG_CREDIT_UNBOUNDED;
    }
    pair.to_b->peer_hello.eager_bytes = peer_window;
    send_eager(pair.to_a, 1, bytes);
    pump(&pair);
    if (peer_window == TMSG_CREDIT_UNBOUNDED || bytes <= 512) {
        expect(&pair, 0, 1, bytes);
        must(tmsg_endpoint_status(pair.to_b));
    } else {
        status = pair_end_of(&pair, pair.to_b);
    }
    pair_drop(&pair);
    return status;
}

Test(byte_credits, an_eager_payload_that_was_not_counted_ends_the_connection)
{
    must_be(lie(false, 513, 0), TMSG_ERR_MALFORMED);
    must_be(lie(false, 100000, 5000), TMSG_ERR_MALFORMED);
    must(lie(false, 512, 0));
}

Test(byte_credits, one_beyond_the_window_ends_the_connection)
{
    must_be(lie(true, WINDOW, 0), TMSG_ERR_MALFORMED);
    must_be(lie(true, 300000, 0), TMSG_ERR_MALFORMED);
}

/* Each fits. The first waits for memory when the second comes. */
Test(byte_credits, two_beyond_the_window_together_end_the_connection)
{
    full_t full;

    fill(&full, LINK_SHM, 256);
    full.pair.to_a->credit.tx_edge = UINT64_MAX - 1;
    for (uint64_t i = 0; i < 2; i++) {
        send_eager(full.pair.to_a, i, full.pair.to_b->credit.rx_window / 2);
    }
    must_be(pair_end_of(&full.pair, full.pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(full.pair.to_b), "beyond the window");
    tmsg_message_destroy(full.held);
    pair_drop(&full.pair);
}

Test(byte_credits, a_peer_that_does_not_count_is_not_judged)
{
    must(lie(false, 100000, TMSG_CREDIT_UNBOUNDED));
}

/* Many senders in another process, whose messages nobody takes: this process
 * does not grow with what they have to send. */
enum { SENDERS = 20, EACH = 200, BYTES = 20 * KIB };

static void send_all(pipes_t *pipes, void *arg)
{
    const side_options_t options = {.ucx_config = link_config(LINK_TCP)};
    tmsg_endpoint_t *endpoints[SENDERS];
    char line[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, line, sizeof(line));
    side_open(&side, &options);
    for (unsigned i = 0; i < SENDERS; i++) {
        endpoints[i] = side_connect(&side, line);
        send_bytes(endpoints[i], 0, i, 10, 0);
    }
    line_put(pipes->out, "connected");
    line_get(pipes->in, line, sizeof(line));
    for (unsigned j = 0; j < EACH; j++) {
        for (unsigned i = 0; i < SENDERS; i++) {
            send_eager(endpoints[i], j, BYTES);
        }
        tmsg_worker_progress(side.worker);
    }
    while (tmsg_worker_wait(side.worker, 100) == TMSG_OK) {
    }
    line_put(pipes->out, "sent");
    for (unsigned i = 0; i < SENDERS; i++) {
        tmsg_request_t *closed;

        must(tmsg_endpoint_close(endpoints[i], &closed));
        must(side_finish(&side, closed));
    }
    side_close(&side);
}

static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t all, pages;

    must_true(file != NULL && fscanf(file, "%zu %zu", &all, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

Test(byte_credits, nobody_reads_and_memory_stays_within_the_budget)
{
    const side_options_t options = {
        .ucx_config = link_config(LINK_TCP),
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 4 * MIB}};
    char line[64];
    child_t child;
    size_t before, grown;
    side_t side;

    child_start(&child, send_all, NULL);
    side_open(&side, &options);
    side_listen_link(&side, LINK_TCP);
    line_put(child.out, tmsg_listener_url(side.listener));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    for (unsigned i = 0; i < SENDERS; i++) {
        tmsg_message_destroy(side_take(&side));
    }
    before = resident();
    line_put(child.out, "go");
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    grown = resident() - before;
    fprintf(stderr, "%u MiB to send, %zu KiB grown, %llu KiB of windows\n",
            (unsigned)(SENDERS * EACH * BYTES / MIB), grown / KIB,
            (unsigned long long)side.worker->windows.bytes / KIB);
    must_true(side.worker->windows.bytes <= MIB);
#ifndef __SANITIZE_ADDRESS__
    must_true(grown < 24 * MIB);
#endif
    for (unsigned i = 0; i < SENDERS * EACH; i++) {
        tmsg_message_t *message = side_take(&side);
        tmsg_tensor_t tensor;

        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        must_eq(tensor.shape[0], BYTES);
        tmsg_message_destroy(message);
    }
    child_await(&side, &child);
    child_join(&child);
    side_close(&side);
}
