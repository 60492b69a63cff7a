/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* When no new session follows, and what ends then; what waits for the endpoint
 * while its peer is restarted; and every moment at which it may be let go of.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/restarted.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/test_scale.h"

#define SHORT_MS 250

static bool was_told_the_end(void *arg)
{
    return ((restarted_t *)arg)->told.ends > 0;
}

/* The end of the handle, told once, which a send that waits has as well. */
static void check_end(restarted_t *restarted, tmsg_status_t status,
                      const char *words)
{
    tmsg_endpoint_t *endpoint = restarted->endpoint;
    tmsg_message_t *message;

    restarted_await(restarted, was_told_the_end, restarted, "on_closed");
    must_be(restarted->told.status, status);
    must_say(restarted->told.error, words);
    must_be(tmsg_endpoint_status(endpoint), status);
    must_say(tmsg_endpoint_error(endpoint), words);
    must_be(tmsg_endpoint_recv(endpoint, 0, &message), status);
    must_be(tmsg_endpoint_send(endpoint, NULL, NULL, NULL), status);
    must_eq(tmsg_endpoint_readable(endpoint), 1);
    for (int i = 0; i < 20; i++) {
        tmsg_worker_progress(restarted->client.worker);
    }
    must_eq(restarted->told.ends, 1);
}

Test(restart_ends, with_the_process_if_that_is_asked)
{
    for (int32_t resume_ms = -1; resume_ms <= 0; resume_ms++) {
        restarted_t restarted = {.resume_ms = resume_ms,
                                 .flags = TMSG_ENDPOINT_SAME_PROCESS};

        restarted_open(&restarted, DRIVE_POLLING);
        restarted_stop(&restarted);
        restarted_start(&restarted);
        check_end(&restarted, TMSG_ERR_PEER_LOST, "closed it at once");
        restarted_close(&restarted);
    }
}

Test(restart_ends, unknown_flags_are_refused)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_FLAGS, .flags = 1u << 31};
    tmsg_endpoint_t *endpoint;
    side_t side = {0};

    side_open(&side, NULL);
    must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:1", &params,
                                  &endpoint),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown flags 0x80000000");
    side_close(&side);
}

Test(restart_ends, gives_up)
{
    for (int32_t resume_ms = -1; resume_ms <= 0; resume_ms++) {
        restarted_t restarted = {.resume_ms = resume_ms,
                                 .reconnect = {.first_backoff_ms = 10,
                                               .most_backoff_ms = 40,
                                               .give_up_ms = SHORT_MS}};
        tmsg_request_t *sent, *ready;

        restarted_open(&restarted, DRIVE_POLLING);
        restarted_stop(&restarted);
        restarted_await_loss(&restarted);
        sent = send_map(restarted.endpoint, sample_bytes(1, 100), 0);
        must(tmsg_endpoint_ready(restarted.endpoint, &ready));
        check_end(&restarted, TMSG_ERR_PEER_LOST, "gave up after ");
        must_be(restarted_finish(&restarted, sent), TMSG_ERR_PEER_LOST);
        must_be(restarted_finish(&restarted, ready), TMSG_ERR_PEER_LOST);
        restarted_close(&restarted);
    }
}

static tmsg_keyring_t *ring(const char *principal, uint8_t number)
{
    uint8_t key[TMSG_KEY_BYTES] = {0};
    tmsg_keyring_t *keyring;

    key[0] = number;
    must(tmsg_keyring_create(&keyring));
    must(tmsg_keyring_add(keyring, principal, key));
    return keyring;
}

/* The new process has another key, by which this side knows another. */
static void check_keys(uint8_t number, tmsg_status_t status, const char *words)
{
    restarted_t restarted = {.resume_ms = -1};
    tmsg_keyring_t *mine = ring("alice", 1);
    tmsg_keyring_t *theirs = ring("client", 1), *others = ring("x", number);
    uint8_t key[TMSG_KEY_BYTES] = {2};

    must(tmsg_keyring_add(mine, "bob", key));
    restarted.client_options.keyring = mine;
    restarted.server_options.keyring = theirs;
    restarted_open(&restarted, DRIVE_POLLING);
    must_say(tmsg_endpoint_principal(restarted.endpoint), "alice");
    restarted_stop(&restarted);
    restarted_start(&restarted); /* with the same key */
    restarted_await_new(&restarted);
    must_say(tmsg_endpoint_principal(restarted.endpoint), "alice");
    restarted_stop(&restarted);
    restarted.server_options.keyring = others;
    restarted_start(&restarted);
    check_end(&restarted, status, words);
    restarted_close(&restarted);
    tmsg_keyring_destroy(mine);
    tmsg_keyring_destroy(theirs);
    tmsg_keyring_destroy(others);
}

