/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer is killed after it sent its UCX address and before this side uses it:
 * its shared memory is gone before this side hears the end of its socket, if it
 * hears it at all. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/connect/link.h"
#include "am/endpoint/endpoint.h"
#include "support/breaking_relay.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

/* A child that tells where it listens, and waits to be killed. */
static void victim(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, *link);
    if (*link == LINK_BLOB) {
        blob_put(pipes->out, side.listener);
    } else {
        line_put(pipes->out, tmsg_listener_url(side.listener));
    }
    for (;;) {
        tmsg_worker_wait(side.worker, 1000);
    }
}

/* A hello and an address, which is all that the victim says before it hears a
 * connect request. They are left in the socket. */
static bool has_answered(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;
    raw_reader_t reader;
    ssize_t got =
        recv(endpoint->link.fd, reader.data, sizeof(reader.data), MSG_PEEK);

    reader.bytes = got < 0 ? 0 : (size_t)got;
    return raw_find_frame(&reader, TMSG_FRAME_ADDRESS, 0) != NULL;
}

/* Drives until this side's hello is on its way, and no further. */
static void dial(side_t *side, const char *url, tmsg_endpoint_t **endpoint_p)
{
    must(tmsg_endpoint_connect(side->worker, url, NULL, endpoint_p));
    while (!(*endpoint_p)->link.connected) {
        must_true(!tmsg_endpoint_is_down(*endpoint_p));
        tmsg_worker_progress(side->worker);
    }
    await(NULL, 0, has_answered, *endpoint_p, "an address");
}

/* When the shared memory is gone, UCX 1.22 turns to TCP, and may hear of a
 * closed port before the socket tells more. */
static bool has_turned_to_tcp(link_t link, const tmsg_endpoint_t *endpoint)
{
    const char *words = tmsg_endpoint_error(endpoint);

    return link != LINK_UNIX &&
           tmsg_endpoint_status(endpoint) == TMSG_ERR_PEER_LOST &&
           strstr(words, "Endpoint timeout") != NULL;
}

static void expect_end(side_t *side, link_t link, tmsg_endpoint_t *endpoint,
                       tmsg_request_t *sent, tmsg_status_t wanted,
                       const char *words)
{
    tmsg_status_t status = side_end_of(side, endpoint);

    if (!has_turned_to_tcp(link, endpoint)) {
        must_be(status, wanted);
        must_say(tmsg_endpoint_error(endpoint), words);
    }
    must_be(side_finish(side, sent), status);
    tmsg_endpoint_destroy(endpoint);
}

/* `relayed`: a relay stays alive and does not pass the end of the socket on. */
static void run(link_t link, bool relayed)
{
    tmsg_endpoint_t *endpoint;
    relay_t *relay = NULL;
    tmsg_request_t *sent;
    char url[256];
    child_t child;
    side_t side;

    child_start(&child, victim, &link);
    line_get(child.in, url, sizeof(url));
    side_open(&side, NULL);
    if (relayed) {
        relay = relay_open(url);
    }
    dial(&side, relayed ? relay_url(relay) : url, &endpoint);
    sent = send_map(endpoint, sample_bytes(1, 100), 0);
    if (relayed) {
        relay_hold(relay);
    }
    child_kill(&child);
    expect_end(&side, link, endpoint, sent,
               relayed ? TMSG_ERR_UNREACHABLE : TMSG_ERR_PEER_LOST,
               relayed ? "has ended" : "connection broke");
    if (relayed) {
        relay_let_go(relay);
        relay_close(relay);
    }
    side_close(&side);
}

Test(just_gone, is_lost_where_its_socket_says_so_unix) { run(LINK_UNIX, 0); }
Test(just_gone, is_lost_where_its_socket_says_so_shm) { run(LINK_SHM, 0); }
Test(just_gone, is_out_of_reach_where_it_does_not_unix) { run(LINK_UNIX, 1); }
Test(just_gone, is_out_of_reach_where_it_does_not_shm) { run(LINK_SHM, 1); }

/* By blob there is no socket. */
Test(just_gone, a_blob_outlives_its_process)
{
    link_t link = LINK_BLOB;
    tmsg_endpoint_t *endpoint = NULL;
    tmsg_status_t status;
    uint8_t blob[8192];
    char line[16];
    size_t bytes;
    child_t child;
    side_t side;

    child_start(&child, victim, &link);
    line_get(child.in, line, sizeof(line));
    bytes = strtoul(line, NULL, 10);
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(child.in, blob + got, bytes - got);

        must_true(n > 0);
        got += (size_t)n;
    }
    child_kill(&child);
    side_open(&side, NULL);
    status =
        tmsg_endpoint_connect_blob(side.worker, blob, bytes, NULL, &endpoint);
    if (status == TMSG_OK) {
        (void)side_end_of(&side, endpoint);
        must_true(has_turned_to_tcp(link, endpoint));
        tmsg_endpoint_destroy(endpoint);
    } else {
        must_be(status, TMSG_ERR_UNREACHABLE);
        must_say(tmsg_error_message(), "has ended");
        must_true(endpoint == NULL);
    }
    side_close(&side);
}
