/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer whose process is killed in the midst of large messages, and started
 * again: those that it had not confirmed end, and the next ones get through. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { SERVERS = 3, SENDS = 6, BYTES = 1 << 20 };

/* Waits for a URL, listens there, and sends back what comes. */
static void serve(pipes_t *pipes, void *arg)
{
    const side_options_t options = {.ucx_config = arg};
    char url[256];
    side_t side = {0};

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    joined_listen(&side, url, -1);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    for (;;) {
        tmsg_message_t *message = side_take(&side);

        must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                                tmsg_message_map(message), NULL, NULL));
        tmsg_message_destroy(message);
    }
}

typedef struct {
    side_t side;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent[SENDS];
    atomic_uint news;
} client_t;

static void on_session(void *arg, tmsg_endpoint_t *endpoint,
                       tmsg_session_event_t event, const char *words)
{
    client_t *client = arg;

    must_true(endpoint == client->endpoint && words[0] != '\0');
    client->news += event == TMSG_SESSION_NEW;
}

static void dial(client_t *client, const char *url)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT,
        .reconnect = {.first_backoff_ms = 1, .most_backoff_ms = 20}};

    must(tmsg_endpoint_connect(client->side.worker, url, &params,
                               &client->endpoint));
    tmsg_endpoint_on_session(client->endpoint, on_session, client);
}

/* The next message is the one of that seed; others are of a session before. */
static void take_one(client_t *client, uint64_t seed)
{
    int64_t got;

    do {
        tmsg_message_t *message = side_take(&client->side);

        must_true(tmsg_message_endpoint(message) == client->endpoint);
        must(tmsg_map_get_i64(tmsg_message_map(message), TMSG_META_SEQUENCE,
                              &got));
        sample_check_bytes((uint64_t)got, BYTES, tmsg_message_map(message));
        tmsg_message_destroy(message);
    } while (got != (int64_t)seed);
}

static bool has_news(void *arg) { return ((client_t *)arg)->news > 0; }

static void finish_all(client_t *client)
{
    for (int i = 0; i < SENDS; i++) {
        tmsg_status_t status = side_finish(&client->side, client->sent[i]);

        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
    }
}

static void check_killed(link_t link, drive_t drive)
{
    char url[256] = "tcp://127.0.0.1:0";
    const char *of_link = link_config(link);
    child_t children[SERVERS];
    client_t client = {0};
    side_options_t options = {.drive = drive, .ucx_config = of_link};

    if (link == LINK_UNIX) {
        snprintf(url, sizeof(url), "unix://%s", scratch_path("killed"));
    }
    for (int i = 0; i < SERVERS; i++) {
        child_start(&children[i], serve, (void *)(uintptr_t)of_link);
    }
    side_open(&client.side, &options);
    for (int i = 0; i < SERVERS; i++) {
        uint64_t seed = (uint64_t)(10 * i);

        line_put(children[i].out, url);
        line_get(children[i].in, url, sizeof(url));
        if (i == 0) {
            dial(&client, url);
        } else {
            side_await(&client.side, has_news, &client, "a new session");
            finish_all(&client);
            client.news = 0;
        }
        must(side_finish(&client.side, send_map(client.endpoint,
                                                sample_bytes(seed, BYTES), 0)));
        take_one(&client, seed);
        for (int k = 0; k < SENDS; k++) {
            client.sent[k] = send_map(
                client.endpoint, sample_bytes(seed + 1 + (uint64_t)k, BYTES),
                TMSG_SEND_ACKED);
        }
        take_one(&client, seed + 1);
        child_kill(&children[i]);
    }
    tmsg_endpoint_destroy(client.endpoint);
    for (int k = 0; k < SENDS; k++) {
        (void)side_finish(&client.side, client.sent[k]);
    }
    side_close(&client.side);
}

Test(restart_killed, tcp) { check_killed(LINK_TCP, DRIVE_POLLING); }
Test(restart_killed, shm) { check_killed(LINK_SHM, DRIVE_FD); }
Test(restart_killed, unix) { check_killed(LINK_UNIX, DRIVE_THREAD); }