Test(restart_ends, with_another_principal)
{
    check_keys(2, TMSG_ERR_INSECURE,
               "it was 'alice', and has proved to be 'bob'");
}

Test(restart_ends, with_a_key_that_nobody_knows)
{
    check_keys(3, TMSG_ERR_REFUSED, "not admitted");
}

/* A peer that ends the connection with UNAVAILABLE asks to be come to again;
 * with anything else it means the end. */
Test(restart_ends, with_any_other_word_of_the_peer)
{
    restarted_t restarted = {.resume_ms = -1};

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_endpoint_abort(restarted.server.accepted, TMSG_ERR_UNAVAILABLE,
                             "come again"));
    restarted.server.accepts = 0;
    restarted_await_new(&restarted);
    must_say(restarted.told.words[0], "come again");
    must_true(strncmp(restarted.told.words[1], "a new session", 13) == 0);
    restarted_exchange(&restarted, 1);
    must(tmsg_endpoint_abort(restarted.server.accepted, TMSG_ERR_LIMIT_EXCEEDED,
                             "too much"));
    check_end(&restarted, TMSG_ERR_LIMIT_EXCEEDED, "too much");
    restarted_close(&restarted);
}

Test(restart_ends, in_order)
{
    restarted_t restarted = {.resume_ms = -1};
    tmsg_request_t *closed;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_endpoint_close(restarted.server.accepted, &closed));
    check_end(&restarted, TMSG_ERR_CLOSED, "closed");
    must(restarted_finish(&restarted, closed));
    restarted_close(&restarted);
}

/* What is closed while it is away goes first, with what waits. */
Test(restart_ends, closes_once_it_is_connected)
{
    for (int32_t resume_ms = -1; resume_ms <= 0; resume_ms++) {
        restarted_t restarted = {.resume_ms = resume_ms};
        tmsg_request_t *sent, *closed;

        restarted_open(&restarted, DRIVE_POLLING);
        restarted_stop(&restarted);
        restarted_await_loss(&restarted);
        sent = send_map(restarted.endpoint, sample_bytes(1, 1000),
                        TMSG_SEND_ACKED);
        if (resume_ms == 0) { /* a new session is sought already */
            must(tmsg_endpoint_close(restarted.endpoint, &closed));
        }
        restarted_start(&restarted);
        restarted_await_new(&restarted);
        if (resume_ms != 0) {
            must(tmsg_endpoint_close(restarted.endpoint, &closed));
        }
        must_be(tmsg_endpoint_send(restarted.endpoint, NULL, NULL, NULL),
                TMSG_ERR_CLOSED);
        restarted_take(&restarted, restarted.server.accepted, 1);
        must(restarted_finish(&restarted, sent));
        must(restarted_finish(&restarted, closed));
        must_be(tmsg_endpoint_status(restarted.endpoint), TMSG_ERR_CLOSED);
        must_eq(restarted.told.ends, 0);
        restarted_close(&restarted);
    }
}

/* The first session's messages come first. */
Test(restart_ends, not_what_had_arrived)
{
    restarted_t restarted = {.resume_ms = -1};
    tmsg_request_t *sent;
    tmsg_message_t *held;

    restarted_open(&restarted, DRIVE_POLLING);
    for (uint64_t i = 0; i < 3; i++) {
        sent = send_map(restarted.server.accepted, sample_bytes(i, 1000), 0);
        must(restarted_finish(&restarted, sent));
    }
    held = side_take(&restarted.client);
    must_true(tmsg_message_endpoint(held) == restarted.endpoint);
    while (tmsg_endpoint_waiting(restarted.endpoint) < 2) {
        tmsg_worker_progress(restarted.client.worker);
    }
    for (uint64_t i = 3; i < 6; i++) { /* two restarts */
        restarted_stop(&restarted);
        restarted_start(&restarted);
        restarted_await_new(&restarted);
        restarted.told.count = 0;
        sent = send_map(restarted.server.accepted, sample_bytes(i, 1000), 0);
        must(restarted_finish(&restarted, sent));
        while (tmsg_endpoint_waiting(restarted.endpoint) < i) {
            tmsg_worker_progress(restarted.client.worker);
        }
    }
    for (uint64_t i = 1; i < 6; i++) {
        restarted_take(&restarted, restarted.endpoint, i);
    }
    sample_check_bytes(0, 1000, tmsg_message_map(held));
    restarted_exchange(&restarted, 10);
    must_true(tmsg_message_endpoint(held) == restarted.endpoint);
    tmsg_message_destroy(held);
    restarted_close(&restarted);
}

