/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A process that runs out of descriptors while a session of its is away: the
 * session comes back when there are some again, and loses nothing. One side
 * runs out, here; the other, and what breaks the connection, are in a child.
 * Over TCP some are left: who has none when the last connection of a UCX worker
 * ends is aborted by UCX (docs/how-to/nothing-arrives.md). */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/few_descriptors.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { LEFT_BY_TCP = 4, SMALL = 100, LARGE = 3 << 20, AWAY_MS = 60 };

/* Too few for a socket, for a connection, for a UCX worker; enough. */
static const unsigned some[] = {0, 1, 2, 3, 4, 6, 9, 38, 40, 42, 44, 48};

static const tmsg_reconnect_t soon = {1, 20, -1};
/* Every other one is large. */
static size_t size_of(uint64_t i) { return i % 2 == 0 ? SMALL : LARGE; }

/* The messages of the other side, each once and in order. */
static void take(void *arg, tmsg_message_t *message)
{
    uint64_t *taken = arg;

    sample_check_bytes(*taken, size_of(*taken), tmsg_message_map(message));
    tmsg_message_destroy(message);
    ++*taken;
}

static side_options_t taking(uint64_t *taken, link_t link, drive_t drive)
{
    return (side_options_t){.drive = drive,
                            .ucx_config = link_config(link),
                            .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                                       .handler = take,
                                       .handler_arg = taken}};
}

static const char *place(link_t link)
{
    static char url[256];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("spare"));
    return link == LINK_UNIX ? url : "tcp://127.0.0.1:0";
}

/* Cuts whenever it is told to. */
static void cut_for_ever(pipes_t *pipes, relay_t *relay)
{
    char line[16];

    for (line_get(pipes->in, line, sizeof(line)); strcmp(line, "end") != 0;
         line_get(pipes->in, line, sizeof(line))) {
        relay_cut(relay);
        line_put(pipes->out, "cut");
    }
}

static void listen_for_ever(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    uint64_t taken = 0;
    side_options_t options = taking(&taken, *link, DRIVE_THREAD);
    relay_t *relay;
    char count[32];
    side_t side;

    side_open(&side, &options);
    joined_listen(&side, place(*link), -1);
    relay = relay_open(tmsg_listener_url(side.listener));
    line_put(pipes->out, relay_url(relay));
    cut_for_ever(pipes, relay);
    side_close(&side);
    relay_close(relay);
    snprintf(count, sizeof(count), "%llu", (unsigned long long)taken);
    line_put(pipes->out, count);
}

static void dial_for_ever(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    uint64_t taken = 0;
    side_options_t options = taking(&taken, *link, DRIVE_THREAD);
    tmsg_endpoint_t *endpoint;
    relay_t *relay;
    char line[256];
    side_t side;

    line_get(pipes->in, line, sizeof(line));
    relay = relay_open(line);
    side_open(&side, &options);
    endpoint = joined_dial(&side, relay_url(relay), soon);
    cut_for_ever(pipes, relay);
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
    relay_close(relay);
    snprintf(line, sizeof(line), "%llu", (unsigned long long)taken);
    line_put(pipes->out, line);
}

static void drive(side_t *side, int ms)
{
    for (int i = 0; i < ms; i++) {
        tmsg_worker_progress(side->worker);
        poll(NULL, 0, 1);
    }
}

typedef struct {
    tmsg_endpoint_t *endpoint;
    long before;
} returns_t;

static bool is_back(void *arg)
{
    const returns_t *returns = arg;

    return tmsg_endpoint_status(returns->endpoint) == TMSG_OK &&
           described(returns->endpoint, "reconnected") > returns->before;
}

/* It is cut, with so few left, while two messages are sent. */
static void cut(side_t *side, child_t *child, tmsg_endpoint_t *endpoint,
                unsigned left, uint64_t *sent)
{
    returns_t returns = {endpoint, described(endpoint, "reconnected")};
    tmsg_request_t *requests[2];
    char line[16];

    spare_leave(left);
    line_put(child->out, "cut");
    for (unsigned i = 0; i < 2; i++, ++*sent) {
        requests[i] = send_map(endpoint, sample_bytes(*sent, size_of(*sent)),
                               TMSG_SEND_ACKED);
    }
    line_get(child->in, line, sizeof(line));
    drive(side, AWAY_MS);
    spare_leave_all();
    must(side_finish(side, requests[0]));
    must(side_finish(side, requests[1]));
    side_await(side, is_back, &returns, "the connection to be back");
}

static unsigned least(link_t link)
{
    return link == LINK_TCP ? LEFT_BY_TCP : 0;
}

static void cut_with_few(side_t *side, child_t *child,
                         tmsg_endpoint_t *endpoint, unsigned least)
{
    uint64_t sent = 0;
    char line[32];

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        if (some[i] >= least) {
            cut(side, child, endpoint, some[i], &sent);
        }
    }
    line_put(child->out, "end");
    line_get(child->in, line, sizeof(line));
    must_eq(strtoull(line, NULL, 10), sent);
}

static void dials(link_t link)
{
    const side_options_t options = {.ucx_config = link_config(link)};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    child_t child;
    char url[256];
    side_t side;

    child_start(&child, listen_for_ever, &link);
    line_get(child.in, url, sizeof(url));
    side_open(&side, &options);
    endpoint = joined_dial(&side, url, soon);
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(&side, ready));
    cut_with_few(&side, &child, endpoint, least(link));
    side_close(&side);
    child_join(&child);
}

static void listens(link_t link)
{
    const side_options_t options = {.ucx_config = link_config(link)};
    child_t child;
    side_t side;

    child_start(&child, dial_for_ever, &link);
    side_open(&side, &options);
    joined_listen(&side, place(link), -1);
    line_put(child.out, tmsg_listener_url(side.listener));
    cut_with_few(&side, &child, side_accept(&side), least(link));
    side_close(&side);
    child_join(&child);
}

Test(session_descriptors, that_run_out_where_it_dials_tcp) { dials(LINK_TCP); }
Test(session_descriptors, that_run_out_where_it_dials_shm) { dials(LINK_SHM); }
Test(session_descriptors, that_run_out_where_it_dials_unix)
{
    dials(LINK_UNIX);
}
Test(session_descriptors, that_run_out_where_it_listens_tcp)
{
    listens(LINK_TCP);
}
Test(session_descriptors, that_run_out_where_it_listens_shm)
{
    listens(LINK_SHM);
}
Test(session_descriptors, that_run_out_where_it_listens_unix)
{
    listens(LINK_UNIX);
}
