/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that is restarted: the endpoint begins a new session with the process
 * that comes after it, behind the same handle. What waited goes over, what was
 * under way ends and says so. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/restarted.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

static void check_goes_on(link_t link, drive_t drive, int32_t resume_ms,
                          bool abrupt)
{
    restarted_t restarted = {
        .link = link, .resume_ms = resume_ms, .abrupt = abrupt};
    const told_t *told = &restarted.told;
    tmsg_request_t *ready;

    restarted_open(&restarted, drive);
    restarted_exchange(&restarted, 1);
    for (unsigned i = 0; i < 3; i++) {
        restarted_stop(&restarted);
        restarted_await_loss(&restarted);
        must_say(tmsg_endpoint_error(restarted.endpoint), "reconnecting");
        must(tmsg_endpoint_ready(restarted.endpoint, &ready));
        restarted_start(&restarted);
        must(restarted_finish(&restarted, ready));
        restarted_await_new(&restarted);
        must_eq(told->count, 2 * i + 2);
        must_eq(told->events[2 * i], TMSG_SESSION_AWAY);
        must_eq(told->events[2 * i + 1], TMSG_SESSION_NEW);
        must_say(told->words[2 * i + 1], "restarted: a new session with pid ");
        must_eq(described(restarted.endpoint, "sessions"), i + 2);
        restarted_exchange(&restarted, 10 * i + 3);
        must_say(tmsg_endpoint_peer(restarted.endpoint), "(pid ");
    }
    must_eq(told->ends, 0);
    restarted_close(&restarted);
}

Test(restart, goes_on_tcp) { check_goes_on(LINK_TCP, DRIVE_POLLING, -1, true); }
Test(restart, goes_on_shm) { check_goes_on(LINK_SHM, DRIVE_FD, -1, true); }
Test(restart, goes_on_unix)
{
    check_goes_on(LINK_UNIX, DRIVE_THREAD, -1, false);
}
Test(restart, goes_on_without_sessions_tcp)
{
    check_goes_on(LINK_TCP, DRIVE_THREAD, 0, true);
}
Test(restart, goes_on_without_sessions_unix)
{
    check_goes_on(LINK_UNIX, DRIVE_POLLING, 0, false);
}

static void count_release(void *arg) { ++*(unsigned *)arg; }

static tmsg_request_t *send_on(const restarted_t *restarted, uint16_t channel,
                               uint64_t seed, uint32_t flags,
                               unsigned *released)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_CHANNEL |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = flags,
                                       .channel = channel,
                                       .on_release = count_release,
                                       .on_release_arg = released};
    tmsg_map_t *map = sample_bytes(seed, 1000);
    tmsg_request_t *request;

    must(tmsg_endpoint_send(restarted->endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

/* The server takes two messages of a channel ahead of its application. */
static void open_narrow(restarted_t *restarted)
{
    restarted->server_options.worker.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH;
    restarted->server_options.worker.queue_depth = 2;
    restarted_open(restarted, DRIVE_POLLING);
}

static bool waits(void *arg) { return described(arg, "waiting_messages") == 3; }

/* What the new server has got: on channel 0 in order, from `next` on. */
typedef struct {
    const restarted_t *restarted;
    uint64_t next;
    unsigned others;
} took_t;

static bool has_taken_all(void *arg)
{
    took_t *took = arg;
    tmsg_message_t *message;

    while (tmsg_endpoint_recv(took->restarted->server.accepted, 0, &message) ==
           TMSG_OK) {
        if (tmsg_message_channel(message) == 3) {
            sample_check_bytes(6, 1000, tmsg_message_map(message));
            took->others++;
        } else {
            sample_check_bytes(took->next++, 1000, tmsg_message_map(message));
        }
        tmsg_message_destroy(message);
    }
    return took->next == 6 && took->others == 1;
}

static void check_moves(link_t link, int32_t resume_ms, bool abrupt)
{
    restarted_t restarted = {
        .link = link, .resume_ms = resume_ms, .abrupt = abrupt};
    unsigned released = 0;
    tmsg_request_t *sent[6], *other;
    took_t took = {.next = 2};

    open_narrow(&restarted);
    /* Two go, and nobody takes them; three wait for room there. */
    for (unsigned i = 0; i < 5; i++) {
        sent[i] = send_on(&restarted, 0, i, TMSG_SEND_ACKED, &released);
    }
    restarted_await(&restarted, waits, restarted.endpoint, "three that wait");
    restarted_stop(&restarted);
    restarted_await_loss(&restarted);
    /* Nobody has told yet that they will not come back. */
    sent[5] = send_on(&restarted, 0, 5, 0, &released);
    other = send_on(&restarted, 3, 6, TMSG_SEND_ACKED, &released);
    restarted_start(&restarted);
    restarted_await_new(&restarted);
    for (unsigned i = 0; i < 2; i++) {
        must_be(tmsg_request_wait(sent[i], 0), TMSG_ERR_PEER_LOST);
        must_say(tmsg_request_error(sent[i]), "may have been taken or not");
        tmsg_request_destroy(sent[i]);
    }
    must_say(restarted.told.words[1],
             "; 2 sends and 0 calls ended with the old one, ");
    took.restarted = &restarted;
    restarted_await(&restarted, has_taken_all, &took, "what went over");
    for (unsigned i = 2; i < 6; i++) {
        must(restarted_finish(&restarted, sent[i]));
    }
    must(restarted_finish(&restarted, other));
    must_eq(released, 7);
    restarted_exchange(&restarted, 100);
    restarted_close(&restarted);
}

Test(restart, what_waits_goes_over_tcp) { check_moves(LINK_TCP, -1, true); }
Test(restart, what_waits_goes_over_unix) { check_moves(LINK_UNIX, -1, false); }
Test(restart, what_waits_goes_over_without_sessions)
{
    check_moves(LINK_SHM, 0, true);
}