typedef struct {
    restarted_t restarted;
    tmsg_map_t *map; /* received into, or NULL */
    tmsg_status_t status;
    tmsg_message_t *message;
} waiting_t;

static void *wait_for_a_message(void *arg)
{
    waiting_t *waiting = arg;
    tmsg_endpoint_t *endpoint = waiting->restarted.endpoint;

    waiting->status =
        waiting->map == NULL
            ? tmsg_endpoint_recv(endpoint, PEERS_BOUND_MS, &waiting->message)
            : tmsg_endpoint_recv_into(endpoint, waiting->map, PEERS_BOUND_MS,
                                      &waiting->message);
    return NULL;
}

/* A thread that waits for a message waits on. */
static void check_receives(tmsg_map_t *map)
{
    static waiting_t waiting;
    pthread_t thread;
    tmsg_request_t *sent;

    waiting = (waiting_t){.restarted = {.resume_ms = -1}, .map = map};
    restarted_open(&waiting.restarted, DRIVE_THREAD);
    pthread_create(&thread, NULL, wait_for_a_message, &waiting);
    for (int i = 0; i < 2; i++) {
        restarted_stop(&waiting.restarted);
        restarted_start(&waiting.restarted);
        restarted_await_new(&waiting.restarted);
        waiting.restarted.told.count = 0;
    }
    sent = send_map(waiting.restarted.server.accepted, sample_bytes(9, 1000),
                    TMSG_SEND_ACKED);
    must(restarted_finish(&waiting.restarted, sent));
    pthread_join(thread, NULL);
    must(waiting.status);
    sample_check_bytes(9, 1000, tmsg_message_map(waiting.message));
    tmsg_message_destroy(waiting.message);
    restarted_close(&waiting.restarted);
}

Test(restart_ends, no_receive) { check_receives(NULL); }

Test(restart_ends, no_receive_into_a_map)
{
    tmsg_map_t *map = sample_bytes(1, 1000);

    check_receives(map);
    tmsg_map_destroy(map);
}

static bool has_blocked(void *arg)
{
    char *json;
    bool blocked;

    must(tmsg_endpoint_describe(arg, &json));
    blocked = strstr(json, "\"blocked\":\t1") != NULL;
    tmsg_string_free(json);
    return blocked;
}

/* It ends when the handle is given back. */
Test(restart_ends, a_receive_if_the_handle_goes)
{
    static waiting_t waiting = {.restarted = {.resume_ms = -1}};
    restarted_t *restarted = &waiting.restarted;
    const struct timespec pause = {.tv_nsec = 20000000};
    tmsg_message_t *held;
    pthread_t thread;

    restarted_open(restarted, DRIVE_THREAD);
    restarted_stop(restarted);
    restarted_start(restarted);
    restarted_await_new(restarted);
    must(restarted_finish(restarted, send_map(restarted->server.accepted,
                                              sample_bytes(1, 100), 0)));
    /* It keeps the endpoint, should the thread come late. */
    held = side_take(&restarted->client);
    pthread_create(&thread, NULL, wait_for_a_message, &waiting);
    nanosleep(&pause, NULL);
    tmsg_endpoint_destroy(restarted->endpoint);
    pthread_join(thread, NULL);
    restarted->endpoint = NULL;
    must_be(waiting.status, TMSG_ERR_CANCELED);
    tmsg_message_destroy(held);
    restarted_close(restarted);
}

static void *send_one(void *arg)
{
    waiting_t *waiting = arg;

    waiting->status = tmsg_endpoint_send(waiting->restarted.endpoint,
                                         waiting->map, NULL, NULL);
    return NULL;
}

