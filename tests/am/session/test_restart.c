/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that is restarted: the endpoint begins a new session with the process
 * that comes after it, behind the same handle. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define TOLD_MOST 16

/* What on_session has told. */
typedef struct {
    tmsg_endpoint_t *endpoint;
    _Atomic unsigned count;
    tmsg_session_event_t events[TOLD_MOST];
    char words[TOLD_MOST][512];
    _Atomic unsigned ends; /* calls of on_closed */
    tmsg_status_t status;
    char error[512];
} told_t;

typedef struct {
    side_t server, client;
    side_t *sides[2];
    link_t link;
    int32_t resume_ms; /* of the listener; 0: it keeps no session */
    char url[256];
    tmsg_reconnect_t reconnect;
    uint32_t flags;
    side_options_t options;
    tmsg_endpoint_t *endpoint; /* the client's */
    told_t told;
} restart_t;

static void on_session(void *arg, tmsg_endpoint_t *endpoint,
                       tmsg_session_event_t event, const char *words)
{
    told_t *told = arg;

    must_true(endpoint == told->endpoint);
    must_true(told->count < TOLD_MOST);
    told->events[told->count] = event;
    snprintf(told->words[told->count], sizeof(told->words[0]), "%s", words);
    told->count++;
}

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    told_t *told = arg;

    must_true(endpoint == told->endpoint);
    told->status = status;
    snprintf(told->error, sizeof(told->error), "%s", error);
    told->ends++;
}

static void server_open(restart_t *restart)
{
    side_open(&restart->server, &restart->options);
    if (restart->resume_ms == 0) {
        side_listen(&restart->server, restart->url);
    } else {
        joined_listen(&restart->server, restart->url, restart->resume_ms);
    }
    snprintf(restart->url, sizeof(restart->url), "%s",
             tmsg_listener_url(restart->server.listener));
}

/* As if its process had ended. */
static void server_close(restart_t *restart)
{
    side_close(&restart->server);
    memset(&restart->server, 0, sizeof(restart->server));
}

static void dial(restart_t *restart)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = restart->reconnect,
        .flags = restart->flags};

    must(tmsg_endpoint_connect(restart->client.worker, restart->url, &params,
                               &restart->endpoint));
    restart->told = (told_t){.endpoint = restart->endpoint};
    tmsg_endpoint_on_session(restart->endpoint, on_session, &restart->told);
    tmsg_endpoint_on_closed(restart->endpoint, on_closed, &restart->told);
}

static bool is_open(void *arg) { return tmsg_endpoint_status(arg) == TMSG_OK; }

static bool has_met(void *arg)
{
    restart_t *restart = arg;

    return is_open(restart->endpoint) && restart->server.accepts > 0;
}

/* It has met a server once more, and the application knows. */
static bool has_met_anew(void *arg)
{
    const restart_t *restart = arg;

    return has_met(arg) && restart->told.count > 0 &&
           restart->told.events[restart->told.count - 1] == TMSG_SESSION_NEW;
}

static void await_both(restart_t *restart, done_fn done, void *arg,
                       const char *what)
{
    await(restart->sides, restart->server.worker == NULL ? 1 : 2, done, arg,
          what);
}

static void restart_open(restart_t *restart, link_t link, drive_t drive)
{
    restart->link = link;
    restart->options.drive = drive;
    restart->options.ucx_config = link_config(link);
    restart->sides[0] = &restart->client;
    restart->sides[1] = &restart->server;
    snprintf(restart->url, sizeof(restart->url), "%s",
             link == LINK_UNIX ? "unix://" : "tcp://127.0.0.1:0");
    if (link == LINK_UNIX) {
        snprintf(restart->url, sizeof(restart->url), "unix://%s",
                 scratch_path("restarted"));
    }
    if (restart->reconnect.first_backoff_ms == 0) {
        restart->reconnect.first_backoff_ms = 1;
        restart->reconnect.most_backoff_ms = 20;
    }
    server_open(restart);
    side_open(&restart->client, &restart->options);
    dial(restart);
    await_both(restart, has_met, restart, "a connection");
}

static void restart_close(restart_t *restart)
{
    tmsg_endpoint_destroy(restart->endpoint);
    side_close(&restart->client);
    if (restart->server.worker != NULL) {
        side_close(&restart->server);
    }
}

typedef struct {
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
} pull_t;

static bool has_pulled(void *arg)
{
    pull_t *pull = arg;

    return tmsg_endpoint_recv(pull->endpoint, 0, &pull->message) == TMSG_OK;
}

static void take(restart_t *restart, tmsg_endpoint_t *endpoint, uint64_t seed)
{
    pull_t pull = {.endpoint = endpoint};

    await_both(restart, has_pulled, &pull, "a message");
    must_true(tmsg_message_endpoint(pull.message) == endpoint);
    sample_check_bytes(seed, 1000, tmsg_message_map(pull.message));
    tmsg_message_destroy(pull.message);
}

static bool has_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

static tmsg_status_t finish(restart_t *restart, tmsg_request_t *request)
{
    tmsg_status_t status;

    await_both(restart, has_ended, request, "a request");
    status = tmsg_request_wait(request, 0);
    tmsg_request_destroy(request);
    return status;
}

/* A message each way. */
static void exchange(restart_t *restart, uint64_t seed)
{
    tmsg_request_t *there, *back;

    there =
        send_map(restart->endpoint, sample_bytes(seed, 1000), TMSG_SEND_ACKED);
    take(restart, restart->server.accepted, seed);
    must(finish(restart, there));
    back = send_map(restart->server.accepted, sample_bytes(seed + 1, 1000),
                    TMSG_SEND_ACKED);
    take(restart, restart->endpoint, seed + 1);
    must(finish(restart, back));
}

static void check_goes_on(link_t link, drive_t drive, int32_t resume_ms)
{
    restart_t restart = {.resume_ms = resume_ms};
    tmsg_request_t *ready;

    restart_open(&restart, link, drive);
    exchange(&restart, 1);
    for (unsigned i = 0; i < 3; i++) {
        server_close(&restart);
        await_both(&restart, joined_is_away, restart.endpoint, "the break");
        must_say(tmsg_endpoint_error(restart.endpoint), "reconnecting");
        must(tmsg_endpoint_ready(restart.endpoint, &ready));
        server_open(&restart);
        must(finish(&restart, ready));
        await_both(&restart, has_met_anew, &restart, "the new connection");
        must_eq(restart.told.count, 2 * i + 2);
        must_eq(restart.told.events[2 * i], TMSG_SESSION_AWAY);
        must_eq(restart.told.events[2 * i + 1], TMSG_SESSION_NEW);
        must_say(restart.told.words[2 * i + 1], "a new session with pid ");
        must_eq(described(restart.endpoint, "sessions"), i + 2);
        exchange(&restart, 10 * i + 3);
        must_say(tmsg_endpoint_peer(restart.endpoint), "(pid ");
    }
    must_eq(restart.told.ends, 0);
    restart_close(&restart);
}

Test(restart, goes_on_tcp) { check_goes_on(LINK_TCP, DRIVE_POLLING, -1); }
Test(restart, goes_on_shm) { check_goes_on(LINK_SHM, DRIVE_FD, -1); }
Test(restart, goes_on_unix) { check_goes_on(LINK_UNIX, DRIVE_THREAD, -1); }
Test(restart, goes_on_without_sessions_tcp)
{
    check_goes_on(LINK_TCP, DRIVE_THREAD, 0);
}
Test(restart, goes_on_without_sessions_unix)
{
    check_goes_on(LINK_UNIX, DRIVE_POLLING, 0);
}
