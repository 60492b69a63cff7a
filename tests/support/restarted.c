/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/restarted.h"

#include <stdio.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

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

void restarted_start(restarted_t *restarted)
{
    side_open(&restarted->server, &restarted->server_options);
    if (restarted->resume_ms == 0) {
        side_listen(&restarted->server, restarted->url);
    } else {
        joined_listen(&restarted->server, restarted->url, restarted->resume_ms);
    }
    snprintf(restarted->url, sizeof(restarted->url), "%s",
             tmsg_listener_url(restarted->server.listener));
    if (restarted->serve != NULL) {
        restarted->serve(restarted);
    }
    if (restarted->relay != NULL) {
        relay_shut(restarted->relay, false);
    }
}

/* Nobody is told anything more, as if the process had been killed. */
static void end_server(restarted_t *restarted)
{
    tmsg_endpoint_destroy(restarted->server.accepted);
    restarted->server.accepted = NULL;
    if (restarted->leave != NULL) {
        restarted->leave(restarted);
    }
    side_close(&restarted->server);
    memset(&restarted->server, 0, sizeof(restarted->server));
}

void restarted_stop(restarted_t *restarted)
{
    if (restarted->relay != NULL) {
        relay_shut(restarted->relay, true);
        restarted_await_loss(restarted);
    }
    end_server(restarted);
}

static void dial(restarted_t *restarted)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT |
                      TMSG_ENDPOINT_PARAM_FLAGS | TMSG_ENDPOINT_PARAM_SUBSCRIBE,
        .reconnect = restarted->reconnect,
        .subscribe = restarted->subscribe,
        .flags = restarted->flags};

    if (restarted->abrupt) {
        restarted->relay = relay_open(restarted->url);
    }
    must(tmsg_endpoint_connect(
        restarted->client.worker,
        restarted->relay == NULL ? restarted->url : relay_url(restarted->relay),
        &params, &restarted->endpoint));
    restarted->told = (told_t){.endpoint = restarted->endpoint};
    tmsg_endpoint_on_session(restarted->endpoint, on_session, &restarted->told);
    tmsg_endpoint_on_closed(restarted->endpoint, on_closed, &restarted->told);
}

static bool has_met(void *arg)
{
    restarted_t *restarted = arg;

    return tmsg_endpoint_status(restarted->endpoint) == TMSG_OK &&
           restarted->server.accepts > 0;
}

static bool has_met_anew(void *arg)
{
    const restarted_t *restarted = arg;

    return has_met(arg) && restarted->told.count > 0 &&
           restarted->told.events[restarted->told.count - 1] ==
               TMSG_SESSION_NEW;
}

void restarted_await(restarted_t *restarted, done_fn done, void *arg,
                     const char *what)
{
    await(restarted->sides, restarted->server.worker == NULL ? 1 : 2, done, arg,
          what);
}

void restarted_open(restarted_t *restarted, drive_t drive)
{
    link_t link = restarted->link;

    restarted->client_options.drive = drive;
    restarted->server_options.drive = drive;
    restarted->client_options.ucx_config = link_config(link);
    restarted->server_options.ucx_config = link_config(link);
    restarted->sides[0] = &restarted->client;
    restarted->sides[1] = &restarted->server;
    if (link == LINK_UNIX) {
        snprintf(restarted->url, sizeof(restarted->url), "unix://%s",
                 scratch_path("restarted"));
    } else {
        snprintf(restarted->url, sizeof(restarted->url), "tcp://127.0.0.1:0");
    }
    if (restarted->reconnect.first_backoff_ms == 0) {
        restarted->reconnect.first_backoff_ms = 1;
        restarted->reconnect.most_backoff_ms = 20;
    }
    restarted_start(restarted);
    side_open(&restarted->client, &restarted->client_options);
    dial(restarted);
    restarted_await(restarted, has_met, restarted, "a connection");
}

void restarted_close(restarted_t *restarted)
{
    tmsg_endpoint_destroy(restarted->endpoint);
    side_close(&restarted->client);
    if (restarted->server.worker != NULL) {
        end_server(restarted);
    }
    if (restarted->relay != NULL) {
        relay_close(restarted->relay);
    }
}

void restarted_await_loss(restarted_t *restarted)
{
    restarted_await(restarted, joined_is_away, restarted->endpoint,
                    "the loss of the server");
}

void restarted_await_new(restarted_t *restarted)
{
    restarted_await(restarted, has_met_anew, restarted, "a new session");
}

static bool has_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

tmsg_status_t restarted_finish(restarted_t *restarted, tmsg_request_t *request)
{
    tmsg_status_t status;

    restarted_await(restarted, has_ended, request, "a request");
    status = tmsg_request_wait(request, 0);
    tmsg_request_destroy(request);
    return status;
}

static bool call_has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

tmsg_status_t restarted_call_end(restarted_t *restarted, tmsg_call_t *call)
{
    restarted_await(restarted, call_has_ended, call, "a call");
    return tmsg_call_status(call);
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

void restarted_take(restarted_t *restarted, tmsg_endpoint_t *endpoint,
                    uint64_t seed)
{
    pull_t pull = {.endpoint = endpoint};

    restarted_await(restarted, has_pulled, &pull, "a message");
    must_true(tmsg_message_endpoint(pull.message) == endpoint);
    sample_check_bytes(seed, 1000, tmsg_message_map(pull.message));
    tmsg_message_destroy(pull.message);
}

void restarted_exchange(restarted_t *restarted, uint64_t seed)
{
    tmsg_request_t *there, *back;

    there = send_map(restarted->endpoint, sample_bytes(seed, 1000),
                     TMSG_SEND_ACKED);
    restarted_take(restarted, restarted->server.accepted, seed);
    must(restarted_finish(restarted, there));
    back = send_map(restarted->server.accepted, sample_bytes(seed + 1, 1000),
                    TMSG_SEND_ACKED);
    restarted_take(restarted, restarted->endpoint, seed + 1);
    must(restarted_finish(restarted, back));
}