/* Nor one that waits for room in the queue. */
Test(restart_ends, no_send_that_waits_for_room)
{
    static waiting_t waiting = {.restarted = {.resume_ms = -1}};
    const tmsg_queue_params_t queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                     TMSG_QUEUE_PARAM_POLICY,
                                       .messages = 1,
                                       .policy = TMSG_QUEUE_BLOCK};
    restarted_t *restarted = &waiting.restarted;
    tmsg_request_t *sent;
    pthread_t thread;

    restarted_open(restarted, DRIVE_THREAD);
    must(tmsg_endpoint_set_queue(restarted->endpoint, &queue));
    restarted_stop(restarted);
    restarted_await_loss(restarted);
    sent = send_map(restarted->endpoint, sample_bytes(1, 1000), 0);
    waiting.map = sample_bytes(2, 1000);
    pthread_create(&thread, NULL, send_one, &waiting);
    restarted_await(restarted, has_blocked, restarted->endpoint,
                    "a full queue");
    restarted_start(restarted);
    restarted_await_new(restarted);
    restarted_take(restarted, restarted->server.accepted, 1);
    restarted_take(restarted, restarted->server.accepted, 2);
    pthread_join(thread, NULL);
    must(waiting.status);
    must(restarted_finish(restarted, sent));
    tmsg_map_destroy(waiting.map);
    restarted_close(restarted);
}

typedef struct {
    restarted_t *restarted;
    unsigned left;
} steps_t;

static bool has_made_steps(void *arg) { return ((steps_t *)arg)->left-- == 0; }

/* It may be let go of, or closed, at any moment of a restart. */
static void check_moments(link_t link, int32_t resume_ms, bool close)
{
    const unsigned moments = whole_run() ? 60 : is_slow() ? 4 : 6;

    for (unsigned i = 0; i < moments; i++) {
        restarted_t restarted = {.link = link, .resume_ms = resume_ms};
        steps_t steps = {&restarted, i / 2 * (240 / moments)};
        tmsg_request_t *sent[2], *closed = NULL;
        tmsg_status_t status;

        restarted_open(&restarted, DRIVE_POLLING);
        sent[0] = send_map(restarted.endpoint, sample_bytes(1, 300000),
                           TMSG_SEND_ACKED);
        restarted_stop(&restarted);
        sent[1] = send_map(restarted.endpoint, sample_bytes(2, 100), 0);
        if (i % 2) {
            restarted_await_loss(&restarted);
        }
        restarted_start(&restarted);
        restarted_await(&restarted, has_made_steps, &steps, "some steps");
        if (close) {
            must(tmsg_endpoint_close(restarted.endpoint, &closed));
            status = restarted_finish(&restarted, closed);
            must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
        } else {
            tmsg_endpoint_destroy(restarted.endpoint);
            restarted.endpoint = NULL;
        }
        for (int k = 0; k < 2; k++) {
            status = restarted_finish(&restarted, sent[k]);
            must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST ||
                      status == TMSG_ERR_CANCELED);
        }
        restarted_close(&restarted);
    }
}

Test(restart_ends, destroyed_at_any_moment_tcp)
{
    check_moments(LINK_TCP, -1, false);
}
Test(restart_ends, destroyed_at_any_moment_unix)
{
    check_moments(LINK_UNIX, 0, false);
}
Test(restart_ends, closed_at_any_moment) { check_moments(LINK_SHM, -1, true); }

static long worker_figure(tmsg_worker_t *worker, const char *name)
{
    char *json, key[64];
    const char *at;
    long value;

    snprintf(key, sizeof(key), "\"%s\":", name);
    must(tmsg_worker_describe(worker, &json));
    at = strstr(json, key);
    must_true(at != NULL);
    value = strtol(at + strlen(key), NULL, 10);
    tmsg_string_free(json);
    return value;
}

/* The endpoints whose place others take are freed. */
Test(restart_ends, leave_nothing)
{
    restarted_t restarted = {.resume_ms = -1};

    restarted_open(&restarted, DRIVE_POLLING);
    for (int i = 0; i < 5; i++) {
        restarted.told.count = 0;
        restarted_stop(&restarted);
        restarted_start(&restarted);
        restarted_await_new(&restarted);
        restarted_exchange(&restarted, 1);
    }
    must_eq(worker_figure(restarted.client.worker, "open_endpoints"), 1);
    must_eq(worker_figure(restarted.client.worker, "connecting_endpoints"), 0);
    must_eq(described(restarted.endpoint, "sessions"), 6);
    restarted_close(&restarted);
}
